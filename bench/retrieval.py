"""Measures the quality of recall: `python -m bench.retrieval --data FILE … [--only N]`.

FILE is LongMemEval, LoCoMo or simulated weeks (`bench/datasets.py`). Each question (or conversation, or project of a
week) is a project of a temporary runtime. Its events are stored with their dates by `store_memory`, embedded, and
queried with `recall_memories`. The baselines answer the same questions from the same memories. Questions without an
answer are left out.
"""

import argparse
import asyncio
import functools
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.baselines import WordIndex, rank_all, read_passages
from bench.datasets import Haystack, load_sets
from bench.harness import Runtime, answered, drained, iso, play_in_projects, shown_places, wait_until
from bench.measures import DEPTH, NAMES, Answered, by_kind, percentages, percentile
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.protocol.paths import RuntimePaths

OURS: Final = "remembrancer"
TOGETHER: Final = 25
"""The number of haystacks in one runtime. Its home is removed with it, which limits the disk space used."""
CONTENT_LIMIT_BYTES: Final = 16_777_216
EMBEDDED_S: Final = 3600.0


@dataclass
class Measured:
    """The results of one haystack."""

    answers: dict[str, list[Answered]] = field(default_factory=lambda: defaultdict(list))
    recall_ms: list[float] = field(default_factory=list)


def first_questions(haystacks: Sequence[Haystack], count: int | None) -> Iterator[Haystack]:
    """Yield the haystacks of the first `count` questions; None: of all."""
    for haystack in haystacks:
        questions = haystack.questions[:count]
        if questions:
            yield msgspec.structs.replace(haystack, questions=questions)
        count = None if count is None else count - len(questions)


async def play(running: Runtime, directory: Path, haystack: Haystack, *, engine: Engine) -> Measured:
    """Store a haystack's memories, wait for their vectors, and ask its questions."""
    began = time.perf_counter()
    places: dict[str, int] = {}
    ids: dict[str, str] = {}
    async with running.client(directory) as client:
        for place, item in enumerate(haystack.items):
            memory = {"scope": "project", "allow_secrets": True, "occurred_at": iso(item.occurred_at)}
            memory |= {"kind": item.kind} if item.kind else {"type": haystack.type}
            if item.label in haystack.supersedes:
                memory["supersedes"] = ids[haystack.supersedes[item.label]]
            answer = await answered(client, "store_memory", content=item.text, **memory)
            ids[item.label] = answer["memory_id"]
            places[answer["memory_id"]] = place
        await wait_until(lambda: drained(client), EMBEDDED_S, 0.25)
    labels = [item.label for item in haystack.items]
    words = WordIndex([item.text for item in haystack.items])
    identity = engine.identity
    vectors = read_passages(
        RuntimePaths(running.home).database, identity.key, identity.dimensions, places, len(haystack.items)
    )
    measured = Measured()
    async with running.client(directory) as client:
        for question in (each for each in haystack.questions if each.wanted):
            asked_at = time.perf_counter()
            answer = await answered(
                client, "recall_memories", query=question.text, limit=DEPTH, reference_time=iso(question.asked_at)
            )
            measured.recall_ms.append((time.perf_counter() - asked_at) * 1000)
            rankings = {OURS: shown_places(answer["memories"], places)}
            rankings |= rank_all(question.text, engine.embed_questions([question.text])[0], words, vectors)
            for system, ranking in rankings.items():
                ranked = tuple(labels[place] for place in ranking)
                measured.answers[system].append(Answered(question.kind, ranked, question.wanted, question.stale))
    words.close()
    print(f"{haystack.name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return measured


def print_figures(measured: Sequence[Measured]) -> None:
    """Print the figures of each system, and ours by kind of question. Shares are in per cent."""
    answers = {system: [one for each in measured for one in each.answers[system]] for system in measured[0].answers}
    times = [ms for each in measured for ms in each.recall_ms]
    console = Console(width=None if sys.stdout.isatty() else 132)
    changed = sum(bool(each.stale) for each in answers[OURS])
    table = Table(f"{len(times)} questions, in per cent", *NAMES, f"stale first, of {changed}")
    kinds = Table(f"{OURS}, by type", "questions", *NAMES)
    for name, its in answers.items():
        stale = sum(each.is_stale_first for each in its)
        table.add_row(name, *(f"{percentages(its)[each]:.1f}" for each in NAMES), str(stale))
    for kind, its in by_kind(answers[OURS]).items():
        kinds.add_row(kind, str(len(its)), *(f"{percentages(its)[each]:.1f}" for each in NAMES))
    console.print(table, kinds)
    console.print(f"a recall: p50 {percentile(times, 0.5):.1f} ms, p95 {percentile(times, 0.95):.1f} ms")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, metavar="FILE", help="JSON, or that packed by xz or gzip"
    )
    parser.add_argument("--only", type=int, metavar="N", help="the first N questions alone")
    given = parser.parse_args()
    read = [each for path in given.data for haystacks in load_sets(path).values() for each in haystacks]
    haystacks = list(first_questions(read, given.only))
    play_one = functools.partial(play, engine=load_engine(Settings(), 1))
    measured: list[Measured] = []
    for first in range(0, len(haystacks), TOGETHER):
        batch = haystacks[first : first + TOGETHER]
        measured += asyncio.run(play_in_projects(batch, play_one, content_limit_bytes=str(CONTENT_LIMIT_BYTES)))
    print_figures(measured)


if __name__ == "__main__":
    main()
