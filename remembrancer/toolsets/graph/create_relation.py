"""The tool `create_relation`."""

from typing import Annotated

import msgspec
from msgspec import Meta

from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.names import name_key
from remembrancer.memory.text import clean_name
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import MENTIONED_WITH, EntityRef, StoredResult, StoreMemory
from remembrancer.toolsets.graph.entity_answers import entity_named, title
from remembrancer.toolsets.memory.fields import cleaned
from remembrancer.toolsets.memory.store_memory import STATED
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool


class RelationToCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    from_id: str
    to_id: str
    relation_type: str
    weight: Annotated[float, Meta(ge=0, extra_json_schema={"default": 1})] | None = None
    valid_from: str | None = None
    valid_until: str | None = None


@tool("Relate two entities. The relation is a fact with an id of its own.")
async def create_relation(call: Call, arguments: RelationToCreate) -> Answer:
    """Store a relation as a memory of the project. Storing the same relation again returns the known one, and sets its
    weight if another is given.

    Raises:
        NotFound: one of the entities does not exist.
        InvalidInput: both are the same, or a field is invalid.
    """
    relation = clean_name(arguments.relation_type, field="relation_type", longest=MAX_NAME)
    valid = cleaned(arguments)
    start, start_type = await entity_named(call, arguments.from_id, "from_id")
    end, end_type = await entity_named(call, arguments.to_id, "to_id")
    if (name_key(start), start_type.lower()) == (name_key(end), end_type.lower()):
        raise InvalidInput("to_id must be another entity than from_id", field="to_id")
    words = " ".join(relation.replace("_", " ").split())
    change = StoreMemory(
        memory_id=call.memory_id(),
        content=f"{title(start, start_type)} {words} {title(end, end_type)}",
        type="semantic",
        kind="fact",
        scope="project",
        session_id=call.caller.session_id,
        related_entities=(
            EntityRef(start, start_type, MENTIONED_WITH),
            EntityRef(end, end_type, relation, subject=start),
        ),
        metadata={} if arguments.weight is None else {"weight": arguments.weight},
        confidence=STATED,
        pinned=True,
        **valid,
    )
    result = await call.write(change, StoredResult, ids={"id": change.memory_id})
    answer: Answer = {"id": result.memory_id, "content": change.content}
    updated = ["weight"] if "metadata" in result.updated_fields else []
    return answer | non_empty(already_known=result.already_known and not updated, updated_fields=updated)
