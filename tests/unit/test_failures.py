"""What a failed validation says: nothing of Python, and each value once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.checking import checked
from palimpsest.ops.operations.operation import parameters
from palimpsest.ops.surfaces.catalogue import OPERATIONS
from palimpsest.schemas.failures import describe

HINTS = (
    *("pydantic", "dict", "None", "tuple", "Tuple", "instance of", "type=", "input_value", "list["),
    *(
        "factory",
        "str |",
        "function-",
        "Value error",
        "Assertion failed",
        "discriminator",
        "pattern",
    ),
)


class Cat(BaseModel, extra="forbid"):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]


class Home(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    rooms: tuple[int, ...] = Field(default=(), max_length=2)
    labels: str | list[str] | dict[str, int] = ""
    name: str = Field(default="x", pattern=r"\S", max_length=2_000)
    shown: str = Field(default_factory=lambda given: given["name"])
    since: datetime | int = 0
    cat: Cat | None = None
    code: str = Field(default="abc", min_length=3)
    title: str = Field(default="x", min_length=1)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"pet": {"kind": "cow"}}, "pet: kind should be one of 'cat', 'dog'"),
        ({"pet": {}}, "pet: kind is missing"),
        ({"pet": {"kind": "cat"}}, "pet.cat.lives: is missing"),
        ({"pet": 5}, "pet: Input should be a valid object"),
        ({"rooms": 5}, "rooms: Input should be a valid array"),
        ({"rooms": ["x"]}, "rooms.0: Input should be a whole number"),
        ({"rooms": [1.5]}, "rooms.0: Input should be a whole number"),
        ({"name": "x" * 2_001}, "name: Input should have at most 2,000 characters"),
        ({"cat": {"kind": "cat", "lives": 9, "Scope": "a"}}, "cat.Scope: there is no such field"),
        ({"cat": {"kind": "cat", "lives": 9, "str": "a"}}, "cat.str: there is no such field"),
        ({"rooms": [1, 2, 3]}, "rooms: Input should have at most 2 items"),
        (
            {"labels": 5},
            "labels: Input should be a valid string or a valid array or a valid object",
        ),
        ({"name": "  "}, "name: must not be blank"),
        ({"name": "\ud83d"}, "name: has half a surrogate pair"),
        ({"since": []}, "since: Input should be a valid datetime or a whole number"),
        ({"code": "x"}, "code: Input should have at least 3 characters"),
        ({"title": ""}, "title: must not be empty"),
        ({"rooms": [None]}, "rooms.0: Input should be a whole number"),
        ({"cat": []}, "cat: Input should be a valid object"),
        ([], "record: Input should be a valid object"),
    ],
)
def test_a_failure_is_told_in_the_terms_of_json(value: Any, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Home).validate_python(value)
    told = describe(refused.value)
    assert told.startswith(said)
    assert not [hint for hint in HINTS if hint in told]


def test_a_text_that_is_no_json_is_told_with_the_place() -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Home).validate_json(b"garbage")
    assert describe(refused.value).startswith("record: is no valid JSON: expected value at line 1")


WRONG: tuple[object, ...] = (
    *(5, 5.5, "soon", {}, {"a": 1}, [1], [None], [{}], [[1]], "\ud83d", True, "", -1, 1e400),
    *("2026-13-45", ["a"] * 3, object(), {"a": object()}, b"x"),
)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_no_operation_tells_of_python(name: str) -> None:
    kind = OPERATIONS[name]
    for each in parameters(kind):
        needed = {other.name: "x" for other in parameters(kind) if other.required}
        for value in WRONG:
            try:
                checked(kind, {**needed, each.name: value})
            except RequestError as error:
                told = str(error)
                assert not [hint for hint in HINTS if hint in told], (each.name, value, told)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("2024-05-25T10:00:00", "the time has no zone"),
        ("the day before", "is no time such as 2026-03-01T09:30:00Z"),
        ("2024-02-30", "is no time such as 2026-03-01T09:30:00Z: day value is outside"),
        ("", "is no time such as"),
        (5, "write the time as a text, for example 2026-03-01"),
        (True, "write the time as a text"),
        ("1716631200", "write the time as a text"),
    ],
)
def test_what_is_no_time_is_refused_with_an_example_of_one(value: object, said: str) -> None:
    with pytest.raises(RequestError, match=rf"^since: {said}"):
        checked(OPERATIONS["recall"], {"query": "x", "since": value})


def test_true_is_no_number() -> None:
    with pytest.raises(RequestError, match=r"^limit: Input should be a valid number"):
        checked(OPERATIONS["recall"], {"query": "x", "limit": True})
