"""Presents the chunks of a project's files as memories, so that a recall can search them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from remembrancer.actors.store.file_index import ROWS, FileFilter, FileIndex, IndexedChunk
from remembrancer.actors.store.records.types import Filters, Hits, MemoryRecord, Phrase, RankingFacts
from remembrancer.protocol.reads import Order
from remembrancer.protocol.writes import SourceRef

NOTES: Final = 0
"""The notes' number among spaces, which no space has."""
IMPORTANCE: Final = 0.5
"""The default importance of a memory."""


class FileMemories:
    """The chunks that pass a filter. Their numbers are negative. Time filters apply to the files' times; other filters
    concern only memories."""

    is_users = False
    space = NOTES

    def __init__(self, index: FileIndex, wanted: FileFilter) -> None:
        self.name = index.name
        self._index = index
        self._wanted = wanted
        self.passages = index.passages

    @cached_property
    def size(self) -> int:
        """The number of chunks, counted on first use."""
        return self._index.size()

    def files(self) -> int:
        """The number of files."""
        return self._index.count_files(self._wanted)

    def keyword_hits(
        self,
        phrases: Sequence[Phrase],
        filters: Filters,
        limit: int,
        counted: Mapping[Phrase, int] | None = None,
        numbers: Sequence[int] = (),
    ) -> Hits:
        """As in `Records`."""
        counts = (counted or {}) if self.size > ROWS else None
        hits = self._index.keyword_hits(phrases, self._within(filters), limit, counts)
        return {-number: bm25 for number, bm25 in hits.items()}

    def postings(self, groups: Sequence[Sequence[Phrase]]) -> list[list[int]]:
        """As in `Records`."""
        return [[-number for number in numbers] for numbers in self._index.postings(groups)]

    def matching(self, filters: Filters, limit: int) -> list[int] | None:
        """As in `Records`."""
        found = [] if filters.scopes == ("session",) else self._index.matching(self._within(filters), limit)
        return None if found is None else [-number for number in found]

    def top(self, filters: Filters, order: Order, limit: int) -> list[int]:
        """Return the latest chunks, whatever the order."""
        return [] if filters.tags else [-number for number in self._index.latest(self._within(filters), limit)]

    def ranking_facts(self, refs: Sequence[int], filters: Filters) -> dict[int, RankingFacts]:
        """As in `Records`."""
        chunks = self._index.chunks([-ref for ref in refs], self._within(filters))
        return {-chunk.text: RankingFacts(IMPORTANCE, chunk.mtime_ns / 1e9) for chunk in reversed(chunks)}

    def load(self, refs: Sequence[int], filters: Filters | None) -> dict[int, MemoryRecord]:
        """As in `Records`."""
        wanted = self._wanted if filters is None else self._within(filters)
        return {-chunk.text: _record(chunk) for chunk in reversed(self._index.chunks([-ref for ref in refs], wanted))}

    def _within(self, filters: Filters) -> FileFilter:
        return self._wanted._replace(after=filters.after, before=filters.before)


def _record(chunk: IndexedChunk) -> MemoryRecord:
    """Present a chunk as a memory record. Its id is its location, not a memory's id."""
    at = chunk.mtime_ns / 1e9
    return MemoryRecord(
        number=-chunk.text,
        id=f"{chunk.path}#L{chunk.start_line}-{chunk.end_line}",
        content=chunk.content,
        type="semantic",
        scope="project",
        importance=IMPORTANCE,
        source=SourceRef(file=chunk.path),
        created_at=at,
        updated_at=at,
        origin=chunk.source,
        lines=(chunk.start_line, chunk.end_line),
    )
