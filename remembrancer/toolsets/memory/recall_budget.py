"""Fits the answer of a recall into a budget of tokens: whole memories, or their best passages. Pure.

The budget applies to the text of the whole answer as it is sent. Memories are considered best first. A memory that fits
is included whole; otherwise its best passages get up to half of the remaining budget, so that later memories get
something too. If half is not enough for any passage, they get all of it. Budget that is left at the end is again spent
on passages.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
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
"""The parts of an answer that can be dropped, in this order."""

_SENTENCE: Final = re.compile(r"[^\s].*?(?:[.!?](?=\s)|(?=\n)|\Z)", re.DOTALL)
Range = tuple[int, int]


def within_budget(
    answer: Answer,
    passages: Sequence[Sequence[Range]],
    words: frozenset[str],
    max_tokens: int,
) -> Answer:
    """The answer with memories left out or cut to fit into `max_tokens`; `omitted` counts the memories left out.

    `passages` holds the ranges of each memory's content, best first; an empty list means one passage, the whole
    content. If no passage fits, the sentence with most of the query's `words` is shown.
    """
    if _fits(answer, max_tokens):
        return answer
    memories = answer["memories"]
    for dropped in range(len(DISPENSABLE) + 1):  # drop notes before memories
        parts = {name: value for name, value in answer.items() if name not in DISPENSABLE[:dropped]}
        frame = {**parts, "memories": [], "omitted": len(memories)} | ({} if dropped else {"hint": HINT})
        chosen = _chosen(memories, passages, words, max_tokens - count_sent(answer_text(frame)))
        while chosen:
            fitted = _with(parts, chosen, len(memories) - len(chosen), with_hint=not dropped)
            if _fits(fitted, max_tokens):
                return fitted
            chosen.pop()  # a joined text may have more tokens than its parts
    bare = {**answer, "memories": []}
    if memories:
        bare |= {"omitted": len(memories), "hint": NO_ROOM}
    for name in DISPENSABLE:
        if _fits(bare, max_tokens):
            return bare
        bare.pop(name, None)
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


def _with(answer: Answer, chosen: Sequence[dict[str, Any]], omitted: int, *, with_hint: bool) -> Answer:
    fitted = {**answer, "memories": list(chosen)}
    if omitted:
        fitted["omitted"] = omitted
    if with_hint and any("excerpt" in memory for memory in chosen):
        fitted["hint"] = HINT
    return fitted


def _chosen(
    memories: Sequence[dict[str, Any]],
    passages: Sequence[Sequence[Range]],
    words: frozenset[str],
    room: int,
) -> list[dict[str, Any]]:
    """The memories that fit into `room` tokens, whole or as excerpts, in their order."""
    chosen: dict[int, dict[str, Any]] = {}

    def tokens_of(memory: dict[str, Any]) -> int:
        return count_sent(answer_text(memory)) + JOIN_TOKENS

    def excerpt(place: int, most: int) -> dict[str, Any] | None:
        return _excerpt(memories[place], passages[place], words, most, tokens_of)

    for place, memory in enumerate(memories):
        is_short = len(memory["content"]) <= room * CHARACTERS_A_TOKEN
        # A short excerpt of this memory is better than a worse memory.
        best = memory if is_short and tokens_of(memory) <= room else excerpt(place, room // 2) or excerpt(place, room)
        if best is not None:
            chosen[place] = best
            room -= tokens_of(best)
    for place, memory in chosen.items():
        if "excerpt" in memory:
            room += tokens_of(memory)
            chosen[place] = max(memory, excerpt(place, room) or memory, key=tokens_of)
            room -= tokens_of(chosen[place])
    return list(chosen.values())


def _excerpt(
    memory: dict[str, Any],
    passages: Sequence[Range],
    words: frozenset[str],
    most: int,
    tokens_of: Callable[[dict[str, Any]], int],
) -> dict[str, Any] | None:
    """The best passages of a memory that fit into `most` tokens, or else the best passage from its best sentence on.
    None if there is no room for anything useful."""
    content: str = memory["content"]
    ranges = _proper(content, passages) or [(0, len(content))]

    def cut(chosen: Sequence[Range]) -> dict[str, Any]:
        return {**memory, "content": cut_to(content, chosen), "excerpt": True}

    room = most - tokens_of(cut(()))
    if room < LEAST_CUT_TOKENS:
        return None
    lengths = accumulate(end - start for start, end in ranges)
    within = sum(1 for _ in takewhile(lambda length: length <= room * CHARACTERS_A_TOKEN, lengths))
    number = bisect_right(range(1, within + 1), most, key=lambda first: tokens_of(cut(ranges[:first])))
    if number:
        return cut(ranges[:number])
    start, end = ranges[0]
    start = _best_start(content, start, end, words)
    while room >= LEAST_CUT_TOKENS:
        beginning = truncate(content[start:end], room)
        if not beginning or tokens_of(best := cut([(start, start + len(beginning))])) <= most:
            return best if beginning else None
        room -= max(1, room // 8)  # some characters take two in JSON
    return None


def _best_start(content: str, start: int, end: int, words: frozenset[str]) -> int:
    """The start of the (first) sentence in a passage that has most of the words."""
    best, most = start, 0
    for sentence in _SENTENCE.finditer(content, start, end):
        matched = len(words & set(re.findall(r"\w+", sentence.group().casefold())))
        if matched > most:
            best, most = sentence.start(), matched
    return best


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
