"""Entities that nobody gave: found in what memories say, and gone with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from remembrancer.actors.store.records.found_entities import FEW
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.retrieval.graph import Graph
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.writes import Applied, EraseMemory, UpdateMemory
from tests.contracts.records_factories import SqliteFactory, scrub
from tests.operations import OTHER_SESSION, SESSION, change_operation, memory_id_of, store_operation


def store(records: Records, *contents: str, **fields: Any) -> list[str]:
    """Store memories, and look for names in them."""
    operations = [store_operation(new_ulid(), content, **fields) for content in contents]
    for outcome in records.apply(operations):
        assert isinstance(outcome.reply, Applied), outcome.reply
    find(records)
    return [memory_id_of(each) for each in operations]


def find(records: Records) -> None:
    while records.tidy():
        pass


def change(records: Records, change: UpdateMemory | EraseMemory, name: str) -> None:
    (outcome,) = records.apply([change_operation(name, change)])
    assert isinstance(outcome.reply, Applied), outcome.reply
    find(records)


def found_in(records: Records, memory_id: str) -> tuple[str, ...]:
    return records.surroundings(memory_id, "", None).found_entities


def entities(records: Records, name: str) -> int:
    return len(Graph(records.spaces, SESSION).named(name))


def test_certain_names_join_memories_that_nobody_gave_entities(records: Records) -> None:
    one, two = store(records, "The fix for INC-311 is in src/pool.py.", "INC-311 came back on Monday.")
    assert found_in(records, one) == ("INC-311", "src/pool.py")
    assert found_in(records, two) == ("INC-311",)
    graph = Graph(records.spaces, SESSION)
    (entity,) = graph.named("INC-311")
    assert graph.memory_counts([entity]) == {entity: 2}
    kept = records.portable(one, None)
    assert kept is not None
    assert kept.related_entities == (), "what was found is not given, and is no part of a version or of an export"


def test_an_edited_memory_loses_what_it_does_not_say_any_more_and_an_erased_one_all(records: Records) -> None:
    (memory,) = store(records, "The pool is in src/pool.py.")
    change(records, UpdateMemory(memory, content="The pool is in src/basin.py."), "edit")
    assert found_in(records, memory) == ("src/basin.py",)
    assert (entities(records, "src/pool.py"), entities(records, "src/basin.py")) == (0, 1)
    change(records, EraseMemory(memory), "erase")
    assert entities(records, "src/basin.py") == 0


def test_an_erased_memorys_names_are_nowhere_in_its_file(tmp_path: Path) -> None:
    factory = SqliteFactory(tmp_path)
    records = factory.open()
    (memory,) = store(records, "The key lies in vault/marigold_drawer.txt.")
    assert found_in(records, memory) == ("vault/marigold_drawer.txt",)
    change(records, EraseMemory(memory), "erase")
    scrub(records, memory)
    records.close()
    for file in factory.path.parent.iterdir():
        assert b"marigold" not in file.read_bytes(), file
    factory.close()


def test_a_word_with_a_capital_letter_is_a_name_once_three_memories_that_others_see_have_it(records: Records) -> None:
    first, _ = store(records, "The release is done by Renske.", "We asked Renske about it.")
    store(records, "I hear that Renske is away.", scope="session", session_id=OTHER_SESSION)
    assert found_in(records, first) == ()
    (third,) = store(records, "The keys are with Renske.")
    assert found_in(records, first) == found_in(records, third) == ("Renske",)


def test_a_name_that_more_than_a_third_of_the_memories_have_joins_none(records: Records) -> None:
    memories = store(records, *(f"step {number} of INC-311 is done" for number in range(FEW)))
    assert all(found_in(records, each) == ("INC-311",) for each in memories)
    store(records, "one more about INC-311")
    assert all(found_in(records, each) == () for each in memories)
    assert entities(records, "INC-311") == 0
    store(records, *(f"something else, number {number}" for number in range(4 * FEW)))
    store(records, "and again INC-311")
    assert all(found_in(records, each) == ("INC-311",) for each in memories), "now it tells them from others"
