"""The reading threads of the whole home."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeVar

READ_THREADS: Final = 4
"""Each thread has its own connection with a page cache, and Python runs one of them at a time."""
TURNS: Final = 8
"""The number of concurrent recalls of one project. If more shared the threads, all of them would be late."""

T = TypeVar("T")


class Readers:
    """Runs reads on threads; work that no client waits for has one of its own, so that it delays no recall. Belongs to
    one event loop; only `close` is for another thread."""

    def __init__(self) -> None:
        self.threads: Executor = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="reader")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="background")
        self._turns: dict[str, asyncio.Semaphore] = {}

    def turn(self, project_id: str) -> asyncio.Semaphore:
        """Return the semaphore that limits a project's recalls."""
        return self._turns.setdefault(project_id, asyncio.Semaphore(TURNS))

    async def read(self, work: Callable[[], T]) -> T:
        """Run `work` on one of the threads, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def in_background(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread of work that no client waits for, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._background, work)

    def close(self) -> None:
        """Wait until no read is running, since closing a file under a reader crashes the process.

        Later reads find their file closed.
        """
        all_there = threading.Barrier(READ_THREADS)
        for waiting in [self.threads.submit(all_there.wait) for _ in range(READ_THREADS)]:
            waiting.result()
        self._background.shutdown()
