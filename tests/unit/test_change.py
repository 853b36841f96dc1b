"""What is remembered of anything, not only of people: a change is told, and what has not changed
stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.schemas.commands import RememberCommand
from palimpsest.streams.claims.change import MAX_CHARACTERS, may_tell_change, tells_change
from tests.harness import CAREFUL, FULL, Pipeline, pipeline_settings

CHANGES = [
    ("The project uses Postgres.", "The project switched from Postgres to MySQL."),
    ("The project uses Postgres.", "The project uses MySQL now."),
    ("The CI uses Jenkins.", "The CI was migrated from Jenkins to GitHub Actions."),
    ("Deploys happen on Fridays.", "Deploys no longer happen on Fridays."),
    ("The cache is enabled.", "The cache isn't enabled anymore."),
    ("Releases are tagged v1.2.", "Releases are not tagged v1.2."),
    ("The API key rotates every 30 days.", "The API key rotates every 90 days now."),
    ("Tests run with pytest.", "Tests run with unittest now."),
    ("Prod runs in eu-west-1.", "Prod now runs in eu-central-1."),
    ("Backups run at 2am.", "Backups run at 4am now."),
    ("The staging server is at 10.0.0.5.", "The staging server moved to 10.0.0.9."),
    ("The meeting is on Tuesdays.", "The meeting has been moved to Wednesdays."),
    ("The main branch is called master.", "The main branch was renamed from master to main."),
    ("The limit is 10 requests.", "The limit was raised to 20 requests."),
    ("Always use tabs for indentation.", "Always use spaces for indentation."),
    ("User prefers dark mode.", "User prefers light mode now."),
    ("The user prefers dark mode.", "User prefers light mode now."),
]
BESIDE = [
    ("The project uses Postgres.", "The project uses Redis."),
    ("The project uses Postgres.", "The project uses Redis for its cache now."),
    ("The project switched from MySQL to Postgres.", "The project uses Postgres now."),
    ("The API uses REST.", "The API does not use GraphQL."),
    ("Some tests are slow.", "Some tests are not slow."),
    ("It is enabled.", "It is not enabled."),
    ("The build takes 10 minutes.", "The deploy takes 5 minutes now."),
    ("Tests run with pytest.", "Linting runs with ruff now."),
    ("The team meets on Mondays.", "The team meets in room 5 now."),
    ("Always use tabs for indentation.", "Always use pnpm for packages."),
    ("Never commit secrets.", "Always commit lock files."),
    ("The server is fast.", "The server moved to rack 5."),
    ("The wiki is at wiki.local.", "The blog moved to blog.local."),
    ("The door is locked.", "The other door is not locked."),
    ("The API is not public.", "The API is not public."),
]


@pytest.mark.parametrize(("known", "new"), CHANGES)
def test_a_change_is_told(known: str, new: str) -> None:
    assert tells_change(new, known)
    assert may_tell_change(new)
    # Of two rules the later one is the news, whichever that is.
    assert tells_change(known, new) is known.startswith("Always")


@pytest.mark.parametrize(("known", "new"), BESIDE)
def test_what_has_not_changed_is_not_told_to(known: str, new: str) -> None:
    assert not tells_change(new, known)
    assert not tells_change(known, new)


def test_of_a_long_text_nothing_is_told() -> None:
    long = f"The cache {'is warm and ' * MAX_CHARACTERS}is not enabled anymore."
    assert not may_tell_change(long)
    assert not tells_change(long, "The cache is enabled.")


@pytest.mark.parametrize("flags", [CAREFUL, FULL])
def test_what_is_remembered_of_a_project_waits_or_ends(tmp_path: Path, flags: str) -> None:
    """Both texts stay until a person decides; a plain denial needs nobody where flags allow it."""
    held = "SELECT content FROM held_proposals"
    active = "SELECT content FROM memory_rows WHERE NOT is_deleted ORDER BY content"
    for number, (known, new) in enumerate((CHANGES[0], CHANGES[3], BESIDE[0])):
        with Pipeline(tmp_path / str(number), pipeline_settings(flags)) as pipeline:
            for first, text in enumerate((known, new), 1):
                pipeline.command(RememberCommand(content=text), first=first)
                pipeline.run()
            is_sure = flags == FULL and number == 1
            assert pipeline.values(held) == ([new] if number < 2 and not is_sure else [])
            assert pipeline.values(active) == sorted([new] if is_sure else [known, new])
            assert pipeline.balance().holds
