"""`remembrancer status --trace`: where the time of a slow call went, of a real runtime."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from remembrancer.commands import exit_codes
from remembrancer.protocol.tracing import SLOW_S
from tests.processes.bridge_rig import bridge
from tests.processes.runtimes import until
from tests.runtime import Runtime, patiently, start, stop_runtime

SECRET = "The harbour master keeps a heron."


@pytest.fixture(autouse=True)
def _started(home: Path) -> Iterator[None]:
    """The runtime of the home, which is stopped at the end."""
    start(home)
    yield
    stop_runtime(home)


def test_a_slow_call_is_shown_through_all_processes_and_nothing_of_a_memory(home: Path) -> None:
    with bridge() as client:
        client.initialize()
        client.store(SECRET)
        store = Runtime(home).process("store")
        store.suspend()
        question = {"query": "Who keeps a heron?", "strategy": "keyword"}
        client.send(id="slow", method="tools/call", params={"name": "recall_memories", "arguments": question})
        asked = time.monotonic()
        until(lambda: time.monotonic() > asked + 2 * SLOW_S)
        with contextlib.suppress(psutil.NoSuchProcess):  # the launcher has put another in its place
            store.resume()
        assert "heron" in json.dumps(client.answer("slow"))

        def logged() -> Any:
            calls = json.loads(patiently("status", "--trace", "recent", "--json", home=home).stdout)
            return next((call for call in calls if call["tool"] == "recall_memories"), None)

        slow = until(logged)
        for wanted in (slow["trace"], "slowest", "last"):
            shown = patiently("status", "--trace", wanted, home=home).stdout
            assert "ms" in shown
            assert "heron" not in shown
        assert slow["total_ms"] > SLOW_S * 1000
        assert "gateway" in {each["process"] for each in slow["steps"]}
        missing = patiently("status", "--trace", "ffffffff00", home=home)
        assert missing.returncode == exit_codes.REFUSED
        assert "--trace recent" in missing.stderr
        client.end_input()
