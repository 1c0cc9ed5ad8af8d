"""Answers questions about the graph: a walk from an entity, an overview, the completion of names, and for
`strategy: graph` the memories that are connected with what a query names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, Literal

from remembrancer.actors.store.records.contract import Filters, RankingFacts, Records
from remembrancer.actors.store.retrieval.entity_names import Found, find, named_in, with_aliases
from remembrancer.actors.store.retrieval.joined_graph import (
    JoinedGraph,
    Node,
    Reached,
    Walk,
    connection,
    walk,
)
from remembrancer.actors.store.retrieval.shortlist import as_recalled
from remembrancer.memory.names import name_key
from remembrancer.memory.ranking import DEFAULT_WEIGHTS, Weights, recency, standing
from remembrancer.protocol.reads import (
    GraphEntity,
    GraphFound,
    GraphRelationship,
    Notice,
    RecalledMemory,
    Scores,
    SearchGraph,
    Suggest,
    Suggestions,
)

HOPS: Final = 2
WIDEST: Final = 50
"""Entities of one level that a walk goes on from, the best connected."""
CONNECTED: Final = 100
"""Connected memories that are looked at more closely, the most important and the latest of the nearest."""

Named = dict[int, tuple[RankingFacts, float]]
"""Memories of one file by their numbers: what ranks them, and their nearness in (0, 1]."""


def connections(
    graph: JoinedGraph, query: str, filters: Filters, matching: Sequence[Mapping[int, RankingFacts]]
) -> list[Named] | None:
    """For each file the memories that pass the filters and are connected with what the query names.

    `matching` are, for each file, memories that pass the filters and that another search has found: of these, too, the
    connected ones are named. None: the query names no entity.
    """
    starts = with_aliases(graph, named_in(graph, query))
    if not starts:
        return None
    reached = walk(starts, graph.edges, HOPS, WIDEST).reached
    connected: list[Named] = []
    for place, near in enumerate(near_memories(graph, reached, filters, CONNECTED)):
        facts = {**near, **matching[place]}
        worth = {
            number: connection(reached[node] for node in nodes if node in reached)
            for number, nodes in graph.nodes_named_by(place, list(facts)).items()
        }
        connected.append({number: (facts[number], each) for number, each in worth.items() if each > 0})
    return connected


def near_memories(
    graph: JoinedGraph,
    reached: Mapping[Node, Reached],
    filters: Filters,
    enough: int,
    relationships: Collection[str] | None = None,
) -> list[dict[int, RankingFacts]]:
    """For each file memories that name entities that were reached: of the nearest, the most important and the latest.

    Level by level, until there are `enough` memories in all.
    """
    found: list[dict[int, RankingFacts]] = []
    nodes = list(reached)[: WIDEST * HOPS]
    for distance in sorted({reached[node].distance for node in nodes}):
        level = [node for node in nodes if reached[node].distance == distance]
        of_level = graph.memories(level, filters, enough, relationships)
        found = [earlier | later for earlier, later in zip(found, of_level, strict=True)] if found else of_level
        if sum(len(of_file) for of_file in found) >= enough:
            break
    return found


RELATIONSHIPS: Final = 50
"""Relationships that an answer shows of one entity, the best supported first."""
FACTS: Final = 10
"""Memories that an answer names for one relationship."""
COUNTED: Final = 20
"""Entities beyond the limit whose memories are counted, too, to choose those that are shown."""
TYPES: Final = 50
"""Types of relationships (and of entities) that an answer counts, the most frequent first."""
TOPICS: Final = 10
"""Communities that an overview names."""

Seen = dict[int, list[int]]
"""The numbers of the memories that an answer shows, by their file's place in the list of files."""


def search_graph(
    request: SearchGraph, files: Sequence[Records], now: float, weights: Weights = DEFAULT_WEIGHTS
) -> tuple[GraphFound, Seen]:
    """The answer, and the memories in it. An entity that nobody knows is no error: names like it are suggested."""
    graph = JoinedGraph([records.graph for records in files], request.session_id)
    wanted = None if request.relationship_type is None else frozenset([name_key(request.relationship_type)])
    expand = partial(graph.edges, direction=request.direction, relationships=wanted)
    if request.entity is None:
        return _overview(request, graph, files, wanted), {}
    if request.entity_type is None:
        found = find(graph, request.entity)
    else:
        kind = request.entity_type.lower()
        found = Found(tuple(node for node in graph.keyed([name_key(request.entity)]) if node.type == kind))
    if not found.nodes:
        return GraphFound((), suggestions=found.suggestions), {}
    notices: list[Notice] = []
    if found.guessed:
        names = ", ".join(dict.fromkeys(graph.name(node) for node in found.nodes))
        notices.append(Notice("similar_name", f"Nothing has exactly this name; this is what is known of {names}."))
    starts = with_aliases(graph, found.nodes)
    # Entities beyond the limit are in no answer, nor is what is farther than they are.
    walked = walk(starts, expand, request.depth, max(WIDEST, request.limit))
    if walked.cut:
        text = "The graph is too dense here to be walked whole: the best connected entities were followed."
        notices.append(Notice("graph_cut", text))
    counts = graph.memory_counts(list(walked.reached)[: request.limit + COUNTED])

    def rank(node: Node) -> tuple[int, bool, int, int, Node]:
        reached = walked.reached[node]  # the nearest first, then what is not stale, then what most memories name
        return reached.distance, reached.stale, -counts[node], -reached.weight, node

    chosen = {node: walked.reached[node] for node in sorted(counts, key=rank)[: request.limit]}
    memories: tuple[RecalledMemory, ...] = ()
    seen: Seen = {}
    if request.include_memories:
        memories, seen = _memories(request, graph, files, chosen, now, weights, wanted)
    return (
        GraphFound(
            entities=_entities(graph, walked, chosen, counts),
            memories=memories,
            entities_traversed=len(walked.reached),
            relationships_found=len(walked.edges),
            depth_reached=walked.depth_reached,
            relationship_types=dict(
                Counter(graph.relationship(edge.relationship) for edge in walked.edges).most_common(TYPES)
            ),
            notices=tuple(notices),
        ),
        seen,
    )


def _overview(
    request: SearchGraph, graph: JoinedGraph, files: Sequence[Records], wanted: frozenset[str] | None
) -> GraphFound:
    """The project's best connected entities with their relationships, and what there is in all. It has no memories.

    What the user's file says of these entities is shown with them; what else the user knows is none of it.
    """
    place = next((place for place, records in enumerate(files) if records.name == request.project.id), None)
    if place is None:
        return GraphFound(())
    summary = files[place].graph.summary(request.session_id, wanted, max(WIDEST, request.limit))
    degrees: Counter[Node] = Counter()
    for node, degree in zip(graph.nodes_of(place, list(summary.connected)), summary.connected.values(), strict=True):
        degrees[node] += degree
    types: Counter[str] = Counter()
    spellings: dict[str, str] = {}
    for spelling, count in summary.relationship_types.items():
        types[spellings.setdefault(name_key(spelling), spelling)] += count
    entity_types: Counter[str] = Counter()
    for kind, count in summary.entity_types.items():
        entity_types[kind.lower()] += count
    expand = partial(graph.edges, direction=request.direction, relationships=wanted)
    best = sorted(degrees, key=lambda node: (-degrees[node], node))[: request.limit]
    walked = walk(best, expand, 1, len(best))
    chosen = {node: walked.reached[node] for node in best}
    return GraphFound(
        entities=_entities(graph, walked, chosen, graph.memory_counts(best)),
        entities_traversed=len(best),
        relationships_found=len(walked.edges),
        relationship_types=dict(types.most_common(TYPES)),
        entity_types=dict(entity_types.most_common(TYPES)),
        total_entities=summary.entities,
        total_relationships=summary.relationships,
        topics=tuple(summary.topics[:TOPICS]),
    )


def _entities(
    graph: JoinedGraph, walked: Walk, chosen: Mapping[Node, Reached], counts: Mapping[Node, int]
) -> tuple[GraphEntity, ...]:
    """The chosen entities, each with the edges of the walk that begin or end at it."""
    relationships: dict[Node, list[GraphRelationship]] = {node: [] for node in chosen}
    shown = [edge for edge in walked.edges if edge.subject in chosen or edge.target in chosen]
    facts = graph.facts(dict.fromkeys(shown[: RELATIONSHIPS * len(chosen)]))
    descriptions = graph.descriptions(list(chosen))
    for edge, support in walked.edges.items():
        ends: tuple[tuple[Node, Node, Literal["outgoing", "incoming"]], ...] = (
            (edge.subject, edge.target, "outgoing"),
            (edge.target, edge.subject, "incoming"),
        )
        for here, there, direction in ends:
            if here in chosen and len(relationships[here]) < RELATIONSHIPS:
                relationships[here].append(
                    GraphRelationship(
                        type=graph.relationship(edge.relationship),
                        target=graph.name(there),
                        direction=direction,
                        memories=support.live,
                        stale=support.stale,
                        target_type=there.type,
                        facts=tuple(facts.get(edge, ())[:FACTS]),
                    )
                )
    nowhere = "", ""
    return tuple(
        GraphEntity(
            name=graph.name(node),
            type=node.type,
            relationships=tuple(relationships[node]),
            memory_count=counts[node],
            distance=reached.distance,
            stale=counts[node] == 0,  # it is there because a memory names it, if only a forgotten one
            described_in=descriptions.get(node, nowhere)[0],
            description=descriptions.get(node, nowhere)[1],
        )
        for node, reached in chosen.items()
    )


def _memories(
    request: SearchGraph,
    graph: JoinedGraph,
    files: Sequence[Records],
    chosen: Mapping[Node, Reached],
    now: float,
    weights: Weights,
    wanted: Collection[str] | None,
) -> tuple[tuple[RecalledMemory, ...], Seen]:
    """The memories that name the chosen entities: of the nearest first, then by importance, recency and standing.

    `wanted`: those alone whose relationship to the entity is one of these.
    """
    filters = Filters(request.session_id)
    ranked: list[tuple[int, float, int, int]] = []
    known: dict[tuple[int, int], tuple[float, float, float, float]] = {}
    near = near_memories(graph, chosen, filters, request.limit, wanted)
    for place, facts_of in enumerate(near):
        named = graph.nodes_named_by(place, list(facts_of), chosen)
        for number, nodes in named.items():
            facts = facts_of[number]
            entities = [chosen[node] for node in nodes]
            recent = recency(facts.happened_at, now)
            stands = standing(facts.status, facts.valid_until, now)
            nearest = min(each.distance for each in entities)
            ranked.append((nearest, -stands * weights.final(0.0, facts.importance, recent), place, number))
            known[place, number] = connection(entities), facts.importance, recent, stands
    ranked.sort()
    seen: Seen = {}
    best = ranked[: request.limit]
    for _, _, place, number in best:
        seen.setdefault(place, []).append(number)
    records = {place: files[place].load(numbers, filters) for place, numbers in seen.items()}
    memories: dict[str, RecalledMemory] = {}
    for _, _, place, number in best:
        record = records[place].get(number)
        if record is not None and (record.id not in memories or record.scope == "user"):
            nearness, importance, recent, stands = known[place, number]
            final = stands * weights.final(nearness, importance, recent)
            memories[record.id] = as_recalled(record, Scores(final, nearness, importance, recent, graph=nearness), now)
    return tuple(memories.values()), seen


def suggest(request: Suggest, files: Sequence[Records]) -> Suggestions:
    """The names that begin so: those that most memories have first."""
    uses: Counter[str] = Counter()
    names: dict[str, str] = {}
    for records in files:
        for name, count in records.graph.uses(request.kind, request.prefix, request.session_id):
            uses[name if request.kind == "tag" else names.setdefault(name_key(name), name)] += count
    ordered = sorted(uses, key=lambda name: (-uses[name], name))
    return Suggestions(tuple(ordered[: request.limit]), len(ordered))
