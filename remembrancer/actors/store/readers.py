"""The reading threads of a home."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeVar

READ_THREADS: Final = 4
"""Few threads, since each has its own connection with a page cache, and Python runs only one at a time."""

T = TypeVar("T")


class Readers:
    """Runs reads on threads. Work for which no client waits has its own thread, so that it does not delay recalls.
    Closing a file waits for running queries; later queries are refused."""

    def __init__(self) -> None:
        self.threads: Executor = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="reader")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="background")

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def in_background(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._background, work)
