"""Fits the answer of a recall into a budget of tokens: whole memories, or their best passages. Pure.

The budget applies to the text of the whole answer as it is sent. Memories are considered best first. A memory that fits
is included whole; otherwise its best passages get what the later memories leave, but at least half of the remaining
budget. If that is not enough for any passage, they get all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import Any, Final

from remembrancer.memory.text import neutralised
from remembrancer.memory.tokens import CHARACTERS_A_TOKEN, estimate_tokens, truncate, whole_characters
from remembrancer.toolsets.memory.context_block import LEAST_CUT_TOKENS
from remembrancer.toolsets.tools import Answer, answer_text

HINT: Final = "An excerpt omits text at each …: get_memory shows the full memory."
NO_ROOM: Final = "max_tokens is too small for any of them."
JOIN_TOKENS: Final = 2
"""The tokens for the separator between two memories or two passages."""
DISPENSABLE: Final = ("hint", "profile", "query_time_ms", "strategy_used")
"""The parts of an answer that are dropped before any memory."""
OTHER_FIELDS_TOKENS: Final = 60

Range = tuple[int, int]


def within_budget(answer: Answer, passages: Sequence[Sequence[Range]], max_tokens: int) -> Answer:
    """The answer with memories left out or cut to fit into `max_tokens`; `omitted` counts the memories left out.

    `passages` holds the ranges of each memory's content, best first; an empty list means one passage, the whole
    content.
    """
    if _fits(answer, max_tokens):
        return answer
    memories = answer["memories"]
    bare = {name: value for name, value in answer.items() if name not in DISPENSABLE} | {"memories": []}
    room = max_tokens - count_sent(answer_text({**bare, "omitted": len(memories), "hint": HINT}))
    chosen = _chosen(memories, passages, room)
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


def _chosen(memories: Sequence[dict[str, Any]], passages: Sequence[Sequence[Range]], room: int) -> list[dict[str, Any]]:
    """The memories that fit into `room` tokens, whole or as excerpts, in their order."""
    chosen: list[dict[str, Any]] = []
    others = sum(_most_tokens(memory) for memory in memories)
    for memory, ranges in zip(memories, passages, strict=True):
        others -= _most_tokens(memory)
        is_short = len(memory["content"]) <= room * CHARACTERS_A_TOKEN
        best: dict[str, Any] | None = memory
        if not is_short or _tokens_of(memory) > room:
            # A short excerpt of this memory is better than a worse memory.
            best = _excerpt(memory, ranges, max(room // 2, room - others)) or _excerpt(memory, ranges, room)
        if best is not None:
            chosen.append(best)
            room -= _tokens_of(best)
    return chosen


def _tokens_of(memory: dict[str, Any]) -> int:
    return count_sent(answer_text(memory)) + JOIN_TOKENS


def _most_tokens(memory: dict[str, Any]) -> int:
    """About the most tokens that a memory takes, without counting them."""
    return len(memory["content"]) // 2 + OTHER_FIELDS_TOKENS


def _excerpt(memory: dict[str, Any], passages: Sequence[Range], most: int) -> dict[str, Any] | None:
    """The best passages of a memory that fit into `most` tokens, or else the beginning of the best one. None if there
    is no room for anything useful."""
    content: str = memory["content"]
    ranges = _proper(content, passages) or [(0, len(content))]

    def cut(chosen: Sequence[Range]) -> dict[str, Any]:
        return {**memory, "content": cut_to(content, chosen), "excerpt": True}

    room = most - _tokens_of(cut(()))
    if room < LEAST_CUT_TOKENS:
        return None
    lengths = accumulate(end - start for start, end in ranges)
    within = sum(1 for _ in takewhile(lambda length: length <= room * CHARACTERS_A_TOKEN, lengths))
    number = bisect_right(range(1, within + 1), most, key=lambda first: _tokens_of(cut(ranges[:first])))
    if number:
        return cut(ranges[:number])
    start, end = ranges[0]
    while room >= LEAST_CUT_TOKENS:
        beginning = truncate(content[start:end], room)
        if not beginning or _tokens_of(best := cut([(start, start + len(beginning))])) <= most:
            return best if beginning else None
        room -= max(1, room // 8)  # some characters take two in JSON
    return None


def cut_to(content: str, ranges: Sequence[Range]) -> str:
    """The ranges of a content in document order, with "…" for each part left out."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and not content[joined[-1][1] : start].strip():  # they overlap, or only whitespace lies between them
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    if not joined:
        return "…"
    text = " … ".join(content[start:end].strip() for start, end in joined)
    before = "… " if content[: joined[0][0]].strip() else ""
    after = " …" if content[joined[-1][1] :].strip() else ""
    return f"{before}{text}{after}"


def _proper(content: str, passages: Sequence[Range]) -> list[Range]:
    """The ranges adjusted so that no character is split."""
    ends = [(whole_characters(content, start), whole_characters(content, end)) for start, end in passages]
    return [(start, end) for start, end in ends if 0 <= start < end <= len(content)]
