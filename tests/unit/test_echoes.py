"""What is printed for a prompt comes back in turns: it gives no facts, and the rest is read."""

from __future__ import annotations

import html
import json

import pytest

from palimpsest.schemas.echoes import CLOSE, OPEN, marked, spoken
from palimpsest.schemas.normal_forms import one_line

BLOCK = marked(
    "## This conversation\nSummary: They plan a trip.\n- Ana: Hello!\nKeep the summary current.\n\n"
    "## Profile\n- Ana drinks tea.\n## 16 March 2026\n- Ana: I moved to Oslo.\n- Ben: I live there."
)
LINES = marked(
    "## Profile\n- Ana drinks tea.\n## 16 March 2026\n- Ana: I wrote:\n      def main():\n      \n"
    "          return 1\n- Ben: I live there.\n      And there."
)
"""One with a text of several lines."""
CUT = BLOCK[: BLOCK.index("live there")]
HEADLESS = BLOCK[BLOCK.index("## Profile") :]
BARE = BLOCK.removeprefix(f"{OPEN}\n").removesuffix(f"\n{CLOSE}")
"""One of which a program took the marks off."""
WITHOUT_PROFILE = BARE.replace("## Profile\n- Ana drinks tea.\n", "")
DAY = "## 16 March 2026"
PROFILE_AND_DAY = BARE[BARE.index("## Profile") :]
BOLD = PROFILE_AND_DAY.replace("## Profile", "**Profile**").replace(DAY, f"**{DAY[3:]}**")
ASKED = "I live in Graz now. Where is that?"


def before_each_line(text: str, sign: str) -> str:
    return "\n".join(sign + line for line in text.split("\n"))


def only(text: str) -> str:
    """What is left of a text, without quoting and fences."""
    return " ".join(spoken(text).replace("```", "").replace(">", "").replace('"', "").split())


@pytest.mark.parametrize(
    "text",
    [
        f"{BLOCK}\n\n{ASKED}",
        f"{ASKED}\n{BLOCK}",
        f"{BLOCK}\n{BLOCK}\n{ASKED}",
        f"{CUT}\n\n{ASKED}",
        f"{CUT}\n\n{ASKED}\n{BLOCK}",
        f"{HEADLESS}\n{ASKED}",
        f"{LINES}\n{ASKED}",
        f"{LINES.removesuffix(CLOSE)}\n{ASKED}",
        f"{LINES.removeprefix(OPEN)}\n{ASKED}",
        f"{before_each_line(LINES.removesuffix(CLOSE), '> ')}\n{ASKED}",
        f"{json.dumps(LINES)}\n{ASKED}",
        f"{BARE}\n\n{ASKED}",
        f"{ASKED}\n{BARE}",
        f"{WITHOUT_PROFILE}\n\n{ASKED}",
        f"{ASKED}\n\n{WITHOUT_PROFILE}",
        f"{before_each_line(WITHOUT_PROFILE, '> ')}\n\n{ASKED}",
        f"{WITHOUT_PROFILE.replace('- Ana: Hello!' + chr(10), '')}\n\n{ASKED}",
        f"{BARE[BARE.index('## Profile') :]}\n{ASKED}",
        f"{before_each_line(BARE, '> ')}\n\n{ASKED}",
        f"{BARE}\n\n{ASKED}".replace("\n", "\r\n"),
        f"{BARE}\n\n{BARE}\n\n{ASKED}",
        f"{LINES[len(OPEN) + 1 : -len(CLOSE)]}{ASKED}",
        f"{before_each_line(BLOCK, '> ')}\n\n{ASKED}",
        f"{before_each_line(CUT, '> ')}\n\n{ASKED}",
        f"{before_each_line(CUT + chr(10) + 'wrapped', '> ')}\n\n{ASKED}",
        f"{before_each_line(BLOCK, '>> ')}\n\n{ASKED}",
        f"{before_each_line(BLOCK, '    ')}\n\n{ASKED}",
        f"{before_each_line(CUT, '    ')}\n\n{ASKED}",
        f"```\n{BLOCK}\n```\n{ASKED}",
        f"```\n{CUT}\n```\n{ASKED}",
        f"{BLOCK}\n\n{ASKED}".replace("\n", "\r\n"),
        f"{CUT}\n\n{ASKED}".replace("\n", "\r\n"),
        f"{CUT}\n\n{ASKED}".replace("\n", "\r"),
        f"{CUT}\n\n{ASKED}".replace("\n", "\u2028"),
        f"{html.escape(BLOCK)}\n{ASKED}",
        f"{html.escape(html.escape(CUT))}\n\n{ASKED}",
        f"{json.dumps(BLOCK)}\n{ASKED}",
        f"{BLOCK.replace('<', chr(92) + '<')}\n{ASKED}",
        f"{BLOCK.replace('<', chr(0x2039)).replace('>', chr(0x203A))}\n{ASKED}",
        f"{BLOCK.replace('recalled>', 'recalled v=2 at=now>')}\n{ASKED}",
        f"{BLOCK.replace('recalled', 'Recalled-3')}\n{ASKED}",
        one_line(f"{BLOCK}\n{ASKED}"),
        one_line(f"{ASKED}\n{CUT}"),
        # As programs that render, shorten or translate Markdown write it.
        f"{BARE.replace('## ', '### ')}\n\n{ASKED}",
        f"{BARE.replace(chr(10) + '- ', chr(10) + '* ')}\n\n{ASKED}",
        f"{BARE.replace('- ', '-' + chr(0xA0)).replace('## ', '##' + chr(0xA0))}\n\n{ASKED}",
        f"{BOLD}\n{ASKED}",
        f"{PROFILE_AND_DAY.replace(chr(10), chr(10) * 2)}\n\n{ASKED}",
        f"{PROFILE_AND_DAY.replace('Profile', 'Profil').replace(DAY, '## 16. März 2026')}\n{ASKED}",
        # An entry alone, with a note that it no longer holds.
        f"- Ana: I moved to Oslo. (no longer so since 2026-03-16: Ana moved to Bonn)\n{ASKED}",
        f"> Ana lives in Oslo. (a newer statement waits for review: Ana lives in Bonn)\n\n{ASKED}",
        f"- Ana: I live in Oslo. (no longer: Ana lives in Oslo; now: Ana is in Bonn)\n{ASKED}",
        f"- Ana: I wrote:\n      I live in Oslo.\n      (until 2026-03-16; over now)\n{ASKED}",
        f"{BLOCK}\n- Ana lives in Rome. (no longer so: Ana lives in Bonn)\n{ASKED}",
    ],
)
def test_the_echo_is_left_out_and_the_rest_is_read(text: str) -> None:
    assert only(text) == ASKED


@pytest.mark.parametrize("text", [BLOCK, CUT, before_each_line(BLOCK, "> "), f"```\n{BLOCK}\n```"])
def test_of_an_echo_alone_nothing_is_left(text: str) -> None:
    assert spoken(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "I recalled that I live in Graz.",
        f"I wrote {OPEN} in a prompt, and I live in Graz.",
        f"The end is {CLOSE}. I live in Graz.",
        f"{OPEN}\nI live in Graz.",
        f"I live in Graz.\n{CLOSE}",
        f"{CLOSE} I live in Graz. {OPEN}",
        "",
    ],
)
def test_a_mark_without_a_block_hides_nothing(text: str) -> None:
    assert spoken(text) is text


@pytest.mark.parametrize(
    "text",
    [
        "## Profile\n- Name: Bo\n- Works at Lidl",
        "## Profile\n- I live in Rome.\n## 3 May 2026\n- Bo: I moved.",
        "## 16 March 2026\n- Ana: we ship on Friday\n- Ben: agreed",
        "## Profile\n- Ana drinks tea.\n\n- Ben: I moved to Oslo.",
        "## This conversation\n- Ana: we ship on Friday\n- Ben: agreed",
        "## This conversation\nI live in Rome.\n## 16 March 2026\n- milk\n- bread",
        "## This conversation was long\n- Ana: hi\n## 16 March 2026\n- Ana: I moved to Oslo.",
        "## Agenda\n- Ana: budget\n## 16 March 2026\n- Ana: I moved to Oslo.",
        "## Profile\n- Ana drinks tea.\nText between\n## 16 March 2026\n- Ana: I moved to Oslo.",
        "# Profile\n- Ana drinks tea.\n# 16 March 2026\n- Ana: I moved to Oslo.",
        "I live in Graz (no longer in Rome).",
        "I drink coffee again (no longer tea: it made me ill).",
        "The party is over now (it was until 2026-03-16).",
        "**Profile**\n\n- I drink tea.\n\n**16 March 2026**\n\n- Ana: I moved to Oslo.",
        "## Profile\n- Ana drinks tea.\n## Plans\n- Ana: I want to move to Oslo.",
    ],
)
def test_notes_are_no_block_without_its_marks(text: str) -> None:
    assert spoken(text) == text


def test_who_types_both_marks_hides_what_is_between_them() -> None:
    said = spoken(f"I have a cat. {OPEN}I have a dog.{CLOSE} I have a horse.")
    assert said.split() == "I have a cat. I have a horse.".split()


def test_own_lists_after_a_cut_block_are_read() -> None:
    assert only(f"{CUT}\n\n- I need milk.\n- I live in Graz.") == "- I need milk. - I live in Graz."


def test_a_remembered_text_cannot_end_the_block() -> None:
    block = marked(f"## Profile\n- Ana: {CLOSE} I live in Rome. &lt;recalled&gt;")
    assert block.count(CLOSE) == 1
    assert spoken(f"{block}\n{ASKED}") == ASKED


def test_a_mark_on_two_lines_leaves_two_lines() -> None:
    block = marked("- Ana: I wrote <recalled\n- Ben: a > b")
    assert block.splitlines() == [OPEN, "- Ana: I wrote [recalled]", " b", CLOSE]


def test_what_quotes_a_mark_is_left_out_with_it() -> None:
    quoted = one_line(f"{before_each_line(BLOCK, '> ')}\n> {ASKED}")
    assert spoken(quoted) == ASKED
