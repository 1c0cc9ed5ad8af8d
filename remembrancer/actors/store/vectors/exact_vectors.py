"""The vectors of one space, or index of files, under one model. A search compares all of them in memory.

Searches reflect the rows in the records: before each search, new rows are read, and deleted rows are dropped.
"""

import threading
import time
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.types import PassageVectors, Vectors
from remembrancer.memory.ranking import on_the_scale
from remembrancer.protocol.work import CALIBRATED

Nearest = dict[int, float]
"""Memories with the cosines of their best passages, nearest first."""
Keys = NDArray[np.int64]
"""The number, memory and ordinal of each passage, (n, 3)."""

READ_BATCH: Final = 4096
"""The number of passages read from the records in one query: 6 MB at 384 dimensions."""
BY_THEMSELVES: Final = 8
"""If fewer than one in this many passages are allowed, only the allowed ones are compared."""


class ExactVectors:
    """The vectors of one space, or index of files, under one model. Methods block, and may run on any thread."""

    def __init__(self, records: EmbeddedTexts, model: str) -> None:
        self.records = records
        self.model = model
        self.scale = CALIBRATED
        self.used_at = time.monotonic()
        self._lock = threading.Lock()
        self.free()

    def free(self) -> None:
        """Free the RAM. The next search reads the vectors again."""
        with self._lock:
            self._keys, self._vectors = np.zeros((0, 3), dtype=np.int64), np.zeros((0, 0), dtype=np.float32)
            self._count = 0
            """The number of passages held. The arrays have spare room for more."""
            self._commits = -1

    def nearest(self, query: Vectors, limit: int, allowed: Sequence[int] | None = None) -> Nearest:
        """Return the `limit` memories nearest to `query` (dimensions,), with cosines on the default model's scale.
        `allowed` are the numbers of the memories to search (None: all)."""
        (nearest,) = self.nearest_each(query.reshape(1, -1), limit, allowed)
        if self.scale == CALIBRATED:
            return nearest
        return {memory: on_the_scale(cosine, self.scale) for memory, cosine in nearest.items()}

    def nearest_each(self, queries: Vectors, limit: int, allowed: Sequence[int] | None = None) -> list[Nearest]:
        """Like `nearest`, for each row of `queries` (n, dimensions; unit length), with unscaled cosines."""
        keys, vectors = self._up_to_date()
        if not len(keys) or not limit:
            return [{} for _ in queries]
        places = slice(None) if allowed is None else _places_of(keys, allowed)
        if isinstance(places, slice) or len(places) * BY_THEMSELVES >= len(keys):
            cosines = (queries @ vectors.T)[:, places]
        else:
            cosines = queries @ vectors[places].T
        memories = keys[places, 1]
        return [first_memories(row, memories, limit) for row in cosines]

    def of_memories(self, memories: Sequence[int]) -> PassageVectors:
        keys, vectors = self._up_to_date()
        places = _places_of(keys, memories)
        numbers, owners, ordinals = keys[places].T.tolist()
        return PassageVectors(numbers, owners, ordinals, vectors[places])

    def _up_to_date(self) -> tuple[Keys, Vectors]:
        with self._lock:
            self.used_at = time.monotonic()
            if (commits := self.records.commits) != self._commits:
                self._follow(self.records.extent(self.model))
                self._commits = commits
            return self._keys[: self._count], self._vectors[: self._count]

    def _follow(self, extent: tuple[int, int]) -> None:
        """Read new passages and drop deleted ones, until the passages held have this extent."""
        if self._extent == extent:
            return
        while (new := self.records.passages(self.model, after=self._extent[1], limit=READ_BATCH)).numbers:
            self._append(new)
        if self._extent != extent:  # some were deleted, since numbers are never reused
            recorded = np.asarray(self.records.passage_numbers(self.model), dtype=np.int64)
            kept = np.flatnonzero(np.isin(self._keys[: self._count, 0], recorded))
            self._keys, self._vectors, self._count = self._keys[kept], self._vectors[kept], len(kept)

    @property
    def _extent(self) -> tuple[int, int]:
        """Like `EmbeddedTexts.extent`, for the passages held."""
        held = self._keys[: self._count]
        return int(np.count_nonzero(held[:, 2] == 0)), int(held[-1, 0]) if len(held) else 0

    def _append(self, new: PassageVectors) -> None:
        count, needed, width = self._count, self._count + len(new.numbers), new.vectors.shape[1]
        if needed > len(self._keys):
            size = max(needed, count + count // 2)
            keys, vectors = np.empty((size, 3), dtype=np.int64), np.empty((size, width), dtype=np.float32)
            keys[:count], vectors[:count] = self._keys[:count], self._vectors[:count].reshape(count, width)
            self._keys, self._vectors = keys, vectors
        self._keys[count:needed] = np.column_stack((new.numbers, new.memories, new.ordinals))
        self._vectors[count:needed] = new.vectors
        self._count = needed


def _places_of(keys: Keys, memories: Sequence[int]) -> NDArray[np.intp]:
    return np.flatnonzero(np.isin(keys[:, 1], np.asarray(memories, dtype=np.int64)))


def first_memories(cosines: Vectors, memories: NDArray[np.int64], limit: int) -> Nearest:
    """Return the memories of the best passages. Ties keep their order."""
    looked_at = limit
    while True:
        places = np.arange(len(cosines))
        if looked_at < len(cosines):  # sorting thousands to get a few takes longer than comparing them
            places = np.flatnonzero(cosines >= np.partition(cosines, -looked_at)[-looked_at])
        best = places[np.argsort(-cosines[places], kind="stable")]
        nearest: Nearest = {}
        for memory, cosine in zip(memories[best].tolist(), cosines[best].tolist(), strict=True):
            nearest.setdefault(memory, cosine)
            if len(nearest) == limit:
                break
        if len(nearest) == limit or len(places) == len(cosines):
            return nearest
        looked_at *= 4
