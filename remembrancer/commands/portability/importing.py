"""How the memories of an export get into a home: they go to the store in batches, in the order of the file.

The id of each operation comes from the content of its line and the place that it goes to, so a second import of the
same file changes nothing, and one that was interrupted goes on.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import msgspec

from remembrancer.commands.portability.home_files import USER_RECORDS, open_file, unreadable
from remembrancer.commands.portability.import_check import MAX_NAMED, Placed
from remembrancer.commands.runtime_client import AskStore
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import (
    BatchApplied,
    ImportMemory,
    ImportSessions,
    Operation,
    PortableMemory,
    ProjectRef,
    Submit,
    SubmitBatch,
)

BATCH_OPERATIONS: Final = 100
BATCH_BYTES: Final = 4 * 1024 * 1024
NO_PROJECT: Final = ProjectRef("p_000000000000", "")
"""Stands in an operation on the user's memories, which belong to no project."""

_canonical: Final = msgspec.json.Encoder(order="deterministic")
_encoder: Final = msgspec.msgpack.Encoder()


class Refusal(msgspec.Struct, frozen=True):
    """A memory that the store will never take."""

    id: str
    reason: str


class Report(msgspec.Struct):
    """What came of an import. `present` were there already, and stayed as they were."""

    imported: int = 0
    present: int = 0
    rejected: int = 0
    first_rejected: list[Refusal] = []

    def note_rejected(self, memory_id: str, reason: str) -> None:
        """Count a memory that the store will not take."""
        self.rejected += 1
        if len(self.first_rejected) < MAX_NAMED:
            self.first_rejected.append(Refusal(memory_id, reason))


class Importer:
    """Puts memories and sessions into a home. `report` says how far it has come, also after an error."""

    def __init__(self, paths: RuntimePaths, ask_store: AskStore | None, now: float) -> None:
        """`ask_store` None: nothing is sent, only counted. `now` is seconds since the epoch."""
        self._paths = paths
        self._ask_store = ask_store
        self._now = now
        self.report = Report()

    async def take(self, lines: Iterator[Placed]) -> None:
        """Import everything, in order.

        Raises:
            MemoryUnavailable: the store went away, and stayed away.
            RemembrancerError: it refuses to go on (the disk is full, say).
        """
        batch: list[tuple[ProjectRef | None, PortableMemory]] = []
        sessions: list[tuple[ProjectRef | None, SessionEntry]] = []
        size = 0
        for project, content in lines:
            if isinstance(content, SessionEntry):
                sessions.append((project, content))
                if len(sessions) >= BATCH_OPERATIONS:
                    await self._take_sessions(sessions)
                    sessions = []
                continue
            size += len(_encoder.encode(content))
            if batch and (len(batch) >= BATCH_OPERATIONS or size > BATCH_BYTES):
                await self._take_memories(batch)
                batch, size = [], len(_encoder.encode(content))
            batch.append((project, content))
        await self._take_memories(batch)
        await self._take_sessions(sessions)

    async def _take_memories(self, batch: Sequence[tuple[ProjectRef | None, PortableMemory]]) -> None:
        fresh = self._without_present(batch)
        self.report.present += len(batch) - len(fresh)
        if self._ask_store is None:
            self.report.imported += len(fresh)
            return
        operations = {
            operation.operation_id: (memory.id, operation)
            for project, memory in fresh
            for operation in [import_operation(project, memory, self._now)]
        }
        while operations:
            waiting = [operation for _, operation in operations.values()]
            answer = await self._ask_store(SubmitBatch(tuple(waiting)))
            assert isinstance(answer, BatchApplied)
            for operation_id in answer.applied:
                if operations.pop(operation_id, None) is not None:
                    self.report.imported += 1
            for rejected in answer.rejected:
                memory_id, _ = operations.pop(rejected.operation_id, ("", None))
                self.report.note_rejected(memory_id, rejected.message)
            if not answer.applied and not answer.rejected:
                await self._take_alone(*operations.pop(waiting[0].operation_id))

    async def _take_alone(self, memory_id: str, operation: Operation) -> None:
        """The store would not begin a batch: asked about the first operation alone, it says why."""
        assert self._ask_store is not None
        try:
            await self._ask_store(Submit(operation))
        except RemembrancerError as error:
            if error.retry_possible:
                raise
            self.report.note_rejected(memory_id, error.message)
        else:
            self.report.imported += 1

    async def _take_sessions(self, sessions: Sequence[tuple[ProjectRef | None, SessionEntry]]) -> None:
        by_project: dict[ProjectRef | None, list[SessionEntry]] = {}
        for project, session in sessions:
            by_project.setdefault(project, []).append(session)
        if self._ask_store is not None:
            for project, spans in by_project.items():
                await self._ask_store(ImportSessions(project, tuple(spans)))

    def _without_present(
        self, batch: Sequence[tuple[ProjectRef | None, PortableMemory]]
    ) -> list[tuple[ProjectRef | None, PortableMemory]]:
        """Those that are not there: neither in their project nor, promoted since, among the user's. The last of two
        with the same id counts as there, too."""
        wanted: dict[str, set[str]] = {}
        for project, memory in batch:
            for name in {USER_RECORDS, _file_of(project)}:
                wanted.setdefault(name, set()).add(memory.id)
        present = {name: self._present(name, ids) for name, ids in wanted.items()}
        fresh: list[tuple[ProjectRef | None, PortableMemory]] = []
        for project, memory in batch:
            places = [present[USER_RECORDS], present[_file_of(project)]]
            if not any(memory.id in place for place in places):
                fresh.append((project, memory))
                present[_file_of(project)].add(memory.id)
        return fresh

    def _present(self, name: str, ids: set[str]) -> set[str]:
        path = self._paths.home / name
        if not path.is_file():
            return set()
        file = open_file(path, name)
        with closing(file.connection) as connection:
            if file.version == 0:
                return set()
            try:
                return {
                    memory_id
                    for memory_id in ids
                    if connection.execute("SELECT 1 FROM memories WHERE id = ?", (memory_id,)).fetchone()
                }
            except sqlite3.Error as error:
                raise unreadable(path, error) from error


def import_operation(project: ProjectRef | None, memory: PortableMemory, now: float) -> Operation:
    """The operation that imports a memory. Its id is that of the memory's content and of the place it goes to."""
    place = "user" if project is None else project.id
    digest = hashlib.sha256(_canonical.encode(["import", place, memory])).hexdigest()
    return Operation(digest[:32], project or NO_PROJECT, memory.session_id, now, ImportMemory(memory))


def _file_of(project: ProjectRef | None) -> str:
    return USER_RECORDS if project is None else f"projects/{project.id}/memory.db"
