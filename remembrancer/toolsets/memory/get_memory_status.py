from contextlib import suppress
from typing import Final

import msgspec

from remembrancer import __version__
from remembrancer.memory.sentences import cut_at_word
from remembrancer.protocol.browsing import FindUndecided, Undecided
from remembrancer.protocol.kinds import MEMORY_TYPES, SCOPES
from remembrancer.protocol.reads import DescribeStore, StoreDescription
from remembrancer.protocol.store_client import AWAY
from remembrancer.toolsets.memory.answers import iso
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

PROPOSED: Final = 200
"""The number of characters shown of a memory proposed for promotion to the user."""
DECIDED: Final = (
    "update_memory(newer_id, supersedes=older_id); "
    "if both are true, add_links=[{relation: related_to, target: older_id}]"
)
REVIEW: Final = "promote_memory accepts a proposal (target_scope user) or refuses it for good (project)"


@tool("Health and counts.", read_only=True, marks_data=False)
async def get_memory_status(call: Call) -> Answer:
    """Returns the last known figures if the store is unavailable."""
    caller, service = call.caller, call.service
    store, undecided, is_fresh, is_degraded = None, Undecided(), False, True
    with suppress(*AWAY):
        response = await service.ask(DescribeStore(*caller.viewer), call.received_at)
        store, is_fresh, is_degraded = response.reply, not response.is_old, response.is_degraded
        call.notices += response.notices if is_fresh else ()
        undecided = (await service.ask(FindUndecided(*caller.viewer, alike=False), call.received_at)).reply
    health, (depth, rejected) = service.store_health, service.queue_counts()
    answer: Answer = {
        "connection": {
            "status": "connected",
            "mode": "in-memory" if service.settings.deployment_mode == "embedded-memory" else "file-backed",
            "path": str(service.paths.database),
            "uptime_seconds": int(store.uptime_s) if store and is_fresh else 0,
            "version": __version__,
        }
    }
    if not is_fresh:
        # Still usable: the store came back while the answer was being prepared.
        answer["connection"]["status"] = "reconnecting" if health.is_reconnecting or health.usable else "degraded"
    if store is not None:
        answer |= _figures(store)
    answer["current_session"] = {
        "session_id": caller.session_id,
        "memories_this_session": store.memories_this_session if store else 0,
        "started_at": iso((store.session_started_at if store else None) or caller.started_at),
    }
    if undecided.proposals:
        answer["proposals"] = [
            {"memory_id": each.memory_id, "content": cut_at_word(each.content, PROPOSED), "reason": each.reason}
            for each in undecided.proposals
        ]
        answer["review"] = REVIEW
    if undecided.pairs:
        answer["contradictions"] = [
            {
                "newer_id": pair.newer.id,
                "newer": cut_at_word(pair.newer.content, PROPOSED),
                "older_id": pair.older.id,
                "older": cut_at_word(pair.older.content, PROPOSED),
            }
            for pair in undecided.pairs
        ]
        answer["if_replaced"] = DECIDED
    answer["write_queue"] = {"depth": depth, "rejected": rejected}
    if not is_fresh:
        last = "these are the last known figures" if store else "there are no figures yet"
        call.warn("memory_unavailable", f"{health.explain_absence()}: {last}")
    answer |= non_empty(problems=msgspec.to_builtins((await service.look(caller.project))[0]))
    if is_degraded or call.notices:
        answer["degraded"] = is_degraded
    return answer


def _figures(store: StoreDescription) -> Answer:
    counts, embedding = store.counts, store.embedding
    figures: Answer = {
        "counts": {
            **msgspec.structs.asdict(counts),
            "by_scope": {scope: counts.by_scope.get(scope, 0) for scope in SCOPES},
            "by_type": {kind: counts.by_type.get(kind, 0) for kind in MEMORY_TYPES},
        },
        "storage": {
            "database_size_bytes": store.database_bytes,
            "embedding_dimensions": embedding.dimensions,
            "embedding_model": embedding.model,
        },
        "embedding": {"engine": embedding.engine, "pending": embedding.pending, "workers": embedding.workers},
    }
    figures["embedding"] |= non_empty(is_starting=embedding.is_starting, error=embedding.error)
    return figures
