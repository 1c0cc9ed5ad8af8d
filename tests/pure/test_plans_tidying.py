"""The plans of maintenance, without a store."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.maintenance import CopyFinder, consolidation_id, plan_archiving, plan_copies
from remembrancer.memory.wording import normalised
from remembrancer.protocol.consolidation import Consolidate, Job, Material
from remembrancer.protocol.runs import AddLink
from remembrancer.protocol.writes import ProjectRef
from tests.pure.consolidator_world import DAY_S, NOW, carried_out, contents, material, materials


def test_what_is_pinned_is_neither_archived_nor_let_go() -> None:
    weak = material(1, kind="observation", importance=0.01, created_at=NOW - 400 * 86_400.0, scope="project")
    old = material(2, kind="observation", scope="project", status="archived", archived_at=1.0, created_at=2.0)
    assert [len(changes) for changes in plan_archiving([weak, old], NOW)] == [1, 1]
    pinned = [msgspec.structs.replace(each, pinned=True) for each in (weak, old)]
    assert plan_archiving(pinned, NOW) == ({}, {})


@given(materials(scope="project", created_at=NOW - 100 * DAY_S))
def test_archiving_hides_nothing_and_leaves_nothing_to_archive(memories: list[Material]) -> None:
    archived, deleted = plan_archiving(memories, NOW)
    assert deleted == {}
    after = carried_out(memories, archived.values())
    assert contents(after) == contents(memories)
    # Archiving makes a version, so that the time until it is forgotten begins then.
    again = [memory for memory in after if memory.status != "archived"]
    assert plan_archiving(again, NOW) == ({}, {})


def test_what_somebody_wanted_back_is_not_archived_forgotten_or_taken_for_a_copy_again() -> None:
    made: Any = {"kind": "observation", "scope": "project"}
    weak = material(1, importance=0.1, created_at=NOW - 30 * DAY_S, undone="archived", **made)
    old = material(
        2, **made, status="archived", undone="forgotten", created_at=NOW - 200 * DAY_S, updated_at=NOW - 91 * DAY_S
    )
    assert plan_archiving([weak, old], NOW) == ({}, {})
    kept = material(3, "the same", scope="project")
    copy = material(4, "the same", scope="project", undone="deduplicated", importance=0.9)
    assert plan_copies([kept, copy], NOW) == {}


TEXTS = ["The API uses Postgres", "the  api uses POSTGRES.", "It rains", "It rains!", "Does it rain?"]


@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from([0.1, 0.5])), max_size=12))
def test_of_copies_exactly_one_stays_in_whatever_order_they_come(said: list[tuple[str, float]]) -> None:
    memories = [material(place, text, importance=each, scope="project") for place, (text, each) in enumerate(said)]
    finder = CopyFinder()
    for memory in memories:
        finder.add(memory)
    named = {memory_id for ids in finder.portions() for memory_id in ids}
    changes = plan_copies([memory for memory in memories if memory.id in named], NOW)
    assert changes == plan_copies(memories, NOW)
    assert changes.keys() == plan_copies(memories[::-1], NOW).keys()
    after = carried_out(memories, changes.values())
    active = [normalised(memory.content) for memory in after if memory.status == "active"]
    assert sorted(active) == sorted({normalised(text) for text, _ in said})
    links = [edit for group in changes.values() for edit in group if isinstance(edit, AddLink)]
    assert all((link.relation, link.strength) == ("similar_to", 1.0) for link in links)
    assert plan_copies([memory for memory in after if memory.status == "active"], NOW) == {}


def test_hosts_of_a_shared_lane_give_different_consolidations_different_ids() -> None:
    """Numbers of memories differ between hosts, so the same number need not mean the same work."""
    lane = ProjectRef("shared", "/")
    work = Consolidate(700)
    ids = [consolidation_id(work, Job(job_id, lane, work, NOW + day * DAY_S)) for job_id, day in ((1, 0), (2, 1))]
    assert ids[0] != ids[1]
    assert consolidation_id(work, Job(3, lane, work, NOW)) == ids[0], "done again after a crash"
