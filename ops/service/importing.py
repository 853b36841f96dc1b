"""Imports the lines of an exported scope: each batch of lines is a command on the log.

The command line and HTTP share this path. To resume an interrupted import, start it again from the
beginning: a line is never imported twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from palimpsest.ops.errors import CommandError, RequestError
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.commanding import CommandRequest, Commands, SubmittedCommand
from palimpsest.schemas.codec import MAX_DEPTH, nesting
from palimpsest.schemas.commands import ImportCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.failures import describe
from palimpsest.schemas.portable import (
    FORMAT,
    FORMAT_VERSION,
    End,
    Header,
    ImportResult,
    Line,
    NumberedLine,
    RefusedLine,
)

BATCH_LINES: Final = 200
BATCH_BYTES: Final = 256 * 1024
"""Maximum size of the lines of a command; a longer line goes alone."""
RESERVED_BYTES: Final = 4 * 1024
"""Part of a record's size that is reserved for everything except the line."""
UNDER_WAY: Final = 8
"""Maximum number of submitted commands without a result."""
MOST_TOLD: Final = 100
"""Maximum number of refused lines that are listed."""

_LINE: Final = TypeAdapter[Line | End](Line | End)
_TOO_LONG: Final = b""
"""Placeholder for a line that is too long."""


@dataclass(slots=True)
class ImportProgress:
    """The progress of an import. `pending` are commands not yet executed; `complete`: the file's
    last line arrived, preceded by as many lines as it states."""

    taken: int = 0
    memories: int = 0
    refused_lines: int = 0
    refused: list[RefusedLine] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    complete: bool = False

    def refuse(self, *lines: RefusedLine) -> None:
        self.refused_lines += len(lines)
        self.refused += lines[: max(0, MOST_TOLD - len(self.refused))]

    def add(self, result: ImportResult) -> None:
        self.taken += result.taken
        self.memories += result.memories
        self.refuse(*result.refused)

    def as_json(self) -> JsonObject:
        refused = sorted(self.refused, key=lambda line: line.number)
        return {
            "applied": not self.pending,
            "taken": self.taken,
            "memories": self.memories,
            "refused": [{"line": line.number, "why": line.why} for line in refused],
            "refused_lines": self.refused_lines,
            "complete": self.complete,
            "pending": [*self.pending],
        }


@dataclass(slots=True)
class Importer:
    """Imports the lines of one file into `scope`. `seconds`: how long to wait for a command's
    result before it counts as pending; `max_bytes`: maximum size of a record."""

    commands: Commands
    scope: str
    actor: Actor
    seconds: float
    max_bytes: int
    imported: ImportProgress = field(default_factory=ImportProgress)
    _from_scope: str = ""
    _batch: list[NumberedLine] = field(default_factory=list)
    _size: int = 0
    _given: deque[tuple[str, int, int]] = field(default_factory=deque)

    async def take(self, blocks: AsyncIterable[bytes]) -> ImportProgress:
        """Imports all lines. Raises RequestError if it is not an exported scope, and CommandError
        if a batch is refused as a whole; earlier lines stay imported."""
        number = 0
        async for line in lines_of(blocks, self.max_bytes - RESERVED_BYTES):
            number += 1
            if number == 1:
                self._from_scope = header_of(line).scope
            elif line is _TOO_LONG:
                self._refuse(number, f"it is longer than {self.max_bytes - RESERVED_BYTES} bytes")
            elif line.strip():
                await self._take(number, line)
        if number == 0:
            raise RequestError("the file is empty: an export begins with a line that names it")
        if not self.imported.complete:
            self._refuse(number + 1, "the file ends before its last line: it was cut off")
        await self._give()
        while self._given:
            await self._result()
        return self.imported

    def _refuse(self, number: int, why: str) -> None:
        self.imported.refuse(RefusedLine(number=number, why=why))

    async def _take(self, number: int, raw: bytes) -> None:
        if self.imported.complete:
            self._refuse(number, "it stands after the file's last line")
            return
        try:
            line = _LINE.validate_json(raw)
        except ValidationError as error:
            self._refuse(number, describe(error))
            return
        if isinstance(line, End):
            self.imported.complete = line.lines == number - 2
            if not self.imported.complete:
                self._refuse(number, f"{line.lines} lines were written, and {number - 2} came")
            return
        if nesting(raw) > MAX_DEPTH:
            self._refuse(number, f"it is nested deeper than {MAX_DEPTH} levels")
            return
        numbered = NumberedLine(number=number, line=line)
        size = len(numbered.model_dump_json())
        if size > self.max_bytes - RESERVED_BYTES:
            self._refuse(number, f"it is longer than {self.max_bytes - RESERVED_BYTES} bytes")
            return
        if self._batch and (self._size + size > BATCH_BYTES or len(self._batch) == BATCH_LINES):
            await self._give()
        self._batch.append(numbered)
        self._size += size

    async def _give(self) -> None:
        """Submits the batch as a command."""
        if not self._batch:
            return
        command = ImportCommand(from_scope=self._from_scope, lines=tuple(self._batch))
        given = await self.commands.submit(CommandRequest(self.scope, command, self.actor))
        self._given.append((given.command_id, self._batch[0].number, self._batch[-1].number))
        self._batch, self._size = [], 0
        while len(self._given) > UNDER_WAY:
            await self._result()

    async def _result(self) -> None:
        """Waits for the result of the oldest submitted command."""
        command_id, first, last = self._given.popleft()
        # If no worker executes commands, do not wait for the others.
        seconds = 0.0 if self.imported.pending else self.seconds
        answer = await self.commands.result(command_id, self.scope, seconds)
        if answer is None:
            self.imported.pending.append(command_id)
            return
        try:
            result = SubmittedCommand(command_id, answer).result()
        except CommandError as error:
            raise CommandError(
                error.kind,
                f"{error} (lines {first} to {last}; those before are taken: import the file again"
                " when this is mended)",
                command_id,
            ) from None
        self.imported.add(ImportResult.model_validate(result))


def header_of(line: bytes) -> Header:
    """Returns the header of a file. Raises RequestError if it is invalid or of another version."""
    try:
        header = Header.model_validate_json(line.removeprefix(b"\xef\xbb\xbf"))
    except ValidationError as error:
        raise RequestError(
            f"the first line is not that of an exported scope ({FORMAT}): {describe(error)}"
        ) from None
    if header.version != FORMAT_VERSION:
        raise RequestError(
            f"the file is of version {header.version} of {FORMAT}, and this program reads version"
            f" {FORMAT_VERSION}; a newer version of the program may read it"
        )
    return header


async def lines_of(blocks: AsyncIterable[bytes], longest: int) -> AsyncIterator[bytes]:
    """Yields lines without line ends; an empty one replaces a line longer than `longest`, which is
    never held whole."""
    held = bytearray()
    skipping = False
    async for block in blocks:
        *ended, rest = block.split(b"\n")
        for part in ended:
            held += part
            yield _TOO_LONG if skipping or len(held) > longest else bytes(held) or b" "
            held.clear()
            skipping = False
        if not skipping:
            held += rest
        if len(held) > longest:
            held.clear()
            skipping = True
    if held or skipping:
        yield _TOO_LONG if skipping else bytes(held)
