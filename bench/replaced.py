"""Fits and tests the model that a later memory replaces an earlier one: `python -m bench.replaced FILE …`.

FILE is a week of memories (`supersedes`, and questions whose answer made others `stale`), histories of MemoryCode, of
which the mentor's sentences that state rules are used, or a folder of assistants' days, on which they rewrote memories.
All pairs of a haystack with near vectors are compared, so that the rates are those of a store. With `superseded.txt`,
`replaced.json` and `corrections.txt` (of one day), which have separate pairs, the weights of `memory/replacement.py`
are fitted. Each author's figures come from weights fitted without that author; those of MemoryCode, without half of the
histories.
"""

import argparse
import json
import re
from collections import Counter, defaultdict
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
from remembrancer.memory.replacement import (
    COMPARED_CHARACTERS,
    FEATURES,
    LEAST_COSINE,
    POSSIBLE,
    PROBABLE,
    REPLACED,
    TextPair,
    read,
    share_of,
)
from remembrancer.memory.wording import same_in_words

CORRECTIONS: Final = "corrections.txt"
ALONE: Final = tuple(Path(__file__).parent / name for name in ("superseded.txt", CORRECTIONS, "replaced.json"))
NEVER: Final = tuple(Path(__file__).parent / name for name in ("topics.txt", "series.txt"))
DAY_S: Final = 86_400.0
LONG: Final = 500
"""A longer text is replaced at most in part, so such pairs are neither right nor wrong."""
SAME_DAY: Final = -3.0
"""The lower limit of the weight of `same_day`, since people do correct themselves within a day."""
PENALTY: Final = 1.0
WEIGHTS: Final = {"MemoryCode": 50.0, "superseded.txt": 18.0}
WEIGHT: Final = 15.0
"""The total weight of an author's replaced pairs, in pairs."""
Array = NDArray[np.float64]


class Item(NamedTuple):
    key: str
    text: str
    at: float


class Haystack(NamedTuple):
    """The memories of one owner in order, the pairs (earlier, later) of which one replaces the other, and the pairs
    that are neither right nor wrong."""

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
    shares: Sequence[float]
    """The factors of their probabilities."""
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
    """Yield the mentors' sentences that state rules: each history as spread over its days, and all at once. A rule not
    in force at the end is replaced by later ones for the same slot."""
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
    """Yield memories, five a day, none of which replaces another: of forty topics, or of things numbered alike."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
    items = [Item(str(number), line[2:], number // 5 * DAY_S) for number, line in enumerate(lines)]
    yield Haystack(path.name, items, (), ())


def judged(haystack: Haystack, engine: Engine) -> Judged | None:
    """Return the pairs of a haystack, as a store compares them; None if there are none."""
    if len(haystack.items) < 2:
        return None
    vectors = engine.embed_passages([each.text[:COMPARED_CHARACTERS] for each in haystack.items])
    cosines = vectors @ vectors.T
    texts = [read(each.text) for each in haystack.items]
    having: Counter[str] = Counter()
    rows, replaced, later, shares, missed = [], [], [], [], 0
    for place, item in enumerate(haystack.items):
        having.update(texts[place].keys)
        frequencies = dict(having)
        near = set(np.argsort(-cosines[place])[:NEAREST].tolist())
        for other, earlier in enumerate(haystack.items[:place]):
            pair, cosine = (earlier.key, item.key), float(cosines[place, other])
            is_replaced = pair in haystack.replaced
            if earlier.text == item.text or pair in haystack.undecided:
                continue
            if other not in near or cosine < LEAST_COSINE or same_in_words(earlier.text, item.text):
                missed += is_replaced
                continue
            compared = TextPair(texts[other], texts[place], cosine, item.at - earlier.at, frequencies, place + 1)
            rows.append([each.of(compared) for each in FEATURES])
            replaced.append(is_replaced)
            later.append(place)
            shares.append(share_of(texts[other], texts[place]))
    table = np.array(rows).reshape(-1, len(FEATURES))
    return Judged(haystack.author, table, np.array(replaced, dtype=bool), later, shares, missed)


def alone(path: Path, engine: Engine) -> Judged:
    """Return separate pairs, each three days apart, corrections a minute."""
    if path.suffix == ".json":
        read_pairs = json.loads(path.read_text(encoding="utf-8"))["pairs"]
        pairs = [(each["old"], each["new"], bool(each["replaces"])) for each in read_pairs]
    else:
        lines = [line.split(" | ") for line in path.read_text(encoding="utf-8").splitlines()]
        pairs = [(old, new, truth == "replaces") for truth, old, new in lines]
    apart_s = 60.0 if path.name == CORRECTIONS else 3 * DAY_S
    older = engine.embed_passages([old for old, _, _ in pairs])
    newer = engine.embed_passages([new for _, new, _ in pairs])
    rows, shares = [], []
    for (old, new, _), cosine in zip(pairs, (older * newer).sum(axis=1).tolist(), strict=True):
        one, other = read(old), read(new)
        having = Counter([*one.keys, *other.keys])
        compared = TextPair(one, other, cosine, apart_s, having, 2)
        rows.append([each.of(compared) for each in FEATURES])
        shares.append(share_of(one, other))
    return Judged(path.name, np.array(rows), np.array([each[2] for each in pairs]), range(len(pairs)), shares)


def fit(sets: Sequence[Judged]) -> tuple[float, Array]:
    """Return the intercept and the weights. Separate pairs have their own intercept: half of them are replaced, which
    is not the rate in a store."""
    names = [each.name for each in FEATURES]
    apart = {path.name for path in ALONE}
    table = np.vstack([np.c_[each.table, np.full(len(each.table), each.author in apart)] for each in sets])
    truth = np.concatenate([each.replaced for each in sets]).astype(float)
    authors = np.concatenate([np.full(len(each.table), each.author.split()[0]) for each in sets])
    weight = np.ones(len(truth))
    for author in set(authors[truth > 0]):
        weight[authors == author] = WEIGHTS.get(author, WEIGHT) / truth[authors == author].sum()
    mean, spread = table.mean(axis=0), table.std(axis=0) + 1e-9
    scaled = (table - mean) / spread
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * (len(names) + 2)
    bounds[1 + names.index("same_day")] = (SAME_DAY * float(spread[names.index("same_day")]), 0.0)

    def loss(at: Array) -> tuple[float, Array]:
        logits = scaled @ at[1:] + at[0]
        off = weight * (1.0 / (1.0 + np.exp(-np.clip(logits, -30.0, 30.0))) - truth)
        value = (weight * (np.logaddexp(0.0, logits) - truth * logits)).sum() + PENALTY * (at[1:] ** 2).sum() / 2
        return float(value), np.r_[off.sum(), scaled.T @ off + PENALTY * at[1:]]

    start = np.r_[-4.0, np.zeros(table.shape[1])]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = found[1:] / spread
    return float(found[0] - (weights * mean).sum()), weights[:-1]


def named(sets: Sequence[Judged], intercept: float, weights: Array, least: float) -> tuple[int, int, int]:
    """Return the number of pairs reported, at most one for each later memory; the number of replaced pairs among them,
    and among all."""
    count = right = 0
    for each in sets:
        chances = np.array(each.shares) / (1.0 + np.exp(-(each.table @ weights + intercept)))
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
    sets = [each for haystack in haystacks if (each := judged(haystack, engine)) is not None]
    sets += [alone(path, engine) for path in ALONE]
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
