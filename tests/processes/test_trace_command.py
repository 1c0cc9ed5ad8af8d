"""`remembrancer status --trace`: where the time of a call went, of a real runtime with all its processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remembrancer.commands import exit_codes
from tests.processes.bridge_rig import bridge
from tests.processes.portable_rig import command, start
from tests.processes.runtimes import until
from tests.runtime import patiently, stop_runtime

SECRET = "The harbour master keeps a heron."


@pytest.fixture(autouse=True)
def _patient(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However long it takes on a busy machine, the store answers. The runtime of the home is stopped at the end."""
    for budget in ("WRITE", "READ", "CALL"):
        monkeypatch.setenv(f"REMEMBRANCER_{budget}_BUDGET_S", "30")
    start(home)
    yield
    stop_runtime(home)


def traced(home: Path, wanted: str) -> Any:
    return json.loads(patiently("status", "--trace", wanted, "--json", home=home).stdout)


def is_whole(call: Any) -> Any:
    """A call that is over, as all processes that had to do with it tell it; None as long as one is held up."""
    return call if call["is_over"] and {"gateway", "store", "embedder-1"} <= dict(hops(call)).keys() else None


def hops(call: Any) -> list[tuple[str, str]]:
    return [(hop["process"], hop["step"]) for hop in call["hops"]]


def test_the_way_of_a_call_is_shown_through_all_processes_and_names_nothing_of_a_memory(home: Path) -> None:
    with bridge() as client:
        client.initialize()
        client.store(SECRET)
        until(
            lambda: (
                json.loads(command("status", "--json", home=home).stdout or "{}").get("embedding", {}).get("workers")
            )
        )
        question = {"query": "Who keeps a heron?", "strategy": "hybrid"}
        assert "heron" in json.dumps(client.request("tools/call", name="recall_memories", arguments=question))

        recall = until(lambda: is_whole(traced(home, "last")))
        assert recall["tool"] == "recall_memories"
        assert [process for process, _ in dict.fromkeys(hops(recall))].count("embedder-1") > 0
        ways = [(hop["came_from"], hop["process"]) for hop in recall["hops"] if hop["came_from"]]
        assert ways == [("gateway", "store"), ("store", "embedder-1"), ("embedder-1", "store"), ("store", "gateway")]
        assert sum(hop["share"] for hop in recall["hops"] if not hop["beside"]) == pytest.approx(1)

        calls = traced(home, "recent")
        assert [call["tool"] for call in calls] == ["recall_memories", "store_memory"]
        stored = traced(home, calls[1]["trace"])
        assert ("store", "committed") in hops(stored)
        assert traced(home, "slowest")["total_ms"] == max(call["total_ms"] for call in calls)
        assert "heron" not in json.dumps(calls)
        assert "heron" not in patiently("status", "--trace", "last", home=home).stdout

        missing = patiently("status", "--trace", "ffffffff00", home=home)
        assert missing.returncode == exit_codes.REFUSED
        assert "--trace recent" in missing.stderr
        client.end_input()
