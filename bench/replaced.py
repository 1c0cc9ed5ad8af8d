"""Reads memories of which some replace earlier ones, for `bench.worlds` and `bench.contradictions`.

A haystack is a week of memories (with `supersedes`, and questions whose answers made others `stale`), a history of
MemoryCode (the mentor's sentences that state rules), a world of `changes.txt`, or pairs of `superseded.txt`,
`replaced.json` and `corrections.txt` (of one day). All its pairs with near vectors are compared, so the rates are those
of a store.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from bench.datasets import read_json
from bench.memorycode import Rule, rules_of
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.store.vectors.near_duplicates import NEAREST
from remembrancer.memory.likely_replacement import LEAST_COSINE, TextPair
from remembrancer.memory.wording import same_in_words

MEMORYCODE: Final = "MemoryCode"
CORRECTIONS: Final = "corrections.txt"
CHANGES: Final = Path(__file__).with_name("changes.txt")
ALONE: Final = tuple(Path(__file__).parent / name for name in ("superseded.txt", CORRECTIONS, "replaced.json"))
NEVER: Final = tuple(Path(__file__).parent / name for name in ("topics.txt", "series.txt"))
DAY_S: Final = 86_400.0
LONG: Final = 500
"""A longer text is replaced at most in part, so its pairs are neither right nor wrong."""
WORLDS: Final = 14
"""The number of worlds by one author in `changes.txt`."""
AT_ONCE: Final = 20
APART_S: Final = 300.0
"""The time between two memories of one day."""


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
            yield Haystack(f"{MEMORYCODE} {number % 2}", items, replaced, undecided)


def _slot_of(rule: Rule) -> tuple[str, str]:
    """Return a rule's object, and its pattern without the value."""
    return rule[0], re.sub(r"\w*_\w*|(?<=\*)\w+(?=\.)", "", rule[1]) if rule[1][:1] in "^." else rule[1]


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


def compared(haystack: Haystack, engine: Engine) -> Iterator[tuple[int, bool, TextPair | None]]:
    """Yield the pairs of a haystack that are right or wrong, as a store compares them: the index of the later memory,
    whether it replaces the earlier one, and the texts (None if they are too distant)."""
    vectors = engine.embed_passages([each.text for each in haystack.items])
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
            yield place, is_replaced, TextPair(earlier.text, item.text, cosine, item.at - earlier.at, others, around)
