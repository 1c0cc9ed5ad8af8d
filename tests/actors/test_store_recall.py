"""The store as a process: what is stored is found, by its words at once and by its meaning as soon as may be."""

from __future__ import annotations

import time
from typing import Final

from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.writes import NearMemory
from tests.actors.store_process import StoreRig, the
from tests.operations import OTHER_SESSION


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


async def test_whoever_waits_for_the_vectors_hears_what_is_probably_replaced_and_so_does_a_recall(
    rig: StoreRig,
) -> None:
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
