"""The plans of maintenance, without a store."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given

from remembrancer.actors.consolidator.maintenance import plan_archiving
from remembrancer.protocol.consolidation import Material
from tests.pure.consolidator_world import DAY_S, NOW, carried_out, contents, material, materials


def test_what_is_pinned_or_wanted_back_is_neither_archived_nor_let_go() -> None:
    weak = material(1, kind="observation", importance=0.01, created_at=NOW - 400 * 86_400.0, scope="project")
    old = material(2, kind="observation", scope="project", status="archived", archived_at=1.0, created_at=2.0)
    assert [len(changes) for changes in plan_archiving([weak, old], NOW)] == [1, 1]
    pinned = [msgspec.structs.replace(each, pinned=True) for each in (weak, old)]
    assert plan_archiving(pinned, NOW) == ({}, {})
    made: Any = {"kind": "observation", "scope": "project"}
    weak = material(1, importance=0.1, created_at=NOW - 30 * DAY_S, undone="archived", **made)
    old = material(
        2, **made, status="archived", undone="forgotten", created_at=NOW - 200 * DAY_S, updated_at=NOW - 91 * DAY_S
    )
    assert plan_archiving([weak, old], NOW) == ({}, {})


@given(materials(scope="project", created_at=NOW - 100 * DAY_S))
def test_archiving_hides_nothing_and_leaves_nothing_to_archive(memories: list[Material]) -> None:
    archived, deleted = plan_archiving(memories, NOW)
    assert deleted == {}
    after = carried_out(memories, archived.values())
    assert contents(after) == contents(memories)
    # Archiving makes a version, so that the time until it is forgotten begins then.
    again = [memory for memory in after if memory.status != "archived"]
    assert plan_archiving(again, NOW) == ({}, {})
