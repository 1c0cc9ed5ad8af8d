"""Chunks of a project's files, in the terms in which a recall looks for memories: each chunk is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from remembrancer.actors.store.file_index import ROWS, FileFilter, FileIndex, IndexedChunk
from remembrancer.actors.store.records.contract import (
    Filters,
    KeywordHit,
    MemoryRecord,
    Neighbours,
    Phrase,
    RankingFacts,
    Sizes,
    Survey,
)
from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.reads import Order
from remembrancer.protocol.writes import SourceRef

IMPORTANCE = 0.5
"""The importance of a memory of which nobody said anything else."""


class FileMemories:
    """The chunks of one workspace. A filter by times goes by those of the files; others are of memories alone."""

    is_users = False

    def __init__(self, index: FileIndex, root: str, sources: tuple[FileSource, ...]) -> None:
        self.name = index.name
        self._index = index
        self._wanted = FileFilter(root, sources)
        self.passages = index.passages
        self.words_in = index.words_in

    def keyword_hits(
        self,
        phrases: Sequence[Phrase],
        filters: Filters,
        limit: int,
        *,
        apart: bool = False,
        counted: Mapping[Phrase, int] | None = None,
    ) -> list[list[KeywordHit]]:
        counts = (counted or {}) if self._size > ROWS else None
        hits = self._index.keyword_hits(phrases, self._within(filters), limit, counts)
        return [[], hits] if apart else [hits]

    def survey(self, groups: Sequence[Sequence[Phrase]], session_id: str, limit: int) -> Survey:
        return Survey(Sizes({"project": self._size}), self._index.frequencies(groups))

    @cached_property
    def _size(self) -> int:
        """The number of chunks when they were first looked at."""
        return self._index.size()

    def matching(self, filters: Filters, limit: int) -> list[int] | None:
        if filters.scopes == ("session",):
            return []
        return self._index.matching(self._within(filters), limit)

    def top(self, filters: Filters, order: Order, limit: int, files: Sequence[str] | None = None) -> list[int]:
        if filters.tags or files is not None:
            return []
        return self._index.latest(self._within(filters), limit)

    def ranking_facts(self, numbers: Sequence[int], filters: Filters) -> dict[int, RankingFacts]:
        chunks = self._index.chunks(numbers, self._within(filters))
        return {chunk.text: RankingFacts(IMPORTANCE, chunk.mtime_ns / 1e9) for chunk in reversed(chunks)}

    def neighbours(self, numbers: Sequence[int], filters: Filters, *, and_theirs: bool = False) -> Neighbours:
        return Neighbours({}, {})

    def load(self, numbers: Sequence[int], filters: Filters | None) -> dict[int, MemoryRecord]:
        wanted = self._wanted if filters is None else self._within(filters)
        return {chunk.text: _record(chunk) for chunk in reversed(self._index.chunks(numbers, wanted))}

    def _within(self, filters: Filters) -> FileFilter:
        return self._wanted._replace(after=filters.after, before=filters.before)


def _record(chunk: IndexedChunk) -> MemoryRecord:
    """A chunk as it is shown among memories. Its id says where it is, and is none of a memory."""
    at = chunk.mtime_ns / 1e9
    return MemoryRecord(
        number=chunk.text,
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
