"""Fits the answer of a recall into a budget of tokens. Pure.

The budget applies to the text of the whole answer as it is sent. The best memories are included whole, and the first
one that does not fit is cut at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from remembrancer.memory.text import neutralised
from remembrancer.memory.tokens import CHARACTERS_A_TOKEN, beginning_within, estimate_tokens
from remembrancer.toolsets.tools import Answer, answer_text

HINT: Final = "An excerpt ends early: get_memory shows the full memory."
NO_ROOM: Final = "max_tokens is too small for any of them."
JOIN_TOKENS: Final = 2
"""The tokens for the separator between two memories."""
DISPENSABLE: Final = ("hint", "profile", "query_time_ms", "strategy_used")
"""The parts of an answer that are dropped before any memory."""


def within_budget(answer: Answer, max_tokens: int) -> Answer:
    """The answer with memories left out or cut to fit into `max_tokens`; `omitted` counts the memories left out."""
    if _fits(answer, max_tokens):
        return answer
    memories = answer["memories"]
    bare = {name: value for name, value in answer.items() if name not in DISPENSABLE} | {"memories": []}
    room = max_tokens - count_sent(answer_text({**bare, "omitted": len(memories), "hint": HINT}))
    chosen = _chosen(memories, room)
    while chosen:
        fitted = {**bare, "memories": chosen}
        if len(chosen) < len(memories):
            fitted["omitted"] = len(memories) - len(chosen)
        if any("excerpt" in memory for memory in chosen):
            fitted["hint"] = HINT
        if _fits(fitted, max_tokens):
            return fitted
        chosen.pop()  # a joined text may have more tokens than its parts
    if memories:
        bare["omitted"] = len(memories)
        if _fits(bare | {"hint": NO_ROOM}, max_tokens):
            bare["hint"] = NO_ROOM
    if (warnings := bare.get("warnings")) and not _fits(bare, max_tokens):
        bare["warnings"] = [{"code": warnings[0]["code"]}]
    return bare


def count_sent(text: str) -> int:
    """The number of tokens of a text as it is sent."""
    return estimate_tokens(neutralised(text))


def _fits(answer: Answer, max_tokens: int) -> bool:
    text = answer_text(answer)
    return len(text) <= max_tokens * CHARACTERS_A_TOKEN and (
        len(text.encode()) <= max_tokens or count_sent(text) <= max_tokens
    )


def _chosen(memories: Sequence[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """The memories that fit into `room` tokens, in order; the last of them may be cut."""
    chosen: list[dict[str, Any]] = []
    for memory in memories:
        content: str = memory["content"]
        tokens = _tokens_of(memory) if len(content) <= room * CHARACTERS_A_TOKEN else room + 1
        if tokens > room:
            return [*chosen, *_excerpt(memory, room - JOIN_TOKENS)]
        chosen.append(memory)
        room -= tokens
    return chosen


def _excerpt(memory: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """The memory with the beginning of its content that fits into `most` tokens; nothing if that would be too short."""

    def cut(beginning: str) -> dict[str, Any]:
        return {**memory, "content": f"{beginning} …", "excerpt": True}

    beginning = beginning_within(memory["content"], most, lambda text: answer_text(cut(text)), count_sent)
    return [] if beginning is None else [cut(beginning)]


def _tokens_of(memory: dict[str, Any]) -> int:
    return count_sent(answer_text(memory)) + JOIN_TOKENS
