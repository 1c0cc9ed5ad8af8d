"""The passages of one file of records, as they are searched: the newest ones exactly, the rest through a collection.

A passage can be found as soon as its vector is in the records. It goes into the collection later, many at a time, when
the embedders have nothing to do or the newest have become too many. A collection holds the passages of one file of
records under one model, by passage number: in memory, compared one by one, or in an index on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.records.contract import (
    EmbeddedTexts,
    NearDuplicate,
    PassageFilter,
    PassageVectors,
    Records,
    SavedEmbeddings,
    Vectors,
)
from remembrancer.actors.store.records.materials import mean_vectors
from remembrancer.memory.ranking import on_the_scale
from remembrancer.protocol.consolidation import FindNear, NearFound
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.work import CALIBRATED, CosineScale


class VectorHit(msgspec.Struct, frozen=True, gc=False):
    """A passage near the query: its number, and the cosine."""

    passage: int
    cosine: float


class IndexLost(Exception):
    """A collection cannot be used: its files are damaged or gone. The index has to be made again."""


class IndexAway(IndexLost):
    """The server that has an index cannot be reached, or is in trouble. What it holds stays as it is."""


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
        """The number of passages: much quicker than to have their numbers."""


class VectorIndex(Protocol):
    """All collections of a home."""

    def collection(self, name: str, dimensions: int) -> Collection:
        """The collection `name`, made when it is missing. Raises `IndexLost`."""

    def prune(self, is_needed: Callable[[str], bool]) -> None:
        """Delete the collections whose names are not needed. Raises `IndexLost`."""

    def is_intact(self) -> bool:
        """True if what is on disk is still what was opened (its folder may have been deleted under us)."""

    def reset(self) -> None:
        """Throw everything away and begin with an empty index."""

    def close(self) -> None:
        """Close. May be called twice."""


class _Held(NamedTuple):
    """Passages in memory: the number, the memory and the ordinal of each (n, 3), and their vectors (n, dimensions)."""

    keys: NDArray[np.int64]
    rows: Vectors

    def at(self, places: NDArray[Any]) -> PassageVectors:
        """The passages at these places (or where a mask is true)."""
        numbers, memories, ordinals = self.keys[places].T.tolist()
        return PassageVectors(numbers, memories, ordinals, self.rows[places])


class ExactCollection:
    """Exact search in memory: for files of some thousand passages, and for the newest ones of any file.

    10,000 vectors of 384 dimensions are 15 MB and take a quarter of a millisecond, where Chroma takes two. Also the
    reference of the contract.
    """

    def __init__(self) -> None:
        self._count = 0
        self._room = _Held(np.zeros((0, 3), dtype=np.int64), np.zeros((0, 0), dtype=np.float32))
        """Passages with room for more behind them; what is there is never written again."""
        self._held = self._room
        """The vectors that are searched. Replaced as one, so that a search in another thread sees either."""

    def upsert(self, passages: PassageVectors) -> None:
        if not passages.numbers:
            return
        self.delete(passages.numbers)
        count, needed = self._count, self._count + len(passages.numbers)
        if needed > len(self._room.rows):
            size = max(needed, 2 * count)
            grown = _Held(np.zeros((size, 3), np.int64), np.empty((size, passages.vectors.shape[1]), np.float32))
            if count:
                grown.keys[:count], grown.rows[:count] = self._held
            self._room = grown
        self._room.rows[count:needed] = passages.vectors
        columns = (passages.numbers, passages.memories, passages.ordinals)
        for column, values in enumerate(columns):
            self._room.keys[count:needed, column] = values or 0
        self._count = needed
        self._held = _Held(self._room.keys[:needed], self._room.rows[:needed])

    def delete(self, numbers: Sequence[int]) -> None:
        gone = np.isin(self._held.keys[:, 0], numbers)
        if gone.any():
            self._held = self._room = _Held(self._held.keys[~gone], self._held.rows[~gone])
            self._count = len(self._held.rows)

    def search(self, queries: Vectors, limit: int) -> list[list[VectorHit]]:
        return search_exactly(self.snapshot(), queries, limit)

    def numbers(self) -> list[int]:
        numbers: list[int] = self._held.keys[:, 0].tolist()
        return numbers

    def count(self) -> int:
        return len(self._held.rows)

    def first(self, count: int) -> PassageVectors:
        """The `count` passages that have been here longest."""
        held = self._held
        return held.at(np.arange(min(count, len(held.rows))))

    def of(self, column: int, values: Sequence[int]) -> PassageVectors:
        """The passages with these numbers (column 0), or of these memories (column 1)."""
        held = self._held
        return held.at(np.flatnonzero(np.isin(held.keys[:, column], list(values))))

    def snapshot(self) -> tuple[NDArray[np.int64], Vectors]:
        """The present numbers and vectors (passages, dimensions). Neither is changed any more."""
        held = self._held
        return held.keys[:, 0], held.rows


def search_exactly(snapshot: tuple[NDArray[np.int64], Vectors], queries: Vectors, limit: int) -> list[list[VectorHit]]:
    """As `Collection.search`, from any thread. Of equal passages those that came first stand first."""
    numbers, matrix = snapshot
    found: list[list[VectorHit]] = []
    for cosines in queries @ matrix.T if len(numbers) else ():
        places = np.arange(len(cosines))
        if limit < len(cosines):  # to sort thousands for the sake of some takes longer than to compare them
            places = np.flatnonzero(cosines >= np.partition(cosines, -limit)[-limit])
        nearest = places[np.argsort(-cosines[places], kind="stable")[:limit]]
        found.append(list(map(VectorHit, numbers[nearest].tolist(), cosines[nearest].tolist())))
    return found or [[] for _ in queries]


MAX_NEWEST: Final = 4096
"""Passages that are searched exactly beside the collection: 6 MB at 384 dimensions."""
RECONCILE_PAGE: Final = 500
"""A third of a second at 100,000 passages, which is how long a stop may have to wait for it."""
FLUSH_BATCH: Final = 64
"""While Chroma takes a batch in, no search gets an answer: at 100,000 passages for some 40 ms.

Four times as many at once would cost about a quarter less for each.
"""
PROBES: Final = 16
ITSELF_COSINE: Final = 0.99
NEIGHBOURS: Final = 16
"""Passages that are looked at beside one that is compared, itself among them."""


class PassageHit(msgspec.Struct, frozen=True, gc=False):
    """A passage near the query: its number, the memory it belongs to, its ordinal there, the cosine."""

    passage: int
    memory: int
    ordinal: int
    cosine: float


class _Unchecked(NamedTuple):
    """A memory that has not been compared with the others: its first passage, and the vector of that."""

    memory: int
    passage: int
    vector: Vectors


class PassageIndex:
    """Search and upkeep for one file and one model. Methods block; `search` may run beside the others."""

    def __init__(self, records: EmbeddedTexts, model: str, scale: CosineScale = CALIBRATED) -> None:
        self.records = records
        self.model = model
        self.scale = scale
        """The scale of the model's cosines."""
        self.is_active = True
        """True if near-duplicates are looked for by the vectors of this model."""
        self._collection: Collection | None = None
        self._all_are_newest = not records.passages(PassageFilter(model, vectors=False, limit=1)).numbers
        self._collection_is_filled = False
        self._newest = ExactCollection()
        self._unchecked: list[_Unchecked] = []
        self._last = 0
        """The highest number of a passage."""
        self.noted: int | None = None
        """The number up to which the records know that passages have been compared; None: it was not read yet."""
        self._replaced: set[int] = set()
        self._lost = False
        self._stopping = False
        self._lock = threading.Lock()

    @property
    def ready(self) -> bool:
        """True if every passage of the records can be found."""
        return self._collection is not None or self._all_are_newest

    @property
    def attached(self) -> bool:
        """True if there is a collection to move passages into."""
        return self._collection is not None

    @property
    def size(self) -> int:
        """The number of passages that can be found, and of those of the records while there is no collection."""
        if self._collection is None:
            return self.count()[0]
        return self._collection.count() + self._newest.count()

    @property
    def is_exact(self) -> bool:
        """True if all passages are compared one by one, in memory."""
        return isinstance(self._collection, ExactCollection)

    @property
    def compared(self) -> int:
        """Every passage up to this number has been compared with the others, to find near-duplicates."""
        with self._lock:
            return min((each.passage - 1 for each in self._unchecked), default=self._last)

    @property
    def unchecked(self) -> int:
        """The number of memories that have not been compared with the others."""
        return len(self._unchecked)

    @property
    def lost(self) -> bool:
        """True if a search has failed: the collection has to be made again."""
        return self._lost

    @property
    def must_flush(self) -> bool:
        """True if the newest have become too many."""
        return self._newest.count() >= MAX_NEWEST

    @property
    def has_work(self) -> bool:
        """True if a flush would do something."""
        return bool(self._newest.count() or self._unchecked or self._replaced)

    def add(self, saved: SavedEmbeddings) -> None:
        """Make passages findable that are in the records now."""
        kept = saved.kept
        with self._lock:
            if kept.numbers:
                self._last = max(self._last, *kept.numbers)
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
        """The nearest passages to `query` (dimensions,), nearest first, each once, with cosines on the default model's
        scale. Raises `IndexLost`."""
        hits = self.search_each(query.reshape(1, -1), limit)[0]
        if self.scale == CALIBRATED:
            return hits
        return [msgspec.structs.replace(hit, cosine=on_the_scale(hit.cosine, self.scale)) for hit in hits]

    def of_memories(self, memories: Sequence[int]) -> PassageVectors:
        """The passages of these memories: from memory where all passages are there, else from the records."""
        found = self._in_memory(1, memories)
        return self.records.passages(PassageFilter(self.model, memories)) if found is None else found

    def _in_memory(self, column: int, values: Sequence[int]) -> PassageVectors | None:
        """The passages with these numbers (0) or of these memories (1); None where not all passages are in memory."""
        collection = self._collection
        if not isinstance(collection, ExactCollection):
            return None
        with self._lock:
            moved, newest, replaced = collection.of(column, values), self._newest.of(column, values), self._replaced
            out = set(newest.numbers) | replaced  # one that is being moved stands in both for a moment
        if not out:
            return moved
        kept = [place for place, number in enumerate(moved.numbers) if number not in out]
        new = [place for place, number in enumerate(newest.numbers) if number not in replaced]
        rows = [part.vectors[places] for part, places in ((moved, kept), (newest, new)) if places]
        return PassageVectors(
            [moved.numbers[place] for place in kept] + [newest.numbers[place] for place in new],
            [moved.memories[place] for place in kept] + [newest.memories[place] for place in new],
            [moved.ordinals[place] for place in kept] + [newest.ordinals[place] for place in new],
            np.concatenate(rows) if rows else np.zeros((0, 0), dtype=np.float32),
        )

    def reconcile(self, collection: Collection) -> int:
        """Bring `collection` into agreement with the records, then search it. Returns how many passages differed.

        After `stop` it ends where it is, and the collection is not searched: the next start goes on from there.

        Raises:
            IndexLost: what it says it holds cannot be found in it.
        """
        indexed = set(collection.numbers())
        recorded = self.records.passages(PassageFilter(self.model, vectors=False)).numbers
        # An index may keep the list of what it holds apart from what it searches: some passages are looked for.
        held = [number for number in recorded if number in indexed]
        known = self.records.passages(PassageFilter(numbers=held[:: max(1, len(held) // PROBES)]))
        nearest = collection.search(known.vectors, 1) if known.numbers else []
        found = sum(hits[0].cosine >= ITSELF_COSINE for hits in nearest if hits)
        if found * 2 < len(known.numbers):
            raise IndexLost(f"{found} of {len(known.numbers)} passages are found again")
        surplus = sorted(indexed.difference(recorded))
        if surplus:
            collection.delete(surplus)
        missing = [number for number in recorded if number not in indexed]
        for start in range(0, len(missing), RECONCILE_PAGE):
            if self._stopping:
                return len(surplus) + start
            collection.upsert(self.records.passages(PassageFilter(numbers=missing[start : start + RECONCILE_PAGE])))
        if self.noted is None:
            self._take_up_comparing(recorded)
        self._collection_is_filled = bool(recorded)
        self._collection = collection
        return len(surplus) + len(missing)

    def count(self) -> tuple[int, int]:
        """The number of passages in the records, and in the collection. Raises `IndexLost`."""
        recorded = len(self.records.passages(PassageFilter(self.model, vectors=False)).numbers)
        return recorded, self._collection.count() if self._collection is not None else 0

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
        return self._newest.count() > 0

    def near_duplicates(self, least_cosine: float, memory: int | None = None) -> list[NearDuplicate]:
        """Memories that are near each other, among those not checked yet; or for `memory` alone.

        A memory is compared by its first passage: two that begin alike and differ later are reported as well. The
        cosines are those of the model.
        """
        with self._lock:
            chosen = [each for each in self._unchecked if memory is None or each.memory == memory][:FLUSH_BATCH]
            taken = {each.memory for each in chosen}
            self._unchecked = [each for each in self._unchecked if each.memory not in taken]
        if not chosen:
            return []
        try:
            hits_of_each = self.search_each(np.vstack([each.vector for each in chosen]), NEIGHBOURS)
        except IndexLost:
            with self._lock:
                self._unchecked = chosen + self._unchecked
            raise
        return [
            NearDuplicate(
                later=max(each.memory, hit.memory),
                earlier=min(each.memory, hit.memory),
                cosine=hit.cosine,
                seen=(each.passage, hit.passage),
                begins_alike=hit.ordinal == 0,
            )
            for each, hits in zip(chosen, hits_of_each, strict=True)
            for hit in hits
            if hit.memory != each.memory and hit.cosine >= least_cosine
        ]

    def search_each(self, queries: Vectors, limit: int) -> list[list[PassageHit]]:
        """As `search`, for each row of `queries` (n, dimensions), with the cosines as they are."""
        with self._lock:
            newest = self._newest.snapshot()
            replaced = set(self._replaced)
        collection = self._collection if self._collection_is_filled else None
        try:
            indexed = [[]] * len(queries) if collection is None else collection.search(queries, limit + len(replaced))
        except IndexAway:
            if collection is self._collection:
                self._collection = None  # words answer, until it was reached and compared again
            raise
        except IndexLost:
            self._lost = collection is self._collection
            raise
        exact = search_exactly(
            newest, queries, limit
        )  # as it stood before: what has moved meanwhile is in the index by now
        merged = [_merge(left, right, replaced, limit) for left, right in zip(exact, indexed, strict=True)]
        seen = list({hit.passage for hits in merged for hit in hits})
        known = self._in_memory(0, seen)
        found = self.records.passages(PassageFilter(numbers=seen, vectors=False)) if known is None else known
        owners = dict(zip(found.numbers, zip(found.memories, found.ordinals, strict=True), strict=True))
        return [
            [PassageHit(hit.passage, *owners[hit.passage], hit.cosine) for hit in hits if hit.passage in owners]
            for hits in merged
        ]

    def _take_up_comparing(self, recorded: Sequence[int]) -> None:
        """Leave unchecked what was not compared any more when the file was open last."""
        self.noted = self.records.compared(self.model) if self.records.links_duplicates else 0
        with self._lock:
            known = {each.passage for each in self._unchecked}
            self._last = max(self._last, recorded[-1] if recorded else 0)
        fresh = [number for number in recorded if number > self.noted and number not in known]
        for start in range(0, len(fresh) if self._compares else 0, RECONCILE_PAGE):
            self._leave_unchecked(self.records.passages(PassageFilter(numbers=fresh[start : start + RECONCILE_PAGE])))

    @property
    def _compares(self) -> bool:
        """True if near-duplicates are looked for in this file, by this model's vectors."""
        return self.is_active and self.records.links_duplicates

    def _leave_unchecked(self, passages: PassageVectors) -> None:
        if not self._compares:
            return
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


EXACT_UP_TO: Final = 2000
"""Memories that are all compared: to read so many vectors takes some milliseconds."""
NEAR_PAGE: Final = 500
SLACK: Final = 0.1
"""The index knows passages, and what counts is their mean: it may be nearer than each of them."""
FIRST_LOOK: Final = 32
MOST_HITS: Final = 512
"""Passages of one row that are looked at: others stand nearer than any memory that could be found beyond these."""


def find_near(records: Records, index: PassageIndex | None, model: str, request: FindNear) -> NearFound:
    """The answer to `request`. Blocks for as long as it takes to read the vectors, or to search the index.

    Where few memories are eligible, or the index (None: there is none now) fails, all of them are compared; else those
    that the index finds. Cosines are between the rows and the normalised means of the memories' passages.

    Raises:
        InvalidInput: the vectors are no rows of the same length as the model's.
    """
    if not request.rows:
        return NearFound(())
    queries = _rows_of(request)
    numbers = records.matching(request, EXACT_UP_TO)
    if numbers is None:
        numbers = None if index is None else _through(index, queries, records, request)
    if numbers is None:
        numbers = records.matching(request, 2**31)
    best = _nearest(records, model, queries, numbers or (), request)
    numbers = sorted({number for row in best for number, _ in row})
    materials = {each.number: each for each in records.materials(numbers).memories}
    return NearFound(
        tuple(tuple((materials[number], cosine) for number, cosine in row if number in materials) for row in best)
    )


def _rows_of(request: FindNear) -> Vectors:
    if len(request.vectors) % (4 * request.rows):
        raise InvalidInput(f"{len(request.vectors)} bytes are not {request.rows} vectors", field="vectors")
    rows = np.frombuffer(request.vectors, dtype="<f4").reshape(request.rows, -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _through(index: PassageIndex, queries: Vectors, records: Records, request: FindNear) -> list[int] | None:
    """Eligible memories that the index finds near any row; None when it cannot be searched.

    The index knows nothing of scopes, sessions and statuses: where it gives others, more is asked for.
    """
    found: set[int] = set()
    open_rows = np.arange(len(queries))
    limit = FIRST_LOOK
    least = request.min_cosine - SLACK
    while len(open_rows) and limit <= MOST_HITS:
        try:
            hits_of_each = index.search_each(queries[open_rows], limit)
        except IndexLost:
            return None
        seen = sorted({hit.memory for hits in hits_of_each for hit in hits if hit.cosine >= least})
        eligible = set(records.matching(request, len(seen), seen) or ())
        found |= eligible
        unfinished = [
            len(hits) == limit
            and hits[-1].cosine >= least
            and len({hit.memory for hit in hits if hit.memory in eligible}) < request.limit
            for hits in hits_of_each
        ]
        open_rows = open_rows[unfinished]
        limit *= 4
    return sorted(found)


def _nearest(
    records: Records, model: str, queries: Vectors, numbers: Sequence[int], request: FindNear
) -> list[list[tuple[int, float]]]:
    """For each row the numbers of its nearest memories with their cosines. A page of vectors at a time."""
    best: list[list[tuple[int, float]]] = [[] for _ in queries]
    for start in range(0, len(numbers), NEAR_PAGE):
        memories, means = mean_vectors(records.passages(PassageFilter(model, numbers[start : start + NEAR_PAGE])))
        if not memories:
            continue
        if means.shape[1] != queries.shape[1]:
            raise InvalidInput(
                f"the vectors have {queries.shape[1]} dimensions, and the model's {means.shape[1]}", field="vectors"
            )
        for row, cosines in enumerate(queries @ means.T):
            near = np.flatnonzero(cosines >= request.min_cosine)
            together = [*best[row], *((memories[place], float(cosines[place])) for place in near)]
            best[row] = sorted(together, key=lambda pair: (-pair[1], pair[0]))[: request.limit]
    return best
