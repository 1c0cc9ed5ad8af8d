"""The finder over real files: a look only reads, and only where something has changed."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.job_finder import JobFinder
from remembrancer.actors.store.job_queue import JobQueue
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import SessionEndJob
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.session_life import EndSession
from remembrancer.protocol.writes import Applied, Operation
from tests.operations import PROJECT, SESSION, change_operation, store_operation

pytestmark = pytest.mark.anyio
T = TypeVar("T")


class NoLanes:
    """Nothing is shared here."""

    def time_of(self, lane: str) -> float:
        raise AssertionError(lane)

    async def take_lease(self, lane: str) -> bool:
        raise AssertionError(lane)

    async def lease_holder(self, lane: str) -> str | None:
        raise AssertionError(lane)

    async def give_back_lease(self, lane: str) -> None:
        raise AssertionError(lane)


class Finding:
    """Real files with a finder, and what it did."""

    def __init__(self, home: Path) -> None:
        self.paths = RuntimePaths(home)
        self.committer = Committer()
        self.files = MemoryFiles(self.paths, self.committer, time.time, limit_bytes=None, on_open=lambda records: None)
        self.queue = JobQueue()
        self.reads = 0
        self.news = 0
        self.counted = 0
        self.finder = JobFinder(
            self.files,
            self.committer,
            self.queue,
            Settings(),
            self.apply,
            self.read,
            self.note_news,
            self.count_accesses,
            NoLanes(),
            lambda: True,
        )

    async def read(self, work: Callable[[], T]) -> T:
        self.reads += 1
        return await asyncio.to_thread(work)

    async def count_accesses(self) -> None:
        self.counted += 1

    def note_news(self) -> None:
        self.news += 1

    async def apply(self, operation: Operation) -> Applied:
        records = await self.files.project(operation.project)
        (outcome,) = await self.committer.submit(records, [operation])
        if isinstance(outcome.reply, RemembrancerError):
            raise outcome.reply
        self.finder.mark(records.name)
        return outcome.reply

    def commits(self) -> tuple[int, ...]:
        """A figure for each file that changes with every commit, whoever makes it."""
        found = []
        for path in (self.paths.database,):
            with closing(sqlite3.connect(path)) as connection:
                wal = path.with_name(path.name + "-wal")
                found += [*connection.execute("PRAGMA schema_version").fetchone(), wal.stat().st_size]
        return tuple(found)


@pytest.fixture
async def finding(home: Path) -> AsyncIterator[Finding]:
    finding = Finding(home)
    await finding.apply(store_operation("one", "Something", requested_at=time.time()))
    yield finding
    await asyncio.to_thread(finding.committer.close)
    finding.files.close()


async def test_a_look_that_finds_nothing_writes_nothing(finding: Finding) -> None:
    finding.finder.mark("user")
    before = finding.commits()
    for _ in range(3):
        finding.finder.mark(PROJECT.id)
        await finding.finder.look()
    assert finding.reads == 4
    assert finding.commits() == before
    assert len(finding.queue) == 0


async def test_what_nothing_was_committed_to_is_not_looked_at_again(finding: Finding) -> None:
    await finding.finder.look()
    reads, news = finding.reads, finding.news
    for _ in range(5):
        await finding.finder.look()
    assert (finding.reads, finding.news, finding.counted) == (reads, news, 1)


async def test_the_end_of_a_session_is_found_by_the_next_look(finding: Finding) -> None:
    await finding.finder.look()
    await finding.apply(change_operation("end", EndSession(SESSION)))
    assert finding.queue.take("one", 0.0) is None
    await finding.finder.look()
    assert isinstance(finding.queue.take("one", 0.0), SessionEndJob)
    assert finding.news >= 1
