"""What `search_knowledge_graph` answers: the promised fields, and others only where they say something. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remembrancer.actors.gateway.memory_toolset.memory_answers import memory_of
from remembrancer.actors.gateway.toolkit.tools import Answer, warnings_of
from remembrancer.protocol.reads import GraphEntity, GraphFound, GraphRelationship, Notice, RecalledMemory


def graph_found(found: GraphFound, notices: Sequence[Notice], *, degraded: bool) -> Answer:
    """The answer with what the store found. `notices` are those that come with it, whoever makes them."""
    answer: Answer = {
        "entities": [_entity(entity) for entity in found.entities],
        "memories": [memory_of(memory) for memory in found.memories],
        "graph_stats": {
            "entities_traversed": found.entities_traversed,
            "relationships_found": found.relationships_found,
            "depth_reached": found.depth_reached,
        },
    }
    if found.relationship_types:
        answer["relationship_types"] = found.relationship_types
    if found.entity_types:
        answer["entity_types"] = found.entity_types
    if found.total_entities:
        answer["totals"] = {"entities": found.total_entities, "relationships": found.total_relationships}
    if found.topics:
        answer["topics"] = [{"label": topic.label, "entities": list(topic.entities)} for topic in found.topics]
    if found.suggestions:
        answer["suggestions"] = list(found.suggestions)
    if degraded:
        answer["degraded"] = True
    if notices:
        answer["warnings"] = warnings_of(notices)
    return answer


def memories_alone(memories: Sequence[RecalledMemory], notices: Sequence[Notice]) -> Answer:
    """The answer while nobody can walk the graph: memories that are known here and have the name in them."""
    return graph_found(GraphFound((), tuple(memories)), notices, degraded=True)


def _entity(entity: GraphEntity) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": entity.name,
        "type": entity.type,
        "relationships": [_relationship(each) for each in entity.relationships],
        "memory_count": entity.memory_count,
    }
    if entity.distance:
        shown["distance"] = entity.distance
    if entity.stale:
        shown["stale"] = True
    return shown


def _relationship(relationship: GraphRelationship) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": relationship.type,
        "target": relationship.target,
        "direction": relationship.direction,
    }
    if relationship.stale:
        shown["stale"] = True
    return shown
