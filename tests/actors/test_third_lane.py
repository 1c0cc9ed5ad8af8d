"""A lane beside the project's and the user's is seen by everything that asks a view, and by no caller's doing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.store.read_handlers import list_memories, show_memory
from remembrancer.actors.store.records.types import USER
from remembrancer.actors.store.retrieval.graph_search import suggest
from remembrancer.protocol.reads import GetMemory, ListMemories, Strategy, Suggest
from remembrancer.protocol.writes import EntityRef
from tests.actors.spaces_rig import NOW, Spaces
from tests.operations import PROJECT, REQUESTED_AT, SESSION

LANES = (PROJECT.id, "shared", USER)


class Lanes(Spaces):
    """Three lanes with a memory each, which name one thing; `ids` are the memories'."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, LANES)
        self.ids = [
            self.store(
                f"The lantern {name} burns oil",
                "user" if name == USER else "project",
                space=name,
                type="procedural",
                occurred_at=REQUESTED_AT - 60.0 * (1 + place),
                related_entities=(EntityRef("Lantern", "thing", "about"),),
                tags=(f"tag{place}", "lit"),
            )
            for place, name in enumerate(LANES)
        ]


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    with closing(Lanes(tmp_path)) as lanes:
        yield lanes


@pytest.mark.parametrize("strategy", ["hybrid", "keyword", "graph"])
async def test_a_recall_answers_from_every_lane(lanes: Lanes, strategy: Strategy) -> None:
    question = "which lantern burns oil?"
    assert set(await lanes.found(question, strategy=strategy)) == set(lanes.ids)
    assert set(await lanes.found(question, strategy=strategy, view=lanes.view(*LANES[:2]))) == set(lanes.ids[:2])


async def test_contexts_lists_and_the_graph_have_the_memories_of_every_lane(lanes: Lanes) -> None:
    gathered = await lanes.context(sections=("relevant_procedures",))
    assert {memory.id for memory in gathered.memories} == set(lanes.ids)
    listed = list_memories(ListMemories(SESSION, project=PROJECT, limit=2, offset=1), lanes.view())
    assert [memory.id for memory in listed.memories] == lanes.ids[1:], "the latest first, in one order"
    found = lanes.graph("lantern")
    assert {memory.id for memory in found.memories} == set(lanes.ids)
    assert [entity.memory_count for entity in found.entities] == [3]
    suggested = suggest(Suggest(PROJECT, SESSION, "tag", "tag"), lanes.view())
    assert suggested.values == ("tag0", "tag1", "tag2")
    for memory_id in lanes.ids:
        request = GetMemory(PROJECT, SESSION, memory_id)
        assert show_memory(request, lanes.view(), lambda records, number: False, NOW).memory.id == memory_id
    assert lanes.view().reader.counts(SESSION).total == 3
