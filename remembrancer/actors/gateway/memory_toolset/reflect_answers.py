"""What `reflect_and_consolidate` answers: the promised fields, and others only where they say something. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remembrancer.actors.gateway.toolkit.tools import Answer, warnings_of
from remembrancer.protocol.consolidation import ConsolidatedMemory, Pattern, Reflected
from remembrancer.protocol.reads import Notice
from remembrancer.protocol.runs import UndoneResult


def reflected(found: Reflected) -> Answer:
    """The answer to a reflection. Without a `run_id` nothing was written."""
    answer: Answer = {
        "consolidated_memories": [_memory(each) for each in found.memories],
        "patterns_detected": [_pattern(each) for each in found.patterns],
        "session_stats": {
            "memories_analyzed": found.analyzed,
            "consolidated_into": len(found.memories),
            "patterns_found": len(found.patterns),
        },
    }
    if found.run_id is not None:
        answer["run_id"] = found.run_id
    if found.skipped:
        answer["skipped"] = found.skipped
    if found.not_embedded:
        answer["warnings"] = warnings_of([_not_embedded(found.not_embedded)])
    return answer


def undone(results: Sequence[UndoneResult]) -> Answer:
    """The answer to an undoing in one file or in two: what is as it was before, and what was left alone because it has
    changed since."""
    memories = dict.fromkeys(memory_id for result in results for memory_id in result.memories)
    answer: Answer = {"run_id": results[0].run_id, "status": "undone", "memories": list(memories)}
    skipped = [each for result in results for each in result.skipped]
    if skipped:
        answer["skipped"] = [{"memory_id": each.memory_id, "reason": each.reason} for each in skipped]
    if all(result.already for result in results):
        answer["already_undone"] = True
    return answer


def undoing(run_id: str) -> Answer:
    """The answer to an undoing that waits in the write queue."""
    return {"run_id": run_id, "status": "queued"}


def _memory(memory: ConsolidatedMemory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "content": memory.content,
        "type": memory.type,
        "derived_from": list(memory.derived_from),
        "scope": memory.scope,
    }


def _pattern(pattern: Pattern) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "pattern": pattern.pattern,
        "frequency": pattern.frequency,
        "suggested_scope": pattern.suggested_scope,
    }
    if pattern.memory_id is not None:
        shown["memory_id"] = pattern.memory_id
    return shown


def _not_embedded(count: int) -> Notice:
    memories = "1 memory has" if count == 1 else f"{count} memories have"
    return Notice("not_embedded", f"{memories} no vectors yet and could not be looked at: call again in a moment.")
