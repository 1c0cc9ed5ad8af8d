"""A recall over three scopes: each has its say, none crowds out another, and nobody sees what is not theirs."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from remembrancer.actors.store.records.types import USER, Filters, Hits, Phrase, Vectors
from remembrancer.actors.store.retrieval.candidates import CANDIDATES
from remembrancer.actors.store.retrieval.recalls import ANSWERS_BY_TIME
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.reads import Section, Strategy
from remembrancer.protocol.runs import LogPromotion, ReviseMemory
from remembrancer.protocol.writes import ForgetMemory, UpdateMemory
from tests.actors.spaces_rig import NOW, Spaces
from tests.actors.store_process import vector_of
from tests.operations import OTHER_SESSION, SESSION


async def section(files: Spaces, section: Section, task: str = "") -> list[str]:
    """The ids in one section of a context."""
    return [memory.id for memory in (await files.context(task=task, sections=(section,))).memories]


STRATEGIES: Sequence[Strategy] = ("hybrid", "vector", "keyword")


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_session_s_few_memories_are_not_crowded_out_by_its_project_s(files: Spaces, strategy: Strategy) -> None:
    mine = files.store("the lantern by the near mole", "session", type="episodic")
    for number in range(2 * CANDIDATES):
        files.store(f"the lantern by the near mole, number {number}", type="episodic")
    found = await files.found("the lantern by the near mole", strategy=strategy, limit=4 * CANDIDATES)
    assert mine in found
    assert len(found) > CANDIDATES, "the many are more than a search brings"


async def test_what_two_scopes_say_alike_is_said_once_and_both_are_named(files: Spaces) -> None:
    text = "the keeper prefers the brass lantern with the short wick and the blue glass"
    narrow = files.store(text, tags=("light",))
    broad = files.store(f"{text} today", "user", tags=("taste",))
    other = files.store("a lantern", type="episodic")
    answer = await files.recall(text)
    assert answer.memories[0].id == broad
    assert {memory.id for memory in answer.memories[1:]} <= {other}
    assert answer.total_matched == len(answer.memories)
    kept = answer.memories[0]
    assert (kept.stands_for, kept.found_in, kept.tags) == ((narrow,), ("project", "user"), ("taste", "light"))
    again = await files.recall(text, scopes=("project",))
    assert narrow in {memory.id for memory in again.memories}


async def test_a_question_that_names_a_time_alone_gets_what_happened_then(files: Spaces) -> None:
    asked = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()  # a Friday
    saturday = datetime(2026, 11, 14, 9, tzinfo=UTC).timestamp()
    files.store("a lantern of the last mole", occurred_at=saturday - DAY_S)
    files.store("their rope was cut", "session", session_id=OTHER_SESSION, occurred_at=saturday)
    mine = files.store("the rope was spliced", "session", occurred_at=saturday)
    users = files.store("a new oar was bought", "user", occurred_at=saturday + 3600, importance=0.9)
    unready = files.store("the buoy was painted", passages=0, occurred_at=saturday)
    answer = await files.recall("What did we do last Saturday?", reference_time=asked)
    assert {memory.id for memory in answer.memories} == {mine, users, unready}
    assert {memory.scores.relevance for memory in answer.memories} == {ANSWERS_BY_TIME}
    assert answer.below_threshold == 0
    filtered = await files.found("What did we do last Saturday?", reference_time=asked, after=saturday + 60)
    assert filtered == [users]


async def test_a_context_leaves_out_what_is_over_and_what_is_stood_for_where_it_has_more(files: Spaces) -> None:
    archived = files.store("the lantern is archived", importance=0.0)
    stood_for = files.store("the lantern is stood for", importance=1.0)
    over = files.store("the lantern is over", importance=0.9)
    active = files.store("the lantern is there", importance=0.1)
    files.run(ReviseMemory(archived, "archived", status="archived"))
    files.run(ReviseMemory(stood_for, "archived", status="consolidated"))
    files.change(UpdateMemory(over, valid_until=NOW - 1))
    for task in ("", "the lantern is stood for"):
        assert await section(files, "project_context", task=task) == [active, archived]
    for each in (active, archived):
        files.change(ForgetMemory(each))
    for task in ("", "the lantern is stood for"):
        assert await section(files, "project_context", task=task) == [stood_for]


async def test_a_context_has_what_was_merged_only_where_its_target_cannot_be_seen(files: Spaces) -> None:
    other = files.store("the mole is long", importance=0.1)
    broad = files.store("the keeper likes green lanterns everywhere", "user")
    into_user, mine = files.store("the keeper likes green lanterns"), files.store("my lantern is green", "session")
    theirs = files.store("their lantern is green", "session", session_id=OTHER_SESSION)
    into_theirs = files.store("a lantern is green")
    for memory_id, target in ((into_user, broad), (mine, into_user), (into_theirs, theirs)):
        merged = LogPromotion(memory_id, "observation", "project", "user", "importance", SESSION, merged_into=target)
        files.run(ReviseMemory(memory_id, "archived", status="promoted"), merged)
    for task in ("", "the green lantern"):
        assert await section(files, "session_history", task=task) == []
        assert set(await section(files, "project_context", task=task)) <= {other, into_theirs}
        assert into_theirs in await section(files, "project_context", task=task), "nobody says it to this session"
    files.change(ForgetMemory(broad), USER)
    assert into_user in await section(files, "project_context")
    assert await section(files, "session_history") == [], "what it was merged into is there again"


async def test_open_ends_are_in_every_context_by_due_date_and_the_done_are_named_for_two_weeks(files: Spaces) -> None:
    end: dict[str, Any] = {"kind": "open_end", "type": "episodic"}
    undated = files.store("cut the wick of the lantern", **end)
    later = files.store("paint the boat", "user", due=NOW + 9, **end)
    soon = files.store("ring the bell", "session", due=NOW + 5, **end)
    done = files.store("oil the lantern", done=True, **end)
    files.store("The session of noon worked on lantern.py.", kind=SESSION_RECORD, type="episodic")
    for task, days in itertools.product(("the lantern", ""), (1, 30)):
        gathered = await files.context(task=task, now=NOW + 86_400 * days)
        assert [each.id for each in gathered.memories] == [soon, later, undated]
        assert [each.id for each in gathered.closed] == ([done] if days == 1 else [])


async def test_words_are_searched_while_a_worker_makes_vectors(files: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    lantern = files.store("A lantern of brass.")
    search, searched = files.project.keyword_hits, threading.Event()

    def search_and_say(
        phrases: Sequence[Phrase], filters: Filters, limit: int, counted: Mapping[Phrase, int], numbers: Sequence[int]
    ) -> Hits:
        hits = search(phrases, filters, limit, counted, numbers)
        searched.set()
        return hits

    async def once_words_are_searched(text: str) -> Vectors:
        assert await asyncio.to_thread(searched.wait, 30), "the words wait for the vector"
        return vector_of(text)

    monkeypatch.setattr(files.project, "keyword_hits", search_and_say)
    monkeypatch.setattr(files, "embed", once_words_are_searched)
    answer = await files.recall("brass lantern")
    assert [memory.id for memory in answer.memories] == [lantern]
    assert answer.memories[0].scores.shares["meaning"] > 0.0


async def test_what_was_replaced_comes_after_what_replaced_it_and_is_marked(files: Spaces) -> None:
    old = files.store("caching caching caching is done by redis", importance=1.0)
    for number in range(12):
        files.store(f"caching note {number}")
    new = files.store("valkey eight took over", importance=0.1, supersedes=old)
    found = (await files.recall("caching redis", limit=3)).memories
    assert [memory.id for memory in found[:2]] == [new, old]
    assert (found[1].superseded_by, found[1].expired, found[0].expired) == ((new,), True, False)
    assert found[0].scores.relevance >= found[1].scores.relevance, "it is given whole where the replaced one is"
    assert await files.found("caching redis", limit=1) == [new]


async def test_results_stand_in_the_order_of_the_number_that_is_shown_with_them(files: Spaces) -> None:
    for number in range(12):
        files.store(f"the {'brass ' * (number % 3)}lantern number {number}", type="episodic", importance=number / 12)
    files.store("bread is baked at four")
    for strategy in STRATEGIES:
        answer = await files.recall("brass lantern number four", strategy=strategy, limit=20)
        shown = [memory.scores.relevance for memory in answer.memories]
        assert shown == sorted(shown, reverse=True), strategy
        assert len(shown) > 5
        assert all(0.0 <= each <= 1.0 for each in shown)
        for memory in answer.memories:
            assert memory.scores.final == pytest.approx(sum(memory.scores.shares.values()), abs=0.01)


async def test_a_question_of_which_the_memories_have_no_word_is_not_emptied(files: Spaces) -> None:
    port = files.store("The gateway listens on port 8443 for all clients")
    for number in range(20):
        files.store(f"The keeper of boat {number} sleeps at noon")
    answer = await files.recall("Auf welchem Port lauscht das Gateway?")
    assert answer.memories[0].id == port
    strange = await files.recall("Wo ist der Hafen und wer ist da?")
    assert strange.memories, "what is near by meaning is shown, however unlikely"
    assert max(each.scores.relevance for each in strange.memories) < answer.memories[0].scores.relevance
