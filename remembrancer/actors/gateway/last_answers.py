"""The last answers of the store, for when it stays away: as they were, each for the session alone that had asked. Pure.

A question has its project and its session in it, so nobody sees through an answer that is kept what the store would not
have shown.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any, Final, NamedTuple

import msgspec

from remembrancer.protocol.reads import ContextGathered, FindIds, GatherContext, GraphFound, Recalled, RecalledMemory
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import Operation, ProjectRef, StoreMemory, WriteNote

MAX_ANSWERS: Final = 512
MAX_ANSWER_BYTES: Final = 8_000_000
HOLDS_S: Final = 15.0
"""A session's first question comes right after its start, or may as well be asked of the store."""


class LastAnswer(NamedTuple):
    """An answer, its size as a message, and when it came (seconds since the epoch)."""

    reply: Any
    size_bytes: int
    at: float


class LastAnswers:
    """A bounded number of them, the oldest going first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Request[Any], LastAnswer] = OrderedDict()
        self._bytes = 0

    def put(self, question: Request[Any], received_at: float, answer: LastAnswer) -> None:
        """Keep the answer to a question that came at `received_at`, in place of the earlier one."""
        if isinstance(question, FindIds):  # an id that was the only one may not be any more
            return
        question = _timeless(question, received_at)
        self._drop(question)
        self._kept[question] = answer
        self._bytes += answer.size_bytes
        while self._kept and (len(self._kept) > MAX_ANSWERS or self._bytes > MAX_ANSWER_BYTES):
            self._drop(next(iter(self._kept)))

    def find(self, question: Request[Any], received_at: float) -> LastAnswer | None:
        """The last answer to this very question."""
        return self._kept.get(_timeless(question, received_at))

    def last_shown(self, project: ProjectRef, session_id: str) -> tuple[tuple[RecalledMemory, ...], float] | None:
        """The memories of the last answer to a session that had any, and when it came."""
        for question, kept in reversed(self._kept.items()):
            asker = getattr(question, "project", None), getattr(question, "session_id", None)
            if asker == (project, session_id) and (memories := _memories_of(kept.reply)):
                return memories, kept.at
        return None

    def clear(self) -> None:
        """Forget all: a memory that was deleted for good may be in any of them."""
        self._kept.clear()
        self._bytes = 0

    def _drop(self, question: Request[Any]) -> None:
        kept = self._kept.pop(question, None)
        self._bytes -= 0 if kept is None else kept.size_bytes


def _timeless(question: Request[Any], received_at: float) -> Request[Any]:
    """The question, the same for whoever asks later what is true at the time."""
    if getattr(question, "valid_at", None) == received_at:
        return msgspec.structs.replace(question, valid_at=math.inf)
    return question


def _memories_of(reply: Any) -> tuple[RecalledMemory, ...]:
    match reply:
        case Recalled(memories=memories) | GraphFound(memories=memories):
            return memories
        case ContextGathered(sections=sections):
            return tuple(memory for section in sections for memory in section.memories)
    return ()


class Prepared(msgspec.Struct, eq=False):
    """The answer to a question that nobody has asked yet, once it is there."""

    reply: ContextGathered | None = None
    at: float = 0.0


class PreparedContexts:
    """Answers that were fetched before anybody asked. One holds for a short time, is given once (it has been shown
    then, which counts), and no longer than nobody writes what may belong into it. Times are of one clock."""

    def __init__(self) -> None:
        self._prepared: dict[GatherContext, Prepared] = {}

    def __len__(self) -> int:
        """The number of questions that are being asked ahead or have their answer ready."""
        return len(self._prepared)

    def begin(self, question: GatherContext, now: float) -> Prepared:
        """To be called before the question is sent. What is too old by now is let go."""
        self._prepared = {key: each for key, each in self._prepared.items() if _holds(each, now)}
        prepared = self._prepared[question] = Prepared(at=now)
        return prepared

    def finish(self, question: GatherContext, prepared: Prepared, reply: ContextGathered | None, now: float) -> None:
        """The question was answered, or (None) in vain."""
        prepared.reply, prepared.at = reply, now
        if reply is None and self._prepared.get(question) is prepared:
            del self._prepared[question]

    def take(self, question: GatherContext, now: float) -> ContextGathered | None:
        """The answer, if it is as good as a new one."""
        prepared = self._prepared.get(question)
        if prepared is None or prepared.reply is None:
            return None
        del self._prepared[question]
        return prepared.reply if _holds(prepared, now) else None

    def note_write(self, operation: Operation) -> None:
        """Let go of what a write may change."""
        self._prepared = {
            question: each
            for question, each in self._prepared.items()
            if not may_change(operation, question.project.id)
        }


def _holds(prepared: Prepared, now: float) -> bool:
    return 0 <= now - prepared.at <= HOLDS_S


def may_change(operation: Operation, project_id: str) -> bool:
    """True if a write may change what is known in a project. False only where that is certain."""
    match operation.change:
        case StartSession() | EndSession() | RecordEvents() | WriteNote():
            return False
        case StoreMemory(scope=scope) if scope != "user":
            return operation.project.id == project_id
        case _:  # what is changed may be the user's
            return True
