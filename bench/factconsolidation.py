"""Tests facts that later ones replace: `python -m bench.factconsolidation FILE [--most FACTS] [--json]`.

FILE is MemoryAgentBench's `Conflict_Resolution.json` (arXiv 2507.05257): `[{"context", "questions", "answers",
"metadata": {"source"}}]`. Each line `17. The author of Emma is Ann.` of a context is a fact, and of two about the same
thing the later one is true. `sh` in a source's name means questions of a single step, `mh` of several. Each context of
at most `--most` facts is a project, each fact a memory without a kind, and no replacement is declared. Each question is
a recall of ten. Figures, in percent of the questions whose last fact has an older version: the newest fact is found, it
ranks above all older ones, an older one ranks above it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.harness import Figure, Runtime, drained, play_in_projects, print_figures, session_in, wait_until

LIMIT: Final = 10
EMBEDDED_S: Final = 1800.0
_FACT: Final = re.compile(r"^\s*\d+\.\s+(?P<fact>\S.*?)\s*$", re.MULTILINE)
LEAST_SHARED: Final = 10
"""The length of the common beginning by which two facts are about the same thing."""


class Asked(NamedTuple):
    """A question with the fact that answers it and its older versions."""

    text: str
    newest: str
    older: frozenset[str]


@dataclass(frozen=True)
class Context:
    """A list of facts in order, and the questions about them."""

    source: str
    facts: tuple[str, ...]
    questions: tuple[Asked, ...]


def read(path: Path, most: int) -> list[Context]:
    """Read the contexts of a file with at most that many facts."""
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    found = []
    for row in rows:
        facts = tuple(each["fact"] for each in _FACT.finditer(row["context"]))
        if not 0 < len(facts) <= most:
            continue
        pairs = zip(row["questions"], row["answers"], strict=True)
        asked = [each for question, answers in pairs if (each := judged(question, answers, facts)) is not None]
        found.append(Context(str(row["metadata"]["source"]), facts, tuple(asked)))
    return found


def judged(question: str, answers: Sequence[str] | str, facts: Sequence[str]) -> Asked | None:
    """Return a question with its facts; None if no fact has the answer, or none is older."""
    told = [answers] if isinstance(answers, str) else list(answers)
    for place in range(len(facts) - 1, -1, -1):
        newest = facts[place]
        answer = next((each for each in told if each and newest.rstrip(".").endswith(each)), None)
        if answer is None:
            continue
        begins = newest[: newest.rindex(answer)]
        older = {each for each in facts[:place] if each.startswith(begins) and each != newest}
        if len(begins) >= LEAST_SHARED and older:
            return Asked(question, newest, frozenset(older))
    return None


async def play(running: Runtime, directory: Path, context: Context) -> list[tuple[bool, bool, bool]]:
    """Return for each question whether the newest fact was found, ranked above all older ones, and ranked below one."""
    async with session_in(running, directory) as client:
        for fact in context.facts:
            await client.call("store_memory", content=fact)
        await wait_until(lambda: drained(client), EMBEDDED_S, 0.5)
    played = []
    async with session_in(running, directory) as client:
        for asked in context.questions:
            found = await client.call("recall_memories", query=asked.text, limit=LIMIT, detail=True)
            texts = [each["content"] for each in found["memories"]]
            newest = texts.index(asked.newest) if asked.newest in texts else LIMIT
            older = min((place for place, text in enumerate(texts) if text in asked.older), default=LIMIT)
            played.append((newest < LIMIT, newest < older, older < newest))
    return played


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--most", type=int, default=3000, metavar="FACTS")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    contexts, rows = read(given.file, given.most), []
    outcomes: dict[str, list[tuple[bool, bool, bool]]] = {}
    for context, answered in zip(contexts, asyncio.run(play_in_projects(contexts, play)), strict=True):
        outcomes.setdefault(context.source, []).extend(answered)
    for source, played in outcomes.items():
        names = ("newest found", "newest above the old one", "old one above the newest")
        for name, column in zip(names, zip(*played, strict=True), strict=False):
            share = 100 * sum(column) / len(played)
            rows.append(Figure(f"{source}, {len(played)} questions: {name}", share, "%", 0, name != names[2]))
    print_figures(rows, as_json=given.json)


if __name__ == "__main__":
    main()
