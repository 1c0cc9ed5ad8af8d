"""The cost of consolidation, and what it keeps: `python -m bench.consolidation [--only PART …] [--data FILE] [--json]`.

- `session`: a session of 500 memories is consolidated in the background, while another session of the project recalls.
- `maintenance`: a pass over 100,000 memories; the consolidator's and the store's memory above what they hold idle.
- `sameness`: of pairs of sentences (`sameness.txt`; no rule was written with them in view) those that are rightly
  taken, or not taken, for the same statement.
- `sources`: with `--data`, conversations in a form that `bench/datasets.py` tells: `any@5` before and after everything
  is consolidated, of the turns that hold the answer, or a summary that has them word for word.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from bench.client import StdioClient
from bench.datasets import load
from bench.harness import Figure, Runtime, drained, fill, print_figures, runtime, wait_until
from examples.real_text import memories
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.memory.promotion import DEFAULT_PROMOTION
from remembrancer.memory.wording import same_in_words

SESSION: Final = 500
BACKGROUND: Final = 2_000
RECALLS: Final = 200
MAINTAINED: Final = 100_000
WAYS: Final = ("first", "again", "after the release", "in the evening", "with the new cache")
"""Each text of the session is noted some times in a little other words: what clusters are made of."""
PARTS: Final = ("session", "maintenance", "sameness", "sources")
PAIRS: Final = Path(__file__).with_name("sameness.txt")


async def session_figures(size: int = SESSION) -> list[Figure]:
    """The time from the request to its answer, and what recalls beside it feel."""
    async with runtime() as running, running.client() as client:
        await fill(client, memories(BACKGROUND))
        async with other_session(running, "noted") as noting:
            await fill(noting, _noted(size))
            await wait_until(lambda: drained(client), 600, 0.5)
            questions = [text[:60] for text in memories(4 * RECALLS)[BACKGROUND % 7 :: 3]]
            alone = await _recalls(client, questions[:RECALLS])
            answer: dict[str, Any] = {}
            began = time.perf_counter()

            async def consolidate() -> None:
                answer.update(await noting.call("reflect_and_consolidate"))

            task = asyncio.create_task(consolidate())
            beside = []
            for question in itertools.cycle(questions[RECALLS:]):
                if task.done():
                    break
                beside += await _recalls(client, [question])
            await task
            took_s = time.perf_counter() - began
        if answer.get("error") or not answer["session_stats"]["consolidated_into"]:
            raise RuntimeError(f"nothing was consolidated: {answer}")
    figures = [Figure(f"consolidating a session of {size} memories, recalls beside it", took_s, "s", 2.0)]
    figures.append(Figure("`recall_memories` alone, p95", _p95(alone), "ms", 0))
    if len(beside) >= 5:
        figures.append(Figure("`recall_memories` while it consolidates, p95", _p95(beside), "ms", 0))
        figures.append(
            Figure("`recall_memories` p95 while it consolidates / alone", _p95(beside) / _p95(alone), "times", 1.2)
        )
    return figures


@asynccontextmanager
async def other_session(running: Runtime, name: str) -> AsyncIterator[StdioClient]:
    """Another session of the same project."""
    async with StdioClient(running.home, environ={**running.environ, "REMEMBRANCER_SESSION_ID": name}) as client:
        yield client


def _noted(size: int) -> Iterator[dict[str, Any]]:
    texts = memories(size)
    for number in range(size):
        way = WAYS[number % len(WAYS)]
        text = f"{texts[number // len(WAYS)]} (seen {way})"
        yield {"content": text, "type": "episodic", "scope": "session", "importance": number % 10 / 20}


async def _recalls(client: StdioClient, questions: list[str]) -> list[float]:
    times = []
    for question in questions:
        began = time.perf_counter()
        await client.call("recall_memories", query=question)
        times.append((time.perf_counter() - began) * 1000)
    return times


def _p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


async def maintenance_figures(size: int = MAINTAINED) -> list[Figure]:
    """A dry pass and a real one over memories without vectors, some of which are weak and old."""
    async with runtime(embedders="0") as running:
        async with running.client() as client:
            await client.store("the first memory makes the project's file")
        await running.command("down")
        _grow(running.home, size)
        async with running.client() as client:
            await client.call("get_memory_status")
            idle = await _settled_bytes(running)
            peak = idle
            done = asyncio.create_task(running.command("maintain", "--all", "--json"))
            began = time.perf_counter()
            while not done.done():
                peak = max(peak, await _bytes(running))
                await asyncio.sleep(0.1)
            code, said = await done
            took_s = time.perf_counter() - began
            if code:
                raise RuntimeError(f"maintenance failed: {said}")
    return [
        Figure(f"maintenance over {size:,} memories", took_s, "s", 0),
        Figure("memory of store and consolidator above idle, at most", (peak - idle) / 2**20, "MB", 200),
    ]


def _grow(home: Path, size: int) -> None:
    """Fill the project's file by SQL: to store 100,000 memories would take minutes, and is not what is measured."""
    (path,) = (home / "projects").glob("*/memory.db")
    now = time.time()
    with sqlite3.connect(path) as connection:
        texts = memories(5_000)
        connection.executemany(
            """INSERT INTO memories (id, content, content_digest, type, kind, scope, session_id, importance, tags,
                   source, created_at, updated_at)
               VALUES (?, ?, randomblob(32), 'semantic', 'fact', 'project', 's', ?, '[]', '{}', ?, ?)""",
            (
                (
                    f"memory:{number:026d}",
                    f"{texts[number % len(texts)]} ({number})",
                    number % 10 / 10,
                    now - number % 60 * 86_400,
                    now - number % 60 * 86_400,
                )
                for number in range(size)
            ),
        )


async def _settled_bytes(running: Runtime) -> int:
    await asyncio.sleep(3.0)
    return await _bytes(running)


async def _bytes(running: Runtime) -> int:
    """The proportional set size of store and consolidator."""
    status = await running.status()
    pids = [each["pid"] for each in status["processes"] if each["role"] in ("store", "consolidator") and each["pid"]]
    total = 0
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_full_info().pss
        except psutil.Error:
            continue
    return total


async def sameness_figures() -> list[Figure]:
    """The number of pairs that the rule for merging gets right, with their cosines by the default model."""
    engine = load_engine(Settings(), 2)
    right: dict[str, list[bool]] = {}
    for line in PAIRS.read_text(encoding="utf-8").splitlines():
        truth, one, other = line.split(" | ")
        vectors = engine.embed_passages([one, other])
        cosine = float(vectors[0] @ vectors[1])
        merged = cosine > DEFAULT_PROMOTION.merge_cosine and same_in_words(one, other, cosine)
        right.setdefault(truth, []).append(merged == (truth == "same"))
    return [
        Figure("pairs that say the same: merged", 100 * statistics.mean(right["same"]), "%", 0),
        Figure("pairs that do not: kept apart", 100 * statistics.mean(right["different"]), "%", 100, True),
    ]


async def source_figures(data: Path) -> list[Figure]:
    """`any@5` over all conversations, before and after each is consolidated whole."""
    dataset = await asyncio.to_thread(load, data)
    before: list[bool] = []
    after: list[bool] = []
    made = 0
    for haystack in dataset.haystacks:
        async with runtime() as running, running.client() as client:
            ids: dict[str, str] = {}
            for item in haystack.items:
                ids[item.label] = (await client.store(item.text, type="episodic"))["memory_id"]
            await wait_until(lambda given=client: drained(given), 600, 0.5)  # type: ignore[misc]
            questions = [
                (each.text, {ids[label] for label in each.wanted if label in ids}) for each in haystack.questions
            ]
            questions = [(question, wanted) for question, wanted in questions if wanted]
            before += await _any_at_5(client, questions)
            answer = await client.call("reflect_and_consolidate")
            made += answer["session_stats"]["consolidated_into"]
            await wait_until(lambda given=client: drained(given), 600, 0.5)  # type: ignore[misc]
            after += await _any_at_5(client, questions)
    return [
        Figure("questions", len(before), "", 0),
        Figure("memories made by consolidating everything", made, "", 0),
        Figure("any@5 before", 100 * statistics.mean(before), "%", 0),
        Figure("any@5 of the sources after", 100 * statistics.mean(after), "%", 100 * statistics.mean(before), True),
    ]


async def _any_at_5(client: StdioClient, questions: list[tuple[str, set[str]]]) -> list[bool]:
    found = []
    for question, wanted in questions:
        answer = await client.call("recall_memories", query=question, limit=5, detail=True)
        shown = answer["memories"]
        found.append(any(not wanted.isdisjoint((each["id"], *each.get("derived_from", ()))) for each in shown))
    return found


def main() -> None:
    """Print the table, or with `--json` the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--data", type=Path, help="conversations for `sources` (JSON, or JSON packed with xz)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    parts: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
        "session": session_figures,
        "maintenance": maintenance_figures,
        "sameness": sameness_figures,
        "sources": lambda: source_figures(given.data),
    }
    figures: list[Figure] = []
    for part in given.only:
        if part != "sources" or given.data is not None:
            figures += asyncio.run(_run(parts[part]))
    print_figures(figures, as_json=given.json)


async def _run(part: Callable[[], Awaitable[list[Figure]]]) -> list[Figure]:
    return await part()


if __name__ == "__main__":
    main()
