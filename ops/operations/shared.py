"""The fields that several operations have, under the names of the vocabulary."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, get_args

from palimpsest.ops.operations.operation import Doc, Pairs, Texts

_id: Final = functools.partial(Doc, lower=True, argument=True)
id_doc: Final = functools.partial(_id, min_length=1, max_length=64, metavar="ID")
ids_doc: Final = functools.partial(_id, item_length=64, split=True, metavar="ID…")
some_ids_doc: Final = functools.partial(Doc, item_length=64, split=True, lower=True)
text_doc: Final = functools.partial(Doc, min_length=1, max_length=100_000, not_blank=True)
words_doc: Final = functools.partial(Doc, max_length=50, item_length=256)
_space: Final = functools.partial(Doc, max_length=256, not_blank=True, option="--scope/-s")
"""Docs of an id, of several, and of several that are no argument; of a text, of labels, and of a
memory space."""

Scope = Annotated[str, _space("the memory space; by default the caller's only one, else `default`")]
"""Empty: the default scope of the surface."""
AnyScope = Annotated[
    str | None,
    _space("only this memory space; by default all that the caller sees", min_length=1),
]
ScopeOfId = Annotated[
    str | None,
    _space(
        "the memory space that it must be in; by default any that the caller sees", min_length=1
    ),
]
OwnScope = Annotated[
    str,
    Doc(
        "the memory space; by default the caller's only one, else `default`",
        max_length=256,
        not_blank=True,
        argument=True,
    ),
]
"""As Scope, an argument on the command line."""
NamedScope = Annotated[
    str,
    Doc("the memory space", min_length=1, max_length=256, not_blank=True, argument=True),
]
MemoryId = Annotated[str, id_doc("a memory's id, or its first 8 characters (whole over HTTP)")]
Reason = Annotated[str, Doc("reason; kept in the history", max_length=2_000)]
RequiredReason = Annotated[
    str, Doc("reason; kept in the history", min_length=1, max_length=2_000, not_blank=True)
]
IfVersion = Annotated[int | None, Doc("only if the memory is at this version", ge=1, le=2**62)]
Cursor = Annotated[str | None, Doc("the `next_cursor` of the previous page", max_length=512)]
NumberCursor = Annotated[int | None, Doc("the `next_cursor` of the previous page", ge=0, le=2**31)]
Timeout = Annotated[float, Doc("seconds to wait for its end; after that it goes on", ge=0, le=3600)]
Question = Annotated[str, text_doc("what to look for, in any words", argument=True)]
AskedAt = Annotated[
    datetime | None,
    Doc("when the query is made; its relative times count from here; by default now"),
]
MinScore = Annotated[
    float | None,
    Doc("minimum score of a result, from 0 to 1; by default as configured", ge=0, le=1),
]
Recorded = Annotated[
    bool,
    Doc(
        "record the question and reinforce what it returns; off for diagnostics",
        option="--record/--no-record",
    ),
]
Types = Annotated[
    Texts,
    words_doc("of any of these types, for example fact, preference, episodic (a turn)", split=True),
]
Tags = Annotated[Texts, words_doc("with any of these tags")]
Categories = Annotated[Texts, words_doc("of any of these categories", split=True)]
Roles = Annotated[
    Texts,
    Doc(
        "from speakers in any of these roles (user, assistant, tool, system)",
        max_length=4,
        item_length=256,
        split=True,
    ),
]
Who = Annotated[
    str | None, Doc("said by this person, or extracted from what they said", max_length=256)
]
MetadataFilter = Annotated[
    Pairs,
    Doc(
        "with all of these values of top-level metadata keys, as key=value",
        max_length=20,
        item_length=1_024,
        pairs=True,
        metavar="KEY=VALUE",
    ),
]
SessionId = Annotated[str | None, Doc("of this session", max_length=256)]
TimeWord = Literal["today", "yesterday", "last_week", "last_month"]
_WORDS: Final[frozenset[str]] = frozenset(get_args(TimeWord))


def time_of_word(text: str, now: datetime | None = None) -> datetime | None:
    """The time that a `TimeWord` stands for, as in a query: the beginning of today or yesterday, in
    UTC; 7 days before `now`, or a month. None for any other text."""
    word = text.strip().lower()
    if word not in _WORDS:
        return None
    from palimpsest.stores.recall.time_words import read_times

    return read_times(word, now or datetime.now(UTC)).since


Since = Annotated[
    datetime | None,
    Doc(
        "stated at this time or later: a time, or in UTC a date, today, yesterday, last_week or"
        " last_month"
    ),
]
Until = Annotated[datetime | None, Doc("stated before this time, given as `since` is")]
ValidAt = Annotated[datetime | None, Doc("omit what had ceased to be true by this time")]


Limit = Annotated[int, Doc("maximum number of results", ge=1, le=1_000)]
LongLimit = Annotated[int, Doc("maximum number of results", ge=1, le=10_000)]
