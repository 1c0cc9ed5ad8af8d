"""What resources can say without the store, from the memories that recent and queued writes made. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from remembrancer.protocol.reads import GraphEntity, GraphFound, GraphRelationship, SessionDescription
from remembrancer.protocol.writes import EntityRef, PortableMemory

MAX_TOPICS: Final = 10

_Node = tuple[str, str]
"""An entity: its name and its type."""


def known_story(made: Iterable[PortableMemory], session_id: str) -> SessionDescription:
    """What a session is known to have stored."""
    own = [memory for memory in made if memory.session_id == session_id]
    topics = Counter(topic for memory in own for topic in _topics_of(memory))
    return SessionDescription(
        started_at=None,
        stored_by_type=dict(Counter(memory.type for memory in own)),
        stored_by_scope=dict(Counter(memory.scope for memory in own)),
        changes={},
        topics=tuple(topic for topic, _ in topics.most_common(MAX_TOPICS)),
    )


def known_graph(made: Iterable[PortableMemory], limit: int) -> GraphFound:
    """The best connected entities of these memories, and how many entities and relationships there are in them."""
    memories: Counter[_Node] = Counter()
    edges: dict[tuple[_Node, str, _Node], None] = {}
    for memory in made:
        nodes = [_node_of(entity) for entity in memory.related_entities]
        memories.update(set(nodes))
        for entity in memory.related_entities[1:]:
            if _node_of(entity) != nodes[0]:
                edges[nodes[0], entity.relationship, _node_of(entity)] = None
    related: defaultdict[_Node, list[GraphRelationship]] = defaultdict(list)
    for subject, relationship, target in edges:
        related[subject].append(GraphRelationship(relationship, target[0], "outgoing"))
        related[target].append(GraphRelationship(relationship, subject[0], "incoming"))
    best = sorted(memories, key=lambda node: (-len(related[node]), -memories[node], node))[:limit]
    return GraphFound(
        entities=tuple(GraphEntity(*node, tuple(related[node]), memories[node]) for node in best),
        relationship_types=dict(Counter(relationship for _, relationship, _ in edges)),
        total_entities=len(memories),
        total_relationships=len(edges),
        entity_types=dict(Counter(kind for _, kind in memories)),
    )


def _node_of(entity: EntityRef) -> _Node:
    return entity.name, entity.type


def _topics_of(memory: PortableMemory) -> Sequence[str]:
    return list(dict.fromkeys([*(entity.name for entity in memory.related_entities), *memory.tags]))
