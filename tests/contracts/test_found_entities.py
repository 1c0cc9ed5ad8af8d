"""Names that are found in the texts of memories: which, and when they join those that have them."""

from __future__ import annotations

from typing import Any

from remembrancer.actors.store.records.found_entities import FEW
from remembrancer.actors.store.retrieval.graph import Graph
from remembrancer.protocol.writes import EraseMemory, UpdateMemory
from tests.contracts.records_rig import RecordsRig
from tests.operations import OTHER_SESSION, SESSION


def say(rig: RecordsRig, *contents: str, **fields: Any) -> list[str]:
    """Store memories, and look for names in them."""
    ids = [rig.say(each, **fields) for each in contents]
    rig.tidy()
    return ids


def found_in(rig: RecordsRig, memory_id: str) -> tuple[str, ...]:
    return rig.records.surroundings(memory_id, "", None).found_entities


def count(rig: RecordsRig, name: str) -> int:
    return len(Graph(rig.records.spaces, SESSION).named(name))


def test_certain_names_join_memories_that_nobody_gave_entities(rig: RecordsRig) -> None:
    one, two = say(rig, "The fix for INC-311 is in src/pool.py.", "INC-311 came back on Monday.")
    assert (found_in(rig, one), found_in(rig, two)) == (("INC-311", "src/pool.py"), ("INC-311",))
    graph = Graph(rig.records.spaces, SESSION)
    (entity,) = graph.named("INC-311")
    assert graph.memory_counts([entity]) == {entity: 2}
    assert rig.shown(one).related_entities == (), "what was found is no part of a version or of an export"


def test_an_edited_memory_loses_what_it_does_not_say_any_more_and_an_erased_one_all(rig: RecordsRig) -> None:
    (memory,) = say(rig, "The pool is in src/pool.py.")
    rig.do(UpdateMemory(memory, content="The pool is in src/basin.py."))
    rig.tidy()
    assert found_in(rig, memory) == ("src/basin.py",)
    assert (count(rig, "src/pool.py"), count(rig, "src/basin.py")) == (0, 1)
    rig.do(EraseMemory(memory))
    rig.tidy()
    assert count(rig, "src/basin.py") == 0


def test_a_word_with_a_capital_letter_is_a_name_once_three_memories_that_others_see_have_it(rig: RecordsRig) -> None:
    first, _ = say(rig, "The release is done by Renske.", "We asked Renske about it.")
    say(rig, "I hear that Renske is away.", scope="session", session_id=OTHER_SESSION)
    assert found_in(rig, first) == ()
    (third,) = say(rig, "The keys are with Renske.")
    assert found_in(rig, first) == found_in(rig, third) == ("Renske",)


def test_a_name_that_more_than_a_third_of_the_memories_have_joins_none(rig: RecordsRig) -> None:
    memories = say(rig, *(f"step {number} of INC-311 is done" for number in range(FEW)))
    assert all(found_in(rig, each) == ("INC-311",) for each in memories)
    say(rig, "one more about INC-311")
    assert all(found_in(rig, each) == () for each in memories)
    assert count(rig, "INC-311") == 0
    say(rig, *(f"something else, number {number}" for number in range(4 * FEW)), "and again INC-311")
    assert all(found_in(rig, each) == ("INC-311",) for each in memories), "now it tells them from others"
