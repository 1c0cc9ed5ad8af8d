"""Finds the entities that a text or a name refers to: word sequences that are the key of a name, longest first."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

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

_WORD: Final = re.compile(r"\S+")
_PART: Final = re.compile(r"[^\W_]+")
_POSSESSIVE: Final = re.compile(r"['\u2019]s\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Mention:
    """A part of a text that may be a name: its parts `begin` to `end` (exclusive), and their `name_key`."""

    begin: int
    end: int
    key: str


def mentions_in(text: str) -> list[Mention]:
    """Return every sequence of one to four words (between blanks), or of their parts, in a text. Single stop words are
    left out."""
    normal = _POSSESSIVE.sub(" ", unicodedata.normalize("NFKC", text))
    parts: list[tuple[str, int]] = []  # with the index of the word that each belongs to
    for place, word in enumerate(_WORD.finditer(normal)):
        parts.extend((part.group().casefold(), place) for part in _PART.finditer(word.group()))
        if len(parts) >= LONGEST_TEXT:
            del parts[LONGEST_TEXT:]
            break
    return [
        Mention(begin, end, key)
        for begin in range(len(parts))
        for end in range(begin + 1, min(begin + MOST_PARTS, len(parts)) + 1)
        if parts[end - 1][1] - parts[begin][1] < MOST_WORDS
        and not all(part in ENGLISH_STOP_WORDS for part, _ in parts[begin:end])
        and (key := name_key("".join(part for part, _ in parts[begin:end])))
    ]


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


ALIASES: Final = frozenset(name_key(each) for each in ("alias_of", "also_known_as", "aka", "alias"))
"""Keys of the relationships that make two names mean the same."""
MOST_STARTS: Final = 20
"""The number of nodes at which a walk begins."""
SUGGESTIONS: Final = 5


def find(graph: Graph, name: str) -> list[Node]:
    """Return the nodes with exactly this name, and those that differ only in case (perhaps of another type); else those
    with the same name in another spelling."""
    exact, spelled = graph.named(name), graph.keyed([name_key(name)])
    alike = [node for node in spelled if graph.name(node).casefold() == name.casefold()] if exact else spelled
    return list(dict.fromkeys([*exact, *alike]))[:MOST_STARTS]


def suggest(graph: Graph, name: str) -> tuple[str, ...]:
    """Return known names with words of this one, best first."""
    likely = graph.matching(phrases_of(name_words(name)), SUGGESTIONS)
    return tuple(dict.fromkeys(graph.name(node) for node in likely))[:SUGGESTIONS]


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
    """Return the nodes that a text names by sequences of its words."""
    mentions = mentions_in(text)
    nodes = graph.keyed(list(dict.fromkeys(mention.key for mention in mentions)))
    keys = {mention.key for mention in longest(mentions, {node.key for node in nodes})}
    return [node for node in nodes if node.key in keys][:MOST_STARTS]
