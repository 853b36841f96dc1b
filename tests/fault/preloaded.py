"""What forked processes begin with that takes longer than most of them run: LanceDB, and the
tables of an empty store."""

from palimpsest.stores.index import lance  # noqa: F401
from palimpsest.stores.shard import _empty_file

_empty_file("english")
