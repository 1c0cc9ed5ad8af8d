"""Earlier sessions found in transcripts: `python -m bench.transcripts --data FILE [--only N] [--json]`.

FILE holds LongMemEval or LoCoMo, as for `bench.retrieval`, whose figures for the same questions are those to be beside.
Each session is a transcript as Claude Code writes it, in the folder of a workspace of its own; the questions go to
`memory_search`. What counts is the place of the first results that say the evidence: of LongMemEval a session, of which
each counts once; of LoCoMo a turn, so that a result counts for all turns that it shows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.client import StdioClient
from bench.data_forms import Haystack, Item
from bench.datasets import Dataset, DataUnusable, load
from bench.harness import runtime, wait_until
from bench.measures import percentile

DEPTHS: Final = (1, 3, 5, 10)
RESULTS: Final = 40
"""Chunks of an answer: several may be of one session."""
EMBEDDED_S: Final = 3600.0
_SPEAKER: Final = re.compile(r"^(user|assistant): ", re.MULTILINE)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 measured, 2 the file is unusable."""
    parser = argparse.ArgumentParser(prog="bench.transcripts", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="JSON, or that packed by xz or gzip")
    parser.add_argument("--only", type=int, metavar="N", help="the first N questions alone")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args(argv)
    try:
        dataset = load(given.data).first(given.only)
    except DataUnusable as error:
        print(f"bench.transcripts: {error}", file=sys.stderr)
        return 2
    figures = asyncio.run(measure(dataset))
    print(json.dumps(figures, indent=2) if given.json else "\n".join(f"{name}: {figures[name]}" for name in figures))
    return 0


def sessions_of(haystack: Haystack, form: str) -> dict[str, list[Item]]:
    """The turns by session."""
    sessions: dict[str, list[Item]] = {}
    for item in haystack.items:
        sessions.setdefault(item.label.partition(":")[0] if form == "LoCoMo" else item.label, []).append(item)
    return sessions


def turns_of(items: Sequence[Item], form: str) -> list[tuple[str, str, Item]]:
    """The role and the text of each turn. Of LoCoMo both speakers are people."""
    if form == "LoCoMo":
        return [("user", item.text, item) for item in items]
    turns = []
    for item in items:
        parts = _SPEAKER.split(item.text)[1:]
        turns += [(role, text.strip(), item) for role, text in zip(parts[::2], parts[1::2], strict=True)]
    return [turn for turn in turns if turn[1]]


class Workspace:
    """A haystack as the sessions of a project. `labels` has for each transcript those of its turns, in order."""

    def __init__(self, haystack: Haystack, form: str, directory: Path, transcripts: Path) -> None:
        self.haystack = haystack
        self.directory = directory
        directory.mkdir(parents=True)
        folder = transcripts / re.sub(r"[^A-Za-z0-9]", "-", str(directory))
        folder.mkdir(parents=True)
        self.labels: dict[str, list[str]] = {}
        for place, items in enumerate(sessions_of(haystack, form).values()):
            path = folder / f"{place}.jsonl"
            turns = turns_of(items, form)
            path.write_text("".join(self._line(path, number, *turn) for number, turn in enumerate(turns)))
            self.labels[str(path)] = [item.label for _, _, item in turns]

    def _line(self, path: Path, number: int, role: str, text: str, item: Item) -> str:
        at = datetime.fromtimestamp(max(0.0, item.occurred_at), UTC)
        line = {
            **{"type": role, "uuid": f"{path.stem}-{number}", "timestamp": at.isoformat()},
            **{"cwd": str(self.directory), "sessionId": path.stem, "message": {"role": role, "content": text}},
        }
        return f"{json.dumps(line)}\n"

    def shown(self, result: dict[str, Any]) -> frozenset[str]:
        """The labels that a result shows."""
        return frozenset(self.labels[result["path"]][result["startLine"] - 1 : result["endLine"]])


async def measure(dataset: Dataset) -> dict[str, Any]:
    """The per cent of questions of whose evidence some is among the first results; and how long that takes."""
    hits: dict[int, list[bool]] = {depth: [] for depth in DEPTHS}
    took_ms: list[float] = []
    chunks = 0
    settings = {"toolsets": "files", "read_budget_s": "20", "call_budget_s": "30", "search_min_score": "0"}
    async with runtime(transcripts="true", **settings) as running:
        place = running.home.with_name(f"{running.home.name}-sessions")
        running.environ["REMEMBRANCER_TRANSCRIPTS_PATH"] = f"{place}/transcripts/*/*.jsonl"
        try:
            for number, haystack in enumerate(dataset.haystacks):
                workspace = Workspace(haystack, dataset.form, place / str(number), place / "transcripts")
                client = StdioClient(running.home, cwd=workspace.directory, environ=running.environ)
                async with client:
                    chunks += await _ask(client, workspace, hits, took_ms)
                print(f"{number + 1} of {len(dataset.haystacks)} projects", file=sys.stderr)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    shares = {f"any@{depth}": round(100 * sum(found) / len(found), 2) for depth, found in hits.items()}
    return {
        "questions": len(took_ms),
        "chunks": chunks,
        **shares,
        "search p50 ms": round(percentile(took_ms, 0.5), 1),
        "search p95 ms": round(percentile(took_ms, 0.95), 1),
    }


async def _ask(client: StdioClient, workspace: Workspace, hits: dict[int, list[bool]], took_ms: list[float]) -> int:
    await client.call("memory_sync", source="sessions")
    status: dict[str, Any] = {}

    async def is_embedded() -> bool:
        nonlocal status
        status = await client.call("memory_status")
        return status["totalFiles"] == len(workspace.labels) and not status.get("pendingChunks")

    await wait_until(is_embedded, EMBEDDED_S, 0.5)
    for question in workspace.haystack.questions:
        began = time.perf_counter()
        answer = await client.call("memory_search", query=question.text, maxResults=RESULTS, sources=["sessions"])
        took_ms.append((time.perf_counter() - began) * 1000)
        shown = list(dict.fromkeys(workspace.shown(result) for result in answer["results"]))
        for depth, found in hits.items():
            found.append(any(each & question.wanted for each in shown[:depth]))
    return int(status["totalChunks"])


if __name__ == "__main__":
    sys.exit(main())
