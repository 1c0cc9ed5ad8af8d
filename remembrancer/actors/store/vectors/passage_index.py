"""The passages of one file of records, as they are searched: the newest ones exactly, the rest through the index.

A passage can be found as soon as its vector is in the records. It goes into the index later, many at a time, when the
embedders have nothing to do or the newest have become too many: inserting costs the processor as much as a third of
making the vector.

An index behind it is a `VectorIndex`: derived, since the records can fill it again. A collection of it holds the
passages of one file of records under one model, by passage number. Distances are cosines.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import numpy as np

from remembrancer.actors.store.records.contract import NearDuplicate, PassageVectors, Records, SavedEmbeddings, Vectors


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


MAX_NEWEST: Final = 4096
"""Passages searched exactly: 6 MB and about a millisecond at 384 dimensions."""
RECONCILE_PAGE: Final = 500
"""A third of a second at 100,000 passages, which is how long a stop may have to wait for it."""
FLUSH_BATCH: Final = 64
"""While Chroma takes a batch in, no search gets an answer: at 100,000 passages for some 40 ms.

Four times as many at once would cost about a quarter less for each.
"""
PROBES: Final = 16
ITSELF_COSINE: Final = 0.99


class PassageHit(msgspec.Struct, frozen=True, gc=False):
    """A passage near the query: its number, the memory it belongs to, its ordinal there, the cosine."""

    passage: int
    memory: int
    ordinal: int
    cosine: float


@dataclass(frozen=True, slots=True)
class _Unchecked:
    """A memory that has not been compared with the others: its first passage, and the vector of that."""

    memory: int
    passage: int
    vector: Vectors


class PassageIndex:
    """Search and upkeep for one file and one model. Methods block; `search` may run beside the others."""

    def __init__(self, records: Records, model: str) -> None:
        self.records = records
        self.model = model
        self._collection: Collection | None = None
        self._all_are_newest = records.last_passage(model) == 0
        self._collection_is_filled = False
        self._newest = ExactCollection()
        self._unchecked: list[_Unchecked] = []
        self._replaced: set[int] = set()
        self._lost = False
        self._stopping = False
        self._lock = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether every passage of the records can be found."""
        return self._collection is not None or self._all_are_newest

    @property
    def attached(self) -> bool:
        """Whether there is a collection to move passages into."""
        return self._collection is not None

    @property
    def lost(self) -> bool:
        """Whether a search has failed: the collection has to be made again."""
        return self._lost

    @property
    def must_flush(self) -> bool:
        """Whether the newest have become too many."""
        return len(self._newest) >= MAX_NEWEST

    @property
    def has_work(self) -> bool:
        """Whether a flush would do something."""
        return bool(len(self._newest) or self._unchecked or self._replaced)

    def add(self, saved: SavedEmbeddings) -> None:
        """Make passages findable that are in the records now, and those that they replaced not."""
        self.remove(saved.replaced)
        kept = saved.kept
        with self._lock:
            if kept.numbers:
                self._newest.upsert(kept)
                self._newest.delete([number for number in kept.numbers if number in self._replaced])
        self._leave_unchecked(kept)

    def remove(self, passages: Sequence[int]) -> None:
        """Make passages unfindable that are not in the records any more. Those of other models are passed over."""
        if not passages:
            return
        gone = set(passages)
        with self._lock:
            self._newest.delete(passages)
            self._replaced.update(gone)
            self._unchecked = [each for each in self._unchecked if each.passage not in gone]

    def search(self, query: Vectors, limit: int) -> list[PassageHit]:
        """The nearest passages to `query` (dimensions,), nearest first, each once. Raises `IndexLost`."""
        return self.search_each(query.reshape(1, -1), limit)[0]

    def reconcile(self, collection: Collection) -> int:
        """Bring `collection` into agreement with the records, then search it. Returns how many passages differed.

        After `stop` it ends where it is, and the collection is not searched: the next start goes on from there.

        Raises:
            IndexLost: what it says it holds cannot be found in it.
        """
        indexed = set(collection.numbers())
        recorded = self.records.passage_numbers(self.model)
        self._probe(collection, [number for number in recorded if number in indexed])
        surplus = sorted(indexed.difference(recorded))
        if surplus:
            collection.delete(surplus)
        missing = [number for number in recorded if number not in indexed]
        for start in range(0, len(missing), RECONCILE_PAGE):
            if self._stopping:
                return len(surplus) + start
            page = self.records.passages(missing[start : start + RECONCILE_PAGE])
            collection.upsert(page)
            if len(missing) <= MAX_NEWEST:  # new when a crash came, so perhaps not compared; or else all is made anew
                self._leave_unchecked(page)
        self._collection_is_filled = bool(recorded)
        self._collection = collection
        return len(surplus) + len(missing)

    def _probe(self, collection: Collection, numbers: list[int]) -> None:
        """Look for some passages: an index may keep the list of what it holds apart from what it searches."""
        known = self.records.passages(numbers[:: max(1, len(numbers) // PROBES)])
        if not known.numbers:
            return
        nearest = collection.search(known.vectors, 1)
        found = sum(hits[0].cosine >= ITSELF_COSINE for hits in nearest if hits)
        if found * 2 < len(known.numbers):
            raise IndexLost(f"{found} of {len(known.numbers)} passages are found again")

    def stop(self) -> None:
        """Let no reconciliation go on. From any thread."""
        self._stopping = True

    def detach(self) -> None:
        """Stop using the collection: it is lost, and will be made again."""
        self._collection = None
        self._lost = False

    def flush(self) -> bool:
        """Move a batch of the newest passages into the index. True when more are left."""
        collection = self._collection
        if collection is None:
            return False
        with self._lock:
            batch = self._newest.first(FLUSH_BATCH)
            replaced = list(self._replaced)
        if replaced:
            collection.delete(replaced)
            with self._lock:
                self._replaced.difference_update(replaced)
        if batch.numbers:
            self._all_are_newest = False
            collection.upsert(batch)
            self._collection_is_filled = True
            with self._lock:
                self._newest.delete(batch.numbers)
        return len(self._newest) > 0

    def near_duplicates(self, least_cosine: float, memory: int | None = None) -> list[NearDuplicate]:
        """Memories that are nearly the same, among those not checked yet; or for `memory` alone.

        A memory is compared by its first passage: two that begin alike and differ later are reported as well.
        """
        with self._lock:
            chosen = [each for each in self._unchecked if memory is None or each.memory == memory][:FLUSH_BATCH]
            taken = {each.memory for each in chosen}
            self._unchecked = [each for each in self._unchecked if each.memory not in taken]
        if not chosen:
            return []
        hits_of_each = self.search_each(np.vstack([each.vector for each in chosen]), 6)
        return [
            NearDuplicate(
                later=max(each.memory, hit.memory),
                earlier=min(each.memory, hit.memory),
                cosine=hit.cosine,
                seen=(each.passage, hit.passage),
            )
            for each, hits in zip(chosen, hits_of_each, strict=True)
            for hit in hits
            if hit.memory != each.memory and hit.ordinal == 0 and hit.cosine >= least_cosine
        ]

    def search_each(self, queries: Vectors, limit: int) -> list[list[PassageHit]]:
        """As `search`, for each row of `queries` (n, dimensions)."""
        with self._lock:
            newest = self._newest.frozen()
            replaced = set(self._replaced)
        collection = self._collection if self._collection_is_filled else None
        try:
            indexed = [[]] * len(queries) if collection is None else collection.search(queries, limit + len(replaced))
        except IndexLost:
            self._lost = collection is self._collection
            raise
        exact = newest.search(queries, limit)  # as it stood before: what has moved meanwhile is in the index by now
        merged = [_merge(left, right, replaced, limit) for left, right in zip(exact, indexed, strict=True)]
        owners = self.records.passage_owners(list({hit.passage for hits in merged for hit in hits}))
        return [
            [PassageHit(hit.passage, *owners[hit.passage], hit.cosine) for hit in hits if hit.passage in owners]
            for hits in merged
        ]

    def _leave_unchecked(self, passages: PassageVectors) -> None:
        with self._lock:
            self._unchecked.extend(
                _Unchecked(passages.memories[place], passages.numbers[place], passages.vectors[place])
                for place, ordinal in enumerate(passages.ordinals)
                if ordinal == 0
            )


def _merge(left: list[VectorHit], right: list[VectorHit], replaced: set[int], limit: int) -> list[VectorHit]:
    """The best of both, each passage once: one that is being moved into the index stands in both for a moment."""
    once = {hit.passage: hit for hit in (*right, *left) if hit.passage not in replaced}
    return sorted(once.values(), key=lambda hit: -hit.cosine)[:limit]
