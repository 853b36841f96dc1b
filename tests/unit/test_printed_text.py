"""Texts are printed as they are stored."""

from __future__ import annotations

import pytest

from palimpsest.ops.terminal.tables import print_fields, print_listed, printed_rows

TEXTS = ["80:on:8080", ":smile: and :+1:", "[bold]not bold[/bold]", "a [link=x]b[/link]", "C:\\[x]"]


@pytest.mark.parametrize("stored", TEXTS)
def test_a_text_is_printed_as_it_is_stored(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_listed(("content",), [{"content": stored}])
    print_fields({"content": stored})
    assert capsys.readouterr().out.count(stored) == 2
    assert stored in printed_rows(("content",), [{"content": stored}])
