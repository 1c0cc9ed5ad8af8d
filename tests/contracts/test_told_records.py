"""The promises of every `Records` about what was told around a memory, the beginnings of long ones, and the words in
them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.actors.store.records.search import INTERLEAVED, REACH, TOGETHER_S
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Neighbours
from remembrancer.actors.store.retrieval.keywords import phrases_and_units, phrases_of
from remembrancer.protocol.writes import Applied, Operation, StoreMemory
from tests.operations import (
    OTHER_SESSION,
    REQUESTED_AT,
    SESSION,
    change_of,
    memory_id_of,
    store_operation,
)

ALL = Filters(SESSION)


def tell(records: Records, *told: dict[str, Any]) -> list[int]:
    """Store these memories of what happened one after the other, a minute apart if no time is given; their numbers."""
    before = records.counts(None).total
    numbers = []
    for place, fields in enumerate(told, before):
        given = {"content": f"told {place}", "requested_at": REQUESTED_AT + 60 * place, "type": "episodic", **fields}
        numbers.append(keep(records, store_operation(f"op{place}", given.pop("content"), **given)))
    return numbers


def keep(records: Records, operation: Operation) -> int:
    (outcome,) = records.apply([operation])
    assert isinstance(outcome.reply, Applied), outcome.reply
    assert outcome.to_embed is not None
    return outcome.to_embed


# What was told around a memory


def test_another_sessions_own_memories_are_never_named_not_even_around_one_of_them(records: Records) -> None:
    theirs = {"session_id": OTHER_SESSION, "scope": "session"}
    numbers = tell(records, theirs, theirs, {}, theirs)
    assert records.neighbours(numbers, ALL) == Neighbours({}, {})
    assert records.neighbours(numbers, replace(ALL, include_forgotten=True, scopes=("session",))) == Neighbours({}, {})
    assert set(records.neighbours(numbers, Filters(OTHER_SESSION)).facts) == {numbers[0], numbers[1], numbers[3]}


WHO = (SESSION, OTHER_SESSION, "")


def conversation(records: Records) -> dict[int, Operation]:
    """Some sessions that tell things in turn, with pauses and dates in them."""
    chance = np.random.default_rng(7)
    stored: dict[int, Operation] = {}
    now = REQUESTED_AT
    for place in range(80):
        now += TOGETHER_S * float(chance.choice([0.05, 0.3, 0.6, 2.2]))
        operation = store_operation(
            f"op{place}",
            f"told {place}",
            requested_at=now,
            occurred_at=now - 0.8 * TOGETHER_S if place % 7 == 0 else None,
            session_id=WHO[int(chance.choice([0, 0, 0, 1, 1, 2]))],
            scope=("project", "session")[int(chance.choice([0, 0, 1]))],
            type=("episodic", "episodic", "episodic", "semantic")[place % 4],
            tags=(("red",), ())[place % 3 == 0],
            importance=(0.2, 0.8)[place % 5 == 0],
        )
        stored[keep(records, operation)] = operation
    return stored


def happened_at(operation: Operation) -> float:
    occurred_at = change_of(operation).occurred_at
    return operation.requested_at if occurred_at is None else occurred_at


def neighbours_of(number: int, stored: dict[int, Operation], passing: set[int]) -> dict[int, int]:
    """The contract, said once more in other words."""
    its = change_of(stored[number])
    steps: dict[int, int] = {}

    def belongs(other: StoreMemory, at: float) -> bool:
        together = abs(at - happened_at(stored[number])) <= TOGETHER_S
        return together and other.type == "episodic" and (other.session_id, other.scope) == (its.session_id, its.scope)

    for direction in (-1, 1):
        step = 0
        for distance in range(1, INTERLEAVED + 1):
            at = number + direction * distance
            if step < REACH and at in passing and belongs(change_of(stored[at]), happened_at(stored[at])):
                step += 1
                steps[at] = step
    return steps if its.session_id and its.type == "episodic" else {}


some_filters = st.builds(
    Filters,
    session_id=st.sampled_from([*WHO, "session:nobody"]),
    scopes=st.sampled_from([(), ("session",), ("project",), ("project", "user")]),
    types=st.sampled_from([(), ("episodic",), ("semantic",)]),
    tags=st.sampled_from([(), ("red",), ("red' OR 1=1 --",)]),
    min_importance=st.sampled_from([0.0, 0.5]),
    after=st.none() | st.floats(REQUESTED_AT, REQUESTED_AT + 50 * TOGETHER_S),
)


def test_neighbours_are_what_the_rule_says_whatever_is_filtered(records: Records) -> None:
    stored = conversation(records)
    assert len(records.neighbours(sorted(stored), ALL).steps) > 15, "there is something to filter"

    @given(some_filters, st.sets(st.sampled_from(sorted(stored)), max_size=12))
    def agrees(filters: Filters, numbers: set[int]) -> None:
        passing = set(records.matching(filters, 1000) or ())
        expected = {number: neighbours_of(number, stored, passing) for number in passing}
        numbers &= passing  # none is asked for that the filters turn away
        told = records.neighbours(sorted(numbers), filters)
        assert told.steps == {number: steps for number, steps in expected.items() if steps and number in numbers}
        theirs = records.neighbours(sorted(numbers), filters, and_theirs=True).steps
        wanted = numbers | {other for steps in told.steps.values() for other in steps}
        assert theirs == {number: steps for number, steps in expected.items() if steps and number in wanted}
        assert set(told.facts) == {other for steps in told.steps.values() for other in steps} <= passing
        assert told.facts == (records.ranking_facts(list(told.facts), filters) if told.facts else {})

    agrees()


# The words in memories


def words_in(records: Records, question: str, *numbers: int) -> dict[int, int]:
    postings = records.postings(phrases_and_units(question)[1])
    counts = {number: sum(number in having for having in postings) for number in numbers}
    return {number: count for number, count in counts.items() if count}


def test_the_words_of_a_question_are_counted_in_each_memory_that_has_any(records: Records) -> None:
    all_, some, none = tell(
        records,
        {"content": "Deploying the lantern took the keeper an hour."},
        {"content": "The lanterns were lit.", "tags": ("keepers",)},
        {"content": "Bread."},
    )
    question = "When did the keeper deploy the lantern?"
    assert words_in(records, question, all_, some, none) == {all_: 3, some: 2}
    assert records.postings([]) == []
    survey = records.survey(phrases_and_units("keeper bread lamp deploy")[1], SESSION, 0)
    assert survey.postings == {records.space: [[all_, some], [none], [], [all_]]}


@pytest.mark.parametrize(
    ("content", "question"),
    [
        ("Set connectionPoolSize to 4.", "connection_pool_size"),
        ("Set connection_pool_size to 4.", "connectionPoolSize"),
        ("It fails with ECONNRESET-104.", "econnreset104"),
        ("See src/net/retry.py for it.", "src/net/retry.py"),
        ("我们使用数据", "数据"),
        ("Zürich it is", "zurich"),
    ],
)
def test_a_name_is_one_word_in_whichever_spelling(records: Records, content: str, question: str) -> None:
    (number,) = tell(records, {"content": content})
    assert words_in(records, question, number) == {number: 1}


@given(
    st.lists(
        st.sampled_from(
            ["lantern", "OR", "NOT", "AND", "NEAR(a b)", '"', "'", "*", "^", "content:", "(", ")", "-", "a.b"]
        )
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        max_size=8,
    ).map(" ".join)
)
def test_no_question_breaks_the_syntax_and_a_memory_has_one_of_its_words_if_the_search_by_words_finds_it(
    records: Records, text: str
) -> None:
    groups = phrases_and_units(text)[1]
    number = records.number_of(memory_id_of(operation := store_operation(f"op-{text.encode().hex()}", text)))
    number = keep(records, operation) if number is None else number
    found = words_in(records, text, number)
    assert found.get(number, 0) <= len(groups)
    hits = records.keyword_hits(phrases_of(text), ALL, 1000) if groups else []
    assert (number in found) <= (number in set(hits))
