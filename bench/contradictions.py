"""Checks the pairs in Review: memories that contradict each other without their sessions knowing.

`python -m bench.contradictions [FILE …]`

FILE is a week (`bench/datasets.py`), as read by `bench.replaced`, or has pairs from one day, in the format of
`one_day.txt`. That file and `contradictions.txt`, whose pairs were not used for fitting, are always included. One
session a day stores a project's memories without saying what they replace. Once they have vectors, the pairs of
`remembrancer list --review` are compared with the true pairs.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final

from bench.datasets import WEEK_BEGAN
from bench.harness import (
    Figure,
    Runtime,
    answered,
    drained,
    iso,
    play_in_projects,
    print_figures,
    wait_until,
)
from bench.replaced import APART_S, DAY_S, Haystack, Item, weeks

COLD, ONE_DAY = (Path(__file__).with_name(name) for name in ("contradictions.txt", "one_day.txt"))
SETTLED_S: Final = 300.0
OLD_DAYS, NEW_DAYS = (0, 1), (2, 3, 4)
FIRST: Final = "all, without --all"


def read_pairs(path: Path) -> Iterator[Haystack]:
    """Read the projects of a file. The earlier lines and half of the unrelated ones come first, and then the others: on
    later days in `contradictions.txt`, and on the same day in any other file."""
    for section in f"\n{path.read_text(encoding='utf-8')}".split("\n## ")[1:]:
        lines = [line for line in section.splitlines()[1:] if line]
        pairs = [line.split(" => ") for line in lines if " => " in line]
        alone = [line for line in lines if " => " not in line]
        early = [*(old for old, _ in pairs), *alone[::2]]
        late = [*(new for _, new in pairs), *alone[1::2]]
        items = [Item(text, text, place * APART_S) for place, text in enumerate((*early, *late))]
        if path == COLD:
            items = [
                Item(text, text, days[place % len(days)] * DAY_S + place)
                for texts, days in ((early, OLD_DAYS), (late, NEW_DAYS))
                for place, text in enumerate(texts)
            ]
        yield Haystack(path.name, sorted(items, key=lambda item: item.at), {(old, new) for old, new in pairs}, ())


async def play(running: Runtime, directory: Path, haystack: Haystack) -> dict[tuple[str, str], bool]:
    """Return the pairs of texts that are in Review at the end, earlier text first; True if listed without `--all`."""
    for _, day in groupby(haystack.items, key=lambda item: item.at // DAY_S):
        async with running.client(directory) as client:
            for item in day:
                at = iso(WEEK_BEGAN + item.at)
                await answered(client, "store_memory", content=item.text, scope="project", occurred_at=at)
            await wait_until(partial(drained, client), SETTLED_S, 0.5)
    _, out = await running.command("list", "--review", "--json", directory=directory)
    return {(pair["older"], pair["newer"]): "weak" not in pair for pair in json.loads(out)["contradictions"]}


def figures_of(haystacks: Sequence[Haystack], shown: Sequence[dict[tuple[str, str], bool]]) -> list[Figure]:
    """Return the share of true pairs found, and of wrong pairs shown: by author, in total, and without `--all`."""
    rows: dict[str, list[int]] = {}
    for haystack, pairs in zip(haystacks, shown, strict=True):
        texts = {item.key: item.text for item in haystack.items}
        # the user's memories replace none of a project's
        ways, undecided = (
            {frozenset((texts[old], texts[new])) for old, new in pairs if old in texts and new in texts}
            for pairs in (haystack.replaced, haystack.undecided)
        )
        first = {frozenset(pair) for pair, is_first in pairs.items() if is_first}
        every = {frozenset(pair) for pair in pairs}
        for name, listed in ((haystack.author, every), ("all", every), (FIRST, first)):
            row = rows.setdefault(name, [0, 0, 0])
            for place, of in enumerate((ways, listed & ways, listed - ways - undecided)):
                row[place] += len(of)
    figures = []
    for name, (there, found, none) in rows.items():
        goal = 0 if name == FIRST else 60
        figures.append(Figure(f"{name}: of {there} contradictions in Review", 100 * found / there, "%", goal, True))
        if found + none:
            figures.append(Figure(f"{name}: of {found + none} in Review none", 100 * none / (found + none), "%", 33.4))
    return figures


def main() -> None:
    """Print the share of contradictions found, and the share of wrong pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    haystacks = [
        haystack
        for path in (COLD, ONE_DAY, *given.files)
        for haystack in (weeks if path.suffix == ".json" else read_pairs)(path)
    ]
    shown = asyncio.run(play_in_projects(haystacks, play))
    print_figures(figures_of(haystacks, shown))


if __name__ == "__main__":
    main()
