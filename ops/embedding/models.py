"""The embedding models of a process: the one that is set, and those that commands have chosen.

The settings name the model of a store until a command changes it; from then on the store's log
does, whatever is set. A model is made once, when it is first needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from palimpsest.ops.parts import SetupError, embedding_model
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import EmbeddingChoice
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.models.base import EmbeddingModel, UnusableModel, Vector
from palimpsest.streams.models.settings import DEFAULT_EMBEDDING_MODELS, REMOTE, defaults_for
from palimpsest.streams.runtime.model_port import CircuitBreaker

Make = Callable[[Settings], EmbeddingModel]
READ_RECORDS = 10_000


class EmbeddingModels:
    """`own` is the model that is set; `shards` returns those that are open. Call `close`, which
    leaves `own` open."""

    def __init__(
        self,
        settings: Settings,
        own: EmbeddingModel,
        shards: Callable[[], Mapping[int, Shard]] = dict,
        make: Make = embedding_model,
    ) -> None:
        self._settings = settings
        self.own = own
        self._shards = shards
        self._make = make
        self._made: dict[str, EmbeddingModel] = {}
        self._breakers: dict[str, CircuitBreaker] = {}

    def own_choice(self) -> EmbeddingChoice:
        embedding = self._settings.embedding
        return EmbeddingChoice(
            provider=embedding.provider,
            model=self._settings.embedding_model,
            space=self.own.model,
            dimensions=self.own.dimensions,
            base_url=embedding.base_url,
        )

    def live(self, shard: Shard) -> EmbeddingChoice:
        """The model that a shard searches with."""
        row = shard.embedding
        return choice_of(row.live) if row is not None and row.switched_seq else self.own_choice()

    def of(self, choice: EmbeddingChoice) -> EmbeddingModel:
        """Raises SetupError for a model that cannot be made, or gives other dimensions."""
        if choice.space == self.own.model and choice.dimensions == self.own.dimensions:
            return self.own
        if choice.space not in self._made:
            model = self._make(settings_of(self._settings, choice))
            named = model if model.model == choice.space else NamedSpace(model, choice.space)
            self._made[choice.space] = named
        made = self._made[choice.space]
        if made.dimensions != choice.dimensions:
            raise SetupError(
                f"embedding: {choice.provider}/{choice.model} gives vectors of {made.dimensions}"
                f" dimensions, not {choice.dimensions}"
            )
        return made

    def of_space(self, space: str) -> EmbeddingModel | None:
        """The model of a vector space that any open shard has chosen; one that never answers where
        that cannot be made here, so that texts go without vectors meanwhile."""
        for shard in self._shards().values():
            for choice in choices(shard):
                if choice.space == space:
                    try:
                        return self.of(choice)
                    except SetupError as error:
                        return UnusableModel(space, choice.dimensions, str(error))
        return self._made.get(space)

    def breaker_of(self, space: str) -> CircuitBreaker:
        """Of calls of writes and questions to the model of a vector space, which go on without its
        vectors. A model of this process is always waited for: it is slow because it works."""
        if space not in self._breakers:
            settings = self._settings.embedding
            chosen = (each for shard in self._shards().values() for each in choices(shard))
            provider = next((each.provider for each in chosen if each.space == space), None)
            is_remote = (provider or settings.provider) in REMOTE
            self._breakers[space] = CircuitBreaker(settings.wait_seconds if is_remote else None)
        return self._breakers[space]

    def searching(self, space: str) -> EmbeddingModel:
        """The model of a shard's present vector space."""
        return self.of_space(space) or self.own

    def chosen(
        self, name: str, live: EmbeddingChoice, dimensions: int | None, base_url: str | None
    ) -> EmbeddingChoice:
        """The model that a person names as PROVIDER/MODEL. Raises SetupError."""
        provider, _, model = name.partition("/")
        if provider not in DEFAULT_EMBEDDING_MODELS:
            known = ", ".join(DEFAULT_EMBEDDING_MODELS)
            raise SetupError(f"there is no embedding provider {provider!r}; there are {known}")
        model = model or DEFAULT_EMBEDDING_MODELS[provider]
        wanted = EmbeddingChoice.model_validate(
            {
                "provider": provider,
                "model": model,
                "space": model,
                "dimensions": dimensions or defaults_for(model).dimensions or live.dimensions,
                "base_url": base_url,
            }
        )
        made = self._make(settings_of(self._settings, wanted))
        space = made.model
        if space == live.space and made.dimensions != live.dimensions:
            space = f"{space}@{made.dimensions}"
        self._made.setdefault(space, made if space == made.model else NamedSpace(made, space))
        return wanted.model_copy(update={"space": space, "dimensions": made.dimensions})

    async def close(self) -> None:
        for model in self._made.values():
            await model.close()


class NamedSpace:
    """A model under another name: that of its vectors of another size than those in use."""

    def __init__(self, model: EmbeddingModel, space: str) -> None:
        self._model = model
        self.model = space
        self.dimensions = model.dimensions

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return await self._model.embed_passages(texts)

    async def embed_query(self, text: str) -> Vector:
        return await self._model.embed_query(text)

    async def check(self) -> str | None:
        return await self._model.check()

    async def close(self) -> None:
        await self._model.close()


def choice_of(text: str) -> EmbeddingChoice:
    return EmbeddingChoice.model_validate_json(text)


def choices(shard: Shard) -> list[EmbeddingChoice]:
    """The models that commands have chosen for a shard: live, former, upcoming."""
    row = shard.embedding
    if row is None:
        return []
    named = (row.live if row.switched_seq else None, row.former, row.upcoming)
    return [choice_of(each) for each in named if each is not None]


def settings_of(settings: Settings, choice: EmbeddingChoice) -> Settings:
    """The settings with this embedding model in the place of their own. The key and, for the same
    provider, the address are those that are set."""
    own = settings.embedding
    changed: dict[str, object] = {
        "provider": choice.provider,
        "model": choice.model,
        "dimensions": None,
        "base_url": choice.base_url or (own.base_url if own.provider == choice.provider else None),
    }
    if choice.dimensions != defaults_for(choice.model).dimensions:
        changed["dimensions"] = choice.dimensions
    if choice.model != settings.embedding_model:
        changed |= {"query_prefix": None, "passage_prefix": None}
    return settings.model_copy(update={"embedding": own.model_copy(update=changed)})


def first_choice(log: LogReader, partition: int) -> EmbeddingChoice | None:
    """The model that a partition began with, as the first command that changed it tells; None
    where no command did. Reads memory-writes up to it. Raises LogError."""
    offset, topic = 0, MEMORY_WRITES.name
    while records := log.read(topic, partition, offset, READ_RECORDS):
        offset = records[-1].offset + 1
        for record in records:
            if record.value is None or b'"change-embedding"' not in record.value:
                continue
            write = json.loads(record.value).get("body", {}).get("write", {})
            is_taken = isinstance(write, dict) and write.get("error") is None
            command = write.get("command") if is_taken else None
            if isinstance(command, dict) and command.get("command") == "change-embedding":
                return EmbeddingChoice.model_validate(command["live"])
    return None
