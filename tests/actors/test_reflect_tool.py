"""`reflect_and_consolidate`: what it answers, what it refuses, and the client's own model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remembrancer.protocol.consolidation import ConsolidatedMemory, Pattern, Reflect, Reflected
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.runs import Skipped, UndoneResult, UndoRun
from remembrancer.protocol.writes import Applied, Submit
from remembrancer.toolsets.tools import DATA
from tests.actors.gateway_rig import AWAY, Rig
from tests.actors.resource_store import ResourceStore

TOOL = "reflect_and_consolidate"
SUMMARY_ID = "memory:01ARZ3NDEKTSV4RRFFQ69G5FA1"
SOURCES = tuple(f"memory:01ARZ3NDEKTSV4RRFFQ69G5FB{place}" for place in range(3))
CLUSTER = ConsolidatedMemory(SUMMARY_ID, "The build needs Java 21.", "semantic", "fact", "session", SOURCES)
PATTERN = Pattern("asks about error handling", 4, "user", None, SOURCES[:1])


class ReflectingStore(ResourceStore):
    """Has a consolidator that always finds the same cluster and the same pattern."""

    def __init__(self, paths: RuntimePaths) -> None:
        super().__init__(paths)
        self.clusters: tuple[ConsolidatedMemory, ...] = (CLUSTER,)
        self.not_embedded = 0
        self.says: Failure | None = None
        self.of_user: dict[str, UndoneResult] = {}
        self.undone = UndoneResult("run_1", SOURCES, (Skipped(SUMMARY_ID, "changed since"),))

    @property
    def reflections(self) -> list[Reflect]:
        return [each for each in self.requests if isinstance(each, Reflect)]

    def _reply(self, message: Any) -> Any:
        match message:
            case Reflect():
                return self.says or self._reflected(message)
            case Submit(operation=operation) if isinstance(operation.change, UndoRun):
                if operation.change.place == "user" and operation.change.run_id in self.of_user:
                    return Applied(operation.operation_id, self.of_user[operation.change.run_id])
                if operation.change.if_there:
                    return Applied(operation.operation_id, UndoneResult(operation.change.run_id, found=False))
                if operation.change.run_id != "run_1":
                    return Failure("not_found", "there is no such run", field="run_id")
                self.applied[operation.operation_id] = operation
                return Applied(operation.operation_id, self.undone)
        return super()._reply(message)

    def _reflected(self, request: Reflect) -> Reflected:
        run_id = None if request.dry_run else "run_1"
        return Reflected(self.clusters, (PATTERN,), 15, run_id, skipped=1, not_embedded=self.not_embedded)


@pytest.fixture
def quick_rig(home: Path) -> Rig:
    """For a store that is away."""
    return Rig(home, AWAY)


async def test_a_reflection_answers_as_the_design_says(patient_rig: Rig) -> None:
    async with (
        ReflectingStore(patient_rig.paths).open() as store,
        patient_rig.running(),
        patient_rig.session() as client,
    ):
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
        "patterns_detected": [
            {"pattern": "asks about error handling", "frequency": 4, "suggested_scope": "user"},
        ],
        "session_stats": {"memories_analyzed": 15, "consolidated_into": 1, "patterns_found": 1},
        "run_id": "run_1",
        "skipped": 1,
    }
    (asked,) = store.reflections
    assert (asked.session_id, asked.about, asked.strategy, asked.dry_run) == ("session:test",) * 2 + ("full", False)
    assert len(asked.operation_id) == 32


async def test_without_the_store_a_reflection_is_an_error_that_may_be_retried(quick_rig: Rig) -> None:
    async with quick_rig.running(), quick_rig.session() as client:
        answer = await client.call(TOOL)
        assert answer["error"] == "memory_unavailable"
        assert (answer["degraded"], answer["retry_possible"]) == (True, True)
        undone = await client.call(TOOL, undo="run_1")
    assert (undone["status"], undone["warnings"][0]["code"]) == ("queued", "queued")
