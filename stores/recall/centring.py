"""A query's vector relative to those of its scope, without their common part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from palimpsest.stores.index.scoring import row_products
from palimpsest.stores.index.segment import Floats
from palimpsest.stores.index.vector_column import HalfVectors, Vector
from palimpsest.stores.recall.ranking import RankingParameters, centred, centring_share


@dataclass(frozen=True, slots=True)
class CenteredQuery:
    """The query's vector for the comparison: centred, with what was subtracted from the
    memories."""

    query: Vector
    off: Vector

    @classmethod
    def of(cls, vector: Vector, mean: Vector, count: int, parameters: RankingParameters) -> Self:
        """Centres the vector in a scope with `count` vectors of this mean."""
        share = centring_share(count, parameters.centring, parameters.centring_half)
        return cls(centred(vector, mean, share), (np.float32(share) * mean).astype(np.float32))

    def cosines(self, vectors: HalfVectors) -> Floats:
        """Centred cosines (n,) of unit vectors (n, d), each row's bits its own."""
        rest = 1.0 - 2.0 * row_products(vectors, self.off) + (self.off * self.off).sum()
        products = row_products(vectors, self.query) - (self.off * self.query).sum()
        lengths = np.sqrt(np.maximum(rest, 1e-6))
        cosines: Floats = (products / lengths).astype(np.float64)
        return cosines
