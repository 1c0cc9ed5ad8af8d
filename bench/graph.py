"""The cost of the graph: `python -m bench.graph [--json] [--edges N …]`, on a file of records in this process.

A few entities are named by many memories and most by few, as in life: by Zipf's law. A random entity is one that a
random memory names; hubs are the best connected ones. Recalls are asked with sums of words' vectors, with and without
the graph: each question has some words of a memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the launcher has it for every process

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.varied_text import varied
from remembrancer.actors.store.records.contract import EmbeddedMemory, Records, Vectors
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.retrieval.candidates import Source
from remembrancer.actors.store.retrieval.graph_search import search_graph, suggest
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import View
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.reads import Ranking, Recall, SearchGraph, Suggest
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import EntityRef, Operation, ProjectRef, StoreMemory

PROJECT: Final = ProjectRef("p_0123456789ab", "/bench")
SESSION: Final = "session:bench"
EDGES: Final = (20_000, 100_000)
EDGES_PER_MEMORY: Final = 2
MEMORIES_PER_ENTITY: Final = 4
GROUP: Final = 500
SAMPLES: Final = 200
HUBS: Final = 10
DEPTHS: Final = (1, 2, 3)
RELATIONSHIPS: Final = ("uses", "depends_on", "authored_by", "part_of", "calls", "documents", "tests", "owns")
TYPES: Final = ("component", "file", "person", "library")
REACH_MS: Final = {1: 5.0, 3: 25.0}
"""The goal at 20,000 edges of 10,000 memories, through the whole system."""
RECALL_REACH_MS: Final = {20_000: 18.0, 200_000: 30.0}
"""The same of a recall with PageRank. Beside the edges between entities there are those of memories with entities."""
DIMENSIONS: Final = 384
MODEL: Final = "bench"


class Row(msgspec.Struct):
    """Milliseconds of one question; `processor_ms` is the median of the processor's time, whoever else uses it."""

    edges: int
    question: str
    p50_ms: float
    p95_ms: float
    worst_ms: float
    reach_ms: float | None = None
    processor_ms: float | None = None


def operations(edges: int, seed: int = 1) -> Iterator[Operation]:
    """Memories that say so many edges, each about `EDGES_PER_MEMORY` + 1 entities."""
    chance = random.Random(seed)
    count = edges // EDGES_PER_MEMORY
    names = [f"Entity{number}" for number in range(count // MEMORIES_PER_ENTITY)]
    weights = [1.0 / (rank + 1) for rank in range(len(names))]
    for number, text in enumerate(varied(count)):
        chosen = dict.fromkeys(chance.choices(range(len(names)), weights, k=EDGES_PER_MEMORY + 1))
        entities = tuple(
            EntityRef(
                names[each],
                TYPES[each % len(TYPES)],
                chance.choice(RELATIONSHIPS),
                subject=names[next(iter(chosen))] if place else "",
            )
            for place, each in enumerate(chosen)
        )
        requested_at = 1_700_000_000.0 + number
        name = f"op-{number}"
        change = StoreMemory(
            memory_id=derive_memory_id(name, requested_at),
            content=text,
            type="semantic",
            scope="project",
            session_id=SESSION,
            related_entities=entities,
        )
        yield Operation(name, PROJECT, SESSION, requested_at, change)


def measured(edges: int, question: str, ask: Callable[[int], object], samples: int, reach_ms: float | None) -> Row:
    """The time that `ask` takes, given numbers from 0."""
    took: list[float] = []
    used: list[float] = []
    for number in range(samples):
        began, before = time.perf_counter(), time.process_time()
        ask(number)
        took.append((time.perf_counter() - began) * 1000)
        used.append((time.process_time() - before) * 1000)
    ranked = sorted(took)
    return Row(
        edges,
        question,
        round(statistics.median(ranked), 2),
        round(ranked[int(len(ranked) * 0.95)], 2),
        round(ranked[-1], 2),
        reach_ms,
        round(statistics.median(used), 2),
    )


def measure(edges: int, directory: Path, samples: int) -> list[Row]:
    """Every question, in a file with so many edges."""
    path = directory / "memory.db"
    records = SqliteRecords(path, PROJECT.id, time.time)
    user = SqliteRecords(directory / "user.db", "user", time.time)
    began = time.perf_counter()
    waiting = operations(edges)
    while group := list(islice(waiting, GROUP)):
        records.apply(group)
    stored_s = time.perf_counter() - began
    while records.tidy():  # as a store does while nobody asks
        pass
    records.checkpoint()
    try:
        return [
            Row(edges, "storing, a memory", *[round(stored_s * 1000 / (edges // EDGES_PER_MEMORY), 3)] * 3),
            *_walks(edges, [records, user], samples),
            *_others(edges, [records, user], samples),
            *_recalls(edges, [records, user], directory, samples),
            _copy(edges, path),
        ]
    finally:
        records.close()
        user.close()


def _walks(edges: int, files: Sequence[Records], samples: int) -> Iterator[Row]:
    view = View(map(Source, files))
    overview, _ = search_graph(SearchGraph(PROJECT, SESSION, limit=HUBS), view, time.time())
    hubs = [entity.name for entity in overview.entities]
    chance = random.Random(2)
    rows = files[0].graph.uses("entity", "entity", SESSION)
    ordinary = [name for name, _ in chance.choices(rows, k=samples)]
    for sort, names in (("random", ordinary), ("hub", hubs)):
        for depth in DEPTHS:

            def ask(number: int, depth: int = depth, names: list[str] = names) -> None:
                request = SearchGraph(PROJECT, SESSION, entity=names[number % len(names)], depth=depth)
                search_graph(request, view, time.time())

            reach = REACH_MS.get(depth) if edges == EDGES[0] else None
            yield measured(edges, f"depth {depth} from a {sort} entity", ask, samples, reach)


def _others(edges: int, files: Sequence[Records], samples: int) -> Iterator[Row]:
    view = View(map(Source, files))

    def overview(_: int) -> None:
        search_graph(SearchGraph(PROJECT, SESSION), view, time.time())

    def unknown(number: int) -> None:
        search_graph(SearchGraph(PROJECT, SESSION, entity=f"Enttiy{number}"), view, time.time())

    def complete(number: int) -> None:
        suggest(Suggest(PROJECT, SESSION, "entity", f"entity{number % 10}"), view)

    yield measured(edges, "overview", overview, max(5, samples // 20), None)
    yield measured(edges, "an unknown entity", unknown, samples, None)
    yield measured(edges, "a completion", complete, max(5, samples // 20), None)


class WithoutGraph(Source):
    @property
    def graph(self) -> None:
        return None


def _recalls(edges: int, files: Sequence[SqliteRecords], directory: Path, samples: int) -> Iterator[Row]:
    texts = varied(edges // EDGES_PER_MEMORY)
    word_vectors: dict[str, Vectors] = {}

    def vector_of(text: str) -> Vectors:
        words = text.lower().split()
        for word in words:
            if word not in word_vectors:
                seed = zlib.crc32(word.encode())
                word_vectors[word] = np.random.default_rng(seed).standard_normal(DIMENSIONS, dtype=np.float32)
        whole: Vectors = np.sum([word_vectors[word] for word in words], axis=0)
        return whole / float(np.linalg.norm(whole))

    for first in range(0, len(texts), GROUP):
        group = files[0].texts(range(first + 1, first + 1 + GROUP))
        files[0].save_embeddings(
            MODEL,
            [
                EmbeddedMemory(number, digest_of(text), (Passage(0, len(text)),), vector_of(text)[None])
                for number, text in group.items()
            ],
        )
    indexes = [ExactVectors(records, MODEL) for records in files]
    chance = random.Random(3)
    questions = [" ".join(text.split()[1:9]) for text in chance.choices(texts, k=3 * samples)]

    async def embed(text: str) -> Vectors:
        return vector_of(text)

    with ThreadPoolExecutor(2) as threads, asyncio.Runner() as runner:
        asked: tuple[tuple[str, type[Source], Ranking], ...] = (
            ("a recall without the graph", WithoutGraph, "fitted"),
            ("a recall (hybrid)", Source, "fitted"),
            ("a recall (pagerank)", Source, "pagerank"),
        )
        for way, (name, form, ranking) in enumerate(asked):
            searched = View(form(records, index) for records, index in zip(files, indexes, strict=True))

            own = questions[way :: len(asked)]

            def once(number: int, own: list[str] = own, view: View = searched, ranking: Ranking = ranking) -> None:
                request = Recall(SESSION, project=PROJECT, query=own[number], ranking=ranking)
                runner.run(recall(request, view, embed, threads, time.time()))

            yield measured(edges, name, once, samples, RECALL_REACH_MS.get(edges) if form is Source else None)


def _copy(edges: int, path: Path) -> Row:
    """The cost of a copy of the edges in memory, before the first question and after each change of the file."""
    file = SqliteFile(path)

    def copy(_: int) -> None:
        neighbours: dict[int, list[tuple[int, str]]] = {}
        rows = file.read("SELECT subject, entity, relationship FROM memory_entities WHERE subject IS NOT NULL")
        for subject, entity, relationship in rows:
            neighbours.setdefault(subject, []).append((entity, relationship))
            neighbours.setdefault(entity, []).append((subject, relationship))

    try:
        return measured(edges, "reading all edges into memory (not done)", copy, 5, None)
    finally:
        file.close()


def show(rows: Sequence[Row]) -> None:
    """A table for a person."""
    table = Table("edges", "question", "p50 ms", "p95 ms", "worst ms", "goal ms", "processor ms")
    for row in rows:
        goal = "" if row.reach_ms is None else f"{row.reach_ms:g}"
        table.add_row(
            f"{row.edges:,}",
            row.question,
            f"{row.p50_ms}",
            f"{row.p95_ms}",
            f"{row.worst_ms}",
            goal,
            f"{row.processor_ms or ''}",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--edges", type=int, nargs="+", default=list(EDGES))
    parser.add_argument("--samples", type=int, default=SAMPLES)
    given = parser.parse_args()
    rows: list[Row] = []
    for edges in given.edges:
        with tempfile.TemporaryDirectory(prefix="rmb-bench-") as directory:
            rows += measure(edges, Path(directory), given.samples)
    if given.json:
        print(json.dumps(msgspec.to_builtins(rows), indent=1))
    else:
        show(rows)


if __name__ == "__main__":
    main()
