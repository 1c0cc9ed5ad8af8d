"""The tool `reflect_and_consolidate`: asks the consolidator, by way of the store, to run, or to undo a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from remembrancer.memory.text import clean_name, shown
from remembrancer.protocol.consolidation import Reflect, Reflected, ReflectStrategy
from remembrancer.protocol.errors import DeadlineExceeded, InvalidInput, NotFound
from remembrancer.protocol.runs import ApplyRun, UndoneResult, UndoRun
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import Operation
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool, with_caveats

MAX_RUN_ID: Final = 100


class ReflectAndConsolidateArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str | None = None
    strategy: ReflectStrategy | None = None
    dry_run: bool | None = None
    undo: str | None = None


@tool("Sum up a session.", unlisted=("session_id", "strategy", "dry_run", "undo"))
async def reflect_and_consolidate(call: Call, arguments: ReflectAndConsolidateArguments) -> Answer:
    """Consolidate, or with a dry run list what would change; or undo a run and report the result."""
    run_id = run_to_undo(arguments)
    strategy = strategy_of(arguments, call.caller.session_id)
    if run_id is not None:
        return await _undo(call, run_id)
    caller, service = call.caller, call.service
    request = Reflect(
        project=caller.project,
        session_id=caller.session_id,
        about=caller.session_id,
        strategy=strategy,
        dry_run=bool(arguments.dry_run),
        operation_id=call.operation_id,
    )
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
        run = ApplyRun(reflected.run_id, "project", "consolidation", "summarize_cluster", ())
        service.applied([Operation(request.operation_id, caller.project, caller.session_id, call.received_at, run)])
    return _reflected(reflected)


def strategy_of(arguments: ReflectAndConsolidateArguments, session_id: str) -> ReflectStrategy:
    """The work to do with the session's own memories. Raises `InvalidInput` if another session is named."""
    if arguments.session_id is not None and arguments.session_id.strip() != session_id:
        message = (
            f"session_id must be the current session's ({session_id}) or left out, not {shown(arguments.session_id)}: "
            "another session's private memories cannot be used"
        )
        raise InvalidInput(message, field="session_id")
    return arguments.strategy or "full"


def run_to_undo(arguments: ReflectAndConsolidateArguments) -> str | None:
    """The id of the run to undo; None if a reflection is requested instead.

    Raises:
        InvalidInput: it is not an id, or a reflection is requested at the same time.
    """
    if arguments.undo is None:
        return None
    others = [name for name in ("strategy", "dry_run") if getattr(arguments, name) is not None]
    if others:
        raise InvalidInput(f"undo and {others[0]} do not go together: undo alone undoes a run", field="undo")
    return clean_name(arguments.undo, field="undo", longest=MAX_RUN_ID)


async def _undo(call: Call, run_id: str) -> Answer:
    """Undo the changes that the run made in the project and to the user's memories, which are two files."""
    unknown: NotFound | None = None
    written = []
    try:
        written.append(await call.submit(UndoRun(run_id, "project")))
    except NotFound as error:  # the store does not know the tool's arguments
        unknown = NotFound(error.message, field="undo")
    if call.caller.project.sees_user:
        written.append(await call.submit(UndoRun(run_id, "user", if_there=True), part=" user"))
    results = [each.result for each in written if isinstance(each.result, UndoneResult)]
    known = [result for result in results if result.found]
    if known:
        answer = _undone(known)
    elif unknown is not None and len(results) == len(written):
        raise unknown
    else:
        answer = {"run_id": run_id, "status": "queued"}
    notices = dict.fromkeys(notice for each in written for notice in each.notices)
    return with_caveats(answer, notices, degraded=any(each.degraded for each in written))


def _reflected(reflected: Reflected) -> Answer:
    """The answer to a reflection. Without a `run_id`, nothing was written."""
    answer: Answer = {
        "consolidated_memories": [
            {
                "id": memory.id,
                "content": memory.content,
                "type": memory.type,
                "derived_from": list(memory.derived_from),
                "scope": memory.scope,
            }
            for memory in reflected.memories
        ],
        "patterns_detected": [
            {"pattern": pattern.pattern, "frequency": pattern.frequency, "suggested_scope": pattern.suggested_scope}
            | non_empty(memory_id=pattern.memory_id)
            for pattern in reflected.patterns
        ],
        "session_stats": {
            "memories_analyzed": reflected.analyzed,
            "consolidated_into": len(reflected.memories),
            "patterns_found": len(reflected.patterns),
        },
    }
    answer |= non_empty(run_id=reflected.run_id, skipped=reflected.skipped or None)
    if not reflected.not_embedded:
        return answer
    count = "1 memory has" if reflected.not_embedded == 1 else f"{reflected.not_embedded} memories have"
    text = f"{count} no vectors yet and could not be looked at: call again in a moment."
    return with_caveats(answer, [Notice("not_embedded", text)])


def _undone(results: Sequence[UndoneResult]) -> Answer:
    """The restored memories, and those left alone because they have changed since."""
    memories = dict.fromkeys(memory_id for result in results for memory_id in result.memories)
    answer: Answer = {"run_id": results[0].run_id, "status": "undone", "memories": list(memories)}
    skipped = [each for result in results for each in result.skipped]
    return answer | non_empty(
        skipped=[{"memory_id": each.memory_id, "reason": each.reason} for each in skipped],
        already_undone=all(result.already for result in results),
    )
