"""A file that does not answer who reads it keeps nobody waiting who asks for another."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from tests.actors.store_process import StoreRig, store_rig

pytestmark = pytest.mark.anyio

HOLDER = """
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    fcntl.lockf(index, fcntl.LOCK_EX, 5, 123)
    print("held", flush=True)
    sys.stdin.read()
"""
"""Holds the five locks of an index of a write-ahead log that readers share (https://sqlite.org/walformat.html): SQLite
tries again for ten seconds before it gives a read up."""


@contextmanager
def unreadable_for_long(database: Path) -> Iterator[None]:
    """Another process is in the way of whoever reads a database."""
    index = database.with_name(database.name + "-shm")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(index)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.stdin.close()


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home) as rig:
        yield rig


def test_threads_that_end_leave_no_open_file(home: Path) -> None:
    """A thread that writes ends when there is nothing to write: for months another one comes and goes every minute."""
    with closing(SqliteRecords(SqliteFile(home / "memory.db"), "user", time.time)) as records:

        def reads() -> None:
            thread = threading.Thread(target=records.number_of, args=("memory:none",))
            thread.start()
            thread.join()

        reads()
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            reads()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
