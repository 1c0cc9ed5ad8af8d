"""The threads that read, for the whole home."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeVar

READ_THREADS: Final = 4
"""Each has its own connection, with a cache of pages, and Python runs one of them at a time."""
TURNS: Final = 8
"""Recalls of one project at a time: of many that share the threads all would be late together."""

T = TypeVar("T")


class Readers:
    """Belongs to one event loop. Only `close` is for another thread."""

    def __init__(self) -> None:
        self.threads: Executor = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="reader")
        self._turns: dict[str, asyncio.Semaphore] = {}

    def turn(self, project_id: str) -> asyncio.Semaphore:
        """The turn of a recall, which waits for those before it."""
        return self._turns.setdefault(project_id, asyncio.Semaphore(TURNS))

    async def read(self, work: Callable[[], T]) -> T:
        """Do `work` on one of the threads, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def close(self) -> None:
        """Wait until nothing is being read: a file that is closed under a reader takes us with it.

        What comes after that finds its file closed.
        """
        all_there = threading.Barrier(READ_THREADS)
        for waiting in [self.threads.submit(all_there.wait) for _ in range(READ_THREADS)]:
            waiting.result()
