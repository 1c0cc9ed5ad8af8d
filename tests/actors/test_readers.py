"""A file that does not answer who reads it keeps nobody waiting who asks for another."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.store.readers import READ_THREADS, Readers
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from tests.actors.store_process import StoreRig, store_rig
from tests.operations import OTHER_PROJECT, PROJECT
from tests.patience import PATIENCE_S

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


async def test_twenty_recalls_of_a_file_that_hangs_keep_none_of_another_waiting(rig: StoreRig) -> None:
    await rig.gateway.store("the harbour is deep")
    kept = await rig.gateway.store("the mole is long", project=OTHER_PROJECT)
    with unreadable_for_long(rig.paths.project_database(PROJECT.id)):
        ask = rig.gateway.recall
        hanging = [asyncio.ensure_future(ask("harbour", strategy="keyword")) for _ in range(20)]
        await anyio.sleep(0.1)  # they have come before what follows
        for number in range(5):
            fresh = await rig.gateway.store(f"the crane is red, number {number}", project=OTHER_PROJECT)
            found = await ask("mole crane", project=OTHER_PROJECT, strategy="keyword")
            assert {kept, fresh} <= {memory.id for memory in found.memories}
            assert (await rig.gateway.describe(project=OTHER_PROJECT)).counts.total == number + 2
        assert not any(each.done() for each in hanging), "the others were answered before one of these"
    with anyio.fail_after(PATIENCE_S):
        for answer in await asyncio.gather(*hanging, return_exceptions=True):
            assert answer is not None


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
    with closing(SqliteRecords(SqliteFile(home / "user" / "memory.db"), "user", time.time)) as records:

        def reads() -> None:
            thread = threading.Thread(target=records.number_of, args=("memory:none",))
            thread.start()
            thread.join()

        reads()
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            reads()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
