"""The counts of the status are made off the event loop: those of a large file take tens of milliseconds."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import cast

import anyio

from remembrancer.actors.shell import LaunchSpec
from remembrancer.actors.store.actor import StoreActor
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.config.settings import Settings
from remembrancer.protocol.reads import Counts
from tests.patience import until


async def test_the_memories_are_counted_once_a_commit_and_never_on_the_event_loop() -> None:
    actor = StoreActor(LaunchSpec("store", "store", "incarnation", "/nowhere", Settings()))
    threads: list[threading.Thread] = []

    def counts() -> Counts:
        threads.append(threading.current_thread())
        return Counts(total=len(threads))

    files = SimpleNamespace(counts=counts, version=1)
    actor._files = cast(MemoryFiles, files)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(actor._keep_counts)
        await until(lambda: len(threads) == 1)
        files.version = 2
        await until(lambda: len(threads) == 2)
        tasks.cancel_scope.cancel()
    assert threading.main_thread() not in threads
