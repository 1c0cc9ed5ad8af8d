"""The plans of summaries and themes, without a store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given

from remembrancer.actors.consolidator.clusters import LEAST_MEMBERS
from remembrancer.actors.consolidator.derived_memories import (
    LONGEST_SOURCE,
    SUMMARY_CHARACTERS,
    Derived,
    name_of,
    plan_patterns,
    plan_summaries,
)
from remembrancer.actors.consolidator.store_connection import PART_EDITS, packed
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.runs import AddLink, AddMemory, ReviseMemory
from remembrancer.protocol.writes import EntityRef, ProjectRef
from tests.pure.consolidator_world import NOW, material, materials


def observations(count: int = 4, **fields: Any) -> list[Material]:
    return [
        material(number, f"The queue was full at {number} o'clock", kind="observation", **fields)
        for number in range(1, count + 1)
    ]


def dated(source: Material) -> str:
    return f"{datetime.fromtimestamp(source.happened_at, UTC).date()}: {source.content}"


def summed_up(memories: list[Material]) -> list[Derived]:
    return plan_summaries(memories, NOW)


def test_a_cluster_becomes_a_fact_that_points_at_its_sources() -> None:
    sources = observations(importance=0.3, confidence=0.6, tags=("queue",))
    sources[1] = msgspec.structs.replace(
        sources[1], importance=0.7, tags=("queue", "night"), entities=(EntityRef("queue", "service", "about"),)
    )
    (made,) = summed_up(sources)
    assert (made.memory.kind, made.memory.scope, made.memory.session_id) == ("fact", "session", sources[0].session_id)
    assert (made.memory.importance, made.memory.confidence) == (0.7, 0.65)
    assert made.memory.tags == ("queue",)
    assert made.memory.entities == (("queue", "service", "about"),)
    assert made.memory.occurred_at == sources[-1].happened_at
    marks = [edit for edit in made.group if isinstance(edit, ReviseMemory)]
    assert [(edit.memory_id, edit.status, edit.expected_version) for edit in marks] == [
        (source.id, "consolidated", 1) for source in sources
    ]
    links = [edit for edit in made.group if isinstance(edit, AddLink)]
    assert {(link.source, link.target, link.relation) for link in links} == {
        (made.memory.id, source.id, "derived_from") for source in sources
    }


def test_scratchpads_superseded_derived_and_memories_of_several_sessions_are_left_alone() -> None:
    assert summed_up([msgspec.structs.replace(each, kind="scratchpad") for each in observations()]) == []
    for fields in ({"valid_until": NOW - 1}, {"is_replaced": True}, {"is_derived": True}, {"vector": b""}):
        assert summed_up(observations(**fields)) == []
    mine, theirs = observations(2), observations(2, session_id="session:two")
    assert summed_up([*mine, *(msgspec.structs.replace(each, id=each.id + "x") for each in theirs)]) == []


def test_a_summary_hangs_together_with_what_it_is_made_of_and_its_id_changes_with_that() -> None:
    sources = observations()
    (made,) = summed_up(sources)
    adding, *others = made.group
    assert isinstance(adding, AddMemory)
    assert adding.made_of == tuple((source.id, source.version) for source in made.sources)
    assert {edit.only_with for edit in others if isinstance(edit, ReviseMemory)} == {made.memory.id}
    (changed,) = summed_up([msgspec.structs.replace(sources[0], version=2), *sources[1:]])
    assert made.memory.id != changed.memory.id


def test_a_summary_that_was_undone_is_made_again_only_for_somebody_who_asks() -> None:
    sources = observations(undone="consolidated")
    assert summed_up(sources) == []
    assert len(plan_summaries(sources, NOW, again=True)) == 1


def test_of_two_that_say_the_same_a_summary_has_one_and_the_other_is_linked_to_it() -> None:
    sources = observations(3)
    again = material(9, "At 2 o'clock the queue was already full", kind="observation")
    (made,) = summed_up([*sources, again])
    assert made.memory.content.split("\n") == list(map(dated, (sources[0], sources[2], again)))
    assert {source.id for source in made.sources} == {each.id for each in (*sources, again)}
    links = [edit for edit in made.group if isinstance(edit, AddLink) and edit.relation == "supports"]
    assert [(link.source, link.target) for link in links] == [(sources[1].id, again.id)]


def test_what_has_no_room_in_a_summary_stays_a_memory_of_its_own() -> None:
    long = material(9, "The queue was full. " + "It took long. " * 20, kind="observation")
    (made,) = summed_up([*observations(), long])
    assert long.id not in {source.id for source in made.sources}
    several = [material(number, f"The queue was full {number} times, " + "x" * 150) for number in range(8)]
    many = summed_up([msgspec.structs.replace(each, kind="observation", type="episodic") for each in several])
    assert [len(made.sources) for made in many] == [3, 3]
    assert all(len(made.memory.content) <= SUMMARY_CHARACTERS + LONGEST_SOURCE for made in many)


@given(materials(kind="observation"))
def test_a_summary_has_each_source_word_for_word_or_one_that_says_the_same(memories: list[Material]) -> None:
    for made in summed_up(memories):
        said = made.memory.content.split("\n")
        same = {edit.source: edit.target for edit in made.group if isinstance(edit, AddLink)}
        contents = {source.id: dated(source) for source in made.sources}
        assert all(contents[same.get(each, each)] in said or contents[each] in said for each in contents)
        assert set(said) <= set(contents.values())
        assert len({source.id for source in made.sources}) == len(made.sources) >= LEAST_MEMBERS


def said_in(count: int, content: str, first: int = 0, **fields: Any) -> list[Material]:
    """Memories of a project of as many sessions."""
    return [
        material(number, content, session_id=f"session:{number}", **{"scope": "project", **fields})
        for number in range(first, first + count)
    ]


def test_a_theme_is_a_procedure_only_once() -> None:
    steps = said_in(3, "To release, run the tests, tag the commit and push the tag", kind="procedure")
    (plan,) = plan_patterns(steps, NOW, "one")
    assert plan.derived is not None
    assert plan.pattern.frequency == 3
    assert plan.pattern.memory_id == plan.derived.memory.id
    assert not any(isinstance(edit, ReviseMemory) for edit in plan.derived.group)
    (made,) = said_in(1, plan.derived.memory.content, 9, kind="procedure", is_derived=True)
    (again,) = plan_patterns([*steps, msgspec.structs.replace(made, session_id="session:2")], NOW, "one")
    assert again.derived is None
    assert again.pattern.memory_id == made.id


def test_a_procedure_that_a_session_s_own_memory_is_part_of_stays_in_the_session() -> None:
    *steps, last = said_in(3, "Run the tests, then tag the commit", kind="procedure")
    (plan,) = plan_patterns([*steps, msgspec.structs.replace(last, scope="session")], NOW, "one")
    assert plan.derived is not None
    assert (plan.derived.memory.scope, plan.derived.memory.session_id) == ("session", "session:2")


def test_a_project_is_called_after_its_directory() -> None:
    assert name_of(ProjectRef("p", "/work/shop/.git")) == "shop"
    assert name_of(ProjectRef("p", "/srv/shop.git")) == "shop"
    assert name_of(ProjectRef("p", "/work/shop")) == "shop"


@given(materials(kind="observation"))
def test_a_group_is_never_divided(memories: list[Material]) -> None:
    made = summed_up(memories) * 20
    parts = packed([each.group for each in made])
    assert [edit for edits in parts for edit in edits] == [edit for each in made for edit in each.group]
    for edits in parts:
        assert len(edits) <= PART_EDITS
        assert isinstance(edits[0], AddMemory)


def test_what_a_long_text_says_is_no_pattern() -> None:
    said = "Restart the worker after changing its configuration."
    short = said_in(4, said, kind="observation")
    assert [each.pattern.pattern for each in plan_patterns(short, NOW, "app")] == [said]
    long = [msgspec.structs.replace(each, content=f"{said}\n" + "More was found out. " * 40) for each in short]
    assert plan_patterns(long, NOW, "app") == []


def test_a_procedure_says_each_sentence_as_its_source_does() -> None:
    texts = (
        "Restart the worker after changing its configuration",
        "After each configuration change restart the worker",
    )
    sources = [each for first, text in enumerate(texts) for each in said_in(2, text, 2 * first, kind="observation")]
    (plan,) = plan_patterns(sources, NOW, "app")
    assert plan.derived is not None
    assert set(plan.derived.memory.content.splitlines()) <= set(texts)
