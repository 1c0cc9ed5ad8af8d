"""The answer of a recall within a budget of tokens: whole memories, or their best passages. Pure; the counting is
passed in.

The budget is kept by the text of the whole answer, as it is sent. The memories are gone through best first. One that
fits whole is taken whole; of another its best passages are taken, as far as half of what is left goes, so that the
memories after it have something as well; where half is not enough for anything of it, it has all. What is left in the
end goes to the passages again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from remembrancer.memory.tokens import whole_characters
from remembrancer.toolsets.memory.context_block import CHARACTERS_A_TOKEN, LEAST_CUT_TOKENS, Count, Truncate
from remembrancer.toolsets.tools import Answer, answer_text

HINT: Final = "An excerpt leaves out what stands at …: get_memory shows the whole."
NO_ROOM: Final = "max_tokens leaves no room for any of them."
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
    count: Count,
    truncate: Truncate,
) -> Answer:
    """The answer, with what does not fit into `max_tokens` left out or cut; `omitted` says how many memories are.

    `passages` has for each memory the ranges of its content, best first: none, and the whole of it is one. Where not
    even one passage fits, its sentence with most of the query's `words` is shown.
    """
    if _fits(answer, max_tokens, count):
        return answer
    memories = answer["memories"]
    for dropped in range(len(DISPENSABLE) + 1):  # rather no note than no memory
        kept = {name: value for name, value in answer.items() if name not in DISPENSABLE[:dropped]}
        frame = {**kept, "memories": [], "omitted": len(memories)} | ({} if dropped else {"hint": HINT})
        shown = _chosen(memories, passages, words, max_tokens - count(answer_text(frame)), count, truncate)
        while shown:
            fitted = _with(kept, shown, len(memories) - len(shown), with_hint=not dropped)
            if _fits(fitted, max_tokens, count):
                return fitted
            shown.pop()  # where parts meet, a text may have more tokens than its parts
    bare = {**answer, "memories": []}
    if memories:
        bare |= {"omitted": len(memories), "hint": NO_ROOM}
    for name in DISPENSABLE:
        if _fits(bare, max_tokens, count):
            return bare
        bare.pop(name, None)
    if (warnings := bare.get("warnings")) and not _fits(bare, max_tokens, count):
        bare["warnings"] = [{"code": warnings[0]["code"]}]
    return bare


def _fits(answer: Answer, max_tokens: int, count: Count) -> bool:
    text = answer_text(answer)
    return len(text) <= max_tokens * CHARACTERS_A_TOKEN and (
        len(text.encode()) <= max_tokens or count(text) <= max_tokens
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
    count: Count,
    truncate: Truncate,
) -> list[dict[str, Any]]:
    """The memories that fit into `room` tokens, whole or as excerpts, in their order."""
    shown: dict[int, dict[str, Any]] = {}
    cut: dict[int, _Excerpt] = {}
    for place, memory in enumerate(memories):
        text = answer_text(memory)
        if len(text) <= room * CHARACTERS_A_TOKEN:
            tokens = count(text) + JOIN_TOKENS
            if tokens <= room:
                shown[place] = memory
                room -= tokens
                continue
        excerpt = _Excerpt(memory, passages[place], words, count, truncate)
        excerpt.widen(room // 2)
        if excerpt.shown is None:  # better little of it alone than a worse one
            excerpt.widen(room)
        if excerpt.shown is not None:
            cut[place] = excerpt
            room -= excerpt.tokens
    for place, excerpt in cut.items():
        before = excerpt.tokens
        excerpt.widen(before + room)
        room -= excerpt.tokens - before
        assert excerpt.shown is not None
        shown[place] = excerpt.shown
    return [shown[place] for place in sorted(shown)]


class _Excerpt:
    """One memory of which only a part can be shown: `shown`, None as long as there is no room for anything of it."""

    def __init__(
        self,
        memory: dict[str, Any],
        passages: Sequence[Range],
        words: frozenset[str],
        count: Count,
        truncate: Truncate,
    ) -> None:
        self._memory = memory
        self._content: str = memory["content"]
        self._passages = _proper(self._content, passages) or [(0, len(self._content))]
        self._words = words
        self._count = count
        self._truncate = truncate
        self._counted: list[int] = []
        self._bare = count(answer_text(self._cut_to(()))) + JOIN_TOKENS
        self.shown: dict[str, Any] | None = None
        self.tokens = 0
        """The tokens of `shown`, with what joins it to the next."""

    @property
    def least(self) -> int:
        """Fewer tokens than this are not worth while."""
        return self._bare + LEAST_CUT_TOKENS

    def widen(self, room: int) -> None:
        """Show the best passages that `room` tokens are enough for, or else the best one from its best sentence on."""
        if room < self.least:
            return
        number = self._passages_within(room - self._bare)
        while number and not self._show(self._passages[:number], room):
            number -= 1
        if number:
            return
        start, end = self._passages[0]
        start = _best_start(self._content, start, end, self._words)
        allowed = room - self._bare
        while allowed >= LEAST_CUT_TOKENS:
            beginning = self._truncate(self._content[start:end], allowed)
            if not beginning or self._show([(start, start + len(beginning))], room):
                return
            allowed -= max(1, allowed // 8)  # in JSON some characters are two

    def _passages_within(self, room: int) -> int:
        """The number of the best passages that have `room` tokens at most, as far as they can be added up."""
        used = 0
        for number, (start, end) in enumerate(self._passages):
            if number == len(self._counted):
                if end - start > room * CHARACTERS_A_TOKEN:
                    return number
                self._counted.append(self._count(self._content[start:end]) + JOIN_TOKENS)
            used += self._counted[number]
            if used > room:
                return number
        return len(self._passages)

    def _show(self, ranges: Sequence[Range], room: int) -> bool:
        """Show these ranges, if they have `room` tokens at most."""
        memory = self._cut_to(ranges)
        tokens = self._count(answer_text(memory)) + JOIN_TOKENS
        if tokens > room:
            return False
        if tokens > self.tokens:
            self.shown, self.tokens = memory, tokens
        return True

    def _cut_to(self, ranges: Sequence[Range]) -> dict[str, Any]:
        return {**self._memory, "content": cut_to(self._content, ranges), "excerpt": True}


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
