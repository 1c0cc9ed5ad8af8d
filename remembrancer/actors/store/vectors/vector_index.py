"""What the store asks of a vector index: one narrow Protocol. An index is derived: the records can fill it again.

A collection holds the passages of one file of records under one model, by passage number. Distances are cosines.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from remembrancer.actors.store.records.contract import PassageVectors, Vectors


@dataclass(frozen=True, slots=True)
class VectorHit:
    """A passage near the query: its number, and the cosine."""

    passage: int
    cosine: float


class IndexLost(Exception):
    """A collection cannot be used: its files are damaged or gone. The index has to be made again."""


class Collection(Protocol):
    """One collection of an index. Methods block; reads may run beside one write. Each may raise `IndexLost`."""

    def upsert(self, passages: PassageVectors) -> None:
        """Add passages, or replace those with the same numbers."""

    def delete(self, numbers: Sequence[int]) -> None:
        """Take passages out. Unknown numbers are passed over."""

    def search(self, queries: Vectors, limit: int) -> list[list[VectorHit]]:
        """For each row of `queries` (n, dimensions; unit length) the nearest passages, nearest first."""

    def numbers(self) -> list[int]:
        """Every passage's number, in any order."""


class VectorIndex(Protocol):
    """All collections of a home."""

    def collection(self, name: str, dimensions: int) -> Collection:
        """The collection `name`, made when it is missing. Raises `IndexLost`."""

    def is_intact(self) -> bool:
        """Whether what is on disk is still what was opened (its folder may have been deleted under us)."""

    def reset(self) -> None:
        """Throw everything away and begin with an empty index."""

    def close(self) -> None:
        """Close. May be called twice."""


class ExactCollection:
    """Exact search in memory: the newest passages, until they are in the index. Also the reference of the contract."""

    def __init__(self) -> None:
        self._passages: dict[int, tuple[int, int, Vectors]] = {}
        self._matrix: tuple[list[int], Vectors] | None = None

    def __len__(self) -> int:
        return len(self._passages)

    def upsert(self, passages: PassageVectors) -> None:
        rows = zip(passages.numbers, passages.memories, passages.ordinals, passages.vectors, strict=True)
        self._passages |= {number: (memory, ordinal, vector) for number, memory, ordinal, vector in rows}
        self._matrix = None

    def delete(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._passages.pop(number, None)
        self._matrix = None

    def search(self, queries: Vectors, limit: int) -> list[list[VectorHit]]:
        numbers, matrix = self._as_matrix()
        if not numbers:
            return [[] for _ in queries]
        hits = []
        for cosines in queries @ matrix.T:
            nearest = np.argsort(-cosines, kind="stable")[:limit]
            hits.append([VectorHit(numbers[place], float(cosines[place])) for place in nearest])
        return hits

    def numbers(self) -> list[int]:
        return list(self._passages)

    def first(self, count: int) -> PassageVectors:
        """The `count` passages that have been here longest."""
        taken = list(itertools.islice(self._passages.items(), count))
        return PassageVectors(
            [number for number, _ in taken],
            [memory for _, (memory, _, _) in taken],
            [ordinal for _, (_, ordinal, _) in taken],
            np.vstack([vector for _, (_, _, vector) in taken]) if taken else np.zeros((0, 0), dtype=np.float32),
        )

    def _as_matrix(self) -> tuple[list[int], Vectors]:
        if self._matrix is None:
            vectors = [vector for _, _, vector in self._passages.values()]
            matrix = np.vstack(vectors) if vectors else np.zeros((0, 0), dtype=np.float32)
            self._matrix = (list(self._passages), matrix)
        return self._matrix
