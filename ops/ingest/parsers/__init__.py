"""Chats and exports as utterances: a file a format, over the types in `base`."""

from typing import Literal, TypeAlias

DateOrder: TypeAlias = Literal["dmy", "mdy", "ymd"]
