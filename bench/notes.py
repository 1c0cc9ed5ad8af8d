"""Notes in files: `python -m bench.notes [--json] [--only quality|speed]`, through a real client and `memory_search`.

Quality: the readmes of the installed packages are the notes. Half of the 200 questions were written by hand in other
words than the readme's (`notes.txt`: the package, what the chunk has to say, the question), half are names that one
readme alone has. Every second question of each sort is held out: it is only reported, and nothing was chosen by it.
Speed: notes of ten thousand chunks of generated sections.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from bench.client import StdioClient
from bench.harness import Figure, Runtime, latencies, print_figures, wait_until
from bench.varied_text import varied
from remembrancer.actors.embedder.passages import split_passages
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.memory.chunks import chunks_of

QUESTIONS: Final = Path(__file__).with_name("notes.txt")
NAMES: Final = 104
FOUND_WITHIN: Final = 5
MODES: Final = {
    "by relevance (words and meaning)": {},
    "by ranks, as the design has it": {"search_ranking": "ranks"},
    "by meaning alone": {"search_hybrid": "false"},
    "by words alone": {"embedders": "0"},
}
CHUNKS: Final = 10_000
SECTION_CHARACTERS: Final = 700
"""Of a generated section, about 170 tokens: a chunk of its own."""
SECTIONS: Final = 25
"""Of a generated file."""
SAMPLES: Final = 200
CHANGES: Final = 5
ENGINE_CHUNKS: Final = 500
"""Chunks that the engine is given alone."""
_NAME: Final = re.compile(r"`([A-Za-z][\w.\-]{5,40})`")


class Asked(NamedTuple):
    """A question, the package whose readme answers it, and what the chunk has to say."""

    text: str
    package: str
    says: str
    is_name: bool
    held_out: bool


def readmes() -> dict[str, str]:
    """The readmes in Markdown of the installed packages, by name; of a long one the beginning."""
    found = {}
    for each in distributions():
        if (
            "markdown" in (str(each.metadata.json.get("description_content_type", "")))
            and each.metadata["Name"] != "remembrancer"
        ):
            found[each.metadata["Name"]] = str(each.metadata.json.get("description", ""))[:60_000]
    return dict(sorted(found.items()))


def questions(notes: dict[str, str]) -> list[Asked]:
    """The questions by hand, then the names that one readme alone has."""
    asked: list[Asked] = []
    for line in QUESTIONS.read_text().splitlines():
        package, says, text = line.split("|")
        if package in notes:
            asked.append(Asked(text, package, says, is_name=False, held_out=len(asked) % 2 == 1))
    homes = Counter(name for text in notes.values() for name in set(_NAME.findall(text)))
    names = [
        (name, package)
        for package, text in notes.items()
        for name in list(dict.fromkeys(_NAME.findall(text)))[:6]
        if homes[name] == 1 and sum(name in other for other in notes.values()) == 1
    ]
    for number, (name, package) in enumerate(names[:: max(1, len(names) // NAMES)][:NAMES]):
        asked.append(Asked(name, package, re.escape(name), is_name=True, held_out=number % 2 == 1))
    return asked


class Notes:
    """A runtime and a workspace with notes, and a session in it."""

    def __init__(self, files: dict[str, str], **settings: str) -> None:
        self.running = Runtime(toolsets="files", read_budget_s="20", call_budget_s="30", **settings)
        self.workspace = self.running.home.with_name(self.running.home.name + "-notes")
        self.files = files
        (self.workspace / "memory").mkdir(parents=True)
        for name, text in files.items():
            path = self.workspace / "memory" / f"{name}.md"
            path.write_text(text)
        self.client = StdioClient(self.running.home, cwd=self.workspace, environ=self.running.environ)

    async def __aenter__(self) -> Notes:
        await self.client.start()
        await self.client.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()
        await self.running.aclose()
        shutil.rmtree(self.workspace, ignore_errors=True)

    async def is_whole(self, *, with_vectors: bool = True) -> bool:
        status = await self.client.call("memory_status")
        pending = status.get("pendingChunks", 0) if with_vectors else 0
        return bool(status["totalFiles"] == len(self.files) and not pending)

    async def finds(self, query: str, word: str) -> bool:
        """True if a chunk with that word is found."""
        answer = await self.client.call("memory_search", query=query)
        return any(word in each["snippet"] for each in answer["results"])

    def lines(self, hit: dict[str, object]) -> str:
        """The text of the lines that a result names."""
        text = (self.workspace / str(hit["path"])).read_text().splitlines()
        start, end = hit["startLine"], hit["endLine"]
        assert isinstance(start, int)
        assert isinstance(end, int)
        return "\n".join(text[start - 1 : end])


async def measure_quality() -> list[Figure]:
    files = readmes()
    asked = questions(files)
    figures: list[Figure] = []
    for mode, settings in MODES.items():
        async with Notes(files, **settings) as notes:
            await wait_until(partial(notes.is_whole, with_vectors=settings.get("embedders") != "0"), 300, 0.2)
            ranks: dict[Asked, int | None] = {}
            for each in asked:
                hits = (await notes.client.call("memory_search", query=each.text, minScore=0.0))["results"]
                right = (
                    place
                    for place, hit in enumerate(hits, 1)
                    if hit["path"] == f"memory/{each.package}.md" and re.search(each.says, notes.lines(hit), re.I)
                )
                ranks[each] = next(right, None)
        for sort, is_name in (("questions in other words", False), ("names", True)):
            for half, held_out in (("", False), (", held out", True)):
                chosen = [rank for each, rank in ranks.items() if each.is_name == is_name and each.held_out == held_out]
                figures += _figures(f"{mode}: {sort}{half}", chosen)
    return figures


def _figures(name: str, ranks: Sequence[int | None]) -> list[Figure]:
    first = sum(rank == 1 for rank in ranks) / len(ranks)
    among = sum(rank is not None and rank <= FOUND_WITHIN for rank in ranks) / len(ranks)
    reciprocal = statistics.mean(1 / rank if rank else 0.0 for rank in ranks)
    return [
        Figure(f"{name}: first", 100 * first, "%", 0, more_is_better=True),
        Figure(f"{name}: among {FOUND_WITHIN}", 100 * among, "%", 0, more_is_better=True),
        Figure(f"{name}: mean reciprocal rank", reciprocal, "", 0, more_is_better=True),
    ]


def generated(chunks: int) -> dict[str, str]:
    """Files of `SECTIONS` sections that differ."""
    texts = varied(chunks * 12)
    sections, taken = [], iter(texts)
    for number in range(chunks):
        body = ""
        while len(body) < SECTION_CHARACTERS:
            body += next(taken) + "\n"
        sections.append(f"## Section {number}\n\n{body}\n")
    return {
        f"part{start // SECTIONS:04}": f"# Part {start // SECTIONS}\n\n" + "".join(sections[start : start + SECTIONS])
        for start in range(0, chunks, SECTIONS)
    }


async def measure_speed(chunks: int) -> list[Figure]:
    files = generated(chunks)
    async with Notes({}, idle_timeout_s="3600") as notes:
        await wait_until(partial(_has_worker, notes), 60)
        await notes.client.call("memory_sync")  # the indexer is there
        began = time.perf_counter()
        for name, text in files.items():
            (notes.workspace / "memory" / f"{name}.md").write_text(text)
        notes.files = files
        by_words = asyncio.create_task(wait_until(partial(notes.is_whole, with_vectors=False), 300, 0.1))
        await by_words
        words_s = time.perf_counter() - began
        await wait_until(notes.is_whole, 3000, 0.5)
        all_s = time.perf_counter() - began
        status = await notes.client.call("memory_status")
        await asyncio.sleep(10)  # the index is tidied when nobody asks anything
        queries = [each[:120] for each in varied(4 * chunks)[:: max(1, 4 * chunks // SAMPLES)]][:SAMPLES]
        p50, p95 = await latencies(lambda n: notes.client.call("memory_search", query=queries[n]), SAMPLES)
        words, meaning = [], []
        for number in range(CHANGES):
            path = notes.workspace / "memory" / "changed.md"
            path.write_text(f"# Changed\n\nThe ferry zebra{number} leaves the harbour for the islands at dawn.\n")
            saved = time.perf_counter()
            await wait_until(partial(notes.finds, f"zebra{number}", f"zebra{number}"), 60)
            words.append(time.perf_counter() - saved)
            await wait_until(partial(notes.finds, "when does the boat to the isles depart?", f"zebra{number}"), 60)
            meaning.append(time.perf_counter() - saved)
        sync_s = await _sync_s(notes)
        processes = (await notes.running.status())["processes"]
        pid = next(each["pid"] for each in processes if each["role"] == "indexer")
        memory = psutil.Process(pid).memory_info().rss / 1024 / 1024
    alone_s = engine_alone_s(files)
    size = f"{status['totalChunks']:,} chunks"
    return [
        Figure(f"`memory_search` in {size}, p50", p50, "ms", 12),
        Figure(f"`memory_search` in {size}, p95", p95, "ms", 20),
        Figure(f"{size} found by words, after they were written", words_s, "s", 4),
        Figure(f"{size} indexed", all_s, "s", 40),
        Figure(f"the engine alone with the passages of {size}", alone_s, "s", 40),
        Figure("so much longer it took with all else", all_s / alone_s, "times", 1.2),
        Figure("a saved change found by words", statistics.median(words), "s", 2.5),
        Figure("a saved change found by meaning", statistics.median(meaning), "s", 5),
        Figure(f"sync of {status['totalFiles']} unchanged files", sync_s, "s", 0.3),
        Figure("memory of the indexer", memory, "MB", 60),
    ]


def engine_alone_s(files: dict[str, str]) -> float:
    """Seconds that the default engine takes for the passages of some files and nothing else, by a part of them."""
    engine = load_engine(Settings(), os.cpu_count() or 1)
    chunks = [chunk.text for text in files.values() for chunk in chunks_of(text)]
    some = chunks[:: max(1, len(chunks) // ENGINE_CHUNKS)]
    passages = [
        text[each.start : each.end]
        for text in some
        for each in split_passages(text, engine.tokenizer, engine.passage_tokens)
    ]
    engine.embed_passages(passages[:20])
    began = time.perf_counter()
    engine.embed_passages(passages)
    return (time.perf_counter() - began) * len(chunks) / len(some)


async def _has_worker(notes: Notes) -> bool:
    return bool((await notes.running.status())["embedding"]["workers"])


async def _sync_s(notes: Notes) -> float:
    """Seconds of a call of `memory_sync` that finds nothing changed, the median."""
    took = []
    for _ in range(CHANGES):
        began = time.perf_counter()
        done = await notes.client.call("memory_sync")
        took.append(time.perf_counter() - began)
        assert done["chunksUpdated"] == done["chunksAdded"] == 0
    return statistics.median(took)


async def measure_sizes() -> list[Figure]:
    """Six months of daily logs: what the index takes on disk, and a sync of a thousand files."""
    texts = iter(varied(180 * 80))
    logs = {}
    for day in range(180):
        body = ""
        while len(body) < 6000:
            body += f"## {next(texts)[:40]}\n\n" + "".join(f"{next(texts)}\n" for _ in range(5)) + "\n"
        logs[f"day{day:03}"] = body[:6000]
    async with Notes(logs) as notes:
        await wait_until(notes.is_whole, 600, 0.3)
        await notes.client.call("memory_sync")
        await notes.running.stop()
        size = sum(path.stat().st_size for path in notes.running.home.glob("projects/*/index.db*"))
        vectors = sum(path.stat().st_size for path in (notes.running.home / "vectors").rglob("*") if path.is_file())
    small = {f"note{number:04}": f"# Note {number}\n\nSomething short.\n" for number in range(1000)}
    async with Notes(small, embedders="0") as notes:
        await wait_until(partial(notes.is_whole, with_vectors=False), 60, 0.2)
        sync_s = await _sync_s(notes)
    return [
        Figure("index of 180 daily logs of 6 KB, index.db", size / 1e6, "MB", 12),
        Figure("index of 180 daily logs of 6 KB, their vectors in Chroma", vectors / 1e6, "MB", 0),
        Figure("sync of 1,000 unchanged files", sync_s, "s", 0.3),
    ]


async def measure(only: str | None, chunks: int) -> list[Figure]:
    figures: list[Figure] = []
    if only in (None, "quality"):
        figures += await measure_quality()
    if only in (None, "speed"):
        figures += await measure_sizes() + await measure_speed(chunks)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("quality", "speed"))
    parser.add_argument("--chunks", type=int, default=CHUNKS)
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.only, arguments.chunks))
    print_figures(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
