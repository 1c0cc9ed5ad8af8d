"""The counts of the status are made off the event loop: those of a large file take tens of milliseconds."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from remembrancer.actors.shell import LaunchSpec
from remembrancer.actors.store.actor import StoreActor
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.config.settings import Settings
from remembrancer.protocol.reads import Counts
from tests.patience import until

pytestmark = pytest.mark.anyio


async def test_a_file_is_counted_once_a_commit_and_never_on_the_event_loop() -> None:
    actor = StoreActor(LaunchSpec("store", "store", "incarnation", "/nowhere", Settings()))
    threads, commits = [], {"p_1": 1}

    def counts(_: None) -> Counts:
        threads.append(threading.current_thread())
        return Counts(total=len(threads))

    actor._files = cast(MemoryFiles, [SimpleNamespace(name="p_1", counts=counts)])
    actor._committer = cast(Committer, SimpleNamespace(commits_of=commits.__getitem__))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(actor._keep_counts)
        await until(lambda: len(threads) == 1)
        commits["p_1"] = 2
        await until(lambda: len(threads) == 2)
        tasks.cancel_scope.cancel()
    assert threading.main_thread() not in threads
