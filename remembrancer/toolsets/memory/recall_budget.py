"""The answer of a recall within a budget of tokens: whole memories, or their best passages. Pure.

The budget is kept by the text of the whole answer, as it is sent. The memories are gone through best first. One that
fits whole is taken whole; of another its best passages are taken, as far as half of what is left goes, so that the
memories after it have something as well; where half is not enough for anything of it, it has all. What is left in the
end goes to the passages again.
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
"""For what stands between two memories, or two passages."""
DISPENSABLE: Final = ("hint", "profile", "query_time_ms", "strategy_used")
"""The parts that an answer can do without, the first first."""

_SENTENCE: Final = re.compile(r"[^\s].*?(?:[.!?](?=\s)|(?=\n)|\Z)", re.DOTALL)
Range = tuple[int, int]


def within_budget(
    answer: Answer,
    passages: Sequence[Sequence[Range]],
    words: frozenset[str],
    max_tokens: int,
) -> Answer:
    """The answer, with what does not fit into `max_tokens` left out or cut; `omitted` says how many memories are.

    `passages` has for each memory the ranges of its content, best first: none, and the whole of it is one. Where not
    even one passage fits, its sentence with most of the query's `words` is shown.
    """
    if _fits(answer, max_tokens):
        return answer
    memories = answer["memories"]
    for dropped in range(len(DISPENSABLE) + 1):  # rather no note than no memory
        kept = {name: value for name, value in answer.items() if name not in DISPENSABLE[:dropped]}
        frame = {**kept, "memories": [], "omitted": len(memories)} | ({} if dropped else {"hint": HINT})
        shown = _chosen(memories, passages, words, max_tokens - count_sent(answer_text(frame)))
        while shown:
            fitted = _with(kept, shown, len(memories) - len(shown), with_hint=not dropped)
            if _fits(fitted, max_tokens):
                return fitted
            shown.pop()  # where parts meet, a text may have more tokens than its parts
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
    """The tokens of a text as it is sent."""
    return estimate_tokens(neutralised(text))


def _fits(answer: Answer, max_tokens: int) -> bool:
    text = answer_text(answer)
    return len(text) <= max_tokens * CHARACTERS_A_TOKEN and (
        len(text.encode()) <= max_tokens or count_sent(text) <= max_tokens
    )


def _with(answer: Answer, shown: Sequence[dict[str, Any]], omitted: int, *, with_hint: bool) -> Answer:
    fitted = {**answer, "memories": list(shown)}
    if omitted:
        fitted["omitted"] = omitted
    if with_hint and any("excerpt" in memory for memory in shown):
        fitted["hint"] = HINT
    return fitted


def _chosen(
    memories: Sequence[dict[str, Any]],
    passages: Sequence[Sequence[Range]],
    words: frozenset[str],
    room: int,
) -> list[dict[str, Any]]:
    """The memories that fit into `room` tokens, whole or as excerpts, in their order."""
    shown: dict[int, dict[str, Any]] = {}

    def tokens_of(memory: dict[str, Any]) -> int:
        return count_sent(answer_text(memory)) + JOIN_TOKENS

    def excerpt(place: int, most: int) -> dict[str, Any] | None:
        return _excerpt(memories[place], passages[place], words, most, tokens_of)

    for place, memory in enumerate(memories):
        is_short = len(memory["content"]) <= room * CHARACTERS_A_TOKEN
        # Better little of it alone than a worse one.
        best = memory if is_short and tokens_of(memory) <= room else excerpt(place, room // 2) or excerpt(place, room)
        if best is not None:
            shown[place] = best
            room -= tokens_of(best)
    for place, memory in shown.items():
        if "excerpt" in memory:
            room += tokens_of(memory)
            shown[place] = max(memory, excerpt(place, room) or memory, key=tokens_of)
            room -= tokens_of(shown[place])
    return list(shown.values())


def _excerpt(
    memory: dict[str, Any],
    passages: Sequence[Range],
    words: frozenset[str],
    most: int,
    tokens_of: Callable[[dict[str, Any]], int],
) -> dict[str, Any] | None:
    """The best passages of a memory that `most` tokens are enough for, or else the best one from its best sentence on.
    None: there is no room for anything that is worth while."""
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
        room -= max(1, room // 8)  # in JSON some characters are two
    return None


def _best_start(content: str, start: int, end: int, words: frozenset[str]) -> int:
    """The beginning of the sentence with most of the words in a passage, the first of several."""
    best, most = start, 0
    for sentence in _SENTENCE.finditer(content, start, end):
        found = len(words & set(re.findall(r"\w+", sentence.group().casefold())))
        if found > most:
            best, most = sentence.start(), found
    return best


def cut_to(content: str, ranges: Sequence[Range]) -> str:
    """The ranges of a content in their order in it, with "…" for what is left out before, between and after them."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and not content[joined[-1][1] : start].strip():  # they overlap, or nothing is between them
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
    """The ranges as they can be cut out without taking a character apart."""
    ends = [(whole_characters(content, start), whole_characters(content, end)) for start, end in passages]
    return [(start, end) for start, end in ends if 0 <= start < end <= len(content)]
