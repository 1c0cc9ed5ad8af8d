"""Facts that later ones replace: `python -m bench.factconsolidation FILE [--most FACTS] [--json]`.

FILE is MemoryAgentBench's `Conflict_Resolution.json` (arXiv 2507.05257): `[{"context", "questions", "answers",
"metadata": {"source"}}]`, of which each line `17. The author of Emma is Ann.` of a context is a fact, and the later of
two about the same holds. `sh` in a source's name stands for questions of a single step, `mh` for those of several. Each
context of at most `--most` facts is a project, each fact a memory without a kind, and nobody says what replaces what.
Each question is a recall of ten. Figures, in percent of the questions whose last fact has an older one: the newest is
found, it is above each older one, an older one is above it.
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

from bench.harness import Figure, Runtime, drained, play_in_projects, print_figures, wait_until
from bench.weeks import session_in

LIMIT: Final = 10
EMBEDDED_S: Final = 1800.0
_FACT: Final = re.compile(r"^\s*\d+\.\s+(?P<fact>\S.*?)\s*$", re.MULTILINE)
LEAST_SHARED: Final = 10
"""Characters with which two facts about the same begin."""


class Asked(NamedTuple):
    """A question with the fact that answers it and the older ones about the same."""

    text: str
    newest: str
    older: frozenset[str]


@dataclass(frozen=True)
class Context:
    """A list of facts in their order, and what is asked about them."""

    source: str
    facts: tuple[str, ...]
    questions: tuple[Asked, ...]


def read(path: Path, most: int) -> list[Context]:
    """The contexts of a file that have so many facts at most."""
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
    """A question with its facts; None where no fact has the answer, or none is older."""
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
    """For each question: the newest fact was found, was above each older one, and was below one."""
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
