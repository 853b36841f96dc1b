"""The sections of the settings about stores: `search`, `recall`, `store` and `archive`, and how a
shard is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator

from palimpsest.schemas.section import Section
from palimpsest.stores.database.analysis import algorithm


class SearchSettings(Section):
    language: str = Field(
        default="english",
        description="language of the texts: Snowball's name, its code or none. It sets the stemmer,"
        " and the local embedding model where embedding.model is not set",
    )
    candidate_alpha: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="weight of the vector against the keywords in the candidates of a decision,"
        " from 0 to 1",
    )

    assistant_passages: bool = Field(
        default=True,
        description="whether all that assistants, tools and the system say is embedded, in the"
        " background: each sentence is then found by its meaning, at 100 bytes and half a"
        " millisecond of processor a word; else the outline of each of their turns",
    )

    @field_validator("language")
    @classmethod
    def _known_language(cls, language: str) -> str:
        return algorithm(language)


class RecallSettings(Section):
    fusion: Literal["hybrid", "rrf", "keyword", "vector"] = Field(
        default="hybrid",
        description="how keyword and vector search are combined: by score, by rank, or one alone",
    )
    alpha: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="weight of the vector against the keywords, from 0 to 1; when not set, by the"
        " model: .8 where it has token vectors, else .5",
    )
    profile: Literal["relevance", "balanced"] = Field(
        default="relevance",
        description="the final order: relevance alone, or .55 with .20 recency, .15 importance and"
        " .10 frequency",
    )
    """Relevance alone: a conversation of months has its answers anywhere."""
    pool: int = Field(
        default=50,
        ge=10,
        le=5_000,
        description="candidates taken from keywords and from vectors; as many as results are asked"
        " for, where that is more",
    )
    """Then widened by their neighbours: more of them find no more, with either local model."""
    graph_weight: float = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="share of its score that a memory gains by what the graph knows; 0 is off",
    )
    graph_timeout_ms: float = Field(
        default=500.0, gt=0.0, description="timeout of the graph search, in milliseconds"
    )
    min_score: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="least score of a result, from 0 to 1, where a query names none; when not set,"
        " the nearest are returned whatever their score",
    )
    time_words: Literal["prefer", "filter", "off"] = Field(
        default="prefer",
        description="what times in a question do: boost what was told then, leave out the rest,"
        " or nothing",
    )
    """Measured on two LoCoMo conversations (34 questions with times), recall@10: off .863, filter
    .814, prefer .873."""
    when_weight: float = Field(
        default=0.2,
        ge=0.0,
        le=1.0,
        description="how much more a memory that tells a time counts where the question asks when;"
        " 0 is off",
    )
    intent: Literal["words", "exemplars"] = Field(
        default="words",
        description="what tells whether a question asks why, when, who or what: its words, or where"
        " they do not also the nearest of example questions, embedded at the first such question",
    )
    rerank: Literal["off", "cosine", "cross-encoder"] = Field(
        default="off",
        description="a second look at the first results: by the cosine of their whole content, too,"
        " or by a model that reads question and text together (English; needs the extra english)",
    )
    rerank_top_n: int = Field(default=20, ge=1, le=200, description="number of results to rerank")
    rerank_timeout_ms: float = Field(
        default=2_000.0,
        gt=0.0,
        description="how long a second look may take, in milliseconds; what it has not reached"
        " then keeps its place",
    )
    mmr: bool = Field(
        default=False,
        description="on: among the first results one unlike those before goes first; off, as it"
        " costs recall",
    )


class StoreSettings(Section):
    memory_limit: int = Field(
        default=256, ge=64, description="memory of the database of one partition, in MiB"
    )
    threads: int = Field(default=1, ge=1, le=256, description="threads of the database")
    sql_memory_limit: int = Field(
        default=512, ge=64, description="memory of the database of one query in SQL, in MiB"
    )
    sql_processes: int = Field(
        default=2,
        ge=1,
        le=64,
        description="maximum number of concurrent SQL queries, each in its own process",
    )
    index_bytes: int = Field(
        default=512 * 1024 * 1024,
        ge=1024 * 1024,
        description="indexes of scopes in use kept in memory, in bytes; a scope that needs more is"
        " searched where it is stored",
    )


class ArchiveSettings(Section):
    after_days: int = Field(
        default=30,
        ge=0,
        le=36_500,
        description="age, in days, from which archived states move to Parquet files",
    )


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """How a shard is opened: the embedding model that its vectors are of, with as many numbers as
    `dimensions`, and two sections."""

    embedding_model: str
    dimensions: int
    store: StoreSettings = StoreSettings()
    search: SearchSettings = SearchSettings()
