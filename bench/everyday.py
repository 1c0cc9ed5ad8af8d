"""Tests that recall answers only what it can: `python -m bench.everyday [--json]`.

`everyday.txt` has 100 one-line memories in eight languages, 75 questions that some of them answer, and 75 without an
answer. The first of every two questions was used while the model of `memory/relevance.py` was fitted (`tuned`); the
second is only reported (`held out`). Memories are stored and recalled by the public tools.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.harness import drained, fill, runtime, wait_until

DATA: Final = Path(__file__).parent / "everyday.txt"
EMBEDDED_S: Final = 120.0


class Asked(NamedTuple):
    """A question with the labels of the memories that answer it (none: no answer), and the labels shown for it with
    their probabilities."""

    wanted: frozenset[str]
    shown: list[tuple[str, float]]


def read_everyday() -> tuple[dict[str, str], list[tuple[str, frozenset[str]]]]:
    """Read the labels of the memories by text, and each question with the labels of its answers."""
    memories: dict[str, str] = {}
    questions: list[tuple[str, frozenset[str]]] = []
    for line in DATA.read_text(encoding="utf-8").splitlines():
        if line.startswith("m"):
            label, _, text = line.split(" ", 2)
            memories[text] = label
        else:
            head, text = line.split(" | ", 1)
            labels = head.split(" ")[2]
            questions.append((text, frozenset(() if labels == "-" else labels.split(","))))
    return memories, questions


async def ask() -> list[Asked]:
    """Store the memories and ask the questions."""
    memories, questions = read_everyday()
    asked: list[Asked] = []
    async with runtime(consolidator="0", consolidate_in_background="0") as running, running.client() as client:
        await fill(client, memories)
        await wait_until(lambda: drained(client), EMBEDDED_S)
        for text, wanted in questions:
            found = (await client.call("recall_memories", query=text, detail=True))["memories"]
            asked.append(Asked(wanted, [(memories[each["content"]], each["relevance_score"]) for each in found]))
    return asked


def figures_of(asked: list[Asked]) -> dict[str, float]:
    """Return the shares in per cent."""
    shown = [(label in each.wanted) for each in asked for label, _ in each.shown]
    answerable = [each for each in asked if each.wanted]
    return {
        "unanswerable, answered with nothing": _share([not each.shown for each in asked if not each.wanted]),
        "answerable, among the first five": _share(
            [not each.wanted.isdisjoint(label for label, _ in each.shown[:5]) for each in answerable]
        ),
        "answerable, first": _share(
            [not each.wanted.isdisjoint(label for label, _ in each.shown[:1]) for each in answerable]
        ),
        "irrelevant, of what is shown": 100.0 - _share(shown),
    }


def _share(truths: list[bool]) -> float:
    return round(100 * sum(truths) / len(truths), 1) if truths else 0.0


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="bench.everyday", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    asked = asyncio.run(ask())
    halves = {"all": asked, "tuned": asked[::2], "held out": asked[1::2]}
    figures: dict[str, Any] = {name: figures_of(each) for name, each in halves.items()}
    if given.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, shares in figures.items():
            print(f"{name}: " + "; ".join(f"{what} {share:.1f} %" for what, share in shares.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
