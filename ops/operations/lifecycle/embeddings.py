"""The embedding models of the stores: missing vectors, migrations to another, the switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.operation import OPERATING, Answer, Doc, Json, Read
from palimpsest.ops.reading.rows import rows
from palimpsest.streams.text.counts import counted

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.schemas.commands import ChangeEmbeddingCommand, EmbeddingChoice
    from palimpsest.stores.shard import Shard

    Build = Callable[[Shard], ChangeEmbeddingCommand]

RESULT_SECONDS: Final = 10.0
"""How long a command is waited for where a worker runs."""


class EmbeddingState(Answer):
    """The models of a partition. `live` is the one that all searches use, `upcoming` the one that a
    migration makes vectors for, `former` the one before, while its vectors are kept.

    `memories` are those that are not forgotten; `missing` of them lack a vector of `live`, of which
    `of_another_model` have one of another model, and `of_another_text` had one before their text
    changed; `outlined` are turns of which only the outline is embedded yet. `made`
    have a vector of `upcoming`. `embedded`, `failed` and `failure` tell what this
    worker did since it started, for `upcoming` if there is one, else for `live`; `seconds_left` is
    what the migration will take at that pace."""

    partition: int
    live: str
    dimensions: int
    former: str | None
    upcoming: str | None
    switches: bool
    memories: int
    missing: int
    of_another_model: int
    of_another_text: int
    outlined: int
    made: int | None
    embedded: int
    failed: int
    failure: str | None
    seconds_left: float | None


class StoredVectors(Answer):
    """The vectors of a model: how many, and their bytes in DuckDB before compression."""

    model: str
    vectors: int
    bytes: int


class EmbeddingReport(Answer):
    """The models of every partition, and the vectors that are stored."""

    partitions: tuple[EmbeddingState, ...]
    vectors: tuple[StoredVectors, ...]


class EmbeddingStatus(Read[EmbeddingReport]):
    """Show the embedding model in use, missing vectors, and how far a migration is.

    Example: palimpsest embedding status
    """

    surface: ClassVar = OPERATING(("GET", "/api/embedding"), command="embedding status")

    def read(self, sources: Sources) -> Json:
        shards = sources.shards.items()
        found = [_vectors(shard) for _, shard in shards]
        states = [state_of(sources, *each) for each in shards]
        return {"partitions": states, "vectors": _summed(found)}

    def merge(self, answers: Sequence[Json]) -> Json:
        return super().merge(answers) | {"vectors": _summed([each["vectors"] for each in answers])}


_VECTORS = (
    "SELECT model, count(*) FILTER (NOT of_turn) AS vectors,"
    " coalesce(sum(size), 0)::BIGINT AS bytes FROM ("
    " SELECT model, false AS of_turn, 4 * len(vector) + coalesce(octet_length(tokens), 0)"
    "  + coalesce(octet_length(passages), 0) AS size FROM embeddings"
    "  UNION ALL SELECT model, true, octet_length(tokens) + octet_length(passages)"
    "  FROM turn_passages) GROUP BY model"
)


def _vectors(shard: Shard) -> list[Json]:
    return rows(shard, _VECTORS)


def _summed(found: Sequence[Sequence[Json]]) -> list[Json]:
    total: dict[str, Json] = {}
    for row in (row for each in found for row in each):
        known = total.setdefault(row["model"], {"model": row["model"], "vectors": 0, "bytes": 0})
        known["vectors"] += row["vectors"]
        known["bytes"] += row["bytes"]
    return [total[name] for name in sorted(total)]


def _chosen(shard: Shard, which: Literal["upcoming", "former"]) -> EmbeddingChoice | None:
    """The model that a migration makes vectors for, or the one before."""
    from palimpsest.ops.embedding.models import choice_of

    named = None if shard.embedding is None else getattr(shard.embedding, which)
    return None if named is None else choice_of(named)


def state_of(sources: Sources, partition: int, shard: Shard) -> Json:
    """The state of a partition, as in `EmbeddingState`."""
    from palimpsest.ops.embedding.tracker import missing_now
    from palimpsest.ops.embedding.turn_passages import outlined
    from palimpsest.stores.index.vector_space import EmbeddingProgress

    row, live = shard.embedding, sources.embeddings.live(shard)
    upcoming, former = _chosen(shard, "upcoming"), _chosen(shard, "former")
    counted = "SELECT count(*) AS n FROM memory_rows WHERE NOT is_deleted"
    memories = rows(shard, counted)[0]["n"]
    lacking = missing_now(shard, live)
    done = shard.progress.get((upcoming or live).space, EmbeddingProgress())
    made = left = None
    if upcoming is not None:
        to_make = missing_now(shard, upcoming).total
        made = max(0, memories - to_make)  # counted one after the other
        if done.embedded:
            left = round(to_make * done.seconds / done.embedded, 1)
    return {
        "partition": partition,
        "live": live.space,
        "dimensions": live.dimensions,
        "former": None if former is None else former.space,
        "upcoming": None if upcoming is None else upcoming.space,
        "switches": row is not None and upcoming is not None and row.switches,
        "memories": memories,
        "missing": lacking.total,
        "of_another_model": lacking.of_another_model,
        "of_another_text": lacking.of_another_text,
        "outlined": outlined(shard, live.space),
        "made": made,
        "embedded": done.embedded,
        "failed": done.failed,
        "failure": done.failure,
        "seconds_left": left,
    }


class EmbeddingChange(Answer):
    """What was asked of a partition. `state`: `done`, `refused` with the reason, `sent` if no
    worker has executed it yet, or `preview`. `bytes`: what is needed, or freed, about."""

    partition: int
    action: str
    live: str
    to: str
    state: str
    reason: str | None = None
    bytes: int | None = None


class EmbeddingChanges(Answer):
    """What was asked of each partition."""

    changes: tuple[EmbeddingChange, ...]


class MigrateEmbedding(Read[EmbeddingChanges]):
    """Make vectors by another embedding model in the background, while the present one serves.

    Example: palimpsest embedding migrate --to local/multilingual-e5-small-q4
    """

    to: Annotated[
        str,
        Doc("the model as PROVIDER/MODEL", min_length=1, max_length=300, metavar="PROVIDER/MODEL"),
    ]
    dimensions: Annotated[
        int | None, Doc("dimensions of its vectors; by default the model's", ge=8, le=65_536)
    ] = None
    base_url: Annotated[
        str | None,
        Doc("URL of its provider; by default the one that is set, or the provider's"),
    ] = None
    switch: Annotated[bool, Doc("switch to it once all vectors exist", option="--switch")] = False
    allow_missing: Annotated[
        int, Doc("number of memories that may lack a vector at that switch", ge=0)
    ] = 0

    surface: ClassVar = OPERATING(("POST", "/api/embedding/migrate"), command="embedding migrate")

    async def read(self, sources: Sources) -> Json:
        from palimpsest.ops.parts import SetupError
        from palimpsest.schemas.commands import ChangeEmbeddingCommand

        embeddings = sources.embeddings
        commands = []
        for partition, shard in sources.shards.items():
            live = embeddings.live(shard)
            try:
                to = embeddings.chosen(self.to, live, self.dimensions, self.base_url)
                wrong = await embeddings.of(to).check()
            except (SetupError, ValueError) as error:
                raise RequestError(str(error)) from None
            if wrong is not None:
                raise RequestError(f"the embedding model {to.space} cannot be used: {wrong}")
            command = ChangeEmbeddingCommand(
                action="migrate",
                live=live,
                to=to,
                switch=self.switch,
                allow_missing=self.allow_missing,
            )
            commands.append((partition, command))
        return await _given(sources, commands)


class SwitchEmbedding(Read[EmbeddingChanges]):
    """Search with the model of the migration from now on; its vectors must exist.

    Example: palimpsest embedding switch
    """

    allow_missing: Annotated[
        int, Doc("number of memories that may lack a vector; they are found by keywords", ge=0)
    ] = 0

    surface: ClassVar = OPERATING(("POST", "/api/embedding/switch"), command="embedding switch")

    async def read(self, sources: Sources) -> Json:
        import asyncio

        from palimpsest.ops.embedding.tracker import missing

        for partition, shard in sources.shards.items():
            to = _chosen(shard, "upcoming")
            if to is not None:
                # What has come since the last pass gets its vectors right after the switch.
                done = shard.progress.get(to.space)
                through = done.through if done is not None and done.complete else None
                known = (shard, to.space, to.dimensions, through)
                lacking = (await asyncio.to_thread(missing, *known)).total
                if lacking > self.allow_missing:
                    raise RequestError(
                        f"{counted(lacking, 'memories lack')} a vector of {to.space} in partition"
                        f" {partition}: wait for the migration (`palimpsest embedding status`), or"
                        f" allow that with --allow-missing {lacking}"
                    )
        return await _named(sources, "switch", "upcoming")


class EmbeddingBack(Read[EmbeddingChanges]):
    """Search with the former embedding model again, whose vectors are kept.

    Example: palimpsest embedding back
    """

    surface: ClassVar = OPERATING(("POST", "/api/embedding/back"), command="embedding back")

    async def read(self, sources: Sources) -> Json:
        return await _named(sources, "switch", "former")


class CancelEmbedding(Read[EmbeddingChanges]):
    """End a migration; the vectors that it made are kept.

    Example: palimpsest embedding cancel
    """

    surface: ClassVar = OPERATING(("POST", "/api/embedding/cancel"), command="embedding cancel")

    async def read(self, sources: Sources) -> Json:
        return await _named(sources, "cancel", "upcoming")


class DropEmbedding(Read[EmbeddingChanges]):
    """Remove the vectors of models that are not in use; without --confirm, show what that frees.

    Example: palimpsest embedding drop-old
    """

    confirm: Annotated[bool, Doc("remove them", option="--confirm")] = False

    surface: ClassVar = OPERATING(("POST", "/api/embedding/drop-old"), command="embedding drop-old")

    async def read(self, sources: Sources) -> Json:
        import asyncio

        from palimpsest.schemas.commands import ChangeEmbeddingCommand

        commands = []
        for partition, shard in sources.shards.items():
            live, upcoming = sources.embeddings.live(shard), _chosen(shard, "upcoming")
            kept = {live.space, None if upcoming is None else upcoming.space}
            for stored in await asyncio.to_thread(_vectors, shard):
                if stored["model"] not in kept:
                    old = {"model": stored["model"], "space": stored["model"]}
                    command = ChangeEmbeddingCommand(
                        action="drop", live=live, to=live.model_copy(update=old)
                    )
                    commands.append((partition, command))
        return await _given(sources, commands, sends=self.confirm)


async def _named(
    sources: Sources, action: Literal["switch", "cancel"], which: Literal["upcoming", "former"]
) -> Json:
    """Gives the command about the model that each partition has as `upcoming` or `former`."""
    from palimpsest.schemas.commands import ChangeEmbeddingCommand

    commands = []
    for partition, shard in sources.shards.items():
        to = _chosen(shard, which)
        if to is not None:
            live = sources.embeddings.live(shard)
            commands.append((partition, ChangeEmbeddingCommand(action=action, live=live, to=to)))
    if sources.shards and not commands:
        raise RequestError(
            "no partition has a former embedding model whose vectors are kept"
            if which == "former"
            else "there is no migration; begin one with `palimpsest embedding migrate`"
        )
    return await _given(sources, commands)


async def _given(
    sources: Sources,
    commands: Sequence[tuple[int, ChangeEmbeddingCommand]],
    sends: bool = True,
) -> Json:
    """Appends the commands, and waits for their results where a worker runs."""
    import asyncio

    from palimpsest.ops.embedding.tracker import partition_scope
    from palimpsest.ops.operations.awaited_results import awaited_commands
    from palimpsest.schemas.envelope import Actor
    from palimpsest.streams.runtime.output import own_command

    changes, sent = [], []
    now = sources.now()
    for partition, command in commands:
        stored = await asyncio.to_thread(_vectors, sources.shard(partition))
        sizes = {row["model"]: row["bytes"] for row in stored}
        size = sizes.get(command.to.space)
        if command.action == "migrate":
            each = [row for row in stored if row["model"] == command.live.space]
            size = sum(row["vectors"] for row in each) * 6 * command.to.dimensions
        scope = partition_scope(partition, sources.partitions)
        number = int(now.timestamp() * 1e6)  # the same may be asked again later
        command_id, record = own_command(scope, command, Actor(), now, number)
        if sends:
            await asyncio.to_thread(sources.append, [record])
        change = {
            "partition": partition,
            "action": command.action,
            "live": command.live.space,
            "to": command.to.space,
            "state": "sent" if sends else "preview",
            "reason": None,
            "bytes": size,
        }
        changes.append(change)
        sent.append((command_id, change))
    if sends and "apply-writes" in sources.running:
        found = await awaited_commands(sources).within([each for each, _ in sent], RESULT_SECONDS)
        for command_id, change in sent:
            if command_id in found:
                error = found[command_id]["error"]
                change["state"] = "done" if error is None else "refused"
                change["reason"] = error
    return {"changes": changes}
