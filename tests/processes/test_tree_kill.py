"""Who ends a session's process with all its descendants ends that session, and not the memory that others share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from bench.client import StdioClient
from tests.runtime import Runtime


async def test_the_runtime_outlives_the_tree_and_the_group_of_the_session_that_started_it(
    home: Path, runtime: Runtime
) -> None:
    async with StdioClient(home) as first, StdioClient(home) as other:
        stored = await first.store("The lantern stands in the harbour.")
        before = sorted(runtime.recorded())
        bridge = psutil.Process(first.process.pid)
        for each in [*bridge.children(recursive=True), bridge]:
            each.kill()
        launcher = dict(before)["launcher"]
        assert os.getpgid(launcher) not in (os.getpgid(0), bridge.pid)
        assert os.getsid(launcher) == launcher
        found = await other.call("recall_memories", query="lantern", strategy="keyword")
        assert [memory["id"] for memory in found["memories"]] == [stored["memory_id"]]
        assert sorted(runtime.recorded()) == before
        assert await first.process.wait() == -signal.SIGKILL
