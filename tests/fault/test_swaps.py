"""Folders of stores exchanged for others: killed at any step, and at any step of going on."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from palimpsest.ops import folder_swap as swap
from palimpsest.ops.folder_swap import Swap, finish_swap, swap_folders, unexchanged
from tests.fault.dying import die_at_write

FOLDERS = ("shards/0", "shards/1", "shards/2")
STEPS = 20
"""More than there are."""


def made(folder: Path) -> Path:
    """Two live folders and one that is missing, and all three of a branch."""
    for place in ("shards/0", "shards/1", *(f"branches/new/{each}" for each in FOLDERS)):
        (folder / place).mkdir(parents=True)
        (folder / place / "memory.duckdb").write_text(place)
    return folder


def contents(folder: Path) -> dict[str, str]:
    files = sorted(folder.rglob("memory.duckdb"))
    return {str(each.relative_to(folder).parent): each.read_text() for each in files}


BEFORE = {
    **{f"branches/new/{each}": f"branches/new/{each}" for each in FOLDERS},
    **{each: each for each in FOLDERS[:2]},
}
AFTER = {
    **{each: f"branches/new/{each}" for each in FOLDERS},
    **{f"branches/kept/{each}": each for each in FOLDERS[:2]},
}


def killed_at(folder: Path, step: int, doing: str) -> bool:
    """Do it in a process that is killed at its n-th write to the disk; whether it was."""
    child = os.fork()
    if child == 0:
        die_at_write(step)
        if doing == "swap":
            swap_folders(folder, Swap(branch="new", kept="kept", folders=FOLDERS))
        else:
            finish_swap(folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("again", [0, pytest.param(1, marks=pytest.mark.soak), 3])
def test_all_are_exchanged_or_none_wherever_it_is_killed(tmp_path: Path, again: int) -> None:
    ends = []
    for step in range(STEPS):
        folder = made(tmp_path / str(step))
        killed = killed_at(folder, step, "swap")
        decided = (folder / swap.SWAP_FILE).exists()
        killed_at(folder, again, "finish")
        finish_swap(folder)
        found = contents(folder)
        assert found == AFTER or (found == BEFORE and not decided), step
        assert not (folder / swap.SWAP_FILE).exists()
        ends.append(found == AFTER)
        if not killed:
            break
    assert ends[0] is False
    assert ends == sorted(ends)
    assert len(ends) > 2 * len(FOLDERS)


def test_nothing_is_exchanged_while_log_or_stores_are_opened(tmp_path: Path) -> None:
    folder = made(tmp_path / "data")
    looked = threading.Event()
    wanted = Swap(branch="new", kept="kept", folders=FOLDERS)
    exchanging = threading.Thread(target=swap_folders, args=(folder, wanted, looked.set))
    with unexchanged(folder):
        exchanging.start()
        with unexchanged(folder):  # others may open theirs meanwhile
            assert not looked.wait(0.2)
        assert contents(folder) == BEFORE
    exchanging.join()
    assert looked.is_set()
    with unexchanged(folder):
        assert contents(folder) == AFTER


def test_what_speaks_against_it_leaves_all_as_it_is(tmp_path: Path) -> None:
    folder = made(tmp_path / "data")

    def in_use() -> None:
        raise RuntimeError("in use")

    with pytest.raises(RuntimeError, match="in use"):
        swap_folders(folder, Swap(branch="new", kept="kept", folders=FOLDERS), in_use)
    with unexchanged(folder):
        assert contents(folder) == BEFORE


def test_without_an_exchange_under_way_nothing_is_done(tmp_path: Path) -> None:
    folder = made(tmp_path / "data")
    finish_swap(folder)
    assert contents(folder) == BEFORE
    assert sorted(each.name for each in folder.iterdir()) == ["branches", "shards"]
