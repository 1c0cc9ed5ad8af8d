"""A file that does not answer who reads it keeps nobody waiting who asks for another."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.store.readers import READ_THREADS, Readers
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_all_threads_of_a_project_may_hang_and_those_of_another_read() -> None:
    readers, hang = Readers(), threading.Event()
    with closing(readers):
        stuck = [asyncio.ensure_future(readers.read("p_1", hang.wait)) for _ in range(READ_THREADS + 3)]
        with anyio.fail_after(PATIENCE_S):
            assert await readers.read("p_2", lambda: "read") == "read"
            assert await readers.read("p_2.files", lambda: "too") == "too"
        assert not any(each.done() for each in stuck)
        readers.rest(idle_s=0.0)
        hang.set()
        assert all(await asyncio.gather(*stuck))
        assert await readers.read("p_1", lambda: "again") == "again"


def test_threads_that_end_leave_no_open_file(home: Path) -> None:
    """A thread that writes ends when there is nothing to write: for months another one comes and goes every minute."""
    (home / "user").mkdir()
    with closing(SqliteRecords(home / "user" / "memory.db", "user", time.time)) as records:

        def reads() -> None:
            thread = threading.Thread(target=records.number_of, args=("memory:none",))
            thread.start()
            thread.join()

        reads()
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            reads()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
