"""Asks a person once, through the client (elicitation), whether a new memory replaces an older one. The question comes
after the new memory is acknowledged, and no request waits for the answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from remembrancer.memory.sentences import cut_at_word
from remembrancer.memory.text import neutralised

STORES: Final = ("store_memory", "memory_store")
STORES_A_QUESTION: Final = 10
QUOTED: Final = 300
"""The number of characters of a memory quoted in a question."""
YES = "yes"
NO = "no"
BOTH = "both are true"
_RELATIONS: Final = {YES: "supersedes", BOTH: "related_to"}
_SCHEMA: Final = {
    "type": "object",
    "properties": {"decision": {"type": "string", "title": "Replace it?", "enum": [YES, NO, BOTH]}},
    "required": ["decision"],
}


@dataclass
class Questions:
    """The numbers of stored memories and of questions, across all sessions."""

    stores: int = 0
    asked: int = 0

    @property
    def is_due(self) -> bool:
        return (self.asked + 1) * STORES_A_QUESTION <= self.stores


class Asking:
    """The questions to one session. `write` sends a line to the client."""

    def __init__(self, key: str, questions: Questions, write: Callable[[bytes], None]) -> None:
        self._key = key
        self._questions = questions
        self._write = write
        self._can_ask = False
        self._pending: tuple[str, str, str] | None = None
        """The id of the open request, and the ids of the old and the new memory."""

    def note_capabilities(self, capabilities: object) -> None:
        self._can_ask = isinstance(capabilities, dict) and isinstance(capabilities.get("elicitation"), dict)

    def note_answer(self, tool: str, arguments: Mapping[str, Any], answer: Mapping[str, Any] | None) -> None:
        """Count an answered tool call. If it stored a memory that probably replaces another one, ask a question."""
        if tool not in STORES or answer is None or "error" in answer:
            return
        self._questions.stores += 1
        # Do not ask about a memory that only its session sees, or a replacement that is partial.
        others = "if_replaced", "in_part"
        near = [each for each in answer.get("near") or () if each.keys().isdisjoint(others)]
        if not near or not self._can_ask or self._pending is not None or not self._questions.is_due:
            return
        old = near[0]
        self._questions.asked += 1
        request_id = f"remembrancer-replace-{self._key}-{self._questions.asked}"
        self._pending = request_id, old["id"], old["replaced_by"]
        stored = neutralised(str(arguments.get("content", "what was just stored")))
        new = cut_at_word(old.get("newer", stored), QUOTED)
        text = f"Replace in memory:\n\n{cut_at_word(old['content'], QUOTED)}\n\nwith:\n\n{new}"
        params = {"message": text, "requestedSchema": _SCHEMA}
        request = {"jsonrpc": "2.0", "id": request_id, "method": "elicitation/create", "params": params}
        self._write(msgspec.json.encode(request) + b"\n")

    def is_asked(self, request_id: object) -> bool:
        return self._pending is not None and self._pending[0] == request_id

    def take_decision(self, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """The arguments of `update_memory`, or None for no change. Without a decision, nothing more is asked."""
        assert self._pending is not None
        (_, old, new), self._pending = self._pending, None
        content = result.get("content")
        decision = content.get("decision") if isinstance(content, dict) else None
        if result.get("action") != "accept" or decision not in (YES, NO, BOTH):
            self._can_ask = False
            return None
        relation = _RELATIONS.get(decision)
        return None if relation is None else {"memory_id": new, "add_links": [{"relation": relation, "target": old}]}
