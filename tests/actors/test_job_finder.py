"""The finder over real files: a look only reads, and only where something has changed."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.job_finder import JobFinder
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.records.background import SqliteBackground
from remembrancer.actors.store.shared_lanes import SharedLanes
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import SessionEndJob
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.session_life import EndSession
from remembrancer.protocol.writes import Applied, Operation
from tests.operations import PROJECT, SESSION, change_operation, store_operation


class Finding:
    """Real files with a finder, and what it did."""

    def __init__(self, home: Path) -> None:
        self.paths = RuntimePaths(home)
        self.committer = Committer()
        self.files = MemoryFiles(self.paths, self.committer, time.time, limit_bytes=None, on_open=lambda records: None)
        self.news = 0
        self.counted = 0
        self.threads = ThreadPoolExecutor(1)
        self.finder = JobFinder(
            self.files,
            self.committer,
            Settings(),
            self.apply,
            self.threads,
            self.note_news,
            self.count_accesses,
            SharedLanes(self.paths, self.committer, time.time),
            lambda: True,
        )

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
    finding.threads.shutdown()


async def test_a_look_that_finds_nothing_writes_nothing(finding: Finding) -> None:
    finding.finder.mark("user")
    before = finding.commits()
    for _ in range(3):
        finding.finder.mark(PROJECT.id)
        await finding.finder.look()
    assert finding.commits() == before
    assert (finding.finder.wanted(), finding.news) == ([], 0)


async def test_what_nothing_was_committed_to_is_not_read_again(
    finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    await finding.finder.look()
    monkeypatch.delattr(SqliteBackground, "waiting_work")
    for _ in range(5):
        await finding.finder.look()
    assert finding.counted == 1


async def test_the_end_of_a_session_is_found_by_the_next_look(finding: Finding) -> None:
    await finding.finder.look()
    await finding.apply(change_operation("end", EndSession(SESSION)))
    assert finding.finder.wanted() == []
    await finding.finder.look()
    (wanted,) = finding.finder.wanted()
    assert isinstance(wanted.job, SessionEndJob)
    assert finding.news == 1
