"""`reflect_and_consolidate`: what it answers, and its error while the store is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from remembrancer.protocol.consolidation import ConsolidatedMemory, Pattern, Reflect, Reflected
from remembrancer.toolsets.tools import DATA
from tests.actors.gateway_rig import AWAY, RawClient, Rig

TOOL = "reflect_and_consolidate"
SUMMARY_ID = "memory:01ARZ3NDEKTSV4RRFFQ69G5FA1"
SOURCES = tuple(f"memory:01ARZ3NDEKTSV4RRFFQ69G5FB{place}" for place in range(3))
CLUSTER = ConsolidatedMemory(SUMMARY_ID, "The build needs Java 21.", "semantic", "fact", "session", SOURCES)
PATTERN = Pattern("asks about error handling", 4, "user", None, SOURCES[:1])


async def test_a_reflection_answers_as_the_design_says(
    served: Rig, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Reflect] = []

    async def reflected(request: Reflect, timeout_s: float) -> Reflected:
        asked.append(request)
        return Reflected((CLUSTER,), (PATTERN,), 15, "run_1", skipped=1)

    with monkeypatch.context() as patch:
        patch.setattr(served.gateway.access, "require", reflected)  # as from a consolidator
        answer = await client.call(TOOL)
    assert answer == {
        "note": DATA,
        "consolidated_memories": [
            {
                "id": SUMMARY_ID,
                "content": "The build needs Java 21.",
                "type": "semantic",
                "derived_from": list(SOURCES),
                "scope": "session",
            }
        ],
        "patterns_detected": [{"pattern": "asks about error handling", "frequency": 4, "suggested_scope": "user"}],
        "session_stats": {"memories_analyzed": 15, "consolidated_into": 1, "patterns_found": 1},
        "run_id": "run_1",
        "skipped": 1,
    }
    (request,) = asked
    assert (request.session_id, request.about, request.strategy, request.dry_run) == ("session:test",) * 2 + (
        "full",
        False,
    )
    assert len(request.operation_id) == 32
    unknown = await client.call(TOOL, undo="run_2")
    assert (unknown["error"], unknown["field"]) == ("not_found", "undo")


async def test_without_the_store_a_reflection_is_an_error_that_may_be_retried(home: Path) -> None:
    rig = Rig(home, AWAY)
    async with rig.running(), rig.session() as client:
        answer = await client.call(TOOL)
        assert answer["error"] == "memory_unavailable"
        assert (answer["degraded"], answer["retry_possible"]) == (True, True)
        undone = await client.call(TOOL, undo="run_1")
    assert (undone["status"], undone["warnings"][0]["code"]) == ("queued", "queued")
