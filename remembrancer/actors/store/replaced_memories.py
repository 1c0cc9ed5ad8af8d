"""Memories that a later one probably replaces. They are judged once the later one has vectors, linked with
`contradicts`, and reported to the session that stored the later one, in an answer to its next call: those from
`PROBABLE` up with a store, one at a time with any other.

The link's strength is the probability. Review asks about the pairs, the most probable ones first, and a recall names
the later memory in `possibly_superseded_by`; so does a list from `REPLACED` up.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import MemoryRecord, NearDuplicate, Outcome, Phrase
from remembrancer.memory.replacement import (
    LEAST_COSINE,
    PROBABLE,
    RIVAL,
    Read,
    TextPair,
    day_of_figure,
    least_to_ask,
    probability,
    read,
    tells_what_happened,
    tells_what_passed,
)
from remembrancer.memory.wording import same_in_words
from remembrancer.protocol.kinds import OPEN_END, SESSION_KINDS, SESSION_RECORD
from remembrancer.protocol.reads import Recall, SessionRequest
from remembrancer.protocol.writes import (
    Applied,
    Change,
    NearMemory,
    Operation,
    StoredResult,
    StoreMemory,
    UpdateMemory,
    memory_id_of,
)

MAX_REMEMBERED: Final = 1024
"""The number of memories whose storing session is remembered, and of sessions with pending reports."""
MAX_PENDING_REPORTS: Final = 3
"""The number of pending reports for one session. Further pairs wait in Review."""
LEAST_TOLD: Final = 0.1
"""At this probability and above, the session that stored the later memory is told. Of 27 such pairs in three weeks, 18
were right; below it 1 of 10."""
LINKED_S: Final = 10.0
"""The time after which the link of a pair is surely stored."""

MOST_ASKED: Final = 2
"""The number of earlier memories for each later one about which Review asks, one after the other, if none of them is
`PROBABLE`, and the others are at least a third (`RIVAL`) as probable as the first."""


_Asker = tuple[str, str]
"""A project's id and a session: the shell has one session in all projects."""


class _Judged(NamedTuple):
    probability: float
    to_ask: float
    """The lowest probability at which the pair is put into Review."""
    earlier: MemoryRecord
    later: MemoryRecord
    seen: tuple[int, ...]


class _Report(NamedTuple):
    near: NearMemory
    probability: float
    judged_at: float


class ReplacedMemories:
    """Judges pairs of memories, and keeps the most probable one for each later memory until its session has been told.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._stored_by: OrderedDict[str, _Asker] = OrderedDict()
        self._pending: OrderedDict[_Asker, list[_Report]] = OrderedDict()
        """The most probable one first."""
        self._lock = threading.Lock()

    def judge(self, records: Records, pairs: Sequence[NearDuplicate]) -> list[NearDuplicate]:
        """Return links from memories to those that they may replace, out of pairs of similar memories."""
        alike = (each for each in pairs if each.cosine >= LEAST_COSINE)
        near = {(each.later, each.earlier): each for each in sorted(alike, key=lambda each: each.cosine)}
        loaded = _comparable(records.load(list({number for both in near for number in both}), None).values())
        derived, edited = records.derived_among(list(loaded)), records.edited_among(list(loaded))
        text_of = cache(lambda number: read(loaded[number].content))
        possible: list[tuple[TextPair, _Judged]] = []
        for (one, other), found in near.items():
            if one not in loaded or other not in loaded:
                continue
            earlier, later = sorted((loaded[one], loaded[other]), key=lambda each: each.age_key)
            if edited.get(earlier.number, 0.0) > later.created_at or not can_replace(later, earlier, derived):
                continue  # who edited it has said what holds now
            apart_s = max(0.0, later.happened_at - earlier.happened_at)
            compared = TextPair(text_of(earlier.number), text_of(later.number), found.cosine, apart_s)
            at_most, to_ask = probability(compared), least_to_ask(compared)
            if at_most >= to_ask and not same_in_words(earlier.content, later.content):
                possible.append((compared, _Judged(at_most, to_ask, earlier, later, found.seen)))
        having, memories = _frequencies(records, [text for each, _ in possible for text in (each.earlier, each.later)])
        chances = [probability(replace(compared, having=having, memories=memories)) for compared, _ in possible]
        judged = [each._replace(probability=chance) for (_, each), chance in zip(possible, chances, strict=True)]
        best: dict[int, list[_Judged]] = {}
        for each in sorted(judged, key=lambda each: -each.probability):
            best.setdefault(each.later.number, []).append(each)
        self._keep(several[0] for several in best.values())
        return [
            NearDuplicate(each.later.number, each.earlier.number, each.probability, each.seen, relation="contradicts")
            for several in best.values()
            for place, each in enumerate(several)
            if each.probability >= PROBABLE
            or (place < MOST_ASKED and each.probability >= max(each.to_ask, RIVAL * several[0].probability))
        ]

    def take_probable(self, asker: Operation | SessionRequest[Any]) -> tuple[NearMemory, ...]:
        """Return and remove a session's probable reports: the memories that its own memories probably replace."""
        with self._lock:
            pending = self._pending.pop(_asker_of(asker), [])
            if rest := [each for each in pending if not each.near.is_probable]:
                self._pending[_asker_of(asker)] = rest
            return tuple(each.near for each in pending if each.near.is_probable)

    def has_pending(self, asker: Operation | Recall | SessionRequest[Any]) -> bool:
        return bool(self._pending.get(_asker_of(asker)))

    def take_one(self, asker: SessionRequest[Any], waiting: Container[tuple[str, str]]) -> tuple[NearMemory, ...]:
        """Return and remove a session's most probable report that is among the `waiting` pairs of Review, by the ids of
        both, the older first. Reports that are not are dropped once their links must be stored."""
        with self._lock:
            pending = self._pending.get(_asker_of(asker), [])
            stored_before = time.monotonic() - LINKED_S
            shown = [each for each in pending if (each.near.memory_id, each.near.replaced_by) in waiting]
            pending[:] = [
                *shown[1:],
                *(each for each in pending if each not in shown and each.judged_at > stored_before),
            ]
            return tuple(each.near for each in shown[:1])

    def reply_to(self, operation: Operation, reply: Outcome) -> Outcome:
        """Return the outcome of an operation; that of a store includes its session's pending reports. Memories that
        have changed since are no longer reported."""
        changed = memory_id_of(operation.change)
        updated = changed if isinstance(operation.change, UpdateMemory) else None  # it may be the older one now
        with self._lock:
            for key, pending in self._pending.items():
                self._pending[key] = [
                    each for each in pending if each.near.memory_id != changed and each.near.replaced_by != updated
                ]
        if isinstance(reply, Applied) and isinstance(reply.result, StoredResult):
            if not (reply.replayed or reply.result.already_known):
                with self._lock:
                    self._stored_by[reply.result.memory_id] = _asker_of(operation)
                    _keep_last(self._stored_by, MAX_REMEMBERED)
            near = self.take_probable(operation)
            as_restated = (_as_restated(each, operation.change, reply.result.memory_id) for each in near)
            reply = msgspec.structs.replace(reply, near=tuple(as_restated), near_waits=self.has_pending(operation))
        return reply

    def _keep(self, judged: Iterable[_Judged]) -> None:
        with self._lock:
            for each in judged:
                if each.probability < LEAST_TOLD:
                    continue
                key = self._stored_by.pop(each.later.id, None)
                if key is None:
                    continue  # already told, or the session is unknown
                texts = each.earlier.id, each.earlier.content, each.later.id, each.later.content
                is_private, is_probable = each.later.scope == "session", each.probability >= PROBABLE
                near = NearMemory(*texts, is_private=is_private, is_probable=is_probable)
                pending = self._pending.setdefault(key, [])
                pending.append(_Report(near, each.probability, time.monotonic()))
                pending.sort(key=lambda report: -report.probability)
                del pending[MAX_PENDING_REPORTS:]
            _keep_last(self._pending, MAX_REMEMBERED)


def _asker_of(asking: Operation | Recall | SessionRequest[Any]) -> _Asker:
    return asking.project.id, asking.session_id


def _as_restated(near: NearMemory, change: Change, memory_id: str) -> NearMemory:
    """The pair as it is, or turned round if the earlier text has just been stored again, and so is the later one."""
    if not isinstance(change, StoreMemory) or not same_in_words(near.content, change.content):
        return near
    texts = near.replaced_by, near.newer, memory_id, change.content
    return NearMemory(*texts, is_private=change.scope == "session")


def _keep_last(kept: OrderedDict[Any, Any], count: int) -> None:
    while len(kept) > count:
        kept.popitem(last=False)


def can_replace(later: MemoryRecord, earlier: MemoryRecord, derived: Container[int]) -> bool:
    """False if both must hold: a task does not replace a fact, a corrected mistake remains a mistake, what happened
    stays true unless it is taken back, what happened for a time replaces nothing, the figure of a day only another of
    that day, another event, or a summary, does not make a summary untrue, and neither does another section of the same
    imported note."""
    if earlier.source.file and (earlier.source.file, earlier.created_at) == (later.source.file, later.created_at):
        return False
    is_event, is_summed_up = later.type == "episodic", earlier.status == "consolidated"
    if (is_event and earlier.number in derived) or (is_summed_up and (is_event or later.number in derived)):
        return False
    rules = (earlier, tells_what_happened), (later, tells_what_passed)
    dated = (each for each in rules if each[0].type == "episodic" or each[0].occurred_at is not None)
    is_past = any(applies(memory.content) for memory, applies in dated)
    is_past |= day_of_figure(earlier.content) != day_of_figure(later.content)
    if is_past and earlier.kind not in (OPEN_END, "error_fix") and not read(later.content).takes_back:
        return False
    is_task = later.kind == OPEN_END and earlier.kind != OPEN_END
    return earlier.scope != "session" and not is_task and (earlier.kind != "error_fix" or later.kind == "error_fix")


def _comparable(memories: Iterable[MemoryRecord]) -> dict[int, MemoryRecord]:
    """Return the memories that can be replaced: valid ones that are not records of a session's work."""
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


def _frequencies(records: Records, texts: Sequence[Read]) -> tuple[Mapping[str, int], int]:
    """Count for each word the memories of the file that contain it, and count the memories."""
    written = {word: form for text in texts for word, form in text.written.items()}
    if not written:
        return {}, 0
    frequencies = records.frequencies([[Phrase(form)] for form in written.values()])
    return dict(zip(written, frequencies, strict=True)), records.survey([], "", 0).sizes[records.space]
