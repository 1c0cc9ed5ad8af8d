"""The vectors of a large file in Chroma: a collection has its passages under one model, by number.

A collection that disagrees with the records is made anew. Then it follows them: new passages are moved into it in
batches, and compared directly until then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np

from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.types import PassageFilter, PassageVectors, Vectors
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors, Nearest, SpaceVectors, first_memories
from remembrancer.protocol.paths import read_file
from remembrancer.protocol.work import CosineScale

logger = logging.getLogger(__name__)
MOVED_AT_ONCE: Final = 64
"""The batch size once searches run: Chroma answers none while it takes passages in, some 40 ms at 100,000 passages."""
FILLED_AT_ONCE: Final = 500
"""The batch size before the first search: a third of a second at 100,000 passages, for which a stop may have to
wait."""
DELETED_AT_ONCE: Final = 1000
"""Chroma refuses batches above its own limit (5,461 with this SQLite)."""
PROBES: Final = 16
ITSELF_COSINE: Final = 0.99
FEW: Final = 5000
"""The number of allowed memories up to which they are compared one by one."""
DEEPEST: Final = 3200
"""The limit on the depth of a search, if many of the nearest passages are not allowed."""
AUTHORIZATION: Final = "Authorization"
TOKEN_BYTES: Final = 16_384


class IndexLost(Exception):
    """Chroma, or a collection, cannot be used."""


class IndexAway(IndexLost):
    """The server with the vectors cannot be reached, or has a problem. Its data stays as it is."""


class Server(NamedTuple):
    """The server from the settings. `token_file` has a secret for `token_header`; `authority` is a PEM file with the
    authority that signed the server's certificate, if the system does not know it."""

    url: str
    token_file: str | None = None
    token_header: str = AUTHORIZATION
    authority: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate this client. Raises `IndexAway` if the token file cannot be read."""
        if self.token_file is None:
            return {}
        try:
            token = read_file(Path(self.token_file).expanduser(), TOKEN_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise IndexAway(f"the token for the Chroma server cannot be read: {error}") from error
        return {self.token_header: f"Bearer {token}" if self.token_header == AUTHORIZATION else token}


class Collection:
    """One collection. It has only numbers and vectors, since metadata would double the time of a search."""

    def __init__(self, upkeep: Any, searched: Any, guard: Callable[[], Any]) -> None:
        self._upkeep = upkeep
        self._searched = searched
        self._guard = guard

    def upsert(self, passages: PassageVectors) -> None:
        """Add passages, or replace those with the same numbers."""
        with self._guard():
            self._upkeep.upsert(ids=[str(number) for number in passages.numbers], embeddings=passages.vectors)

    def delete(self, numbers: Sequence[int]) -> None:
        """Delete passages. Unknown numbers are ignored."""
        for start in range(0, len(numbers), DELETED_AT_ONCE):
            with self._guard():
                self._upkeep.delete(ids=[str(number) for number in numbers[start : start + DELETED_AT_ONCE]])

    def search(self, queries: Vectors, limit: int) -> list[list[tuple[int, float]]]:
        """Return for each row of `queries` the nearest passages with their cosines, nearest first."""
        with self._guard():
            answer = self._searched.query(query_embeddings=queries, n_results=limit, include=["distances"])
        return [
            [(int(number), 1.0 - distance) for number, distance in zip(numbers, distances, strict=True)]
            for numbers, distances in zip(answer["ids"], answer["distances"], strict=True)
        ]

    def numbers(self) -> list[int]:
        """Return the numbers of all passages, in any order."""
        with self._guard():
            return [int(number) for number in self._upkeep.get(include=[])["ids"]]


class ChromaVectors(SpaceVectors):
    """The vectors of one file of records in a collection, with the newest ones outside it. See `open`."""

    def __init__(self, records: EmbeddedTexts, model: str, scale: CosineScale, collection: Collection) -> None:
        super().__init__(records, model, scale)
        self._collection = collection
        self._held: list[int] = []
        """The numbers of the passages in the collection."""
        self._last = 0
        """All passages up to this number are in the collection, apart from those that came from another file."""
        self._extent = (0, 0)
        """The extent of the records when the collection was last up to date."""
        self.instead: ExactVectors | None = None
        """The vectors that are searched since a search in the collection has failed."""

    @classmethod
    def open(
        cls,
        records: EmbeddedTexts,
        model: str,
        scale: CosineScale,
        make: Callable[[], Collection],
        goes_on: Callable[[], bool],
    ) -> Self | None:
        """Return the vectors of a file, once all of its passages are in a collection. `make` returns the collection,
        and if it is called again, an empty one. None: `goes_on` has returned False meanwhile. Blocks for long.

        Raises:
            IndexLost: Chroma cannot be used.
        """
        made = cls(records, model, scale, make())
        made._extent, recorded = records.extent(model), records.passage_numbers(model)
        if made._agrees(recorded):
            made._held, made._last = recorded, max(recorded, default=0)
            return made
        made._collection = make()
        return made if made._add(recorded, FILLED_AT_ONCE, goes_on) else None

    @property
    def is_behind(self) -> bool:
        """True if the records have changed since the collection was up to date."""
        return self.records.extent(self.model) != self._extent

    @property
    def newest(self) -> int:
        """The number of passages outside the collection, which are compared directly."""
        return len(self.records.passages(PassageFilter(self.model, after=self._last, vectors=False)).numbers)

    def follow(self, goes_on: Callable[[], bool]) -> None:
        """Bring the collection up to date with the records, while `goes_on` returns True. Blocks for long. Raises
        `IndexLost`."""
        extent, recorded = self.records.extent(self.model), self.records.passage_numbers(self.model)
        self._collection.delete(np.setdiff1d(self._held, recorded).tolist())
        missing = np.setdiff1d(recorded, self._held).tolist()
        self._held = np.intersect1d(self._held, recorded).tolist()
        if self._add(missing, MOVED_AT_ONCE, goes_on):
            self._extent = extent

    def nearest_each(self, queries: Vectors, limit: int, allowed: Sequence[int] | None = None) -> list[Nearest]:
        if allowed is not None and len(allowed) <= FEW:
            return _compared(self.of_memories(allowed), queries, limit)
        newest = self.records.passages(PassageFilter(self.model, after=self._last))
        beside = _compared(newest, queries, len(newest.numbers))
        may_be_found = None if allowed is None else set(allowed)
        depth = 2 * limit
        while True:
            try:
                hits = self._collection.search(queries, depth)
            except IndexLost as error:
                logger.warning("a collection cannot be searched", extra={"reason": str(error)})
                self.instead = ExactVectors(self.records, self.model, self.scale)
                return self.instead.nearest_each(queries, limit, allowed)
            numbers = list({number for row in hits for number, _ in row})
            passages = self.records.passages(PassageFilter(numbers=numbers, vectors=False))
            owners = dict(zip(passages.numbers, passages.memories, strict=True))
            nearest: list[Nearest] = []
            for row, others in zip(hits, beside, strict=True):
                best = dict(others)
                for number, cosine in row:
                    if (memory := owners.get(number)) is not None:
                        best[memory] = max(cosine, best.get(memory, cosine))
                allowed_ones = ((m, c) for m, c in best.items() if may_be_found is None or m in may_be_found)
                nearest.append(dict(sorted(allowed_ones, key=lambda pair: -pair[1])[:limit]))
            if depth >= DEEPEST or all(
                len(row) < depth or len(memories) == limit for row, memories in zip(hits, nearest, strict=True)
            ):
                return nearest
            depth = min(4 * depth, DEEPEST)

    def of_memories(self, memories: Sequence[int]) -> PassageVectors:
        return self.records.passages(PassageFilter(self.model, memories))

    def _add(self, numbers: Sequence[int], at_once: int, goes_on: Callable[[], bool]) -> bool:
        """Move passages into the collection. Returns False if `goes_on` has."""
        for start in range(0, len(numbers), at_once):
            if not goes_on():
                return False
            some = numbers[start : start + at_once]
            batch = self.records.passages(PassageFilter(numbers=some))
            if batch.numbers:
                self._collection.upsert(batch)
            self._held += some
            self._last = max(self._last, some[-1])
        return True

    def _agrees(self, recorded: list[int]) -> bool:
        """True if the collection has these passages, and finds some of them: Chroma stores the two separately."""
        if sorted(self._collection.numbers()) != recorded:
            return False
        probes = self.records.passages(PassageFilter(numbers=recorded[:: max(1, len(recorded) // PROBES)]))
        nearest = self._collection.search(probes.vectors, 1) if probes.numbers else []
        hits = sum(row[0][1] >= ITSELF_COSINE for row in nearest if row)
        return hits * 2 >= len(probes.numbers)


def _compared(passages: PassageVectors, queries: Vectors, limit: int) -> list[Nearest]:
    if not passages.numbers or not limit:
        return [{} for _ in queries]
    memories = np.asarray(passages.memories, dtype=np.int64)
    return [first_memories(row, memories, limit) for row in queries @ passages.vectors.T]
