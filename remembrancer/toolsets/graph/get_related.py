"""The tool `get_related`."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from remembrancer.protocol.ids import entity_id as id_of
from remembrancer.protocol.ids import parse_entity_id
from remembrancer.protocol.reads import Direction, GraphEntity, GraphRelationship
from remembrancer.protocol.wire import Notice
from remembrancer.toolsets.graph.entity_answers import entity_of, look_up, unknown_entity
from remembrancer.toolsets.memory.answers import VALIDITY, set_fields
from remembrancer.toolsets.tools import Answer, Call, tool

MOST: Final = 100
"""Entities in one answer."""
_DIRECTIONS: Final[dict[str, Direction]] = {
    **{"out": "outgoing", "in": "incoming", "both": "both"},
    **{"outgoing": "outgoing", "incoming": "incoming"},  # as `search_knowledge_graph` has them
}


@tool("An entity, those related to it, the nearest first, and the relations.", read_only=True)
async def get_related(
    call: Call,
    entity_id: str,
    depth: Annotated[int, Meta(ge=1, le=5)] = 1,
    direction: Literal["out", "in", "both", "outgoing", "incoming"] = "both",
) -> Answer:
    """Walk breadth first from the entity. Relations that are no longer valid are marked, and followed last.

    Raises:
        NotFound: there is no such entity.
        MemoryUnavailable: the store is away.
    """
    name, kind = parse_entity_id(entity_id, field="entity_id")
    question = msgspec.structs.replace(
        look_up(call, name, kind), depth=depth, direction=_DIRECTIONS[direction], limit=MOST
    )
    found = await call.ask(question)
    if not found.entities:
        raise unknown_entity(entity_id, "entity_id")
    first, *others = found.entities
    shown = {id_of(entity.name, entity.type) for entity in found.entities}
    relations = {
        (edge.type, *ends): _relation(edge, ends)
        for entity in found.entities
        for edge in entity.relationships
        if shown.issuperset(ends := _ends(entity, edge))
    }
    if found.entities_traversed > MOST:
        text = f"Only the nearest {MOST} are shown: there are more within that depth."
        call.notices.append(Notice("more_entities", text))
    return {
        "entity": entity_of(first),
        "related": [entity_of(other) | {"distance": other.distance} for other in others],
        "relations": list(relations.values()),
    }


def _ends(entity: GraphEntity, edge: GraphRelationship) -> tuple[str, str]:
    here, there = id_of(entity.name, entity.type), id_of(edge.target, edge.target_type)
    return (here, there) if edge.direction == "outgoing" else (there, here)


def _relation(edge: GraphRelationship, ends: tuple[str, str]) -> dict[str, Any]:
    shown: Answer = {"from_id": ends[0], "to_id": ends[1], "relation_type": edge.type}
    shown |= {"valid": False} if edge.stale else {}
    facts = [{"id": fact.memory_id, **set_fields(fact, "weight", *VALIDITY)} for fact in edge.facts]
    return {**facts[0], **shown, **({"also": facts[1:]} if facts[1:] else {})} if facts else shown
