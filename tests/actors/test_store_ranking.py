"""The store as a process: what comes first, what is lent to what was told next to it, and when nothing is answered."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from remembrancer.memory.ranking import ANSWERABLE_COSINE, NEIGHBOUR_SHARES
from remembrancer.protocol.reads import Strategy
from remembrancer.protocol.writes import ProjectRef
from tests.actors.gateway_rig import PATIENT, Rig
from tests.actors.store_process import StoreRig, store_rig, the
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION
from tests.patience import until

pytestmark = pytest.mark.anyio

DAY_S = 86_400.0
THIRD_PROJECT = ProjectRef("p_000000000003", "/work/three")
QUESTION = "What did the keeper say about the lantern in the harbour?"
LENDER = "The keeper did say a word or two about the lantern in the harbour."
ANSWER = "It was in the attic."
"""Without a word of the question that counts."""
DECOY = "A harbour in the south has piers, and the boats are there."


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home) as made:
        yield made


def at(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


async def converse(
    rig: StoreRig, project: ProjectRef, *, answered_by: str = SESSION, later_s: float = 60.0
) -> dict[str, str]:
    """Have a conversation in a project, and the answer told at some time after the words of its question; their ids."""
    told = time.time() - 3 * DAY_S
    ids = {
        "decoy": await rig.gateway.store(
            DECOY, project=project, session_id="session:decoy", requested_at=told, type="episodic"
        ),
        "lender": await rig.gateway.store(LENDER, project=project, requested_at=told, type="episodic"),
        "answer": await rig.gateway.store(
            ANSWER, project=project, session_id=answered_by, requested_at=told + later_s, type="episodic"
        ),
    }
    await rig.gateway.until_embedded(project)
    return ids


async def test_an_answer_without_a_word_of_the_question_is_found_after_the_words_that_it_was_told_next_to(
    rig: StoreRig,
) -> None:
    await rig.worker()
    ids = await converse(rig, PROJECT)
    answer = await rig.gateway.recall(QUESTION)
    assert [memory.id for memory in answer.memories] == [ids["lender"], ids["answer"], ids["decoy"]]
    scores = the(answer.memories, ids["answer"]).scores
    assert scores.keyword is None
    assert scores.neighbour == pytest.approx(NEIGHBOUR_SHARES[0], abs=0.01)
    assert the(answer.memories, ids["decoy"]).scores.neighbour is None
    for session in (SESSION, OTHER_SESSION):
        assert await rig.gateway.found(QUESTION, session_id=session) == [each.id for each in answer.memories]


async def test_what_another_session_told_next_to_it_or_the_same_one_a_day_later_is_not_lifted(rig: StoreRig) -> None:
    await rig.worker()
    others = await converse(rig, OTHER_PROJECT, answered_by=OTHER_SESSION)
    later = await converse(rig, THIRD_PROJECT, later_s=DAY_S)
    for project, ids in ((OTHER_PROJECT, others), (THIRD_PROJECT, later)):
        answer = await rig.gateway.recall(QUESTION, project=project)
        assert [memory.id for memory in answer.memories] == [ids["lender"], ids["decoy"], ids["answer"]], project
        assert {memory.scores.neighbour for memory in answer.memories} == {None}


@pytest.mark.parametrize("strategy", ["vector", "keyword", "graph"])
async def test_only_a_question_by_words_and_meaning_lets_memories_lend(rig: StoreRig, strategy: Strategy) -> None:
    await rig.worker()
    ids = await converse(rig, PROJECT)
    answer = await rig.gateway.recall(QUESTION, strategy=strategy)
    lent = {memory.id for memory in answer.memories if memory.scores.neighbour is not None}
    assert lent == ({ids["lender"], ids["answer"]} if answer.strategy_used == "hybrid" else set())
    assert (answer.strategy_used == "hybrid") == (strategy == "graph"), "which names no entity here"


async def test_a_long_memory_lends_and_a_long_one_next_to_it_is_lent_nothing(rig: StoreRig) -> None:
    await rig.worker()
    gateway = rig.gateway
    told = time.time() - DAY_S
    long = f"{LENDER} {' '.join(f'filler{number}' for number in range(20))}"
    before = await gateway.store(f"{ANSWER} {long}", requested_at=told, type="episodic")
    lender = await gateway.store(f"{LENDER} {long}", requested_at=told + 60, type="episodic")
    after = await gateway.store(ANSWER, requested_at=told + 120, type="episodic")
    await gateway.until_embedded()
    answer = await gateway.recall(QUESTION)
    assert the(answer.memories, after).scores.neighbour is not None
    for each in (before, lender):
        scores = the(answer.memories, each).scores
        assert scores.head is not None, "it has several passages"
        assert scores.neighbour is None


async def test_filters_hold_for_what_was_told_next_to_a_memory_as_well(rig: StoreRig) -> None:
    await rig.worker()
    gateway = rig.gateway
    told = time.time() - DAY_S
    lender = await gateway.store(LENDER, tags=("harbour",), requested_at=told, type="episodic")
    await gateway.store(ANSWER, requested_at=told + 60, importance=0.1, type="episodic")
    await gateway.until_embedded()
    assert await gateway.found(QUESTION, tags=("harbour",)) == [lender]
    assert await gateway.found(QUESTION, min_importance=0.5) == [lender]
    assert await gateway.found(QUESTION, before=told + 30) == [lender]
    assert len(await gateway.found(QUESTION, scopes=("project",))) == 2
    assert await gateway.found(QUESTION, scopes=("session", "user")) == []


async def test_a_time_in_the_question_moves_what_is_of_it_to_the_front_and_takes_nothing_away(rig: StoreRig) -> None:
    await rig.worker()
    gateway = rig.gateway
    march = await gateway.store("What did the lantern get: fresh oil.", occurred_at=at("2023-03-10"))
    may = await gateway.store("What did the lantern get: clear glass.", occurred_at=at("2023-05-18"))
    await gateway.until_embedded()
    for question, reference, first in [
        ("What did the lantern get two days ago?", "2023-05-20T12:00", may),
        ("What did the lantern get two days ago?", "2023-03-12T12:00", march),
        ("What did the lantern get in March?", "2023-05-20", march),
        ("What did the lantern get in March 2023?", "2026-01-01", march),
        ("What did the lantern get last week?", "2023-05-24", may),
    ]:
        for strategy in ("hybrid", "vector", "keyword"):
            answer = await gateway.recall(question, reference_time=at(reference), strategy=strategy)
            assert [memory.id for memory in answer.memories][:1] == [first], (question, reference, strategy)
            assert {memory.id for memory in answer.memories} == {march, may}, "nothing is filtered out"
            assert answer.below_threshold == 0
            near = {memory.id: memory.scores.time for memory in answer.memories}
            assert near.pop(first) == 1.0
            assert all(other is not None and other < 0.5 for other in near.values())
    timeless = await gateway.recall("What did the lantern get?", reference_time=at("2023-05-20"))
    assert {memory.scores.time for memory in timeless.memories} == {None}


async def test_without_a_reference_time_a_question_is_asked_now(rig: StoreRig) -> None:
    gateway = rig.gateway
    now = time.time()
    await gateway.store("The lantern got fresh oil.", occurred_at=now - 5 * DAY_S)
    yesterday = await gateway.store("The lantern got clear glass.", occurred_at=now - DAY_S)
    answer = await gateway.recall("What did the lantern get yesterday?", strategy="keyword")
    assert answer.memories[0].id == yesterday
    assert answer.memories[0].scores.time == 1.0


async def test_a_long_memory_counts_by_its_best_passage_and_by_how_it_begins(rig: StoreRig) -> None:
    await rig.worker()
    gateway = rig.gateway
    matter = "lantern harbour " * 5
    one, other, *more = (" ".join(f"{word}{number}" for number in range(10)) for word in "abcd")
    begins = await gateway.store(f"{matter} {one} {other} {other}")
    ends = await gateway.store(f"{' '.join(more)} {' '.join(more)[::-1]} {matter}")
    short = await gateway.store("a lantern stands in some harbour there")
    await gateway.until_embedded()
    answer = await gateway.recall("lantern harbour", strategy="vector")
    first, last = the(answer.memories, begins).scores, the(answer.memories, ends).scores
    assert first.head == pytest.approx(first.vector), "its best passage is its first"
    assert last.head is not None
    assert last.vector is not None
    assert last.head < last.vector
    assert the(answer.memories, short).scores.head is None


PIER = "Bread is baked at four beside our pier, says Ann."
OFF_TOPIC = "Which composer sold novels about a pier?"
"""One word of four is that memory's, and neither it nor its meaning is about that."""


async def test_an_off_topic_question_with_a_common_word_is_answered_with_nothing_and_a_hint(home: Path) -> None:
    gateway = Rig(home, PATIENT)
    async with store_rig(home) as store, gateway.running(), gateway.session() as client:
        await store.worker()
        for content in (PIER, "Trains leave hourly today."):
            await client.store(content, wait_for_embedding=True)
        answer = await client.call("recall_memories", query=OFF_TOPIC)
        assert (answer["memories"], answer["below_threshold"]) == ([], 2)
        assert answer["hint"].startswith("Nothing was near enough to the query.")
        (found,) = (await client.call("recall_memories", query=OFF_TOPIC, strategy="keyword"))["memories"]
        assert found["content"] == PIER, "who asks for words alone gets what has one"
        (found,) = (await client.call("recall_memories", query="pier"))["memories"]
        assert found["content"] == PIER, "of so short a question one word is enough"


async def test_a_name_is_found_in_whichever_spelling_however_unlike_the_vectors_are(rig: StoreRig) -> None:
    await rig.worker()
    gateway = rig.gateway
    code = await gateway.store("The proxy gives up with ECONNRESET-104 when idle.")
    setting = await gateway.store("Keep connectionPoolSize low on small machines.")
    await gateway.until_embedded()
    for question, expected in (
        ("econnreset104", code),
        ("connection_pool_size", setting),
        ("why econnreset104?", code),
        ("set connection_pool_size", setting),
    ):
        answer = await gateway.recall(question)
        assert answer.memories[0].id == expected, question
        vector = answer.memories[0].scores.vector
        assert vector is not None
        assert vector < ANSWERABLE_COSINE, "by its meaning it would not have been found"


async def test_a_memory_that_has_no_vector_yet_is_found_by_any_word_and_with_one_by_what_it_means(
    rig: StoreRig,
) -> None:
    worker = await rig.worker()
    gateway = rig.gateway
    await gateway.store("Trains leave hourly today.")
    await gateway.until_embedded()
    worker.holds = True
    pier = await gateway.store(PIER)
    answer = await gateway.recall(OFF_TOPIC)
    assert [memory.id for memory in answer.memories] == [pier]
    assert answer.memories[0].scores.vector is None
    assert answer.strategy_used == "hybrid"
    await until(lambda: len(worker.jobs) == 2)
    worker.answer(worker.jobs[-1:])
    await gateway.until_embedded()
    answer = await gateway.recall(OFF_TOPIC)
    assert answer.memories == ()
    assert answer.below_threshold == 2


async def test_of_two_that_match_alike_the_newer_goes_first_and_a_much_better_match_before_both(rig: StoreRig) -> None:
    await rig.worker()
    gateway = rig.gateway
    now = time.time()
    older = await gateway.store("lantern oil number1", requested_at=now - 90 * DAY_S)
    newer = await gateway.store("lantern oil number2", requested_at=now)
    best = await gateway.store("the brass lantern of the north mole", requested_at=now - 900 * DAY_S)
    await gateway.until_embedded()
    for strategy in ("keyword", "hybrid", "vector"):
        assert (await gateway.found("brass lantern north mole", strategy=strategy))[0] == best, strategy
    for strategy in ("keyword", "hybrid"):
        assert (await gateway.found("lantern oil", strategy=strategy))[:2] == [newer, older], strategy
