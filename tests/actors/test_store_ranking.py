"""The store as a process: what comes first, what is lent to what was told next to it, and when nothing is answered."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from tests.actors.store_process import StoreRig, the
from tests.operations import OTHER_SESSION, SESSION

DAY_S = 86_400.0
QUESTION = "What did the keeper say about the lantern in the harbour?"
LENDER = "The keeper did say a word or two about the lantern in the harbour."
ANSWER = "It was in the attic."
"""Without a word of the question that counts."""
DECOY = "A harbour in the south has piers, and the boats are there."


def at(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


async def test_an_answer_without_a_word_of_the_question_is_found_after_the_words_that_it_was_told_next_to(
    rig: StoreRig,
) -> None:
    gateway, told = rig.gateway, time.time() - 3 * DAY_S
    await rig.worker()
    await gateway.store(DECOY, session_id="session:decoy", requested_at=told, type="episodic")
    lender = await gateway.store(LENDER, requested_at=told, type="episodic")
    after_it = await gateway.store(ANSWER, requested_at=told + 60.0, type="episodic")
    await gateway.until_embedded()
    answer = await gateway.recall(QUESTION)
    assert [memory.id for memory in answer.memories][:2] == [lender, after_it]
    shares = the(answer.memories, after_it).scores.shares
    assert "bm25" not in shares
    assert shares["context_words"] > 0.0
    for session in (SESSION, OTHER_SESSION):
        assert await gateway.found(QUESTION, session_id=session) == [each.id for each in answer.memories]


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
            near = {memory.id: memory.scores.shares.get("time", 0.0) for memory in answer.memories}
            assert near.pop(first) > 2 * max(near.values())
    timeless = await gateway.recall("What did the lantern get?", reference_time=at("2023-05-20"))
    assert not any("time" in memory.scores.shares for memory in timeless.memories)
