"""The tool `get_memory`, and the resource `memory://memory/{id}`: one memory in full."""

from typing import Any, Final

import msgspec

from remembrancer.memory.changes import spans_of
from remembrancer.memory.fields import DETAILS
from remembrancer.memory.replacement import PROBABLE
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import GetMemory, MemoryShown
from remembrancer.protocol.runs import ChainLink, LoggedPromotion
from remembrancer.protocol.writes import MemoryLink
from remembrancer.toolsets.memory.answers import copies_of, fields_of, iso, set_fields, state_of
from remembrancer.toolsets.memory.fields import Version
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

MAX_HISTORY: Final = 50
"""The number of versions that are listed, the latest ones; every version can be requested by number."""
DETAIL: Final = (
    *("importance", "confidence", "session_id", "embedded", "strength", "is_stale", "why", "found_entities"),
    *("access_count", "last_accessed", "sessions_used", "promotion_chain", "promotions", "observed_in_projects"),
    "undo_forgets",
)
"""The fields that only an answer with `detail` has."""
FORMER_TEXTS: Final = "version=N shows a former text."
LINKS: Final = frozenset({"links", "incoming_links"})
"""A contradiction below `PROBABLE` is only worth a look in Review."""
IDENTITY: Final = ("content", "type", "scope", "importance", "tags", "source")


@tool(
    "One memory with its history.",
    read_only=True,
    shows_whole_ids=True,
    aliases={"id": "memory_id"},
    unlisted=("version", "detail"),
)
async def get_memory(call: Call, memory_id: str, version: Version | None = None, detail: bool = False) -> Answer:
    """Show one memory, with its history if it has changed; with `detail`, all its fields."""
    request = GetMemory(*call.caller.viewer, parse_memory_id(memory_id), with_undo=detail)
    reply = await call.ask(request)
    if not call.is_old:
        call.service.shown(call.caller, (), used=(reply.memory.id,))
    answer = shown(reply, version)
    return answer if detail else short(answer)


def short(details: Answer) -> Answer:
    """The answer without details, improbable contradictions, empty fields, and fields with their usual value. Its
    history has days; a line without `change` is an update."""
    telling = {
        name: [each for each in details[name] if each["relation"] != "contradicts" or each["strength"] >= PROBABLE]
        for name in LINKS & details.keys()
    }
    answer = non_empty(**{name: value for name, value in (details | telling).items() if name not in DETAIL})
    if details.get("embedded") is False:
        answer["embedded"] = False
    if "done" in details:
        answer["done"] = details["done"]
    if details["status"] == "active":
        del answer["status"]
    if "kind" in details:
        del answer["type"]
    if details["version"] == 1 and "current_version" not in details:
        del answer["version"], answer["updated_at"], answer["history"]
    else:
        for entry in answer["history"]:
            del entry["session_id"]
            entry["at"] = entry["at"][:10]
            if entry["change"] == "updated":
                del entry["change"]
        if "current_version" not in details and any("content" in each.get("fields", ()) for each in answer["history"]):
            answer["hint"] = FORMER_TEXTS
    return answer


def shown(reply: MemoryShown, version: int | None = None) -> Answer:
    """One memory in full; with `version`, as it was then. Raises `InvalidInput`, which names the existing ones."""
    memory = reply.memory
    entry = next((each for each in memory.history if each.version == version), None)
    if entry is None and version is not None:
        known = spans_of(each.version for each in memory.history)
        raise InvalidInput(f"{memory.id} has no version {version}, only {known}", field="version")
    record = memory if entry is None else entry.record
    is_forgotten = memory.forgotten_at is not None if entry is None else entry.record.forgotten
    changed_at = max((memory.updated_at, *(each.changed_at for each in memory.history)))  # not the forgetting
    answer: Answer = {
        "id": memory.id,
        **fields_of(record, *IDENTITY, "metadata"),
        "related_entities": [
            {"name": entity.name, "type": entity.type, "relationship": entity.relationship, "stale": is_forgotten}
            for entity in record.related_entities
        ],
        **fields_of(record, "session_id", "confidence"),
        **set_fields(record, *DETAILS),
        **state_of(record),
        "status": "forgotten" if is_forgotten else record.status,
        "created_at": iso(memory.created_at),
        "updated_at": iso(changed_at if entry is None else entry.changed_at),
        "version": memory.version if entry is None else entry.version,
    }
    if is_forgotten:
        answer |= fields_of(record, "forgotten_reason")
    if entry is not None:
        answer["current_version"] = memory.version
    else:
        answer |= {"embedded": reply.embedded} | (fields_of(memory, "forgotten_at") if is_forgotten else {})
        if reply.strength is not None:
            answer |= {"strength": round(reply.strength, 3), "is_stale": reply.is_stale}
        answer |= non_empty(why=list(reply.reasons))
    listed = memory.history[-MAX_HISTORY:]
    answer |= non_empty(
        links=[_link(link, "target") for link in memory.links],
        incoming_links=[_link(link, "source") for link in reply.incoming],
        undo_forgets=reply.undo_forgets,
        near_duplicates=list(reply.near_duplicates),
        copies=copies_of(reply),
        access_count=memory.access_count,
        last_accessed=None if memory.last_accessed_at is None else iso(memory.last_accessed_at),
        # How the memory came to its scope, and where else it has been useful.
        promotion_chain=[_promotion(each) for each in memory.promotion_chain],
        promotions=[_promotion(promotion) for promotion in reply.promotions],
        source_project=memory.source_project,
        sessions_used=len(memory.accessed_in) or None,
        observed_in_projects=list(reply.observed_in),
        found_entities=list(reply.found_entities),
        history_omitted=len(memory.history) - len(listed) or None,
    )
    answer["history"] = [
        {"version": each.version, "change": each.change, "at": iso(each.changed_at), "session_id": each.session_id}
        | non_empty(**{name: value for name, value in each.details.items() if name != "proposal"})  # for an undo
        for each in listed
    ]
    return answer


def _link(link: MemoryLink, end: str) -> dict[str, Any]:
    """A link; `end` says at which end the other memory is."""
    return {end: link.target, "relation": link.relation, "strength": round(link.strength, 4)}


def _promotion(step: ChainLink | LoggedPromotion) -> dict[str, Any]:
    """One promotion or demotion of a memory."""
    known = msgspec.structs.asdict(step) | {"promoted_at": None, "kind": None}
    if isinstance(step, ChainLink):
        known["from_scope"] = known.pop("scope")
    return non_empty(**known | {"at": iso(step.promoted_at), "score": step.score and round(step.score, 3)})
