"""Walks through the graph, and answers graph requests: a walk from an entity, an overview, and for `strategy: graph`
the memories connected with the entities in a query."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Final, NamedTuple

from remembrancer.actors.store.records.types import Filters, RankingFacts
from remembrancer.actors.store.retrieval.deduplication import as_recalled
from remembrancer.actors.store.retrieval.graph import Edge, Expansion, Graph, Node
from remembrancer.actors.store.retrieval.question import phrases_of
from remembrancer.actors.store.retrieval.view import Ref, View
from remembrancer.memory.decay import recency
from remembrancer.memory.features import standing
from remembrancer.memory.names import name_key, name_words
from remembrancer.memory.ranking import composite_score
from remembrancer.memory.stop_words import ENGLISH_STOP_WORDS
from remembrancer.protocol.reads import GraphEntity, GraphFound, GraphRelationship, RecalledMemory, Scores, SearchGraph
from remembrancer.protocol.wire import Notice

HOPS: Final = 2
WIDEST: Final = 50
"""The number of entities on each level, best connected first, from which a walk continues."""
CONNECTED: Final = 100
"""The number of connected memories examined: of the nearest ones, the most important and the latest."""
MAX_STARTS: Final = 20
SUGGESTIONS: Final = 5
RELATIONSHIPS: Final = 50
"""The number of relationships shown for an entity, best supported first."""
FACTS: Final = 10
"""The number of memories listed for a relationship."""
COUNTED: Final = 20
"""The number of entities beyond the limit for which memories are counted, to choose the entities to show."""
TYPES: Final = 50
"""The number of types of relationships (and of entities) in an answer, most frequent first."""
TOPICS: Final = 10
"""The number of communities in an overview."""
MAX_WORDS: Final = 4
"""The maximum number of words in a name, separated by spaces."""
MAX_PARTS: Final = 8
"""The maximum number of runs of letters and digits in a name: `src/app/main.py` is one word with four runs."""
LONGEST_TEXT: Final = 100
"""The number of parts read from a text. Names after that are left to the other searches."""
_WORD: Final = re.compile(r"\S+")
_PART: Final = re.compile(r"[^\W_]+")
_POSSESSIVE: Final = re.compile(r"['\u2019]s\b", re.IGNORECASE)
LONE_WORTH: Final = 0.8
"""The worth of a memory with a single nearest entity, as a fraction of the worth of one with many."""


class Reached(NamedTuple):
    """A node reached by a walk. `weight` is the number of unforgotten memories that connect it to nearer nodes."""

    distance: int
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Walk:
    """`reached` is ordered by distance, then by connections. `edges` are those of all nodes nearer than the walk's
    depth, each with the number of memories that state it. If `cut`, the walk is incomplete."""

    reached: dict[Node, Reached]
    edges: dict[Edge, int]
    cut: bool


def walk(starts: Iterable[Node], expand: Callable[[Sequence[Node]], Expansion], depth: int, widest: int) -> Walk:
    """Walk breadth first from `starts` for `depth` hops, continuing from the `widest` best connected nodes of each
    level. Edges between spellings of one name are dropped."""
    reached = {start: Reached(0) for start in starts}
    edges: dict[Edge, int] = {}
    frontier, cut = list(reached), False
    for distance in range(1, depth + 1):
        if not frontier:
            break
        leading = frontier[:widest]
        expansion = expand(leading)
        cut = cut or expansion.cut or len(leading) < len(frontier)
        weights: Counter[Node] = Counter()
        for edge, live in expansion.edges.items():
            edges[edge] = max(live, edges.get(edge, 0))
            for end in (edge.subject, edge.target):
                if end not in reached:
                    weights[end] += live
        frontier = sorted(weights, key=lambda node: (-weights[node], node))
        reached |= {node: Reached(distance, weights[node]) for node in frontier}
    best = sorted((-live, edge) for edge, live in edges.items() if edge.subject != edge.target)
    return Walk(reached, {edge: -live for live, edge in best}, cut)


def connection(entities: Iterable[Reached]) -> float:
    """Return the worth of a memory, in [0, 1], by the distance of its nearest entity and the number of equally near
    ones. Up to three hops, a memory with a nearer entity is never worth less than one with farther entities."""
    distances = [each.distance for each in entities]
    if not distances:
        return 0.0
    nearest = min(distances)
    return (1.0 - (1.0 - LONE_WORTH) / distances.count(nearest)) / (1 + nearest)


def connections(
    graph: Graph, query: str, filters: Filters, matching: Mapping[Ref, RankingFacts]
) -> dict[Ref, tuple[RankingFacts, float]] | None:
    """Return the memories connected with the entities in the query, with their ranking facts and their nearness in (0,
    1]; None if the query names no entity. `matching` are memories found by other searches, included if connected."""
    spans = spans_of(query)
    nodes = graph.nodes_with(list(dict.fromkeys(spans.values())))
    keys = set(longest(spans, {node.key for node in nodes}).values())
    if not keys:
        return None
    starts = [node for node in nodes if node.key in keys][:MAX_STARTS]
    reached = walk(starts, graph.edges, HOPS, WIDEST).reached
    facts = {**near_memories(graph, reached, filters, CONNECTED), **matching}
    named = graph.nodes_named_by(facts, reached)
    return {ref: (facts[ref], connection(reached[node] for node in nodes)) for ref, nodes in named.items()}


def near_memories(
    graph: Graph, reached: Mapping[Node, Reached], filters: Filters, enough: int, relationship: str | None = None
) -> dict[Ref, RankingFacts]:
    """Return memories that name the reached entities, which must be ordered by distance: level by level, the most
    important and the latest, until there are `enough`."""
    found: dict[Ref, RankingFacts] = {}
    for _, level in groupby(islice(reached, WIDEST * HOPS), key=lambda node: reached[node].distance):
        found |= graph.memories(list(level), filters, enough, relationship)
        if len(found) >= enough:
            break
    return found


def search_graph(request: SearchGraph, view: View, now: float) -> GraphFound:
    graph = Graph(view.reader.spaces, request.session_id, now)
    wanted = None if request.relationship_type is None else name_key(request.relationship_type)
    expand = partial(graph.edges, direction=request.direction, relationship=wanted)
    if request.entity is None:
        return _overview(request, graph, view, expand, wanted)
    kind = None if request.entity_type is None else request.entity_type.lower()
    named = graph.nodes_with([name_key(request.entity)], request.entity)
    nodes = [node for node in named if kind in (None, node.type)][:MAX_STARTS]
    if not nodes:
        phrases = phrases_of(name_words(request.entity)) if request.entity_type is None else ()
        likely = graph.matching(phrases, SUGGESTIONS)
        return GraphFound((), suggestions=tuple(dict.fromkeys(graph.names[node] for node in likely))[:SUGGESTIONS])
    # The answer omits entities beyond the limit, and everything farther away.
    walked = walk(nodes, expand, request.depth, max(WIDEST, request.limit))
    if walked.cut:
        text = "The graph has too many edges here: only the best connected entities were followed."
        view.notices.append(Notice("graph_cut", text))
    counts = graph.memory_counts(list(walked.reached)[: request.limit + COUNTED])

    def rank(node: Node) -> tuple[int, int, int, Node]:
        reached = walked.reached[node]  # nearest first, then those that most memories name
        return reached.distance, -counts[node], -reached.weight, node

    chosen = {node: walked.reached[node] for node in sorted(counts, key=rank)[: request.limit]}
    types = Counter(graph.relationships[edge.relationship] for edge in walked.edges)
    return GraphFound(
        entities=_entities(graph, walked, chosen, counts),
        memories=_memories(request, graph, view, chosen, now, wanted) if request.include_memories else (),
        entities_traversed=len(walked.reached),
        relationships_found=len(walked.edges),
        depth_reached=max(each.distance for each in walked.reached.values()),
        relationship_types=dict(types.most_common(TYPES)),
    )


def _overview(
    request: SearchGraph, graph: Graph, view: View, expand: Callable[[Sequence[Node]], Expansion], wanted: str | None
) -> GraphFound:
    """Return the project's best connected entities with their relationships, and total counts. The user's memories
    count only if they are about these entities."""
    project = [records.space for records in view.records if not records.is_users]
    if not project:
        return GraphFound(())
    summary = graph.summary(project, wanted, max(WIDEST, request.limit))
    best = sorted(summary.degrees, key=lambda node: (-summary.degrees[node], node))[: request.limit]
    walked = walk(best, expand, 1, len(best))
    chosen = {node: walked.reached[node] for node in best}
    return GraphFound(
        entities=_entities(graph, walked, chosen, graph.memory_counts(best)),
        entities_traversed=len(best),
        relationships_found=len(walked.edges),
        relationship_types=dict(summary.relationship_types.most_common(TYPES)),
        entity_types=dict(summary.entity_types.most_common(TYPES)),
        total_entities=summary.entity_types.total(),
        total_relationships=summary.relationship_types.total(),
        topics=summary.topics[:TOPICS],
    )


def _entities(
    graph: Graph, walked: Walk, chosen: Mapping[Node, Reached], counts: Mapping[Node, int]
) -> tuple[GraphEntity, ...]:
    relationships: dict[Node, list[GraphRelationship]] = {node: [] for node in chosen}
    shown = [edge for edge in walked.edges if edge.subject in chosen or edge.target in chosen]
    facts = graph.facts(dict.fromkeys(shown[: RELATIONSHIPS * len(chosen)]))
    descriptions = graph.descriptions(list(chosen))
    for edge, count in walked.edges.items():
        for here, there in ((edge.subject, edge.target), (edge.target, edge.subject)):
            if here in chosen and len(relationships[here]) < RELATIONSHIPS:
                relationships[here].append(
                    GraphRelationship(
                        type=graph.relationships[edge.relationship],
                        target=graph.names[there],
                        direction="outgoing" if here is edge.subject else "incoming",
                        memories=count,
                        stale=count == 0,
                        target_type=there.type,
                        facts=tuple(facts.get(edge, ())[:FACTS]),
                    )
                )
    nowhere = "", ""
    return tuple(
        GraphEntity(
            name=graph.names[node],
            type=node.type,
            relationships=tuple(relationships[node]),
            memory_count=counts[node],
            distance=reached.distance,
            stale=counts[node] == 0,
            described_in=descriptions.get(node, nowhere)[0],
            description=descriptions.get(node, nowhere)[1],
        )
        for node, reached in chosen.items()
    )


def _memories(
    request: SearchGraph, graph: Graph, view: View, chosen: Mapping[Node, Reached], now: float, wanted: str | None
) -> tuple[RecalledMemory, ...]:
    """Return the memories that name the chosen entities, with the relationship `wanted` if given: nearest first, then
    by importance, recency and standing."""
    filters = Filters(request.session_id)
    ranked: list[tuple[int, float, Ref]] = []
    scores: dict[Ref, Scores] = {}
    near = near_memories(graph, chosen, filters, request.limit, wanted)
    for ref, nodes in graph.nodes_named_by(near, chosen).items():
        facts, entities = near[ref], [chosen[node] for node in nodes]
        recent = recency(facts.happened_at, now)
        stands = 1.0 - standing(facts.status, facts.valid_until, now) / 10
        nearest = min(each.distance for each in entities)
        ranked.append((nearest, -stands * composite_score(0.0, facts.importance, recent), ref))
        nearness = connection(entities)
        final = stands * composite_score(nearness, facts.importance, recent)
        scores[ref] = Scores(final, nearness, {"graph": nearness})
    ranked.sort()
    best = [ref for _, _, ref in ranked[: request.limit]]
    records = view.load(best, filters)
    memories: dict[str, RecalledMemory] = {}
    for ref in best:
        record = records.get(ref)
        if record is not None and (record.id not in memories or record.scope == "user"):
            memories[record.id] = as_recalled(record, scores[ref], now)
    return tuple(memories.values())


Span = tuple[int, int]
"""A possible name in a text: the index of its first part, and that of the part after its last."""


def spans_of(text: str) -> dict[Span, str]:
    """Return the `name_key` of every sequence of one to four words (or parts of words) in a text, ignoring stop
    words."""
    normal = _POSSESSIVE.sub(" ", unicodedata.normalize("NFKC", text))
    words = enumerate(_WORD.finditer(normal))
    every = ((part.group().casefold(), place) for place, word in words for part in _PART.finditer(word.group()))
    parts = list(islice(every, LONGEST_TEXT))  # each with the index of its word
    return {
        (begin, end): key
        for begin in range(len(parts))
        for end in range(begin + 1, min(begin + MAX_PARTS, len(parts)) + 1)
        if parts[end - 1][1] - parts[begin][1] < MAX_WORDS
        and not all(part in ENGLISH_STOP_WORDS for part, _ in parts[begin:end])
        and (key := name_key("".join(part for part, _ in parts[begin:end])))
    }


def longest(spans: Mapping[Span, str], known: Container[str]) -> dict[Span, str]:
    """Return the known spans in text order. If two overlap, the longer one counts."""
    taken: set[int] = set()
    chosen: dict[Span, str] = {}
    for begin, end in sorted(spans, key=lambda span: (span[0] - span[1], span)):
        if spans[begin, end] in known and taken.isdisjoint(range(begin, end)):
            taken.update(range(begin, end))
            chosen[begin, end] = spans[begin, end]
    return dict(sorted(chosen.items()))
