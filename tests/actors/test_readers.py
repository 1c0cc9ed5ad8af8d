"""Threads that read the records come and go."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records


def test_threads_that_end_leave_no_open_file(home: Path) -> None:
    """A thread that writes ends when there is nothing to write: for months another one comes and goes every minute."""
    with closing(Records(SqliteFile(home / "memory.db"), "user", time.time)) as records:

        def reads() -> None:
            thread = threading.Thread(target=records.number_of, args=("memory:none",))
            thread.start()
            thread.join()

        reads()
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            reads()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
