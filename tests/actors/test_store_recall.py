"""The store as a process: what is found, in which order, and what a context is made of."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_args

import anyio

from remembrancer.actors.store.readers import TURNS
from remembrancer.config.settings import Settings
from remembrancer.memory.contexts import in_sections, section_of
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.reads import ContextGathered, GatherContext, Section
from remembrancer.protocol.writes import NearMemory, ProjectRef
from tests.actors.store_process import Gateway, StoreRig, store_rig, the
from tests.operations import OTHER_SESSION, PROJECT, SESSION
from tests.patience import PATIENCE_S, until


async def test_a_memory_is_found_by_its_words_before_there_are_any_vectors(rig: StoreRig) -> None:
    gateway = rig.gateway
    lantern = await gateway.store("The lantern stands in the harbour.", tags=("light",), importance=0.8)
    await gateway.store("Something else entirely.")
    answer = await gateway.recall("where is the lantern?")
    assert [memory.id for memory in answer.memories] == [lantern]
    memory = answer.memories[0]
    assert (memory.content, memory.tags, memory.importance) == ("The lantern stands in the harbour.", ("light",), 0.8)
    assert "meaning" not in memory.scores.shares
    assert memory.scores.shares["bm25"] > 0.0
    assert memory.scores.relevance > 0.5
    assert answer.short_ids == {lantern: lantern[-4:]}, "so that the gateway need not ask for them"
    assert answer.strategy_used == "keyword"
    assert [notice.code for notice in gateway.notices] == ["embedding_starting"]
    await gateway.recall("lantern", strategy="keyword")
    assert gateway.notices == (), "who asks for words lacks nothing"
    assert not (await gateway.embedding_of(lantern, timeout_s=1.0)).embedded


async def test_vectors_join_and_every_strategy_finds_what_it_should(rig: StoreRig) -> None:
    gateway = rig.gateway
    lantern = await gateway.store("The lantern stands in the harbour beside the old pier.")
    await gateway.store("Bread is baked at four in the morning.")
    await rig.worker()
    await gateway.until_embedded()
    for strategy in ("vector", "hybrid", "keyword"):
        answer = await gateway.recall("lantern harbour", strategy=strategy)
        assert answer.memories[0].id == lantern, strategy
        assert (answer.strategy_used, gateway.notices) == (strategy, ())
        scores = answer.memories[0].scores
        assert ("meaning" in scores.shares) == (strategy != "keyword")
        assert ("bm25" in scores.shares) == (strategy != "vector")
        assert answer.total_matched == len(answer.memories)
        assert answer.total_matched + answer.below_threshold <= 2
    nonsense = await gateway.recall("qwertyuiop zxcvbnm")
    assert max((memory.scores.relevance for memory in nonsense.memories), default=0.0) < scores.relevance


async def test_whoever_waits_for_the_vectors_gets_them_and_the_near_duplicates(rig: StoreRig) -> None:
    gateway = rig.gateway
    await rig.worker()
    text = "the quick lantern keeper walks along the harbour wall at dusk with a brass bell in one hand"
    first = await gateway.store(text)
    state = await gateway.embedding_of(first)
    assert (state.embedded, state.near_duplicates, state.error) == (True, (), None)
    second = await gateway.store(f"{text} 1901")
    state = await gateway.embedding_of(second)
    assert (state.embedded, state.near_duplicates) == (True, (first,))
    theirs = await gateway.store(f"{text} now", scope="session", session_id=OTHER_SESSION)
    await gateway.embedding_of(theirs, session_id=OTHER_SESSION)
    answer = await gateway.recall("lantern keeper")
    assert set(the(answer.memories, first).near_duplicates) == {second}, "on both, and nothing of another session's"
    assert set(the(answer.memories, second).near_duplicates) == {first}
    answer = await gateway.recall("lantern keeper", session_id=OTHER_SESSION, scopes=("session",))
    assert set(the(answer.memories, theirs).near_duplicates) == {first, second}
    answer = await gateway.recall("lantern keeper", session_id=OTHER_SESSION)
    assert [memory.id for memory in answer.memories if theirs in memory.stands_for], "what the project says as well"
    unknown = await gateway.embedding_of("memory:01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert (unknown.embedded, unknown.error is None) == (False, False)


PORT: Final = "the lantern service listens on port 8080 beside the old pier"
OTHER_PORT: Final = "the lantern service listens on port 9090 now beside the old pier"


async def test_who_waits_for_the_vectors_hears_what_is_probably_replaced_as_does_a_recall(rig: StoreRig) -> None:
    gateway = rig.gateway
    await rig.worker()
    days_ago = time.time() - 3 * DAY_S
    old = await gateway.store(PORT, occurred_at=days_ago)
    await gateway.store("bread is baked at four every morning", occurred_at=days_ago)
    await gateway.store(PORT.replace("8080", "7070"), scope="session", session_id=OTHER_SESSION, occurred_at=days_ago)
    await gateway.until_embedded()  # the newest are embedded first
    new = await gateway.store(OTHER_PORT)
    assert (await gateway.embedding_of(new)).near == (NearMemory(old, PORT, new),)
    assert (await gateway.embedding_of(new)).near == (), "it is told once"
    found = {each.id: each.possibly_superseded_by for each in (await gateway.recall("lantern port")).memories}
    assert (found[old], found[new]) == ((new,), ())


QUESTION = "What did the keeper say about the lantern in the harbour?"
LENDER = "The keeper did say a word or two about the lantern in the harbour."
ANSWER = "It was in the attic."
"""Without a word of the question that counts."""
DECOY = "A harbour in the south has piers, and the boats are there."


def at(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


async def test_an_answer_without_a_word_of_the_question_is_found_after_what_it_was_told_next_to(rig: StoreRig) -> None:
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


async def test_of_many_recalls_at_once_a_few_are_worked_on_and_the_others_wait_for_their_turn(home: Path) -> None:
    async with store_rig(home, settings=Settings(read_budget_s=2 * PATIENCE_S)) as rig:
        worker = await rig.worker()
        wanted = await rig.gateway.store("the lantern is in the harbour")
        await rig.gateway.until_embedded()
        worker.holds_questions = True
        found: list[str] = []

        async def recall(number: int) -> None:
            (first, *_) = await rig.gateway.found(f"which lantern is number {number}")
            found.append(first)

        async with anyio.create_task_group() as tasks:
            for number in range(3 * TURNS):
                tasks.start_soon(recall, number)
            await until(lambda: len(worker.questions) >= TURNS)
            for _ in range(10):  # by now all have been taken
                await rig.gateway.describe()
            assert len(worker.questions) == TURNS
            worker.answer_questions()
        assert found == [wanted] * 3 * TURNS


async def gather(
    gateway: Gateway, *, project: ProjectRef = PROJECT, session_id: str = SESSION, **fields: Any
) -> ContextGathered:
    return await gateway.ask(GatherContext(project, session_id, **fields))


def ids(gathered: ContextGathered, sections: tuple[Section, ...] = get_args(Section)) -> dict[Section, list[str]]:
    found: dict[Section, list[str]] = {name: [] for name in sections}
    for memory in gathered.memories:
        name = section_of(memory, sections)
        assert name is not None
        found[name].append(memory.id)
    assert list(gathered.memories) == list(in_sections(gathered.memories, sections))
    return found


async def test_without_a_task_each_section_has_its_own_in_its_own_order(rig: StoreRig) -> None:
    gateway = rig.gateway
    now = time.time()
    tabs = await gateway.store("Prefers tabs", scope="user", importance=0.5, requested_at=now - 60)
    terse = await gateway.store("Likes terse answers", scope="user", importance=0.9, requested_at=now - 90)
    late = await gateway.store("Prefers dark themes", scope="user", importance=0.5, requested_at=now)
    steps = await gateway.store("Always run the linter first", scope="user", type="procedural", importance=0.7)
    lunch = await gateway.store("Had lunch", scope="user", type="episodic", importance=1.0)
    grpc = await gateway.store("The service uses gRPC", importance=0.4)
    ports = await gateway.store("The service listens on port 7000", importance=0.8)
    deploy = await gateway.store("Deploy with make ship", type="procedural", importance=0.3)
    first = await gateway.store("Talked about auth", scope="session", type="episodic", requested_at=now - 50)
    second = await gateway.store("Talked about tokens", scope="session", type="episodic", requested_at=now - 40)
    noted = await gateway.store("The branch is called wip", scope="session", requested_at=now)
    gathered = await gather(gateway)
    assert ids(gathered) == {
        "preferences": [lunch, terse, late, tabs],
        "project_context": [ports, grpc],
        "session_history": [noted, second, first],
        "relevant_procedures": [steps, deploy],
        "open_ends": [],
    }
    assert rig.gateway.notices == (), "no question, nothing missed"
    assert gathered.is_all


async def filled(gateway: Gateway) -> None:
    """Far more than a budget of 500 tokens has room for, of what no task is about."""
    for number in range(60):
        await gateway.store(f"Accounts of the year {number} are closed in March of the next one", importance=0.9)


async def test_where_not_all_fits_what_holds_for_every_task_and_what_it_asks_for_are_given(rig: StoreRig) -> None:
    gateway = rig.gateway
    await rig.worker()
    await filled(gateway)
    rule = await gateway.store("Never log request bodies", kind="convention", importance=0.4, tags=["privacy"])
    tabs = await gateway.store("Prefers tabs over spaces", kind="preference", scope="user", importance=0.4)
    call = await gateway.store("Call the harbour master", kind="open_end", importance=0.2, tags=["privacy"])
    harbour = await gateway.store("The lantern stands in the harbour", importance=0.1)
    light = await gateway.store("To light the lantern turn the key", type="procedural", importance=0.1)
    await gateway.until_embedded()
    gathered = await gather(gateway, task="mend the lantern", tokens=500)
    found = ids(gathered)
    assert rule in found["project_context"]
    assert found["preferences"] == [tabs]
    assert found["open_ends"] == [call]
    assert found["relevant_procedures"] == [light]
    assert harbour in found["project_context"]
    assert not gathered.is_all
    assert ("privacy", 2) in gathered.subjects
    everything = [memory_id for section in found.values() for memory_id in section]
    assert len(everything) == len(set(everything)), "no memory is in two sections"
