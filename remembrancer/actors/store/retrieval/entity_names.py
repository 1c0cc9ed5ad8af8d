"""Finds the entities that a text or a name refers to: word sequences that are the key of a name, longest first."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.store.records.contract import Phrase
from remembrancer.actors.store.retrieval.graph import Graph, Node
from remembrancer.actors.store.retrieval.keywords import phrases_of
from remembrancer.memory.names import name_key, name_words
from remembrancer.memory.stop_words import ENGLISH_STOP_WORDS

MOST_WORDS: Final = 4
"""The number of words, separated by blanks, that a name in a text may have."""
MOST_PARTS: Final = 8
"""The number of runs of letters and digits that a name may have: `src/app/main.py` is one word with four."""
LONGEST_TEXT: Final = 100
"""The number of parts of a text that are read; names after them are left to the other searches."""
LEAST_STEM: Final = 4
STEM_SHARE: Final = 2 / 3
"""Two words count as forms of one if they share a prefix of this length and this fraction of the longer word."""

_WORD: Final = re.compile(r"\S+")
_PART: Final = re.compile(r"[^\W_]+")
_POSSESSIVE: Final = re.compile(r"['\u2019]s\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Mention:
    """A part of a text that may be a name: its parts `begin` to `end` (exclusive), and their `name_key`."""

    begin: int
    end: int
    key: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A text prepared for the search of names: its parts in lower case, and every sequence that may be a name."""

    parts: tuple[str, ...]
    mentions: tuple[Mention, ...]


def read(text: str) -> Reading:
    """Read every sequence of one to four words (between blanks), or of their parts, in a text. Single stop words are
    left out."""
    normal = _POSSESSIVE.sub(" ", unicodedata.normalize("NFKC", text))
    parts: list[tuple[str, int]] = []  # with the index of the word that each belongs to
    for place, word in enumerate(_WORD.finditer(normal)):
        parts.extend((part.group().casefold(), place) for part in _PART.finditer(word.group()))
        if len(parts) >= LONGEST_TEXT:
            del parts[LONGEST_TEXT:]
            break
    mentions = [
        Mention(begin, end, key)
        for begin in range(len(parts))
        for end in range(begin + 1, min(begin + MOST_PARTS, len(parts)) + 1)
        if parts[end - 1][1] - parts[begin][1] < MOST_WORDS
        and not all(part in ENGLISH_STOP_WORDS for part, _ in parts[begin:end])
        and (key := name_key("".join(part for part, _ in parts[begin:end])))
    ]
    return Reading(tuple(part for part, _ in parts), tuple(mentions))


def longest(mentions: Iterable[Mention], known: Container[str]) -> list[Mention]:
    """Return those mentions that are known keys, in text order. If two overlap, the longer one counts."""
    taken: set[int] = set()
    chosen: list[Mention] = []
    for mention in sorted(mentions, key=lambda each: (each.begin - each.end, each.begin)):
        places = range(mention.begin, mention.end)
        if mention.key in known and taken.isdisjoint(places):
            taken.update(places)
            chosen.append(mention)
    return sorted(chosen, key=lambda each: each.begin)


def is_paraphrased(name: str, words: Sequence[str]) -> bool:
    """True if every word of a name has a form among `words` (in lower case)."""
    split = name_words(name).removeprefix(name).strip() or name
    parts = [part.casefold() for part in _PART.findall(split)]
    return bool(parts) and all(any(alike(part, word) for word in words) for part in parts)


def alike(one: str, other: str) -> bool:
    """True if two words are the same, or seem to be forms of one."""
    if one == other:
        return True
    common = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    length = min(len(one), len(other)) if common is None else common
    return length >= LEAST_STEM and length >= STEM_SHARE * max(len(one), len(other))


ALIASES: Final = frozenset(name_key(each) for each in ("alias_of", "also_known_as", "aka", "alias"))
"""Keys of the relationships that make two names mean the same."""
MOST_STARTS: Final = 20
"""The number of nodes at which a walk begins."""
SUGGESTIONS: Final = 5
WORDED: Final = 30
"""The number of candidates from full text."""
ALPHABETIC: Final = 200
"""The number of candidates that begin like an unknown name."""
COMMON_BEGINNING: Final = 2
LIKENESS: Final = 0.6
"""The ratio of `difflib` from which an unknown name counts as a misspelling."""


@dataclass(frozen=True, slots=True)
class Found:
    """The nodes that a name stands for. `guessed`: by its words alone. Without nodes, `suggestions` are known names."""

    nodes: tuple[Node, ...] = ()
    guessed: bool = False
    suggestions: tuple[str, ...] = ()


def find(graph: Graph, name: str) -> Found:
    """Find exactly this name, with those that differ only in case (perhaps of another type); else the same name in
    another spelling; else the only name with all its words."""
    exact, spelled = graph.named(name), graph.keyed([name_key(name)])
    alike = [node for node in spelled if graph.name(node).casefold() == name.casefold()] if exact else spelled
    nodes = list(dict.fromkeys([*exact, *alike]))
    if nodes:
        return Found(tuple(nodes[:MOST_STARTS]))
    parts = [Phrase(part) for part in dict.fromkeys(_PART.findall(name_words(name)))]
    likely = graph.matching(parts, WORDED, every=True)
    if likely and len({node.key for node in likely}) == 1:
        return Found(tuple(likely[:MOST_STARTS]), guessed=True)
    return Found(suggestions=tuple(suggest(graph, name, likely)))


def suggest(graph: Graph, name: str, likely: Sequence[Node]) -> list[str]:
    """Return known names similar to this one, most similar first."""
    key = name_key(name)
    worded = dict.fromkeys([*likely, *graph.matching(phrases_of(name_words(name)), WORDED)])
    beginning = graph.beginning(key[:COMMON_BEGINNING], ALPHABETIC)
    alike = {node: difflib.SequenceMatcher(None, key, node.key).ratio() for node in [*worded, *beginning]}
    chosen = [node for node, ratio in alike.items() if node in worded or ratio >= LIKENESS]
    chosen.sort(key=lambda node: (-alike[node], node))
    return list(dict.fromkeys(graph.name(node) for node in chosen))[:SUGGESTIONS]


def with_aliases(graph: Graph, nodes: Sequence[Node]) -> list[Node]:
    """Return these nodes, and those that memories declare to be their aliases, over any number of steps."""
    known = dict.fromkeys(nodes)
    frontier = list(known)
    while frontier and len(known) < MOST_STARTS:
        found: dict[Node, None] = {}
        for sighting in graph.edges(frontier, relationships=ALIASES).sightings:
            if sighting.live:
                found |= dict.fromkeys((sighting.edge.subject, sighting.edge.target))
        frontier = [node for node in found if node not in known]
        known |= dict.fromkeys(frontier)
    return list(known)[:MOST_STARTS]


def named_in(graph: Graph, text: str) -> list[Node]:
    """Return the nodes that a text names: by sequences of its words, and by names whose words all occur in the rest."""
    reading = read(text)
    if not reading.mentions:
        return []
    nodes = graph.keyed(list(dict.fromkeys(mention.key for mention in reading.mentions)))
    chosen = longest(reading.mentions, {node.key for node in nodes})
    keys = {mention.key for mention in chosen}
    found = [node for node in nodes if node.key in keys]
    taken = {place for mention in chosen for place in range(mention.begin, mention.end)}
    rest = [part for place, part in enumerate(reading.parts) if place not in taken and part not in ENGLISH_STOP_WORDS]
    if rest:
        words = [Phrase(part) for part in dict.fromkeys(rest)]
        found += [node for node in graph.matching(words, WORDED) if is_paraphrased(graph.name(node), rest)]
    return list(dict.fromkeys(found))[:MOST_STARTS]
