"""Recall answers what it can, and nothing else: `python -m bench.everyday [--json] [--plot FILE]`.

`everyday.txt` has 100 memories of a line in eight languages, 75 questions that some of them answer and 75 that none
does. Of two questions that follow each other the first was looked at while the model of `memory/relevance.py` was
fitted (`tuned`); the second is only reported (`held out`). Memories are stored and asked for by the public tools.
`--plot` draws how often what was shown with a probability was an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.harness import drained, fill, runtime, wait_until

DATA: Final = Path(__file__).parent / "everyday.txt"
EMBEDDED_S: Final = 120.0
BINS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.01)


class Asked(NamedTuple):
    """A question with the labels of the memories that answer it (none: no one does), and what was shown for it: labels
    with their probabilities."""

    wanted: frozenset[str]
    shown: list[tuple[str, float]]


def read_everyday() -> tuple[dict[str, str], list[tuple[str, frozenset[str]]]]:
    """The labels of the memories by their texts, and each question with the labels of what answers it."""
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
    """Store the memories and ask each question."""
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
    """The shares in per cent."""
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


def reliability(asked: list[Asked]) -> list[tuple[float, float, int]]:
    """For each bin of probability its mean, the share that answered, and how many there are."""
    shown = [(probability, label in each.wanted) for each in asked for label, probability in each.shown]
    bins = [[each for each in shown if low <= each[0] < high] for low, high in itertools.pairwise(BINS)]
    return [
        (sum(p for p, _ in each) / len(each), sum(right for _, right in each) / len(each), len(each))
        for each in bins
        if each
    ]


def draw(asked: list[Asked], file: Path) -> None:
    """The reliability as an SVG that is the same for the same figures."""
    from matplotlib import pyplot

    from bench.latency_plot import COLOURS, INK, STYLE

    with pyplot.rc_context(STYLE):
        drawing, axes = pyplot.subplots(figsize=(4.6, 4.0), layout="constrained")
        axes.plot([0, 1], [0, 1], ":", color=INK)
        for half, colour in (("tuned", COLOURS["keyword"]), ("held out", COLOURS["hybrid"])):
            points = reliability(asked[half == "held out" :: 2])
            axes.plot(
                [p for p, _, _ in points], [share for _, share, _ in points], marker="o", color=colour, label=half
            )
        axes.set_xlabel("relevance_score")
        axes.set_ylabel("share that answers")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        drawing.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        pyplot.close(drawing)


def _share(truths: list[bool]) -> float:
    return round(100 * sum(truths) / len(truths), 1) if truths else 0.0


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="bench.everyday", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the reliability as an SVG")
    given = parser.parse_args()
    asked = asyncio.run(ask())
    if given.plot:
        draw(asked, given.plot)
    halves = {"all": asked, "tuned": asked[::2], "held out": asked[1::2]}
    figures: dict[str, Any] = {name: figures_of(each) for name, each in halves.items()}
    if given.json:
        print(json.dumps(figures | {"reliability, held out": reliability(asked[1::2])}, indent=2))
    else:
        for name, shares in figures.items():
            print(f"{name}: " + "; ".join(f"{what} {share:.1f} %" for what, share in shares.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
