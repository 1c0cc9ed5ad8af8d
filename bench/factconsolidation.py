"""Tests facts that later ones replace: `python -m bench.factconsolidation FILE [--most FACTS]`.

FILE is the split `Conflict_Resolution` of MemoryAgentBench (arXiv 2507.05257) as JSON: `[{"context", "questions":
[text], "answers": [[accepted text]], "metadata": {"source"}}]`. A context is a line `Here is a list of facts:` and
lines such as `17. The author of Emma is Ann.`; of two with the same beginning the later one holds. Each list of at most
`--most` facts is a project, each fact a memory, and no replacement is declared. If the source is `…_sh_…`, a question
names the subject of a fact that ends with its answer; if `…_mh_…`, that of a fact that ends with this subject, and is
asked again with this fact. Others are left out, as are those of which no fact is outdated. Figures, in percent: the
newest fact of each step is among ten results; each of them is above its outdated ones.
"""

import argparse
import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.datasets import read_json
from bench.harness import Figure, Runtime, answered, play_in_projects, print_figures, settle

LEAST_SHARE: Final = 0.5
_FACT: Final = re.compile(r"^\d+\.\s+(\S.*?)\.?\s*$", re.MULTILINE)


def steps_of(question: str, answers: Sequence[str], facts: Sequence[str], steps: int) -> list[tuple[str, set[str]]]:
    """Return the facts that hold for one or two steps, the last one first, each with those that it replaces, or none. A
    text names a fact's subject if it has at least `LEAST_SHARE` of the words before its end, weighted by rarity."""
    having = Counter(word for fact in facts for word in _words(fact))

    def share(beginning: str, text: str) -> float:
        rarity = {word: math.log(1 + len(facts) / having[word]) for word in _words(beginning)}
        return sum(rarity[word] for word in rarity.keys() & set(_words(text))) / sum(rarity.values())

    def versions(beginning: str) -> list[str]:
        return [fact for fact in facts if fact.startswith(beginning)]

    chains: list[tuple[float, list[str]]] = [(LEAST_SHARE, [])]
    pairs = ((fact.removesuffix(each), fact) for fact in facts for each in answers if fact.endswith(f" {each}"))
    for last in (beginning for beginning, fact in pairs if versions(beginning)[-1] == fact):
        chains += [(share(last, question), [last])] if steps == 1 else []
        for fact in facts if steps == 2 else ():
            ends = (place.end() for place in re.finditer(" ", fact))
            start = next((start for start in ends if f" {fact[start:]} " in f" {last}"), 0)
            if start and versions(fact[:start])[-1] == fact:
                both = min(share(fact[:start], question), share(last, f"{question} {fact[start:]}"))
                chains.append((both, [last, fact[:start]]))
    return [(each[-1], set(each) - {each[-1]}) for each in map(versions, max(chains)[1])]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


async def play(running: Runtime, directory: Path, row: Any) -> list[Figure]:
    """Store a list, ask its questions, and return the figures."""
    facts, source = _FACT.findall(row["context"]), row["metadata"]["source"]
    async with running.client(directory) as client:
        for fact in facts:
            await answered(client, "store_memory", content=fact)
        await settle(running, client, 1800.0)
    played: list[list[bool]] = []
    async with running.client(directory) as client:
        for question, answers in zip(row["questions"], row["answers"], strict=True):
            steps, query, outcomes = steps_of(question, answers, facts, 2 if "_mh_" in source else 1), question, []
            for new, old in reversed(steps) if any(old for _, old in steps) else ():
                answer = await answered(client, "recall_memories", query=query, limit=10, detail=True)
                texts = [memory["content"] for memory in answer["memories"]]
                outcomes.append((new in texts, new in texts and old.isdisjoint(texts[: texts.index(new)])))
                query = f"{question} {new}"
            played += [list(map(all, zip(*outcomes, strict=True)))] if outcomes else []
    named = zip(("found", "above outdated"), zip(*played, strict=True), strict=False)
    of = f"{source}, {len(played)} questions: newest"
    return [Figure(f"{of} {name}", 100 * sum(column) / len(played), "%", 0) for name, column in named]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--most", type=int, default=3000, metavar="FACTS", help="leave longer lists out")
    given = parser.parse_args()
    rows = [row for row in read_json(given.file) if len(_FACT.findall(row["context"])) <= given.most]
    print_figures([figure for figures in asyncio.run(play_in_projects(rows, play)) for figure in figures])


if __name__ == "__main__":
    main()
