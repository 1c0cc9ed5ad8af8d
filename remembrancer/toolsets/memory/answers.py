"""Formats memories for tool answers: fixed fields, and any other fields that are not empty. Pure."""

from collections.abc import Collection, Container, Sequence, Set
from datetime import datetime
from typing import Any, Final

import msgspec

from remembrancer.code.actions import terms_of
from remembrancer.memory.fields import FIELDS
from remembrancer.memory.limits import moment
from remembrancer.memory.relevance import LIKELY, PERHAPS, is_given_whole
from remembrancer.memory.sentences import cut_at_word, first_words, from_best_sentence, says_more, without_label
from remembrancer.protocol.kinds import OPEN_END
from remembrancer.protocol.reads import Fact, ListedMemory, MemoryShown, RecalledMemory
from remembrancer.protocol.writes import MemoryVersion, NearMemory, PortableMemory, SourceRef
from remembrancer.toolsets.tools import DATA, Answer, non_empty

_ROUNDED: Final = 4
OLD_CHARACTERS: Final = 1000
"""The number of characters shown of a memory that is probably replaced: enough to decide whether it really is."""
NEWER_CHARACTERS: Final = 120
"""The number of characters shown of the replacement, which the session stored itself: enough to recognise it."""
SETTLED: Final = {
    "if_replaced": "update_memory(replaced_by, supersedes=[id])",
    "if_in_part": "update_memory(id, old, new)",
    "if_both_hold": "update_memory(replaced_by, add_links=[{relation: related_to, target: id}])",
}
CLOSED: Final = {"if_done": "update_memory(id, done=true)"}
FORGOTTEN: Final = {"if_replaced": "forget_memory(id)"}
SUPERSEDED: Final = {"if_wrong": "restore_memory(superseded id)"}
ENDED: Final = ("valid_until", "invalid_reason", "superseded_by", "possibly_superseded_by", "newer")
MOST_LINES, MOST_LINES_IF_LIKELY = 5, 2
"""The maximum number of one-line memories if no limit is given: by default, and if there is a likely answer."""
WORDS_OF_LINE: Final = 14
VALIDITY: Final = ("valid_from", "valid_until", "invalid_reason")
_TIMES: Final = frozenset(
    {"created_at", "updated_at", "forgotten_at"}.union(f.name for f in FIELDS if f.sort == "time")
)


def iso(seconds: float) -> str:
    """Format a time as ISO 8601 in UTC, to the second."""
    at = moment(seconds).replace(microsecond=0, tzinfo=None)
    return f"{at.isoformat()}Z"  # strftime formats the year 33 with two digits


def fields_of(memory: PortableMemory | MemoryVersion | ListedMemory, *names: str) -> Answer:
    return {name: _value(name, getattr(memory, name)) for name in names}


def set_fields(memory: PortableMemory | MemoryVersion | ListedMemory | Fact, *names: str) -> Answer:
    return {name: _value(name, value) for name in names if (value := getattr(memory, name)) not in (None, (), {})}


def _value(name: str, value: Any) -> Any:
    if name == "due":
        return iso(value).removesuffix("T00:00:00Z")  # usually a whole day
    if name in _TIMES:
        return iso(value)
    if isinstance(value, SourceRef):
        return msgspec.to_builtins(value)
    return list(value) if isinstance(value, tuple) else value


def with_lines(
    memories: Sequence[RecalledMemory], full: Container[str], limit: int | None, seen: Set[str] = frozenset()
) -> list[RecalledMemory]:
    """The memories in `full` and the first of the others, in the given order. Without a limit, closed open ends and
    others that the session has `seen` are omitted, except for the nearest."""
    is_answered = any(each.scores.relevance >= LIKELY for each in memories)
    most_lines = limit or (MOST_LINES_IF_LIKELY if is_answered else MOST_LINES)
    others = [each for each in memories if not is_given_whole(each)]
    others = [
        each
        for each in others
        if each is memories[0]
        or limit
        or each.id in full
        or (not each.done and seen.isdisjoint((each.id, *each.superseded_by)))
    ]
    lines = {id(each) for each in others[:most_lines]}
    return [each for each in memories if id(each) in lines or each.id in full]


def line_of(memory: RecalledMemory, terms: frozenset[str]) -> Answer:
    matching = from_best_sentence(without_label(memory.content), lambda each: len(terms_of(each) & terms))
    return {**_place_of(memory), "content": first_words(matching, WORDS_OF_LINE), **_unusual(memory)}


def standing_line(memory: ListedMemory) -> Answer:
    return {**fields_of(memory, "id", "content"), **standing_of(memory), **set_fields(memory, *ENDED)}


def _place_of(memory: RecalledMemory) -> Answer:
    if memory.origin is None:
        return fields_of(memory, "id")
    return {"source": memory.origin, "path": memory.source.file or "", "lines": list(memory.lines or ())}


def memory_of(memory: RecalledMemory, *, detail: bool = False, is_judged: bool = True) -> Answer:
    """`is_judged` adds how well the memory answers the query. `detail` adds every field and all ranking signals."""
    relevance: Answer = {}
    if is_judged:
        chance = memory.scores.relevance
        word = "likely" if chance >= LIKELY else "perhaps" if chance >= PERHAPS else "hardly"
        relevance = {"relevance_score": round(chance, _ROUNDED if detail else 2), "answers": word}
    if memory.origin is not None:
        scored = {"scores": _signals(memory)} if detail else {}
        return {**_place_of(memory), **fields_of(memory, "content"), **relevance, **scored}
    if detail:
        answer: Answer = {
            **fields_of(memory, "id", "content", "type", "scope", "importance"),
            **relevance,
            "scores": _signals(memory),
            **fields_of(memory, "created_at", "access_count"),
            **set_fields(
                memory, "tags", "occurred_at", "kind", "summary", "found_in", "derived_from", "near_duplicates"
            ),
        }
        strength = None if memory.strength is None else round(memory.strength, 3)
        answer |= non_empty(source=msgspec.to_builtins(memory.source), strength=strength)
    else:
        answer = {
            **fields_of(memory, "id", "content", "scope"),
            **relevance,
            "created_at" if memory.occurred_at is None else "occurred_at": iso(memory.happened_at)[:10],
        }
    return answer | updated(memory) | _unusual(memory) | non_empty(code=memory.code)


def _unusual(memory: RecalledMemory) -> Answer:
    return standing_of(memory) | non_empty(expired=memory.expired) | set_fields(memory, "stands_for", *ENDED)


def updated(memory: ListedMemory) -> Answer:
    day = iso(memory.updated_at)[:10]
    return {"updated": day} if memory.version > 1 and day > iso(memory.created_at)[:10] else {}


def standing_of(memory: ListedMemory) -> Answer:
    answer = {"forgotten": True, **set_fields(memory, "forgotten_at", "forgotten_reason")} if memory.forgotten else {}
    return answer | non_empty(status=None if memory.status == "active" else memory.status) | state_of(memory)


def state_of(memory: PortableMemory | MemoryVersion | ListedMemory) -> Answer:
    """An open end is overdue from the day after its due date."""
    if memory.kind != OPEN_END:
        return {}
    is_late = memory.due is not None and not memory.done and iso(memory.due)[:10] < f"{datetime.now():%Y-%m-%d}"
    return {"done": memory.done, **set_fields(memory, "due"), **non_empty(overdue=is_late)}


def _signals(memory: RecalledMemory) -> dict[str, float]:
    shares = sorted(memory.scores.shares.items(), key=lambda item: -abs(item[1]))
    return {"final": round(memory.scores.final, _ROUNDED), **dict(shares)}


def copies_of(memory: MemoryShown) -> list[dict[str, Any]]:
    return [{"id": memory_id, "scope": scope} for memory_id, scope in memory.copies.items()]


def near_of(found: Sequence[NearMemory], stored: Collection[str]) -> Answer:
    """Memories that later ones probably replace, and the calls that resolve each case. A later memory that is not in
    `stored` is quoted (`newer`). `in_part` marks an older text that says more."""
    near = {each.memory_id: each for each in found}
    replaced = [
        {"id": each.memory_id, "content": cut_at_word(each.content, OLD_CHARACTERS), "replaced_by": each.replaced_by}
        | non_empty(newer="" if each.replaced_by in stored else cut_at_word(each.newer, NEWER_CHARACTERS))
        | non_empty(in_part=says_more(each.content, each.newer))
        | (FORGOTTEN if each.is_private else {})
        | (CLOSED if each.may_be_done else {})
        for each in near.values()
    ]
    settled = SETTLED | (FORGOTTEN if all(each.is_private for each in near.values()) else {})
    return {"note": DATA, "near": replaced, **settled} if replaced else {}
