"""Sources named on the command line: a file, a folder, an archive, standard input.

The only module of this package that does I/O. A file that was sent to a service has no path.
"""

from __future__ import annotations

import io
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final, Literal, TypeAlias

from palimpsest.ops.ingest.parsers.base import Unreadable

HEAD_BYTES: Final = 64 * 1024
MAX_BYTES: Final = 1024 * 1024 * 1024
"""Maximum size of a file that is read whole; a file of turns, one per line, may have any size."""
STDIN: Final = "-"

_MAGIC: Final = {
    b"\x1f\x8b": "a gzip file; unpack it first (gunzip)",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    b"Rar!": "a RAR archive; unpack it first",
    b"BZh": "a bzip2 file; unpack it first",
    b"\xfd7zXZ": "an xz file; unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd file; unpack it first",
    b"%PDF": "a PDF; ingest takes conversations as text",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    b"SQLite format 3": "an SQLite database; write its messages as JSON, one a line",
    b"PAR1": "a Parquet file; write its rows as JSON, one a line",
    b"OggS": "a sound recording; ingest takes conversations as text",
    b"ID3": "a sound recording; ingest takes conversations as text",
}


_PER_NUL: Final = 64
"""Bytes of a text among which one may be NUL, as damaged files and some programs have it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A named source. `time` is its last modification (UTC); for standard input it is now. It lies
    at the path `name`, unless it is read from `file`; its files in an archive have at most `most`
    bytes."""

    name: str
    kind: Literal["file", "folder", "zip", "stdin"]
    size: int
    time: datetime
    file: IO[bytes] | None = None
    most: int = MAX_BYTES

    @property
    def stem(self) -> str:
        return "" if self.kind == "stdin" else Path(self.name).resolve().stem

    @property
    def path(self) -> Path | None:
        return None if self.file is not None else Path(self.name)

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        if self.file is not None:
            yield self.file
        else:
            with Path(self.name).open("rb") as file:
                yield file

    def bundle(self) -> Bundle:
        """The files in a folder or archive. Raises Unreadable."""
        if self.kind == "folder":
            return Folder(Path(self.name))
        return Archive(self.file or self.name, self.most)


def source_of(name: str, now: datetime) -> Source:
    """Returns the source called `name`. Raises Unreadable if it cannot be a conversation, OSError
    if it cannot be read."""
    if name == STDIN:
        return Source("standard input", "stdin", 0, now, sys.stdin.buffer)
    path = Path(name)
    stat = path.stat()
    time = datetime.fromtimestamp(stat.st_mtime, UTC)
    if path.is_dir():
        return Source(name, "folder", 0, time)
    with path.open("rb") as file:
        return Source(name, _kind(file.read(HEAD_BYTES)), stat.st_size, time)


def sent_source(name: str, file: IO[bytes], time: datetime, most: int) -> Source:
    """Returns the source of a file that was sent; an archive's files may have `most` bytes each.
    Raises Unreadable if it cannot be a conversation."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    kind = _kind(file.read(HEAD_BYTES))
    file.seek(0)
    return Source(name, kind, size, time, file, most)


def _kind(head: bytes) -> Literal["file", "zip"]:
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    refuse_binary(head)
    return "file"


def refuse_binary(head: bytes) -> None:
    """Raises Unreadable, which says what it is, if `head` is the beginning of a binary file."""
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise Unreadable(what)
    is_utf_16 = head[:2] in (b"\xff\xfe", b"\xfe\xff")
    if head.count(b"\0") > 1 + len(head) // _PER_NUL and not is_utf_16:
        raise Unreadable("a binary file; ingest takes conversations as text")


class Folder:
    """The files below a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def names(self) -> list[str]:
        found = sorted(each for each in self._path.rglob("*") if each.is_file())
        return [each.relative_to(self._path).as_posix() for each in found]

    def read(self, name: str) -> bytes:
        return bounded(self._path / name)


class Archive:
    """The files in a zip archive."""

    def __init__(self, file: str | IO[bytes], most: int = MAX_BYTES) -> None:
        self._most = most
        try:
            self._archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise Unreadable(f"a damaged zip archive: {error}") from None
        # Some programs of Windows part folders with backslashes.
        self._names = {name.replace("\\", "/"): name for name in self._archive.namelist()}

    @property
    def names(self) -> list[str]:
        return sorted(
            name
            for name in self._names
            if not name.endswith("/") and not name.startswith("__MACOSX/")
        )

    def read(self, name: str) -> bytes:
        try:
            member_name = self._names[name]
            if self._archive.getinfo(member_name).file_size > self._most:
                raise Unreadable(f"{name} takes more than {self._most >> 20} MiB unpacked")
            with self._archive.open(member_name) as member:
                return member.read(self._most)
        except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, OSError) as error:
            raise Unreadable(f"{name} in it is damaged: {error}") from None
        except RuntimeError:
            raise Unreadable("an archive with a password; unpack it first") from None
        except zlib.error as error:
            raise Unreadable(f"{name} in it is damaged: {error}") from None


Bundle: TypeAlias = Folder | Archive
"""The files of a folder or an archive, by name."""


def bounded(path: Path) -> bytes:
    """Returns all bytes of a file. Raises Unreadable if it is too large."""
    if path.stat().st_size > MAX_BYTES:
        raise Unreadable(
            f"larger than {MAX_BYTES >> 20} MiB; split it, or write its turns as JSON, one a line"
        )
    return path.read_bytes()


class Replayed:
    """A file whose first bytes are already read, for reading by lines."""

    def __init__(self, first: bytes, file: IO[bytes]) -> None:
        self._first = io.BytesIO(first)
        self._file = file

    def readline(self, limit: int = -1, /) -> bytes:
        return self._first.readline(limit) or self._file.readline(limit)
