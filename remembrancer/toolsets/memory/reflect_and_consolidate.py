"""The `reflect_and_consolidate` tool: asks the consolidator, through the store, to run or to undo a run."""

from collections.abc import Mapping
from typing import Final

import msgspec

from remembrancer.memory.text import clean_name, count, quote
from remembrancer.protocol.consolidation import Reflect, Reflected, ReflectStrategy
from remembrancer.protocol.errors import DeadlineExceeded, InvalidInput, NotFound
from remembrancer.protocol.runs import IMPORTS, ApplyRun, UndoneResult, UndoRun
from remembrancer.toolsets.tools import Answer, Call, Queued, non_empty, tool

MAX_RUN_ID: Final = 100


@tool("Sum up a session.", unlisted=("session_id", "strategy", "dry_run", "undo"))
async def reflect_and_consolidate(
    call: Call,
    session_id: str | None = None,
    strategy: ReflectStrategy | None = None,
    dry_run: bool | None = None,
    undo: str | None = None,
) -> Answer:
    caller, service = call.caller, call.service
    if session_id is not None and session_id.strip() != caller.session_id:
        message = (
            f"session_id must be the current session's ({caller.session_id}) or left out, not {quote(session_id)}: "
            "another session's private memories cannot be used"
        )
        raise InvalidInput(message, field="session_id")
    if undo is not None:
        for name, value in (("strategy", strategy), ("dry_run", dry_run)):
            if value is not None:
                raise InvalidInput(f"undo cannot be combined with {name}; undo alone undoes a run", field="undo")
        return await _undo(call, clean_name(undo, field="undo", longest=MAX_RUN_ID))
    request = Reflect(*caller.viewer, call.operation_id, strategy or "full", bool(dry_run))
    budget_s = service.settings.reflect_budget_s
    try:
        reflected = await service.require(request, budget_s)
    except DeadlineExceeded as error:
        message = (
            f"the reflection did not finish within {budget_s:g} s. It may still run: its results will be "
            "found by recall. Call again to see the remaining work"
        )
        raise DeadlineExceeded(message) from error
    if reflected.run_id is not None:  # the consolidator writes without the gateway; resources may have changed
        run = ApplyRun(reflected.run_id, "project", "consolidation", ())
        service.applied(call.operation(run))
    return _reflected(call, reflected)


async def _undo(call: Call, run_id: str) -> Answer:
    """One operation for each part, since they may be in different lanes, which have separate transactions."""
    unknown: NotFound | None = None
    results: dict[str, object] = {}
    parts: dict[str, UndoRun] = {"": UndoRun(run_id, "project")}
    if run_id.startswith(IMPORTS):
        parts[" session"] = UndoRun(run_id, "session", if_there=True)
    if call.caller.project.sees_user:
        parts[" user"] = UndoRun(run_id, "user", if_there=True)
    for part, change in parts.items():
        try:
            results[change.place] = await call.submit(change, part=part)
        except NotFound as error:  # the store's error cannot name the tool's argument
            unknown = NotFound(error.message, field="undo")
    if known := {place: each for place, each in results.items() if isinstance(each, UndoneResult) and each.found}:
        return _undone(run_id, known)
    if unknown is not None and None not in results.values():
        raise unknown
    raise Queued({"run_id": run_id})


def _reflected(call: Call, reflected: Reflected) -> Answer:
    """Without a `run_id`, nothing was written."""
    answer: Answer = {
        "consolidated_memories": msgspec.to_builtins(reflected.memories),
        "patterns_detected": [
            {name: value for name, value in msgspec.to_builtins(each).items() if name != "derived_from"}
            for each in reflected.patterns
        ],
        "session_stats": {
            "memories_analyzed": reflected.analyzed,
            "consolidated_into": len(reflected.memories),
            "patterns_found": len(reflected.patterns),
        },
    }
    answer |= non_empty(run_id=reflected.run_id, skipped=reflected.skipped or None)
    if reflected.not_embedded:
        memories = count(reflected.not_embedded, "memory")
        call.warn("not_embedded", f"Not considered, as they have no vectors yet: {memories}. Call again in a moment.")
    return answer


def _undone(run_id: str, results: Mapping[str, UndoneResult]) -> Answer:
    memories = dict.fromkeys(memory_id for result in results.values() for memory_id in result.memories)
    answer: Answer = {"run_id": run_id, "status": "undone", "memories": list(memories)}
    skipped = dict.fromkeys(each for result in results.values() for each in result.skipped)
    return answer | non_empty(
        of_user=results["user"].memories if "user" in results else None,
        skipped=[{"memory_id": each.memory_id, "reason": each.reason} for each in skipped],
        already_undone=all(result.already for result in results.values()),
    )
