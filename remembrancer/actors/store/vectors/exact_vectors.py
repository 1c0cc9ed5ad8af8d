"""The vectors of one file of records under one model, searched in memory by comparing all of them.

Searches reflect the records' rows: before each one, new rows are read and deleted ones dropped, without notification.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.types import PassageVectors, Vectors
from remembrancer.memory.ranking import on_the_scale
from remembrancer.protocol.work import CALIBRATED, CosineScale

Nearest = dict[int, float]
"""Memories with the cosine of each one's best passage, nearest first."""

READ_BATCH: Final = 4096
"""The number of passages read from the records in one query: 6 MB at 384 dimensions."""
BY_THEMSELVES: Final = 8
"""If fewer than one in this many passages are allowed, only those are compared."""


class ExactVectors:
    """The vectors of one file of records under one model, read at the first search. Methods block; they may be called
    from any thread."""

    def __init__(self, records: EmbeddedTexts, model: str, scale: CosineScale = CALIBRATED) -> None:
        self.records = records
        self.model = model
        self.scale = scale
        """The scale of the model's cosines."""
        self.used_at = time.monotonic()
        self._lock = threading.Lock()
        self._held = _Held.of_nothing()
        self._commits = -1
        """The number of commits when the records were last read."""

    @property
    def size_bytes(self) -> int:
        return self._held.room.nbytes

    def free(self) -> None:
        """Free the memory; the next search reads the vectors again."""
        with self._lock:
            self._held, self._commits = _Held.of_nothing(), -1

    def nearest(self, query: Vectors, limit: int, allowed: Sequence[int] | None = None) -> Nearest:
        """Return the `limit` memories nearest to `query` (dimensions,), with cosines on the default model's scale.
        `allowed` are the numbers of the memories to search (None: all)."""
        (nearest,) = self.nearest_each(query.reshape(1, -1), limit, allowed)
        if self.scale == CALIBRATED:
            return nearest
        return {memory: on_the_scale(cosine, self.scale) for memory, cosine in nearest.items()}

    def nearest_each(self, queries: Vectors, limit: int, allowed: Sequence[int] | None = None) -> list[Nearest]:
        """Like `nearest`, for each row of `queries` (n, dimensions; unit length), with unscaled cosines."""
        held = self._up_to_date()
        if not held.count or not limit:
            return [{} for _ in queries]
        places = None if allowed is None else held.places_of(allowed)
        memories = held.memories if places is None else held.memories[places]
        if places is not None and len(places) * BY_THEMSELVES < held.count:
            return [first_memories(row, memories, limit) for row in queries @ held.room[places].T]
        cosines = queries @ held.room[: held.count].T
        return [first_memories(row if places is None else row[places], memories, limit) for row in cosines]

    def of_memories(self, memories: Sequence[int]) -> PassageVectors:
        held = self._up_to_date()
        return held.passages_at(held.places_of(memories))

    def _up_to_date(self) -> _Held:
        """Return all passages that are in the records now."""
        with self._lock:
            self.used_at = time.monotonic()
            held, commits = self._held, self.records.commits
            if commits == self._commits:
                return held
            present = self.records.extent(self.model)
            if present != held.extent:
                while (new := self.records.passages(self.model, after=held.last, limit=READ_BATCH)).numbers:
                    held = held.with_more(new)
                if held.extent != present:  # some are gone, as numbers are never reused
                    held = held.among(self.records.passage_numbers(self.model))
            self._held, self._commits = held, commits
            return held


class _Held:
    """Passages in memory: number, memory and ordinal of each (n, 3), and their vectors (n, dimensions). Immutable,
    apart from spare room at the end, which the next extension uses."""

    def __init__(self, keys: NDArray[np.int64], room: Vectors, count: int) -> None:
        self._keys = keys
        self.room = room
        self.count = count

    @classmethod
    def of_nothing(cls) -> _Held:
        return cls(np.zeros((0, 3), dtype=np.int64), np.zeros((0, 0), dtype=np.float32), 0)

    @property
    def last(self) -> int:
        """The number of the last passage, which is the highest; 0 if there are no passages."""
        return int(self._keys[self.count - 1, 0]) if self.count else 0

    @property
    def extent(self) -> tuple[int, int]:
        """The number of memories, each of which has a first passage, and the number of the last passage."""
        return int(np.count_nonzero(self._keys[: self.count, 2] == 0)), self.last

    @property
    def memories(self) -> NDArray[np.int64]:
        return self._keys[: self.count, 1]

    def with_more(self, new: PassageVectors) -> _Held:
        """Return these passages, followed by newer ones."""
        count, needed = self.count, self.count + len(new.numbers)
        keys, room = self._keys, self.room
        if needed > len(room):
            size = needed if not count else max(needed, count + count // 2)
            keys, room = np.empty((size, 3), dtype=np.int64), np.empty((size, new.vectors.shape[1]), dtype=np.float32)
            keys[:count] = self._keys[:count]
            if count:
                room[:count] = self.room[:count]
        keys[count:needed] = np.column_stack((new.numbers, new.memories, new.ordinals))
        room[count:needed] = new.vectors
        return _Held(keys, room, needed)

    def among(self, numbers: Sequence[int]) -> _Held:
        """Return only the passages with these numbers."""
        places = np.flatnonzero(np.isin(self._keys[: self.count, 0], np.asarray(numbers, dtype=np.int64)))
        return _Held(self._keys[places], self.room[places], len(places))

    @cached_property
    def _by_memory(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """The memories of the passages in order, and the position of each passage."""
        order = np.argsort(self.memories, kind="stable")
        return self.memories[order], order

    def places_of(self, memories: Sequence[int]) -> NDArray[np.intp]:
        """Return the positions of the passages of some memories, ascending."""
        in_order, order = self._by_memory
        wanted = np.unique(np.asarray(memories, dtype=np.int64))
        first, after = np.searchsorted(in_order, wanted), np.searchsorted(in_order, wanted, side="right")
        counts = after - first
        before = np.cumsum(counts) - counts
        return np.sort(order[np.repeat(first - before, counts) + np.arange(counts.sum())])

    def passages_at(self, places: NDArray[np.intp]) -> PassageVectors:
        numbers, memories, ordinals = self._keys[places].T.tolist()
        return PassageVectors(numbers, memories, ordinals, self.room[places])


def first_memories(cosines: Vectors, memories: NDArray[np.int64], limit: int) -> Nearest:
    """Return the memories of the best passages, each once. Ties keep their order."""
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
