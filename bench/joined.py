"""Tests questions that share only an entity with their answer: `python -m bench.joined --kept DIRECTORY`.

`joined.txt` has 202 memories of twenty domains, each with the entities that an assistant names for it; 100 questions
whose words find one memory while another one answers, 40 that are answered by the memory that their words find, and 40
without an answer. They are mixed with the memories of `everyday.json` and `topics.txt`, which name no entity. Each
memory also names its domain, so that there are hubs. One half was used while the ranking was chosen (`tuned`); the
other is only reported.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.datasets import OWN_SETS, UNDATED, Haystack, Item, Question, load_sets
from bench.in_process import Sets

DATA: Final = Path(__file__).with_name("joined.txt")
TOPICS: Final = DATA.with_name("topics.txt")
HALVES: Final = ("tuned", "held out")
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "words": {"strategy": "keyword"},
    "meaning": {"strategy": "vector"},
    "hybrid": {"strategy": "hybrid"},
    "pagerank": {"ranking": "pagerank"},
}


def read_joined() -> Haystack:
    """Read all memories and questions. A question's kind is its half; its id has the memory found by its words."""
    items: list[Item] = []
    entities: dict[str, tuple[str, ...]] = {}
    questions: list[Question] = []
    half = domain = ""
    first = 0
    for line in DATA.read_text(encoding="utf-8").splitlines():
        mark, text = line[:1], line[2:]
        if mark == "#":
            half = text
        elif mark == "@":
            domain, first = text, len(items)
        elif mark == "-":
            content, _, names = text.rpartition(" | ")
            items.append(Item(f"j{len(items)}", content, UNDATED))
            entities[items[-1].label] = (*names.split("; "), domain)
        elif mark == "?":
            asked, _, places = text.rpartition(" | ")
            clue, answer = (items[first + int(place) - 1].label for place in places.split(">"))
            questions.append(Question(clue, asked, half, UNDATED, frozenset([answer])))
        elif mark == "=":
            asked, _, place = text.rpartition(" | ")
            answer = items[first + int(place) - 1].label
            questions.append(Question(answer, asked, half, UNDATED, frozenset([answer])))
        elif mark == "!":
            questions.append(Question("", text, half, UNDATED, frozenset()))
    topics = [line[2:] for line in TOPICS.read_text(encoding="utf-8").splitlines() if line[:2] in ("- ", "= ")]
    (everyday,) = load_sets(OWN_SETS[0])["everyday"]
    others = [*(item.text for item in everyday.items), *topics]
    items += [Item(f"o{place}", text, UNDATED) for place, text in enumerate(dict.fromkeys(others))]
    return Haystack("joined", tuple(items), tuple(questions), "semantic", entities=entities)


def figures_of(found: Sequence[tuple[Question, Sequence[str]]]) -> dict[str, float]:
    """Return the shares in per cent. `recall@k`: the answer of a joined question is among the first k; `direct@k`: the
    same for questions that their own words answer; `irrelevant`: the share of results that neither answer nor have the
    question's words."""
    joined = [each for each in found if each[0].wanted - {each[0].id}]
    direct = [each for each in found if each[0].wanted == {each[0].id}]
    figures = {
        f"{name}@{depth}": _share([not question.wanted.isdisjoint(ranked[:depth]) for question, ranked in asked])
        for name, asked, depths in (("recall", joined, (1, 5, 10)), ("direct", direct, (1, 5)))
        for depth in depths
    }
    for name, asked in (("joined", joined), ("direct", direct)):
        wrong = [label not in (question.id, *question.wanted) for question, ranked in asked for label in ranked]
        figures[f"{name} irrelevant"] = _share(wrong)
    figures["unanswerable, nothing"] = _share([not ranked for question, ranked in found if not question.wanted])
    return figures


def _share(truths: Sequence[bool]) -> float:
    return round(100 * sum(truths) / len(truths), 1) if truths else 0.0


def main() -> None:
    """Ask all questions in each way, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True, metavar="DIRECTORY", help="where records are kept")
    parser.add_argument("--only", nargs="+", choices=HALVES, default=HALVES, metavar="HALF")
    given = parser.parse_args()
    sets = Sets([], given.kept, haystacks={"joined": (read_joined(),)})
    for asking in sets.of("joined"):
        for half in given.only:
            questions = [each for each in asking.haystack.questions if each.kind == half]
            for way, fields in WAYS.items():
                found = [(each, asyncio.run(asking.ranking(each, **fields))) for each in questions]
                line = "  ".join(f"{name} {share:5.1f}" for name, share in figures_of(found).items())
                print(f"{half:9} {way:9} {line}", flush=True)


if __name__ == "__main__":
    main()
