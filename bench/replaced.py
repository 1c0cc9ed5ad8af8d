"""Fits and tests the probability that a later memory replaces an earlier one: `python -m bench.replaced FILE …`.

FILE is a week of memories (with `supersedes`, and questions whose answers made others `stale`), histories of MemoryCode
(the mentor's sentences that state rules), or a folder of days on which assistants rewrote memories. All pairs of a
haystack with near vectors are compared, so the rates are those of a store. The weights of `memory/replacement.py` are
fitted on these files, on `changes.txt`, and on the pairs of `superseded.txt`, `replaced.json` and `corrections.txt` (of
one day). Each author's figures come from weights fitted without that author, and those of MemoryCode from weights
fitted without half of the histories.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from bench.datasets import read_json
from bench.harness import Figure, print_figures
from bench.memorycode import Rule, rules_of
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.actors.store.vectors.near_duplicates import NEAREST
from remembrancer.config.settings import Settings
from remembrancer.memory.likely_replacement import LEAST_COSINE, Texts
from remembrancer.memory.replacement import (
    COMPARED_CHARACTERS,
    FEATURES,
    POSSIBLE,
    PROBABLE,
    REPLACED,
    TextPair,
    read,
)
from remembrancer.memory.wording import same_in_words

CORRECTIONS: Final = "corrections.txt"
CHANGES: Final = Path(__file__).with_name("changes.txt")
ALONE: Final = tuple(Path(__file__).parent / name for name in ("superseded.txt", CORRECTIONS, "replaced.json"))
NEVER: Final = tuple(Path(__file__).parent / name for name in ("topics.txt", "series.txt"))
DAY_S: Final = 86_400.0
LONG: Final = 500
"""A longer text is replaced at most in part, so its pairs are neither right nor wrong."""
SAME_DAY: Final = -0.8
"""The weight of `same_day`, which depends on the author: authors who invent three weeks change as much within a day as
between days (0), but texts from one day in `one_day.txt` are replaced less often than expected (-1.5)."""
PENALTY: Final = 10.0
WEIGHTS: Final = {"changes.txt": 240.0, "MemoryCode": 100.0, **{path.name: 80.0 for path in ALONE}}
WEIGHT: Final = 20.0
"""The total weight of an author's replaced pairs, in pairs."""
WORLDS: Final = 14
"""The number of worlds by one author in `changes.txt`."""
AT_ONCE: Final = 20
APART_S: Final = 300.0
"""The time between two memories of one day."""
Array = NDArray[np.float64]


class Item(NamedTuple):
    key: str
    text: str
    at: float


class Haystack(NamedTuple):
    """The memories of one owner in order, the pairs (earlier, later) in which the later memory replaces the earlier
    one, and the pairs that are neither right nor wrong."""

    author: str
    items: Sequence[Item]
    replaced: Collection[tuple[str, str]]
    undecided: Collection[tuple[str, str]]


class Judged(NamedTuple):
    """The pairs of a haystack: features, whether they are replaced, and the index of the later memory."""

    author: str
    table: Array
    replaced: NDArray[np.bool_]
    later: Sequence[int]
    missed: int = 0
    """The number of replaced memories that are too distant to be compared."""


def weeks(path: Path) -> Iterator[Haystack]:
    """Yield the projects of a week."""
    week = json.loads(path.read_text(encoding="utf-8"))
    places = {each["id"]: place for place, each in enumerate(week["memories"])}
    texts = {each["id"]: each["text"] for each in week["memories"]}
    pairs = {(each["supersedes"], each["id"]) for each in week["memories"] if each["supersedes"]}
    asked = {
        (stale, wanted)
        for question in week["questions"]
        for wanted in question["wanted"]
        for stale in question["stale"]
        if places[stale] < places[wanted]
    }
    undecided = {pair for pair in asked - pairs if max(len(texts[each]) for each in pair) > LONG}
    owners: defaultdict[str, list[Item]] = defaultdict(list)
    for each in week["memories"]:
        owner = "user" if each.get("about_user") else each["project"]
        owners[owner].append(Item(each["id"], each["text"], each["day"] * DAY_S + places[each["id"]]))
    for items in owners.values():
        yield Haystack(path.stem, items, (pairs | asked) - undecided, undecided)


def memorycode(path: Path) -> Iterator[Haystack]:
    """Yield the mentors' sentences that state rules, twice for each history: all at one time, and spread over days. A
    rule not in force at the end is replaced by later ones for the same slot."""
    for number, history in enumerate(read_json(path)):
        stated = rules_of(history)
        rules: defaultdict[str, set[Rule]] = defaultdict(set)
        said: dict[str, int] = {}
        for day, (rule, text) in enumerate(stated.statements):
            rules[text].add(rule)
            said.setdefault(text, day)
        replaced, undecided = set(), set()
        for one, other in combinations(said, 2):
            holds = not rules[one].isdisjoint(stated.in_force)
            slots, later = ({_slot_of(rule) for rule in rules[text]} for text in (one, other))
            if (holds and rules[one] & rules[other]) or (not holds and slots & later and slots - later):
                undecided.add((one, other))
            elif not holds and slots <= later:
                replaced.add((one, other))
        for apart_s in (0.0, DAY_S):
            items = [Item(text, f"{history['mentor']}: {text}", day * apart_s) for text, day in said.items()]
            yield Haystack(f"MemoryCode {number % 2}", items, replaced, undecided)


def _slot_of(rule: Rule) -> tuple[str, str]:
    """Return a rule's object, and its pattern without the value."""
    return rule[0], re.sub(r"\w*_\w*|(?<=\*)\w+(?=\.)", "", rule[1]) if rule[1][:1] in "^." else rule[1]


def days(folder: Path) -> Iterator[Haystack]:
    """Yield the memories that assistants stored on their days, each version replacing the one before it."""
    items: list[Item] = []
    versions: defaultdict[str, list[str]] = defaultdict(list)
    undecided: set[tuple[str, str]] = set()
    calls = [
        (day, json.loads(line))
        for day, path in enumerate(sorted(folder.glob("day*.jsonl")))
        for line in path.read_text(encoding="utf-8").splitlines()
        if '"store_memory"' in line or '"update_memory"' in line
    ]
    for number, (day, call) in enumerate(calls):
        text = call.get("arguments", {}).get("content")
        if text is None:
            continue
        memory = call["arguments"].get("memory_id") or json.loads(call["answer"])["memory_id"]
        key = f"{memory} {len(versions[memory])}"
        undecided.update((old, key) for several in versions.values() for old in several[:-1])
        versions[memory].append(key)
        items.append(Item(key, text, day * DAY_S + number))
    replaced = {pair for several in versions.values() for pair in pairwise(several)}
    yield Haystack(folder.name, items, replaced, undecided - replaced)


def topics(path: Path) -> Iterator[Haystack]:
    """Yield five memories a day, none of which replaces another, about forty topics or about numbered things."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
    items = [Item(str(number), line[2:], number // 5 * DAY_S) for number, line in enumerate(lines)]
    yield Haystack(path.name, items, (), ())


def changes(path: Path) -> Iterator[Haystack]:
    """Yield the worlds of `changes.txt`. The first and last of three versions are neither right nor wrong as a pair."""
    for number, section in enumerate(path.read_text(encoding="utf-8").split("\n## ")[1:]):
        items: list[Item] = []
        pairs: dict[str, set[tuple[str, str]]] = {"=>": set(), "?": set()}
        for line in section.splitlines()[1:]:
            begins, _, rest = line.partition(" ")
            if begins in pairs:
                pairs[begins].update((old, new) for old, _, new in (each.partition("-") for each in rest.split()))
            elif line:
                items.append(Item(str(len(items)), rest, int(begins) * DAY_S + len(items) * APART_S))
        replaced = pairs["=>"]
        steps = {(first, last) for first, second in replaced for third, last in replaced if second == third}
        yield Haystack(f"{path.name} {number // WORLDS}", items, replaced, (pairs["?"] | steps) - replaced)


def alone(path: Path) -> Iterator[Haystack]:
    """Yield the separate pairs of a file in groups: the earlier texts and, three days later, the others. Corrections
    follow within a minute."""
    if path.suffix == ".json":
        read_pairs = json.loads(path.read_text(encoding="utf-8"))["pairs"]
        pairs = [(each["old"], each["new"], bool(each["replaces"])) for each in read_pairs]
    else:
        lines = [line.split(" | ") for line in path.read_text(encoding="utf-8").splitlines()]
        pairs = [(old, new, truth == "replaces") for truth, old, new in lines]
    later_s = 60.0 if path.name == CORRECTIONS else 3 * DAY_S
    for begin in range(0, len(pairs), AT_ONCE):
        several = list(enumerate(pairs[begin : begin + AT_ONCE]))
        olds = [Item(f"{place} old", old, 2 * place * APART_S) for place, (old, _, _) in several]
        news = [Item(f"{place} new", new, 2 * place * APART_S + later_s) for place, (_, new, _) in several]
        replaced = {(f"{place} old", f"{place} new") for place, (_, _, is_replaced) in several if is_replaced}
        yield Haystack(path.name, sorted([*olds, *news], key=lambda item: item.at), replaced, ())


def compared(haystack: Haystack, engine: Engine) -> Iterator[tuple[int, bool, Texts | None]]:
    """Yield the pairs of a haystack that are right or wrong, as a store compares them: the index of the later memory,
    whether it replaces the earlier one, and the texts (None if they are too distant)."""
    vectors = engine.embed_passages([each.text[:COMPARED_CHARACTERS] for each in haystack.items])
    cosines = vectors @ vectors.T
    for place, item in enumerate(haystack.items):
        near = np.argsort(-cosines[place, : place + 1])[:NEAREST].tolist()
        for other, earlier in enumerate(haystack.items[:place]):
            pair, cosine = (earlier.key, item.key), float(cosines[place, other])
            is_replaced = pair in haystack.replaced
            if earlier.text == item.text or pair in haystack.undecided:
                continue
            if other not in near or cosine < LEAST_COSINE or same_in_words(earlier.text, item.text):
                yield place, is_replaced, None
                continue
            others = [float(cosines[place, each]) for each in near if each not in (other, place)]
            around = np.delete(cosines[other, :place], other).tolist()
            yield place, is_replaced, Texts(earlier.text, item.text, cosine, item.at - earlier.at, others, around)


def judged(haystack: Haystack, engine: Engine) -> Judged | None:
    """Return the pairs of a haystack; None if there are none."""
    if len(haystack.items) < 2:
        return None
    rows, replaced, later, missed = [], [], [], 0
    for place, is_replaced, texts in compared(haystack, engine):
        if texts is None:
            missed += is_replaced
            continue
        pair = TextPair(read(texts.earlier), read(texts.later), *texts[2:])
        rows.append([each.of(pair) for each in FEATURES])
        replaced.append(is_replaced)
        later.append(place)
    table = np.array(rows).reshape(-1, len(FEATURES))
    return Judged(haystack.author, table, np.array(replaced, dtype=bool), later, missed)


def fit(sets: Sequence[Judged]) -> tuple[float, Array]:
    """Return the intercept and the weights. The weight of `same_day` is fixed."""
    table = np.vstack([each.table for each in sets])
    truth = np.concatenate([each.replaced for each in sets]).astype(float)
    authors = np.concatenate([np.full(len(each.table), each.author.split()[0]) for each in sets])
    weight = np.ones(len(truth))
    for author in set(authors[truth > 0]):
        weight[authors == author] = WEIGHTS.get(author, WEIGHT) / truth[authors == author].sum()
    mean = np.average(table, axis=0, weights=weight)
    spread = np.sqrt(np.average((table - mean) ** 2, axis=0, weights=weight)) + 1e-9
    scaled = (table - mean) / spread
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * (len(FEATURES) + 1)
    same_day = 1 + [each.name for each in FEATURES].index("same_day")
    bounds[same_day] = (SAME_DAY * float(spread[same_day - 1]),) * 2

    def loss(at: Array) -> tuple[float, Array]:
        logits = scaled @ at[1:] + at[0]
        off = weight * (1.0 / (1.0 + np.exp(-np.clip(logits, -30.0, 30.0))) - truth)
        value = (weight * (np.logaddexp(0.0, logits) - truth * logits)).sum() + PENALTY * (at[1:] ** 2).sum() / 2
        return float(value), np.r_[off.sum(), scaled.T @ off + PENALTY * at[1:]]

    start = np.r_[-4.0, np.zeros(table.shape[1])]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = found[1:] / spread
    return float(found[0] - (weights * mean).sum()), weights


def named(sets: Sequence[Judged], intercept: float, weights: Array, least: float) -> tuple[int, int, int]:
    """Return the number of pairs reported (at most one for each later memory), and the numbers of replaced pairs among
    these and among all."""
    count = right = 0
    for each in sets:
        chances = 1.0 / (1.0 + np.exp(-(each.table @ weights + intercept)))
        for later in dict.fromkeys(each.later):
            places = [place for place, other in enumerate(each.later) if other == later]
            best = max(places, key=lambda place: chances[place])
            if chances[best] >= least:
                count, right = count + 1, right + bool(each.replaced[best])
    return count, right, sum(int(each.replaced.sum()) + each.missed for each in sets)


def _reader_of(path: Path) -> Callable[[Path], Iterator[Haystack]]:
    if path.is_dir():
        return days
    return {".xz": memorycode, ".txt": topics}.get(path.suffix, weeks)


def main() -> None:
    """Print the weights, and for each author the numbers of reported and of right pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    engine = load_engine(Settings(), 2)
    haystacks = [each for path in (*given.files, *NEVER) for each in _reader_of(path)(path)]
    haystacks += [each for path in ALONE for each in alone(path)]
    haystacks += changes(CHANGES)
    sets = [each for haystack in haystacks if (each := judged(haystack, engine)) is not None]
    intercept, weights = fit(sets)
    figures = [Figure("intercept", round(intercept, 2), "", 0)]
    figures += [Figure(f"weight of {each.name}", float(weights[place]), "", 0) for place, each in enumerate(FEATURES)]
    for author in dict.fromkeys(each.author for each in sets):
        without = fit([each for each in sets if each.author != author])
        for least in (POSSIBLE, PROBABLE, REPLACED):
            count, right, there = named([each for each in sets if each.author == author], *without, least)
            figures += [
                Figure(f"{author}: named from {least} on", count, "", 0),
                Figure(f"{author}: of those replaced, of {there}", right, "", 0),
            ]
    print_figures(figures)


if __name__ == "__main__":
    main()
