"""A lane beside the project's and the user's is seen by everything that asks a view, and by no caller's doing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remembrancer.actors.store.read_handlers import list_memories, show_memory
from remembrancer.actors.store.records.contract import USER, Vectors
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.retrieval.context import Gathering
from remembrancer.actors.store.retrieval.graph_search import search_graph, suggest
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.protocol.errors import EmbeddingUnavailable
from remembrancer.protocol.reads import GatherContext, GetMemory, ListMemories, Recall, SearchGraph, Strategy, Suggest
from remembrancer.protocol.writes import EntityRef, Scope
from tests.operations import PROJECT, REQUESTED_AT, SESSION, memory_id_of, store_operation

LANES: tuple[tuple[str, Scope], ...] = ((PROJECT.id, "project"), ("shared", "project"), (USER, "user"))


class Lanes:
    """Three lanes with a memory each, which name one thing; `ids` are the memories'."""

    def __init__(self, directory: Path) -> None:
        database = SqliteFile(directory / "memory.db")
        self.records = [Records(database, name, lambda: REQUESTED_AT) for name, _ in LANES]
        self.ids = []
        for place, ((name, scope), records) in enumerate(zip(LANES, self.records, strict=True)):
            operation = store_operation(
                name,
                f"The lantern {name} burns oil",
                scope=scope,
                type="procedural",
                occurred_at=REQUESTED_AT - 60.0 * (1 + place),
                related_entities=(EntityRef("Lantern", "thing", "about"),),
                tags=(f"tag{place}", "lit"),
            )
            records.apply([operation])
            self.ids.append(memory_id_of(operation))
        self.view = View(map(Source, self.records))


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    made = Lanes(tmp_path)
    yield made
    for records in made.records:
        records.close()


async def no_vectors(_: str) -> Vectors:
    raise EmbeddingUnavailable("there is no engine")


@pytest.mark.parametrize("strategy", ["hybrid", "keyword", "graph"])
async def test_a_recall_answers_from_every_lane(lanes: Lanes, strategy: Strategy) -> None:
    request = Recall(SESSION, project=PROJECT, query="which lantern burns oil?", strategy=strategy)
    with ThreadPoolExecutor(1) as threads:
        answer, seen = await recall(request, lanes.view, no_vectors, threads, REQUESTED_AT)
        named, _ = await recall(request, View(map(Source, lanes.records[:2])), no_vectors, threads, REQUESTED_AT)
    assert {memory.id for memory in answer.memories} == set(lanes.ids)
    assert {memory.id for memory in named.memories} == set(lanes.ids[:2])
    numbers = {name: [place] for place, (name, _) in enumerate(LANES, 1)}
    assert {lanes.view.sources[each.space].texts.name: [each.number] for each in seen} == numbers, (
        "accesses are counted there"
    )


async def test_a_context_and_a_list_have_the_memories_of_every_lane(lanes: Lanes) -> None:
    request = GatherContext(PROJECT, SESSION, sections=("relevant_procedures",))
    with ThreadPoolExecutor(1) as threads:
        gathered = await Gathering(request, lanes.view, no_vectors, threads, REQUESTED_AT).gathered()
    assert {memory.id for memory in gathered.sections[0].memories} == set(lanes.ids)
    listed = list_memories(ListMemories(SESSION, project=PROJECT, limit=2, offset=1), lanes.view)
    assert [memory.id for memory in listed.memories] == lanes.ids[1:], "the latest first, in one order"


def test_the_graph_joins_what_every_lane_says_of_a_thing(lanes: Lanes) -> None:
    found, seen = search_graph(SearchGraph(PROJECT, SESSION, "lantern"), lanes.view, REQUESTED_AT)
    assert {memory.id for memory in found.memories} == set(lanes.ids)
    assert len(seen) == 3
    assert [entity.memory_count for entity in found.entities] == [3]
    assert suggest(Suggest(PROJECT, SESSION, "tag", "tag"), lanes.view).values == ("tag0", "tag1", "tag2")


def test_a_memory_is_shown_from_whichever_lane_has_it(lanes: Lanes) -> None:
    for memory_id in lanes.ids:
        request = GetMemory(PROJECT, SESSION, memory_id)
        shown = show_memory(request, lanes.view, lambda records, number: False, REQUESTED_AT)
        assert shown.memory.id == memory_id
    assert lanes.view.reader.counts(SESSION).total == 3
