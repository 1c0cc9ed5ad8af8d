"""Tools for entities and their relations."""

from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from remembrancer.memory.fields import clean_line
from remembrancer.memory.limits import MAX_NAME, MAX_SUMMARY
from remembrancer.memory.names import name_key
from remembrancer.memory.text import clean_name
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import entity_id as id_of
from remembrancer.protocol.ids import parse_entity_id
from remembrancer.protocol.reads import Direction, GraphEntity, GraphRelationship, SearchGraph
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.writes import (
    DESCRIBED_AS,
    MENTIONED_WITH,
    EntityRef,
    StoredResult,
    UpdatedResult,
    UpdateMemory,
)
from remembrancer.toolsets.memory.answers import VALIDITY, set_fields
from remembrancer.toolsets.memory.fields import cleaned
from remembrancer.toolsets.memory.store_memory import project_memory
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

MOST_ENTITIES: Final = 100
_DIRECTIONS: Final[dict[str, Direction]] = {"out": "outgoing", "in": "incoming", "both": "both"}


def title(name: str, kind: str) -> str:
    return f"{name} ({kind})"


def look_up(call: Call, name: str, kind: str) -> SearchGraph:
    return SearchGraph(*call.caller.viewer, name, include_memories=False, limit=1, entity_type=kind)


async def entity_named(call: Call, given: str, field: str) -> tuple[str, str]:
    """The name and type of the entity with this id, spelled as in the store. Raises `InvalidInput` or `NotFound`."""
    name, kind = parse_entity_id(given, field=field)
    name, kind = clean_name(name, field=field, longest=MAX_NAME), clean_name(kind, field=field, longest=MAX_NAME)
    with suppress(*AWAY):
        asked = await call.service.ask(look_up(call, name, kind), call.received_at)
        if asked.reply.entities:
            return asked.reply.entities[0].name, asked.reply.entities[0].type
        if not asked.is_old:  # an old answer may lack a new entity
            raise unknown_entity(given, field)
    return name, kind


def unknown_entity(given: str, field: str) -> NotFound:
    return NotFound(f"there is no entity with the id {given[:200]}", field=field)


def entity_of(entity: GraphEntity) -> dict[str, Any]:
    fields = {"id": id_of(entity.name, entity.type), "name": entity.name, "entity_type": entity.type}
    return fields | non_empty(description=description_in(entity))


def description_in(entity: GraphEntity) -> str:
    before, _, rest = entity.description.partition(": ")
    if before.casefold() == title(entity.name, entity.type).casefold():
        return rest
    return entity.description if rest else ""


@tool("Create an entity, to relate to others. The same name and type is the same entity.")
async def create_entity(call: Call, name: str, entity_type: str, description: str = "") -> Answer:
    """Store an entity as a project memory that describes it. A known entity gets a new description."""
    name = clean_name(name, field="name", longest=MAX_NAME)
    kind = clean_name(entity_type, field="entity_type", longest=MAX_NAME)
    content = title(name, kind)
    if description.strip():
        content += f": {clean_line(description, field='description', longest=MAX_SUMMARY)}"
    memory_id = call.memory_id()
    entity = new = GraphEntity(name, kind)
    with suppress(*AWAY):
        asked = await call.service.ask(look_up(call, name, kind), call.received_at)
        entity = next(iter(asked.reply.entities), new)
    ids: Answer = {"id": id_of(entity.name, entity.type), "memory_id": entity.described_in or memory_id}
    is_known = entity is not new and (entity.described_in != memory_id or entity.memory_count > 1)
    known: Answer = {"already_known": True} if is_known else {}
    if entity.described_in and content in (entity.description, title(name, kind)):
        return ids | known
    if entity.described_in:
        await call.write(UpdateMemory(entity.described_in, content=content), UpdatedResult, ids=ids)
        return ids | {"updated_fields": ["description"]}
    importance = 0.1 if content == title(name, kind) else 0.5  # a bare name answers few questions
    entities = (EntityRef(name, kind, DESCRIBED_AS),)
    change = project_memory(call, content, kind="entity", related_entities=entities, importance=importance)
    await call.write(change, StoredResult, ids=ids)
    return ids | known


class RelationToCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    from_id: str
    to_id: str
    relation_type: str
    weight: Annotated[float, Meta(ge=0, extra_json_schema={"default": 1})] | None = None
    valid_from: str | None = None
    valid_until: str | None = None


@tool("Relate two entities. The relation is a fact with an id of its own.")
async def create_relation(call: Call, arguments: RelationToCreate) -> Answer:
    """Store a relation as a project memory. Storing it again can change its weight."""
    relation = clean_name(arguments.relation_type, field="relation_type", longest=MAX_NAME)
    valid = cleaned(arguments)
    start, start_type = await entity_named(call, arguments.from_id, "from_id")
    end, end_type = await entity_named(call, arguments.to_id, "to_id")
    if (name_key(start), start_type.lower()) == (name_key(end), end_type.lower()):
        raise InvalidInput("to_id must not be the same entity as from_id", field="to_id")
    words = " ".join(relation.replace("_", " ").split())
    change = project_memory(
        call,
        f"{title(start, start_type)} {words} {title(end, end_type)}",
        kind="fact",
        related_entities=(
            EntityRef(start, start_type, MENTIONED_WITH),
            EntityRef(end, end_type, relation, subject=start),
        ),
        metadata={} if arguments.weight is None else {"weight": arguments.weight},
        **valid,
    )
    result = await call.write(change, StoredResult, ids={"id": change.memory_id})
    answer: Answer = {"id": result.memory_id, "content": change.content}
    updated = ["weight"] if "metadata" in result.updated_fields else []
    return answer | non_empty(already_known=result.already_known and not updated, updated_fields=updated)


@tool("An entity, its neighbours (nearest first) and relations.", read_only=True)
async def get_related(
    call: Call,
    entity_id: str,
    depth: Annotated[int, Meta(ge=1, le=5)] = 1,
    direction: Literal["out", "in", "both"] = "both",
) -> Answer:
    """Walk breadth first. Relations that are no longer valid are marked, and followed last."""
    name, kind = parse_entity_id(entity_id, field="entity_id")
    question = msgspec.structs.replace(
        look_up(call, name, kind), depth=depth, direction=_DIRECTIONS[direction], limit=MOST_ENTITIES
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
    if found.entities_traversed > MOST_ENTITIES:
        call.warn("more_entities", f"Only the nearest {MOST_ENTITIES} are shown: there are more within that depth.")
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
