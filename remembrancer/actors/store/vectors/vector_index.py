"""What the store asks of a vector index: one narrow Protocol. An index is derived: the records can fill it again.

A collection holds the passages of one file of records under one model, by passage number. Distances are cosines.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from remembrancer.actors.store.records.contract import PassageVectors, Vectors


class VectorHit(msgspec.Struct, frozen=True, gc=False):
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

    def count(self) -> int:
        """How many passages there are: much quicker than to have their numbers."""


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


@dataclass(frozen=True, slots=True)
class Frozen:
    """Some passages and their vectors (passages, dimensions) that change no more: searched exactly, from any thread."""

    numbers: Sequence[int]
    matrix: Vectors

    def search(self, queries: Vectors, limit: int) -> list[list[VectorHit]]:
        """As `Collection.search`. Of equal passages those that came first stand first."""
        if not self.numbers:
            return [[] for _ in queries]
        return [self._nearest(cosines, limit) for cosines in queries @ self.matrix.T]

    def _nearest(self, cosines: Vectors, limit: int) -> list[VectorHit]:
        places = np.arange(len(cosines))
        if limit < len(cosines):  # to sort thousands for the sake of some takes longer than to compare them
            places = np.flatnonzero(cosines >= np.partition(cosines, -limit)[-limit])
        nearest = places[np.argsort(-cosines[places], kind="stable")[:limit]]
        return [VectorHit(self.numbers[place], float(cosines[place])) for place in nearest]


class ExactCollection:
    """Exact search in memory: the newest passages, until they are in the index. Also the reference of the contract."""

    def __init__(self) -> None:
        self._passages: dict[int, tuple[int, int, Vectors]] = {}
        self._frozen: Frozen | None = None

    def __len__(self) -> int:
        return len(self._passages)

    def upsert(self, passages: PassageVectors) -> None:
        rows = zip(passages.numbers, passages.memories, passages.ordinals, passages.vectors, strict=True)
        self._passages |= {number: (memory, ordinal, vector) for number, memory, ordinal, vector in rows}
        self._frozen = None

    def delete(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._passages.pop(number, None)
        self._frozen = None

    def search(self, queries: Vectors, limit: int) -> list[list[VectorHit]]:
        return self.frozen().search(queries, limit)

    def numbers(self) -> list[int]:
        return list(self._passages)

    def count(self) -> int:
        return len(self._passages)

    def first(self, count: int) -> PassageVectors:
        """The `count` passages that have been here longest."""
        taken = list(itertools.islice(self._passages.items(), count))
        return PassageVectors(
            [number for number, _ in taken],
            [memory for _, (memory, _, _) in taken],
            [ordinal for _, (_, ordinal, _) in taken],
            np.vstack([vector for _, (_, _, vector) in taken]) if taken else np.zeros((0, 0), dtype=np.float32),
        )

    def frozen(self) -> Frozen:
        """What is here now."""
        if self._frozen is None:
            vectors = [vector for _, _, vector in self._passages.values()]
            matrix = np.vstack(vectors) if vectors else np.zeros((0, 0), dtype=np.float32)
            self._frozen = Frozen(list(self._passages), matrix)
        return self._frozen
