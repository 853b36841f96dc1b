"""The glossary tells the truth: its words are in the code, those that it replaces are not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import pytest

from tests.source_modules import ROOT, Module, load, report, sources

PAGE = (ROOT / "ops" / "docs" / "glossary.md").read_text(encoding="utf-8")
USED = re.findall(r"^\| ([^|]+) \| [^|]+ \| `([^|`]+)` \|$", PAGE, re.MULTILINE)
"""(word, module)"""
NOT_USED = re.findall(r"^\| ([^|(]+?)(?: \([^|]+\))? \| ([^|]+) \|$", PAGE, re.MULTILINE)[2:]
"""(word, the word that is used)"""
FORMS = {"foresee": ("foreseen",), "lend": ("lent",), "story": ("stories",), "misplaced": ()}
"""Forms of a word that are not made by an ending."""
ENDINGS = ("", "s", "d", "ed", "ing")
WHERE = {"drop": ("dead_letters.py",), "part": ("stores/index/",)}
"""Where a word would have the sense that is meant, for those that have others elsewhere."""
ALPHABET = (
    "stores/database/analysis.py",
    "stores/recall/context.py",
    "stores/recall/time_grammar.py",
    "stores/writing/sources.py",
    "streams/models/hashing.py",
    "streams/models/wordpiece.py",
    "streams/prompting/json_text.py",
    "streams/sensitive/identifiers.py",
    "streams/text/linker.py",
    "tests/flows/test_languages.py",
    "tests/schema_values.py",
    "tests/unit/test_analysis.py",
    "tests/unit/test_glossary.py",
    "tests/unit/test_graph_persist.py",
    "tests/unit/test_late_interaction.py",
    "tests/unit/test_rules_statements.py",
)
ALLOWED = {
    **dict.fromkeys((("letter", path) for path in ALPHABET), "of an alphabet"),
    ("part", "stores/database/analysis.py"): "of a word",
    ("part", "stores/index/fulltext.py"): "of a transaction",
    ("part", "stores/index/lance.py"): "of what is added, in a sentence",
    ("drop", "ops/cli/dead_letters.py"): "the former name of `dead-letters discard`",
    ("drop", "tests/flows/test_dead_letters.py"): "the former name of `dead-letters discard`",
}
"""(word, file) to what it means there."""
ALLOWED_TEXTS = {
    "letter_id": "the column of a stored table",
    "`dropped`": "what a discarded dead letter is called in the stores (decision 35)",
}
COMMENT = re.compile(r"(?:^\s*|  )#.*")
"""As the formatter leaves it; a text that has one inside is read like one."""
ALLOWED_TEXT = re.compile("|".join(ALLOWED_TEXTS))


@dataclass(frozen=True)
class Said:
    """The names of a file and its sentences (docstrings and comments), each with its first line."""

    path: str
    names: tuple[tuple[str, int], ...]
    sentences: tuple[tuple[str, int], ...]

    @cached_property
    def spaced(self) -> str:
        """A line a name or sentence: its words, without what is allowed."""
        texts = (text for text, _ in (*self.names, *self.sentences))
        return "\n".join(" ".join(words(ALLOWED_TEXT.sub("", text))) for text in texts)

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        return frozenset(self.spaced.split())

    def line(self, at: int) -> int:
        """Where in the file that stands which `spaced` has at a character."""
        return (*self.names, *self.sentences)[self.spaced.count("\n", 0, at)][1]


@cache
def words(text: str) -> tuple[str, ...]:
    """The words of a name or a sentence, in small letters."""
    return tuple(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text))


def said_in(module: Module) -> Said:
    names = dict(reversed([(module.path.stem, 1), *names_in(module)]))
    sentences = (*docstrings_in(module), *comments_in(module.text))
    return Said(module.path.relative_to(ROOT).as_posix(), (*names.items(),), sentences)


def names_in(module: Module) -> Iterator[tuple[str, int]]:
    for node in module.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Name):
            yield node.id, node.lineno


def docstrings_in(module: Module) -> Iterator[tuple[str, int]]:
    """Also those of attributes and constants."""
    for node in module.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value), node.lineno


def comments_in(source: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(source.splitlines(), 1):
        found = COMMENT.search(line)
        if found:
            yield found[0], number


def has(said: tuple[str, ...], sought: tuple[str, ...]) -> bool:
    """Whether the words stand in `said` one after another, in any form."""
    starts = range(len(said) - len(sought) + 1)
    return any(
        all(found.startswith(word) for found, word in zip(said[start:], sought, strict=False))
        for start in starts
    )


def test_a_word_is_found_where_the_glossary_says() -> None:
    said = {path: said_in(load(ROOT / path)) for _, path in USED}
    texts = {path: [*each.names, *each.sentences] for path, each in said.items()}
    assert not [
        (word, path)
        for word, path in USED
        if not any(has(words(text), words(word)) for text, _ in texts[path])
    ]


def misused(said: Said, word: str) -> Iterator[str]:
    """Where a file says the word in the sense in which it is not used."""
    if (word, said.path) in ALLOWED:
        return
    if not any(place in said.path for place in WHERE.get(word, ("",))):
        return
    forms = [*(word + ending for ending in ENDINGS), *FORMS.get(word, ())]
    if said.vocabulary.isdisjoint(form.partition(" ")[0] for form in forms):
        return
    pattern = re.compile(rf"(?<!\bdead )\b({'|'.join(forms)})\b")
    for found in pattern.finditer(said.spaced):
        yield f"{said.path}:{said.line(found.start())}: {found[0]}"


def test_a_word_that_is_not_used_stands_nowhere() -> None:
    every = [said_in(module) for module in sources()]
    report(
        [
            f"{place}: say {instead}"
            for word, instead in NOT_USED
            for said in every
            for place in misused(said, word)
        ]
    )


def test_both_tables_are_read() -> None:
    assert len(USED) == PAGE.count("| `")
    assert ("dead letter", "schemas/messages.py") in USED
    assert {("letter", "dead letter"), ("drop", "discard")} <= set(NOT_USED)
    assert {instead for _, instead in NOT_USED} <= {word for word, _ in USED}


@pytest.mark.parametrize(
    ("source", "word", "expected"),
    [
        ("def bury(letter): ...", "letter", ["letter"]),
        ("def bury(deadLetters, dead_letter): ...", "letter", []),
        ("class TurnLock: ...", "turn lock", ["turn lock"]),
        ("x = 1\n# lent to its turn", "lend", ["lent"]),
        ('"""The stories of a memory."""', "story", ["stories"]),
        ('"""The history of a memory."""', "story", []),
        ("Fish.bellows()", "bell", []),
    ],
)
def test_misuse_is_seen(source: str, word: str, expected: list[str]) -> None:
    found = misused(
        said_in(Module(ROOT / "streams" / "example.py", "streams.example", source)), word
    )
    assert [place.rpartition(": ")[2] for place in found] == expected
