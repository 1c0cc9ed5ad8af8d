"""The tool `create_entity`."""

from contextlib import suppress

from remembrancer.memory.limits import MAX_NAME, MAX_SUMMARY, check_length
from remembrancer.memory.text import clean_name
from remembrancer.protocol.ids import entity_id
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.writes import DESCRIBED_AS, EntityRef, StoredResult, StoreMemory, UpdatedResult, UpdateMemory
from remembrancer.toolsets.graph.entity_answers import look_up, title
from remembrancer.toolsets.memory.store_memory import STATED
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Make an entity, to relate with others. The same name and type is the same entity.")
async def create_entity(call: Call, name: str, entity_type: str, description: str = "") -> Answer:
    """Store an entity as a memory of the project that describes it. A known entity gets the description if that is new.

    Raises:
        InvalidInput: the name or the type is invalid.
    """
    name = clean_name(name, field="name", longest=MAX_NAME)
    kind = clean_name(entity_type, field="entity_type", longest=MAX_NAME)
    content = title(name, kind)
    if description.strip():
        check_length(description, field="description", longest=MAX_SUMMARY)
        content += f": {description.strip()}"
    memory_id = call.memory_id()
    known = None
    with suppress(*AWAY):
        asked = await call.service.ask(look_up(call, name, kind), call.received_at)
        known = next(iter(asked.reply.entities), None)
    answer: Answer = {"id": entity_id(name, kind) if known is None else entity_id(known.name, known.type)}
    if known is not None and (known.described_in != memory_id or known.memory_count > 1):
        answer["already_known"] = True
    described_in = "" if known is None else known.described_in
    if described_in and content in (known.description if known else "", title(name, kind)):
        return answer | {"memory_id": described_in}
    ids: Answer = {"id": answer["id"], "memory_id": described_in or memory_id}
    if described_in:
        await call.write(UpdateMemory(described_in, content=content), UpdatedResult, ids=ids)
        return ids | {"updated_fields": ["description"]}
    change = StoreMemory(
        memory_id=memory_id,
        content=content,
        type="semantic",
        kind="entity",
        scope="project",
        session_id=call.caller.session_id,
        related_entities=(EntityRef(name, kind, DESCRIBED_AS),),
        importance=0.1 if content == title(name, kind) else 0.5,  # a bare name answers few questions
        confidence=STATED,
        pinned=True,
    )
    await call.write(change, StoredResult, ids=ids)
    return answer | ids
