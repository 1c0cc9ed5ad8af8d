"""From what somebody calls an entity to nodes of the graph."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.store.graph.graph_files import JoinedGraph
from remembrancer.actors.store.graph.mentions import is_paraphrased, longest, read
from remembrancer.actors.store.graph.walk import Node
from remembrancer.actors.store.records.names import name_key, name_words
from remembrancer.actors.store.retrieval.keywords import STOP_WORDS, match_expression

ALIASES: Final = frozenset(name_key(each) for each in ("alias_of", "also_known_as", "aka", "alias"))
"""Keys of the relationships by which two names mean one thing."""
MOST_STARTS: Final = 20
"""Nodes that a walk begins at."""
SUGGESTIONS: Final = 5
WORDED: Final = 30
"""Candidates that full text brings."""
ALPHABETIC: Final = 200
"""Candidates that begin like an unknown name."""
COMMON_BEGINNING: Final = 2
LIKENESS: Final = 0.6
"""`difflib`'s ratio at which an unknown name is taken for a misspelt one."""

_PART: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Found:
    """The nodes that a name stands for. `guessed`: by its words alone. Without nodes, `suggestions` are known names."""

    nodes: tuple[Node, ...] = ()
    guessed: bool = False
    suggestions: tuple[str, ...] = ()


def find(graph: JoinedGraph, name: str) -> Found:
    """Exactly this name and those that differ in case alone (another type, perhaps), else the same in another spelling,
    else the one name that has all its words."""
    exact, spelled = graph.named(name), graph.keyed([name_key(name)])
    alike = [node for node in spelled if graph.name(node).casefold() == name.casefold()] if exact else spelled
    nodes = list(dict.fromkeys([*exact, *alike]))
    if nodes:
        return Found(tuple(nodes[:MOST_STARTS]))
    parts = [f'"{part}"' for part in _PART.findall(name_words(name))]
    likely = graph.matching(" AND ".join(dict.fromkeys(parts)), WORDED) if parts else []
    if likely and len({node.key for node in likely}) == 1:
        return Found(tuple(likely[:MOST_STARTS]), guessed=True)
    return Found(suggestions=tuple(suggest(graph, name, likely)))


def suggest(graph: JoinedGraph, name: str, likely: Sequence[Node]) -> list[str]:
    """Known names like this one, the likeliest first."""
    key = name_key(name)
    match = match_expression(name_words(name))
    worded = dict.fromkeys([*likely, *(graph.matching(match, WORDED) if match else [])])
    beginning = graph.beginning(key[:COMMON_BEGINNING], ALPHABETIC)
    alike = {node: difflib.SequenceMatcher(None, key, node.key).ratio() for node in [*worded, *beginning]}
    chosen = [node for node, ratio in alike.items() if node in worded or ratio >= LIKENESS]
    chosen.sort(key=lambda node: (-alike[node], node))
    return list(dict.fromkeys(graph.name(node) for node in chosen))[:SUGGESTIONS]


def with_aliases(graph: JoinedGraph, nodes: Sequence[Node]) -> list[Node]:
    """These nodes, and those that a memory says to be others' names for them, over any number of steps."""
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


def named_in(graph: JoinedGraph, text: str) -> list[Node]:
    """The nodes that a text names: by sequences of its words, and by names all of whose words are in the rest."""
    reading = read(text)
    if not reading.mentions:
        return []
    nodes = graph.keyed(list(dict.fromkeys(mention.key for mention in reading.mentions)))
    chosen = longest(reading.mentions, {node.key for node in nodes})
    keys = {mention.key for mention in chosen}
    found = [node for node in nodes if node.key in keys]
    taken = {place for mention in chosen for place in range(mention.begin, mention.end)}
    rest = [part for place, part in enumerate(reading.parts) if place not in taken and part not in STOP_WORDS]
    if rest:
        match = " OR ".join(f'"{part}"' for part in dict.fromkeys(rest))
        found += [node for node in graph.matching(match, WORDED) if is_paraphrased(graph.name(node), rest)]
    return list(dict.fromkeys(found))[:MOST_STARTS]
