"""Fits the answer of a recall into a budget of tokens. Pure.

The budget applies to the text of the whole answer as it is sent. The best memories are included whole, and the first
one that does not fit is cut at its end.
"""

from bisect import bisect_left
from typing import Final

from remembrancer.memory.text import neutralised
from remembrancer.memory.tokens import CHARACTERS_A_TOKEN, beginning_within, estimate_tokens
from remembrancer.toolsets.tools import Answer, answer_text, non_empty

HINT: Final = "An excerpt ends early: get_memory shows the full memory."
NO_ROOM: Final = "max_tokens is too small for any of them."
DISPENSABLE: Final = ("hint", "profile", "query_time_ms", "strategy_used")
"""The parts of an answer that are dropped before any memory."""


def within_budget(answer: Answer, max_tokens: int) -> Answer:
    """The answer with memories left out or cut to fit into `max_tokens`; `omitted` counts the memories left out."""
    if _fits(answer, max_tokens):
        return answer
    memories = answer["memories"]
    bare = {name: value for name, value in answer.items() if name not in DISPENSABLE}

    def with_first(number: int, beginning: str | None = None) -> Answer:
        """The first memories, and the beginning of the next one."""
        excerpts = [] if beginning is None else [{**memories[number], "content": f"{beginning} …", "excerpt": True}]
        kept = [*memories[:number], *excerpts]
        omitted = len(memories) - len(kept)
        return bare | {"memories": kept} | non_empty(omitted=omitted or None, hint=HINT if excerpts else None)

    number = bisect_left(range(len(memories)), True, key=lambda place: not _fits(with_first(place + 1), max_tokens))
    if number < len(memories):
        beginning = beginning_within(
            memories[number]["content"], max_tokens, lambda text: answer_text(with_first(number, text)), count_sent
        )
        if beginning is not None:
            return with_first(number, beginning)
    fitted = with_first(number)
    if number:
        return fitted
    if memories and _fits(fitted | {"hint": NO_ROOM}, max_tokens):
        fitted["hint"] = NO_ROOM
    if (warnings := fitted.get("warnings")) and not _fits(fitted, max_tokens):
        fitted["warnings"] = [{"code": warnings[0]["code"]}]
    return fitted


def count_sent(text: str) -> int:
    """The number of tokens of a text as it is sent."""
    return estimate_tokens(neutralised(text))


def _fits(answer: Answer, max_tokens: int) -> bool:
    text = answer_text(answer)
    return len(text) <= max_tokens * CHARACTERS_A_TOKEN and (
        len(text.encode()) <= max_tokens or count_sent(text) <= max_tokens
    )
