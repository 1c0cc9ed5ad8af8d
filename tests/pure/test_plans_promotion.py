"""The plans for memories that are promoted, without a store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.derived_memories import plan_summaries
from remembrancer.actors.consolidator.promoting import Near, PromotionPlan, plan_promotions
from remembrancer.actors.consolidator.session_end import promoted_of
from remembrancer.actors.consolidator.store_connection import Group, packed
from remembrancer.memory import promotion
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.runs import AddLink, LogPromotion, ReviseMemory
from remembrancer.protocol.writes import EntityRef
from tests.pure.consolidator_world import NOW, carried_out, contents, direction, material, materials


def strong(number: int, content: str, **fields: Any) -> Material:
    return material(number, content, **{"importance": 0.9, "confidence": 0.8, **fields})


def plan(memories: list[Material], known: Near | None = None) -> PromotionPlan:
    promoted = promoted_of(memories, NOW)
    return plan_promotions(promoted, known or {}, NOW)


def test_a_merge_raises_the_target_and_keeps_what_the_other_said() -> None:
    arriving = strong(1, "tests run before each push")
    target = material(2, "tests run before each push, always", scope="project", importance=0.5, confidence=0.99)
    made = plan([arriving], {arriving.id: [(target, 0.9)]})
    ((source, merging, link, log),) = made.groups
    assert isinstance(source, ReviseMemory)
    assert (source.memory_id, source.status, source.expected_version) == (arriving.id, "promoted", 1)
    assert isinstance(merging, ReviseMemory)
    assert (merging.importance, merging.confidence, merging.accessed, merging.only_with) == (
        0.9,
        1.0,
        True,
        arriving.id,
    )
    assert merging.chain is not None
    assert (merging.chain.action, merging.chain.content) == ("merged", arriving.content)
    assert link == AddLink(arriving.id, target.id, "supports", 0.9)
    assert isinstance(log, LogPromotion)
    assert log.merged_into == target.id
    assert made.moved == ()


@pytest.mark.parametrize(
    ("content", "cosine", "fields"),
    [
        ("tests run before each push, always", 0.85, {}),  # the threshold itself is not enough
        ("tests run before each push", 1.0, {"valid_until": NOW - 1}),  # what was superseded takes nothing in
    ],
)
def test_what_is_not_near_enough_or_holds_no_more_takes_nothing_in(
    content: str, cosine: float, fields: dict[str, Any]
) -> None:
    arriving, target = strong(1, "tests run before each push"), material(2, content, scope="project", **fields)
    assert plan([arriving], {arriving.id: [(target, cosine)]}).moved == (arriving.id,)


@pytest.mark.parametrize(
    ("told", "other", "cosine", "fields"),
    [
        ("the cache is cleared when the service starts", "the cache is cleared when the service stops", 0.9, {}),
        (
            "the api listens on port 8443",
            "the api listens on port 8080",
            0.97,
            {"entities": (EntityRef("api", "service", "about"),)},
        ),
    ],
)
def test_what_is_near_and_not_the_same_or_says_the_contrary_is_promoted_and_linked(
    told: str, other: str, cosine: float, fields: dict[str, Any]
) -> None:
    arriving = strong(1, told, kind="fact", **fields)
    target = material(2, other, kind="fact", scope="project", created_at=NOW - 90_000, **fields)
    made = plan([arriving], {arriving.id: [(target, cosine)]})
    assert made.moved == (arriving.id,)
    links = [edit for edit in made.groups[0] if isinstance(edit, AddLink)]
    assert links == [AddLink(arriving.id, target.id, "similar_to", cosine)]


def test_several_merges_into_one_memory_follow_each_other_in_versions_and_confidence() -> None:
    first, second = strong(1, "tests run first"), strong(2, "the tests run first", vector=direction(0.0, 1.0))
    target = material(3, "tests run first, always", scope="project", confidence=0.5, version=4)
    made = plan([first, second], {each.id: [(target, 0.95)] for each in (first, second)})
    merges = [edit for group in made.groups for edit in group if isinstance(edit, ReviseMemory) and edit.only_with]
    assert [(edit.expected_version, edit.confidence) for edit in merges] == [(4, 0.55), (5, 0.6)]


@given(materials())
def test_the_end_of_a_session_loses_nothing_and_changes_no_memory_behind_the_back_of_another_edit(
    memories: list[Material],
) -> None:
    after = carried_out(memories, end_of(memories))
    assert contents(memories) <= contents(after)
    by_id = {memory.id: memory for memory in after}
    assert all(by_id[memory.id].importance >= memory.importance for memory in memories)


@given(st.one_of(materials(), materials(kind="decision")), st.integers(1, 2))
def test_what_is_summed_up_while_a_session_runs_keeps_nothing_from_the_next_session(
    memories: list[Material], times: int
) -> None:
    reflected = memories
    for _ in range(times):
        summaries = plan_summaries(reflected, NOW)
        reflected = carried_out(reflected, [derived.group for derived in summaries])
    plain = seen_by_the_next(carried_out(memories, end_of(memories)))
    assert plain <= seen_by_the_next(carried_out(reflected, end_of(reflected)))


def test_what_was_summed_up_is_promoted_beside_its_summary_and_into_no_summary() -> None:
    notes = [
        strong(number, f"The queue was full at {number} o'clock", kind="observation", importance=1.0, confidence=1.0)
        for number in range(1, 5)
    ]
    (summary,) = plan_summaries(notes, NOW)
    reflected = carried_out(notes, [summary.group])
    after = {memory.id: memory for memory in carried_out(reflected, end_of(reflected))}
    assert {(after[note.id].scope, after[note.id].status) for note in notes} == {("project", "consolidated")}
    assert (after[summary.memory.id].scope, after[summary.memory.id].status) == ("project", "active")


def test_summaries_take_no_place_from_what_they_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotion, "SESSION_END_LIMIT", 2)
    notes = [strong(number, f"note {number}", kind="fact") for number in range(3)]
    summary = strong(9, "all notes", kind="fact", importance=1.0, is_derived=True)
    chosen = [memory.id for memory, _ in promoted_of([summary, *notes], NOW)]
    assert chosen == [notes[0].id, notes[1].id, summary.id]


def test_a_promotion_that_was_undone_is_not_done_again() -> None:
    assert plan([strong(1, "tests run before each push", undone="promoted")]).groups == ()
    assert plan([strong(1, "tests run before each push", undone="consolidated")]).moved


@given(materials())
def test_a_session_that_ends_again_and_again_comes_to_rest(memories: list[Material]) -> None:
    for _ in range(len(memories) + 1):
        groups = end_of(memories)
        if not groups:
            return
        memories = carried_out(memories, groups)
    pytest.fail("there was always something to do")


@given(materials())
def test_what_was_promoted_is_not_promoted_again(memories: list[Material]) -> None:
    first = plan(memories)
    assert plan(carried_out(memories, first.groups)).groups == ()


@given(materials())
def test_the_same_memories_make_the_same_parts_in_whatever_order_they_come(memories: list[Material]) -> None:
    assert packed(end_of(memories)) == packed(end_of(list(reversed(memories))))


def seen_by_the_next(memories: list[Material]) -> set[str]:
    """The contents that another session of the project can find."""
    return {memory.content for memory in memories if memory.scope == "project"}


def end_of(memories: list[Material]) -> list[Group]:
    """All that the end of a session does."""
    promotions = plan(memories)
    left = [memory for memory in memories if memory.id not in promotions.changed]
    return [*promotions.groups, *(derived.group for derived in plan_summaries(left, NOW))]
