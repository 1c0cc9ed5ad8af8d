"""Names and shows entities for the tools of this toolset."""

from typing import Any

from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.text import clean_name
from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.ids import entity_id, parse_entity_id
from remembrancer.protocol.reads import GraphEntity, SearchGraph
from remembrancer.protocol.store_client import AWAY
from remembrancer.toolsets.tools import Call, non_empty


def title(name: str, kind: str) -> str:
    """An entity's name within a sentence."""
    return f"{name} ({kind})"


def look_up(call: Call, name: str, kind: str) -> SearchGraph:
    """The question for one entity."""
    return SearchGraph(
        call.caller.project, call.caller.session_id, name, include_memories=False, limit=1, entity_type=kind
    )


async def entity_named(call: Call, given: str, field: str) -> tuple[str, str]:
    """The name and type of the entity with an id, spelled as in the store, or as in the id if the store is away.

    Raises:
        InvalidInput: it is not an id.
        NotFound: the caller can see no such entity.
    """
    name, kind = parse_entity_id(given, field=field)
    name, kind = clean_name(name, field=field, longest=MAX_NAME), clean_name(kind, field=field, longest=MAX_NAME)
    try:
        asked = await call.service.ask(look_up(call, name, kind), call.received_at)
    except AWAY:
        return name, kind
    if asked.reply.entities:
        return asked.reply.entities[0].name, asked.reply.entities[0].type
    if asked.is_old:  # it may have been created since
        return name, kind
    raise unknown_entity(given, field)


def unknown_entity(given: str, field: str) -> NotFound:
    """The error for an id without an entity that the caller can see."""
    return NotFound(f"there is no entity with the id {given[:200]}", field=field)


def entity_of(entity: GraphEntity) -> dict[str, Any]:
    """An entity with its description."""
    fields = {"id": entity_id(entity.name, entity.type), "name": entity.name, "entity_type": entity.type}
    return fields | non_empty(description=description_in(entity))


def description_in(entity: GraphEntity) -> str:
    """The description in a memory that describes an entity, without the name."""
    before, _, rest = entity.description.partition(": ")
    if before.casefold() == title(entity.name, entity.type).casefold():
        return rest
    return entity.description if rest else ""
