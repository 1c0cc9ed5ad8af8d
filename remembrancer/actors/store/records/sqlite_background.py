"""`BackgroundRecords` in one SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from remembrancer.actors.store.records.background_contract import ConsolidationRequest, MaintenanceState, Promotable
from remembrancer.actors.store.records.background_rows import (
    count_orphans,
    insert_request,
    note_maintenance,
    read_entity_edges,
    read_incoming,
    read_maintenance,
    read_promotable,
    read_requests,
    read_session_whole,
    read_topics,
    wants_consolidation,
)
from remembrancer.actors.store.records.history import Query
from remembrancer.actors.store.records.materials import read_eligible, read_materials, read_materials_of
from remembrancer.actors.store.records.promotion_rows import observed_in, promotions_of
from remembrancer.actors.store.records.pruning import count_prunable
from remembrancer.actors.store.records.session_registry import open_sessions
from remembrancer.actors.store.records.sqlite_file import SqliteFile, unusable
from remembrancer.protocol.consolidation import EntityEdges, FindNear, Material, MemoriesRead, ReadMemories, SessionRead
from remembrancer.protocol.reads import Promotion
from remembrancer.protocol.runs import Prune, Topic
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import MemoryLink

T = TypeVar("T")


class SqliteBackground:
    """The part of `Records` that the work in the background needs."""

    _file: SqliteFile

    def materials(self, request: ReadMemories, model: str | None) -> MemoriesRead:
        return self._read(lambda query: read_materials(query, request, model))

    def eligible(self, request: FindNear, limit: int, among: Sequence[int] | None = None) -> list[int] | None:
        return self._read(lambda query: read_eligible(query, request, limit, among))

    def materials_of(self, numbers: Sequence[int]) -> dict[int, Material]:
        return self._read(lambda query: read_materials_of(query, numbers))

    def entity_edges(self, after: int = 0) -> EntityEdges:
        return self._read(lambda query: read_entity_edges(query, after))

    def orphans(self, before: float) -> int:
        return self._read(lambda query: count_orphans(query, before))

    def prunable(self, edit: Prune) -> int:
        return self._read(lambda query: count_prunable(query, edit))

    def session_read(self, session_id: str, turns: int) -> SessionRead:
        return self._read(lambda query: read_session_whole(query, session_id, turns))

    def open_sessions(self) -> list[SessionEntry]:
        return self._read(open_sessions)

    def consolidation_requests(self) -> list[ConsolidationRequest]:
        return self._read(read_requests)

    def wants_consolidation(self, threshold: int) -> bool:
        return self._read(lambda query: wants_consolidation(query, threshold)) is not None

    def request_consolidation(self, threshold: int, now: float) -> bool:
        up_to = self._read(lambda query: wants_consolidation(query, threshold))
        if up_to is None:
            return False
        with self._file.transaction() as connection:
            insert_request(connection, threshold, up_to, now)
        return True

    def promotable_now(self, score: float, limit: int = 200) -> list[Promotable]:
        return self._read(lambda query: read_promotable(query, score, limit))

    def maintenance_state(self, what: str) -> MaintenanceState:
        return self._read(lambda query: read_maintenance(query, what))

    def note_maintenance(self, what: str, at: float) -> None:
        with self._file.transaction() as connection:
            note_maintenance(connection, what, at)

    def promotions_of(self, memory_id: str) -> tuple[Promotion, ...]:
        return self._read(lambda query: promotions_of(query, memory_id))

    def incoming_links(self, memory_id: str, session_id: str | None) -> tuple[MemoryLink, ...]:
        return self._read(lambda query: read_incoming(query, memory_id, session_id))

    def observed_in(self, memory_id: str) -> tuple[str, ...]:
        return self._read(lambda query: observed_in(query, memory_id))

    def topics(self) -> tuple[Topic, ...]:
        return self._read(read_topics)

    def _read(self, work: Callable[[Query], T]) -> T:
        """What `work` makes of several queries as of one commit. What cannot be decoded is a damaged file."""
        try:
            return self._file.read_together(work)
        except ValueError as error:
            raise unusable(self._file.path, error) from error
