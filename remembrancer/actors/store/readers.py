"""The threads that read: a few for each project, so that a file that does not answer keeps nobody waiting but those who
ask for it. What comes for it waits for its own threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeVar

READ_THREADS: Final = 2
"""Of each project. Each has its own cache of pages, and Python runs one of them at a time."""
TURNS: Final = 8
"""Recalls of one project at a time: of many that share the threads all would be late together."""
IDLE_S: Final = 600.0
"""The threads of a project that nobody has asked for so long end: far longer than a question takes."""

T = TypeVar("T")


class Readers:
    """Belongs to one event loop. Only `close` is for another thread."""

    def __init__(self) -> None:
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._used_at: dict[str, float] = {}

    def of(self, name: str) -> Executor:
        """The threads for the file of that name, and for what else belongs to its project."""
        name = name.partition(".")[0]
        self._used_at[name] = time.monotonic()
        threads = self._threads.get(name)
        if threads is None:
            threads = self._threads[name] = ThreadPoolExecutor(READ_THREADS, thread_name_prefix=f"reader-{name}")
        return threads

    def turn(self, project_id: str) -> asyncio.Semaphore:
        """The turn of a recall, which waits for those before it."""
        return self._turns.setdefault(project_id, asyncio.Semaphore(TURNS))

    async def read(self, name: str, work: Callable[[], T]) -> T:
        """Do `work` on a thread of that file, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.of(name), work)

    def rest(self, idle_s: float = IDLE_S) -> None:
        """End the threads that nobody has asked for long."""
        now = time.monotonic()
        for name in [name for name, used_at in self._used_at.items() if now - used_at >= idle_s]:
            del self._used_at[name]
            self._threads.pop(name).shutdown(wait=False)

    def close(self) -> None:
        """Wait until nothing is being read: a file that is closed under a reader takes us with it.

        What comes after that finds its file closed.
        """
        for threads in list(self._threads.values()):
            all_there = threading.Barrier(READ_THREADS)
            for waiting in [threads.submit(all_there.wait) for _ in range(READ_THREADS)]:
                waiting.result()
