"""The glossary tells the truth: its words are in the code, those that it replaces are not."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.source_modules import PACKAGES, ROOT, report

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
    "ops/bench/linker.py",
    "stores/index/analysis.py",
    "stores/recall/context.py",
    "stores/recall/time_grammar.py",
    "stores/writing/memory_texts.py",
    "streams/models/hashing.py",
    "streams/models/wordpiece.py",
    "streams/prompting/json_text.py",
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
    ("part", "stores/index/analysis.py"): "of a word",
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


@dataclass(frozen=True)
class Said:
    """The names of a file and its sentences (docstrings and comments), each with its line."""

    path: str
    names: tuple[tuple[str, int], ...]
    sentences: tuple[tuple[str, int], ...]


def words(text: str) -> tuple[str, ...]:
    """The words of a name or a sentence, in small letters."""
    return tuple(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text))


def said_in(path: str, source: str) -> Said:
    tree = ast.parse(source)
    names = ((Path(path).stem, 1), *names_in(tree))
    return Said(path, names, (*docstrings_in(tree), *comments_in(source)))


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Name):
            yield node.id, node.lineno


def docstrings_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Also those of attributes and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value), node.lineno


def comments_in(source: str) -> Iterator[tuple[str, int]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string, token.start[0]


ALL_SAID = {
    path.relative_to(ROOT).as_posix(): said_in(
        path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    )
    for folder in (*PACKAGES, "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def has(said: tuple[str, ...], sought: tuple[str, ...]) -> bool:
    """Whether the words stand in `said` one after another, in any form."""
    starts = range(len(said) - len(sought) + 1)
    return any(
        all(found.startswith(word) for found, word in zip(said[start:], sought, strict=False))
        for start in starts
    )


@pytest.mark.parametrize(("word", "path"), USED)
def test_a_word_is_found_where_the_glossary_says(word: str, path: str) -> None:
    said = ALL_SAID[path]
    assert any(has(words(text), words(word)) for text, _ in (*said.names, *said.sentences))


def misused(said: Said, word: str) -> Iterator[str]:
    """Where a file says the word in the sense in which it is not used."""
    if (word, said.path) in ALLOWED:
        return
    if not any(place in said.path for place in WHERE.get(word, ("",))):
        return
    forms = [*(word + ending for ending in ENDINGS), *FORMS.get(word, ())]
    pattern = re.compile(rf"(?<!\bdead )\b({'|'.join(forms)})\b")
    allowed = re.compile("|".join(ALLOWED_TEXTS))
    for text, line in (*said.names, *said.sentences):
        found = pattern.search(" ".join(words(allowed.sub("", text))))
        if found:
            yield f"{said.path}:{line}: {found[0]}"


@pytest.mark.parametrize(("word", "instead"), NOT_USED)
def test_a_word_that_is_not_used_stands_nowhere(word: str, instead: str) -> None:
    report(
        [f"{place}: say {instead}" for said in ALL_SAID.values() for place in misused(said, word)]
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
        ("x = 1  # lent to its turn", "lend", ["lent"]),
        ('"""The stories of a memory."""', "story", ["stories"]),
        ('"""The history of a memory."""', "story", []),
        ("Fish.bellows()", "bell", []),
    ],
)
def test_misuse_is_seen(source: str, word: str, expected: list[str]) -> None:
    found = misused(said_in("streams/example.py", source), word)
    assert [place.rpartition(": ")[2] for place in found] == expected
