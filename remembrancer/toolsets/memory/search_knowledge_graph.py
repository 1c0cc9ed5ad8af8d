"""The `search_knowledge_graph` tool: how entities are related, according to the memories."""

from typing import Annotated

from msgspec import Meta

from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.text import clean_name
from remembrancer.protocol.reads import Direction, GraphEntity, GraphFound, SearchGraph
from remembrancer.toolsets.memory.answers import memory_of, set_fields
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool


@tool(
    "How entities relate.",
    read_only=True,
    unlisted=("relationship_type", "direction", "depth", "include_memories", "limit"),
)
async def search_knowledge_graph(
    call: Call,
    entity: str = "",
    relationship_type: str = "",
    direction: Direction = "both",
    depth: Annotated[int, Meta(ge=1, le=3)] = 1,
    include_memories: bool = True,
    limit: Annotated[int, Meta(ge=1, le=100)] = 20,
) -> Answer:
    """Without an entity, returns an overview. An unknown entity is not an error."""
    request = SearchGraph(
        *call.caller.viewer,
        entity=_name(entity, "entity"),
        relationship_type=_name(relationship_type, "relationship_type"),
        direction=direction,
        depth=depth,
        include_memories=include_memories,
        limit=limit,
    )
    graph = await call.ask(request, is_search=True)
    if request.entity is not None and request.include_memories:
        ids = [memory.id for memory in graph.memories]
        counted = () if call.is_old else ids
        call.service.shown(call.caller, ids, counted=counted, tool=call.tool, question=request.entity)
    return _answer(graph)


def _name(name: str, field: str) -> str | None:
    return None if not name.strip() else clean_name(name, field=field, longest=MAX_NAME)


def _answer(graph: GraphFound) -> Answer:
    answer: Answer = {
        "entities": [_entity(entity) for entity in graph.entities],
        "memories": [memory_of(memory) for memory in graph.memories],
        "graph_stats": {
            "entities_traversed": graph.entities_traversed,
            "relationships_found": graph.relationships_found,
            "depth_reached": graph.depth_reached,
        },
    }
    if graph.total_entities:
        answer["totals"] = {"entities": graph.total_entities, "relationships": graph.total_relationships}
    return answer | non_empty(
        relationship_types=graph.relationship_types,
        entity_types=graph.entity_types,
        topics=[{"label": topic.label, "entities": list(topic.entities)} for topic in graph.topics],
        suggestions=list(graph.suggestions),
    )


def _entity(entity: GraphEntity) -> Answer:
    edges = [
        {"type": edge.type, "target": edge.target, "direction": edge.direction}
        | non_empty(stale=edge.stale)
        | (set_fields(edge.facts[0], "valid_from", "valid_until") if edge.facts else {})
        for edge in entity.relationships
    ]
    fields: Answer = {"name": entity.name, "type": entity.type, "relationships": edges}
    return fields | non_empty(memory_count=entity.memory_count, distance=entity.distance or None, stale=entity.stale)
