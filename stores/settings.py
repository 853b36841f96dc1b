"""The sections of the settings about stores: `search`, `recall` and `store`, and how a
shard is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from palimpsest.schemas.section import Section


class SearchSettings(Section):
    language: str = Field(
        default="english", description="language of the stemmer (Snowball's name)"
    )
    candidate_alpha: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="weight of the vector against the keywords in the candidates of a decision,"
        " from 0 to 1",
    )


class RecallSettings(Section):
    fusion: Literal["hybrid", "rrf", "keyword", "vector"] = Field(
        default="hybrid",
        description="how keywords and vectors are joined: their scores, their ranks, or one alone",
    )
    alpha: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="weight of the vector against the keywords, from 0 to 1",
    )
    """Measured as in `stores.recall.ranking`: .846 with multilingual e5-small, .840 with MiniLM-L6;
    .45 and .55 lose at most .01 with either. Keyword alone .792, MiniLM's vectors alone .629."""
    profile: Literal["relevance", "balanced"] = Field(
        default="relevance",
        description="the final order: relevance alone, or .55 with .20 recency, .15 importance and"
        " .10 frequency",
    )
    """Relevance alone: a conversation of months has its answers anywhere."""
    pool: int = Field(
        default=100, ge=10, le=5_000, description="candidates taken from keywords and from vectors"
    )
    """Then widened by their neighbours. From 50 on, recall is that of the exhaustive ranking;
    without the neighbours 200 are needed."""
    graph_weight: float = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="share of its score that a memory gains by what the graph knows; 0 is off",
    )
    graph_timeout_ms: float = Field(
        default=500.0, gt=0.0, description="how long the graph may be asked, in milliseconds"
    )
    time_words: Literal["prefer", "filter", "off"] = Field(
        default="prefer",
        description="what times in a question do: boost what was told then, leave out the rest,"
        " or nothing",
    )
    """Measured on two LoCoMo conversations (34 questions with times), recall@10: off .863, filter
    .814, prefer .873."""
    intent: Literal["words", "exemplars"] = Field(
        default="words",
        description="what tells whether a question asks why, when, who or what: its words, or where"
        " they do not also the nearest of example questions, embedded at the first such question",
    )
    rerank: Literal["off", "cosine"] = Field(
        default="off",
        description="a second look at the first results: .7 of the score and .3 of the cosine of"
        " their whole content",
    )
    rerank_top_n: int = Field(
        default=20, ge=1, le=200, description="results that a second look is taken at"
    )
    rerank_timeout_ms: float = Field(
        default=2_000.0,
        gt=0.0,
        description="how long a second look may take, in milliseconds; then the order stays",
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
    index_bytes: int = Field(
        default=512 * 1024 * 1024,
        ge=1024 * 1024,
        description="indexes of scopes in use kept in memory, in bytes; a scope that needs more is"
        " searched where it is stored",
    )


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """How a shard is opened: the embedding model that its vectors are of, with as many numbers as
    `dimensions`, and two sections."""

    embedding_model: str
    dimensions: int
    store: StoreSettings = StoreSettings()
    search: SearchSettings = SearchSettings()
