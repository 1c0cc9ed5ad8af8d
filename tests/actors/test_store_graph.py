"""The store's graph: walks and overviews over a project's file and the user's, and recalls through it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
import pytest

from remembrancer.actors.store.records.types import USER, Vectors
from remembrancer.protocol.reads import FollowLinks, GraphEntity, GraphFound, LinkedMemory, Memories, SearchGraph
from remembrancer.protocol.writes import EntityRef
from tests.actors.spaces_rig import Spaces
from tests.actors.store_process import StoreRig
from tests.operations import OTHER_SESSION, PROJECT, REQUESTED_AT, SESSION
from tests.patience import PATIENCE_S

LANE = "l_0123456789ab"


def refs(*entities: str) -> tuple[EntityRef, ...]:
    """Each is `name:type:relationship`, the last two of which have defaults."""
    split = [(*each.split(":"), "", "")[:3] for each in entities]
    refs = [EntityRef(name, kind or "component", relationship or "about") for name, kind, relationship in split]
    return (*refs[:1], *(msgspec.structs.replace(each, subject=refs[0].name) for each in refs[1:]))


async def say(rig: StoreRig, content: str, *entities: str, **fields: Any) -> str:
    """Store a memory that names entities; its id."""
    return await rig.gateway.store(content, related_entities=refs(*entities), **fields)


async def search(rig: StoreRig, entity: str | None = None, **fields: Any) -> GraphFound:
    asked = {"project": PROJECT, "session_id": SESSION, **fields}
    return await rig.gateway.ask(SearchGraph(entity=entity, **asked))


async def test_names_that_nobody_gave_join_memories_a_moment_after_they_were_stored(rig: StoreRig) -> None:
    one = await rig.gateway.store("The fix for INC-311 is in src/pool.py.")
    two = await rig.gateway.store("INC-311 came back at night.")
    await rig.gateway.store("INC-311 is mine.", scope="session", session_id=OTHER_SESSION)

    async def found() -> bool:
        return {each.id for each in (await search(rig, "inc 311")).memories} == {one, two}

    with anyio.fail_after(PATIENCE_S):
        while not await found():  # noqa: ASYNC110 - it tells nobody
            await anyio.sleep(1.0)  # names are looked for while nobody asks
    assert names(await search(rig, "INC-311")) == ["INC-311", "src/pool.py"]


def names(found: GraphFound) -> list[str]:
    return [entity.name for entity in found.entities]


def edges(entity: GraphEntity) -> set[tuple[str, str, str]]:
    return {(each.type, each.target, each.direction) for each in entity.relationships}


async def test_what_a_project_and_the_user_call_the_same_is_one_entity(rig: StoreRig) -> None:
    here = await say(rig, "one", "Python:language", "uv:tool:installed_by")
    mine = await say(rig, "two", "python:language", "mypy:tool:checked_by", scope="user")
    other_type = await say(rig, "three", "Python:snake", "Zoo:place:lives_in", scope="user")
    found = await search(rig, "python")
    python = the_entity(found, "language")
    assert (python.name, python.memory_count) == ("python", 2), "as it was asked for, where somebody writes it so"
    assert edges(python) == {("installed_by", "uv", "outgoing"), ("checked_by", "mypy", "outgoing")}
    assert {memory.id for memory in found.memories} >= {here, mine}
    assert {entity.name for entity in found.entities if entity.distance == 1} >= {"uv", "mypy"}
    everything = await search(rig, "PYTHON")
    assert the_entity(everything, "language").name == "Python", "as the project writes it"
    assert {entity.type for entity in everything.entities if entity.distance == 0} == {"language", "snake"}
    assert other_type in {memory.id for memory in everything.memories}


def the_entity(found: GraphFound, kind: str) -> GraphEntity:
    (entity,) = [entity for entity in found.entities if entity.type == kind]
    return entity


# strategy: graph


async def test_memories_around_the_named_entities_are_recalled_nearest_and_most_relevant_first(rig: StoreRig) -> None:
    await rig.worker()
    direct = await say(rig, "Logins take two seconds.", "AuthService", "Redis::uses")
    also_direct = await say(rig, "The auth pager rings on Mondays.", "AuthService")
    hop = await say(rig, "Restart it with the red button.", "Redis", "Ops::owned_by")
    two_hops = await say(rig, "They sit on the third floor.", "Ops", "Building::located_in")
    three_hops = await say(rig, "It was built in 1930.", "Building", "Architect::drawn_by")
    unrelated = await say(rig, "Bread is baked at four, pager or not.", "Bakery")
    await rig.gateway.until_embedded()
    answer = await rig.gateway.recall("who gets the pager of the auth service?", strategy="graph")
    found = [memory.id for memory in answer.memories]
    assert answer.strategy_used == "graph"
    assert rig.gateway.notices == ()
    assert found[0] == also_direct, "as near as the other, and more like the question"
    assert set(found) == {direct, also_direct, hop, two_hops}
    assert not {three_hops, unrelated} & set(found)
    nearness = {memory.id: memory.scores.shares.get("graph", 0.0) for memory in answer.memories}
    assert nearness[direct] == nearness[also_direct] > nearness[hop] > nearness[two_hops] > 0


async def test_a_walk_over_links_ends_where_the_answer_is_full_and_counts_what_it_shows(rig: StoreRig) -> None:
    middle = await rig.gateway.store("the middle")
    near = [await rig.gateway.store(f"{each} " * 20, related=(middle,)) for each in ("north", "south")]
    far = await rig.gateway.store("far away", related=(near[0],))

    async def walk(**fields: Any) -> Memories[LinkedMemory]:
        return await rig.gateway.ask(FollowLinks(PROJECT, SESSION, (middle,), 2, **fields))

    whole = await walk(counts_accesses=False)
    assert ([each.id for each in whole.memories], whole.more) == ([middle, *near, far], False)
    for fields, shown in (({"characters": 140}, [middle, near[0]]), ({"limit": 2}, [middle, near[0]])):
        found = await walk(**fields)
        assert ([each.id for each in found.memories], found.more) == (shown, True)
    smallest = await walk(characters=1)
    assert [(each.id, each.access_count) for each in smallest.memories] == [(middle, 3)], "the first is always shown"
    assert [each.access_count for each in (await walk(counts_accesses=False)).memories][2:] == [0, 0]


# Two spaces in one process


ASKED = "Who can help when BillingService was merged and is not deployed?"
CLUE = "BillingService is deployed by Argo CD, on every merge."
JOINED = "Nadia alone has the keys of Argo CD."


@pytest.mark.parametrize(
    ("question", "cosines", "is_open"),
    [
        (ASKED, {CLUE: 0.76}, True),
        (ASKED, {}, True),  # it has no vector yet
        (f"{ASKED[:-1]} today?", {CLUE: 0.76}, True),  # all of them are of today
        ("Is BillingService deployed on a merge?", {CLUE: 0.76}, False),
    ],
    ids=["a part is answered", "a part is answered by words", "of the time of all", "all is answered"],
)
async def test_what_is_joined_to_a_memory_answers_what_that_leaves_open(
    files: Spaces, question: str, cosines: dict[str, float], is_open: bool
) -> None:
    """It has no word of the question, and is far from it: only what it shares with the answer speaks for it."""

    def vector_of(text: str) -> Vectors:
        cosine = 1.0 if text == question else {JOINED: 0.0, **cosines}.get(text, 0.2)
        return np.array([cosine, (1.0 - cosine**2) ** 0.5], np.float32)

    files.vector_of = vector_of
    files.store(CLUE, passages=len(cosines), related_entities=refs("BillingService", "Argo CD"))
    files.store(JOINED, related_entities=refs("Argo CD", "Nadia"))
    files.store("Argo CD was deployed by Ines.", related_entities=refs("Argo CD"))
    for number in range(30):
        files.store(f"The drawer {number} is merged with a shelf.")
    found = await files.recall(question)
    shown = [each.content for each in found.memories]
    assert shown[0] == CLUE
    assert (JOINED in shown[:3]) is is_open
    assert any(each.scores.shares.get("joined", 0.0) > 0.0 for each in found.memories) is is_open


def test_the_graph_shows_what_holds_now_before_what_had_its_time_and_how_strong_it_is(files: Spaces) -> None:
    ended = files.store("the lantern burns oil", valid_until=REQUESTED_AT - 1, related_entities=refs("Lantern"))
    holding = files.store("the lantern burns gas", related_entities=refs("Lantern"))
    now, then = files.graph("lantern").memories
    assert (now.id, then.id) == (holding, ended)
    assert then.scores.final < now.scores.final
    assert now.strength == then.strength == 0.25


def test_an_overview_of_a_shared_project_has_what_its_members_share(tmp_path: Path) -> None:
    with closing(Spaces(tmp_path, (PROJECT.id, LANE, USER))) as spaces:
        spaces.store("the lantern burns oil", related_entities=refs("Lantern", "Oil"))
        spaces.store("the harbour has a crane", space=LANE, related_entities=refs("Harbour", "Crane"))
        spaces.store("the user likes tea", "user", related_entities=refs("Tea"))
        found = spaces.graph()
    assert {entity.name for entity in found.entities} == {"Lantern", "Oil", "Harbour", "Crane"}
    assert found.total_entities == 4
