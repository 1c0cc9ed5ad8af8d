"""Pairs of memories in which the later one probably replaces the earlier one. A pair is judged when the later memory
has vectors and, if it is probable enough, linked with `contradicts` and (from `PROBABLE` on) reported to the session
that stored the later one, in the answer to its next call: all pairs if the call stores a memory, and otherwise one at a
time.

The link's strength is the probability. Review asks about the pairs, the most probable ones first. If it is at least
`PROBABLE`, a recall names the later memory in `possibly_superseded_by`; if it is at least `REPLACED`, so does a list.
"""

import time
from collections.abc import Container, Iterable, Sequence
from typing import Any, Final, NamedTuple

from remembrancer.actors.store.records.browsing import pairs_in_review
from remembrancer.actors.store.records.sqlite_records import Reader, Records
from remembrancer.actors.store.records.types import MemoryRecord, NearDuplicate, NearestTo
from remembrancer.actors.store.vectors.near_duplicates import NEAREST
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.likely_kind import READ_CHARACTERS
from remembrancer.memory.likely_replacement import LEAST_COSINE, TextPair, probability
from remembrancer.memory.replacement import (
    POSSIBLE,
    PROBABLE,
    REPLACED,
    RIVAL,
    settles,
    takes_back,
    tells_what_happened,
)
from remembrancer.memory.wording import same_in_words
from remembrancer.protocol.kinds import OPEN_END, RULES_OF_WORK, SESSION_KINDS, SESSION_RECORD
from remembrancer.protocol.reads import Recall, SessionRequest
from remembrancer.protocol.writes import Applied, NearMemory, Operation, StoredResult

MAX_REMEMBERED: Final = 1024
"""The number of memories whose storing session is remembered."""
MAX_REPORTED: Final = 3
LINKED_S: Final = 10.0
"""The time after which a pair's link must have been stored."""

AS_FAR: Final = (LEAST_COSINE,) * NEAREST
"""The cosines of other memories with which a pair is hardly ever less probable than with those of its memory."""
MOST_ASKED: Final = 2
"""The number of earlier memories that Review asks about, one after another, if none of them is `PROBABLE`."""


_Asker = tuple[str, str]
"""A project's id and a session. The shell has the same session in all projects."""


class _Judged(NamedTuple):
    probability: float
    earlier: MemoryRecord
    later: MemoryRecord
    seen: tuple[int, ...]


class ReplacedMemories:
    """Judges pairs of memories, and remembers the sessions that stored the later ones until the pairs are reported."""

    def __init__(self) -> None:
        self._stored_by: dict[str, _Asker] = {}
        self._in_doubt: dict[str, tuple[_Asker, float]] = {}
        """The memories that may replace another one, each with its session and the time at which it was judged."""

    def judge(
        self, records: Records, pairs: Sequence[NearDuplicate], nearest: NearestTo = lambda memories: {}
    ) -> list[NearDuplicate]:
        """Return links from memories to those that they may replace. `nearest` returns the memories near a memory, so
        that the result does not depend on which memories were embedded together."""
        near = {(each.later, each.earlier): each for each in sorted(pairs, key=lambda each: each.cosine)}
        loaded = _comparable(records.load(list({number for both in near for number in both}), None).values())
        derived, edited = records.derived_among(list(loaded)), records.edited_among(list(loaded))
        settled = records.settled_among(list(loaded))
        possible: list[tuple[TextPair, _Judged]] = []
        judged: list[_Judged] = []
        for both, found in near.items():
            if found.cosine < LEAST_COSINE or not loaded.keys() >= {*both} or {*both} in settled:
                continue
            earlier, later = sorted((loaded[each] for each in both), key=lambda each: each.age_key)
            if edited.get(earlier.number, 0.0) > later.created_at or not can_replace(later, earlier, derived):
                continue  # the edit has already decided which text is valid
            texts = earlier.content[:READ_CHARACTERS], later.content[:READ_CHARACTERS]
            if earlier.is_open and settles(later.content, earlier.content):
                judged.append(_Judged(REPLACED, earlier, later, found.seen))
            elif not same_in_words(*texts):
                apart_s = abs(later.happened_at - earlier.happened_at)
                compared = TextPair(*texts, found.cosine, apart_s, AS_FAR)
                if (at_most := probability(compared)) >= POSSIBLE:
                    possible.append((compared, _Judged(at_most, earlier, later, found.seen)))
        beside = nearest(list({each.number for _, pair in possible for each in (pair.earlier, pair.later)}))
        others = _comparable(records.load(list({other for near in beside.values() for other in near}), None).values())

        def chance(compared: TextPair, pair: _Judged) -> float:
            both = pair.earlier.number, pair.later.number
            around, before = (
                [
                    cosine
                    for number, cosine in beside.get(each, {}).items()
                    if number not in both and number in others and others[number].age_key < pair.later.age_key
                ]
                for each in both
            )
            return probability(compared._replace(others=before, around=around))

        judged += (each._replace(probability=chance(compared, each)) for compared, each in possible)
        best: dict[int, list[_Judged]] = {}
        for each in sorted(judged, key=lambda each: -each.probability):
            best.setdefault(each.later.number, []).append(each)
        for first, *_ in best.values():
            if first.probability >= PROBABLE and (asker := self._stored_by.pop(first.later.id, None)):
                _keep(self._in_doubt, first.later.id, (asker, time.monotonic()))
        return [
            NearDuplicate(each.later.number, each.earlier.number, each.probability, each.seen, relation="contradicts")
            for several in best.values()
            for place, each in enumerate(several)
            if each.probability >= PROBABLE
            or (place < MOST_ASKED and each.probability >= max(POSSIBLE, RIVAL * several[0].probability))
        ]

    def note_stored(self, operation: Operation, reply: Applied) -> None:
        if isinstance(reply.result, StoredResult) and not (reply.replayed or reply.result.already_known):
            _keep(self._stored_by, reply.result.memory_id, _asker_of(operation))

    def near_waits(self, asking: Operation | Recall | SessionRequest[Any]) -> bool:
        asker = _asker_of(asking)
        return any(each == asker for each, _ in list(self._in_doubt.values()))

    def take(
        self, reader: Reader, asking: Operation | Recall | SessionRequest[Any], most: int = 1
    ) -> tuple[NearMemory, ...]:
        """Return the most probable pairs in Review, of those with a probability of at least `PROBABLE` whose later
        memory was stored by this session, each pair once. Memories in no pair are dropped when their links must have
        been stored."""
        asker = _asker_of(asking)
        own = {each: judged_at for each, (by, judged_at) in list(self._in_doubt.items()) if by == asker}
        if not own:
            return ()
        pairs = {pair.newer.id: pair for pair in reversed(pairs_in_review(reader, asking.session_id))}
        stored_before = time.monotonic() - LINKED_S
        for memory_id, judged_at in own.items():
            if memory_id not in pairs and judged_at < stored_before:
                self._in_doubt.pop(memory_id, None)
        found = (pairs[each] for each in own if each in pairs)
        best = sorted((each for each in found if each.strength >= PROBABLE), key=lambda each: -each.strength)[:most]
        for each in best:
            self._in_doubt.pop(each.newer.id, None)
        return tuple(
            NearMemory(
                *(each.older.id, each.older.content, each.newer.id, each.newer.content),
                is_private=each.newer.scope == "session",
                may_be_done=each.may_be_done,
            )
            for each in best
        )


def _asker_of(asking: Operation | Recall | SessionRequest[Any]) -> _Asker:
    return asking.project.id, asking.session_id


def _keep(kept: dict[str, Any], key: str, value: Any) -> None:
    kept[key] = value
    if len(kept) > MAX_REMEMBERED:
        kept.pop(next(iter(list(kept)), key), None)  # other threads remove items, too


def can_replace(later: MemoryRecord, earlier: MemoryRecord, derived: Container[int]) -> bool:
    """False if both remain valid. A task does not replace a fact; a corrected mistake remains a mistake; past events
    stay true unless they are taken back, which a fix does not do. An event replaces neither a derived memory nor one
    that a summary covers; a derived memory does not replace the latter. Steps of a procedure replace only rules. One
    section of an imported note does not replace another."""
    if earlier.source.file and (earlier.source.file, earlier.created_at) == (later.source.file, later.created_at):
        return False
    is_event, is_summed_up = later.type == "episodic", earlier.status == "consolidated"
    if (is_event and earlier.number in derived) or (is_summed_up and (is_event or later.number in derived)):
        return False
    is_fix = later.kind == "error_fix"
    is_dated = earlier.type == "episodic" or earlier.occurred_at is not None
    happened, later_happened = (tells_what_happened(each.content) for each in (earlier, later))
    is_past = earlier.type == later.type == "episodic" or (happened and later_happened)
    is_past |= is_dated and (is_fix or happened)
    if is_past and earlier.kind not in (OPEN_END, "error_fix") and not takes_back(later.content):
        return False
    if earlier.kind == OPEN_END and (later.occurred_at or earlier.created_at) + DAY_S <= earlier.created_at:
        return False  # an event before the task was stored has not completed it
    is_task = later.kind == OPEN_END and earlier.kind != OPEN_END
    has_steps = later.kind == "procedure" and (earlier.kind == OPEN_END or "2. " in later.content)
    if has_steps and earlier.kind not in RULES_OF_WORK:
        return False
    return earlier.scope != "session" and not is_task and (earlier.kind != "error_fix" or is_fix)


def _comparable(memories: Iterable[MemoryRecord]) -> dict[int, MemoryRecord]:
    """The memories that can be replaced: valid ones, except records of sessions."""
    now = time.time()
    return {
        memory.number: memory
        for memory in memories
        if not memory.forgotten
        and memory.status in ("active", "consolidated")
        and memory.kind != SESSION_RECORD
        and memory.kind not in SESSION_KINDS
        and (memory.valid_until is None or memory.valid_until > now)
    }
