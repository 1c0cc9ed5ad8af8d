"""The `get_memory` tool and the `memory://memory/{id}` resource, which return one memory in full."""

from typing import Any, Final

import msgspec

from remembrancer.memory.changes import spans_of
from remembrancer.memory.fields import DETAILS
from remembrancer.memory.replacement import PROBABLE
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import GetMemory, MemoryShown
from remembrancer.protocol.runs import ChainLink, LoggedPromotion
from remembrancer.protocol.writes import HistoryEntry, MemoryLink
from remembrancer.toolsets.memory.answers import copies_of, fields_of, iso, set_fields, state_of
from remembrancer.toolsets.memory.fields import Version
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

MAX_HISTORY: Final = 50
"""Older versions are not listed, but can be requested."""
FORMER_TEXTS: Final = "version=N shows an earlier text."
IDENTITY: Final = ("content", "type", "scope", "tags", "source", "metadata")


@tool(
    "A memory with its history.",
    read_only=True,
    shows_whole_ids=True,
    aliases={"id": "memory_id"},
    unlisted=("version", "detail"),
)
async def get_memory(call: Call, memory_id: str, version: Version | None = None, detail: bool = False) -> Answer:
    request = GetMemory(*call.caller.viewer, parse_memory_id(memory_id), with_undo=detail)
    reply = await call.ask(request)
    if not call.is_old:
        call.service.shown(call.caller, (), used=(reply.memory.id,))
    return answer_of(reply, version, detail=detail)


def answer_of(reply: MemoryShown, version: int | None = None, *, detail: bool = True) -> Answer:
    """Raises `InvalidInput`, listing the versions, for an unknown one. Without `detail`, usual values are omitted."""
    memory = reply.memory
    entry = next((each for each in memory.history if each.version == version), None)
    if entry is None and version is not None:
        known = spans_of(each.version for each in memory.history)
        raise InvalidInput(f"{memory.id} has no version {version}, only {known}", field="version")
    record = memory if entry is None else entry.record
    is_forgotten = memory.forgotten_at is not None if entry is None else entry.record.forgotten
    changed_at = max((memory.updated_at, *(each.changed_at for each in memory.history)))  # forgetting does not count
    listed = memory.history[-MAX_HISTORY:]
    answer: Answer = {
        "id": memory.id,
        **fields_of(record, *IDENTITY),
        "related_entities": [
            {"name": entity.name, "type": entity.type, "relationship": entity.relationship, "stale": is_forgotten}
            for entity in record.related_entities
        ],
        **set_fields(record, *DETAILS),
        "status": "forgotten" if is_forgotten else record.status,
        "created_at": iso(memory.created_at),
        "updated_at": iso(changed_at if entry is None else entry.changed_at),
        "version": memory.version if entry is None else entry.version,
        **(fields_of(record, "forgotten_reason") if is_forgotten else {}),
        **(fields_of(memory, "forgotten_at") if is_forgotten and entry is None else {}),
        **non_empty(
            current_version=entry and memory.version,
            links=[_link(each, "target") for each in memory.links if detail or _is_sure(each)],
            incoming_links=[_link(each, "source") for each in reply.incoming if detail or _is_sure(each)],
            near_duplicates=list(reply.near_duplicates),
            copies=copies_of(reply),
            source_project=memory.source_project,
            history_omitted=len(memory.history) - len(listed) or None,
        ),
        "history": [_entry(each, detail=detail) for each in listed],
    }
    if detail:
        return answer | state_of(record) | _details(reply, entry)
    if entry is None and memory.version == 1:
        del answer["version"], answer["updated_at"], answer["history"]
    elif entry is None and any("content" in each.details.get("fields", ()) for each in listed):
        answer["hint"] = FORMER_TEXTS
    if answer["status"] == "active":
        del answer["status"]
    if "kind" in answer:
        del answer["type"]
    return non_empty(**answer) | state_of(record) | ({} if entry or reply.embedded else {"embedded": False})


def _details(reply: MemoryShown, entry: HistoryEntry | None) -> Answer:
    memory = reply.memory
    answer = fields_of(memory if entry is None else entry.record, "importance", "session_id", "confidence")
    if entry is None:
        answer |= {"embedded": reply.embedded, **non_empty(why=list(reply.reasons))}
        if reply.strength is not None:
            answer |= {"strength": round(reply.strength, 3), "is_stale": reply.is_stale}
    return answer | non_empty(
        undo_forgets=reply.undo_forgets,
        access_count=memory.access_count,
        last_accessed=None if memory.last_accessed_at is None else iso(memory.last_accessed_at),
        # How the memory reached its scope, and where else it has been useful.
        promotion_chain=[_promotion(each) for each in memory.promotion_chain],
        promotions=[_promotion(promotion) for promotion in reply.promotions],
        sessions_used=len(memory.accessed_in) or None,
        observed_in_projects=list(reply.observed_in),
        found_entities=list(reply.found_entities),
    )


def _entry(entry: HistoryEntry, *, detail: bool) -> Answer:
    line: Answer = {"version": entry.version}
    if detail:
        line |= {"change": entry.change, "at": iso(entry.changed_at), "session_id": entry.session_id}
    else:
        line |= non_empty(change=entry.change != "updated" and entry.change, at=iso(entry.changed_at)[:10])
    return line | non_empty(**{name: value for name, value in entry.details.items() if name != "proposal"})


def _is_sure(link: MemoryLink) -> bool:
    """False for a possible contradiction that only Review should show."""
    return link.relation != "contradicts" or link.strength >= PROBABLE


def _link(link: MemoryLink, end: str) -> dict[str, Any]:
    return {end: link.target, "relation": link.relation, "strength": round(link.strength, 4)}


def _promotion(step: ChainLink | LoggedPromotion) -> dict[str, Any]:
    known = msgspec.structs.asdict(step) | {"promoted_at": None, "kind": None}
    if isinstance(step, ChainLink):
        known["from_scope"] = known.pop("scope")
    return non_empty(**known | {"at": iso(step.promoted_at), "score": step.score and round(step.score, 3)})
