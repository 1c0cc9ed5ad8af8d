"""The store's last answers, for use while it is away: each only for the session that asked. Pure.

A request contains its project and session, so a cached answer shows nobody more than the store would have.
"""

import math
from collections import OrderedDict
from typing import Any, Final, NamedTuple

import msgspec

from remembrancer.protocol.reads import ContextGathered, FindIds, GraphFound, Recalled, RecalledMemory
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import ProjectRef

MAX_ANSWERS: Final = 512
MAX_ANSWER_BYTES: Final = 8_000_000


class LastAnswer(NamedTuple):
    """An answer, its size as a message, and the time of its arrival (seconds since the epoch)."""

    reply: Any
    size_bytes: int
    at: float


class LastAnswers:
    """A bounded cache of answers, from which the oldest go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Request[Any], LastAnswer] = OrderedDict()
        self._bytes = 0

    def put(self, question: Request[Any], received_at: float, answer: LastAnswer) -> None:
        """Store the answer to a request that was received at `received_at`, in place of the earlier one."""
        if isinstance(question, FindIds):  # a short id may have become ambiguous
            return
        question = _timeless(question, received_at)
        self._drop(question)
        self._kept[question] = answer
        self._bytes += answer.size_bytes
        while self._kept and (len(self._kept) > MAX_ANSWERS or self._bytes > MAX_ANSWER_BYTES):
            self._drop(next(iter(self._kept)))

    def find(self, question: Request[Any], received_at: float) -> LastAnswer | None:
        """The last answer to the same request."""
        return self._kept.get(_timeless(question, received_at))

    def last_shown(self, project: ProjectRef, session_id: str) -> tuple[tuple[RecalledMemory, ...], float] | None:
        """The memories of the last answer to a session that contained any, and its time."""
        for question, kept in reversed(self._kept.items()):
            asker = getattr(question, "project", None), getattr(question, "session_id", None)
            if asker == (project, session_id) and (memories := _memories_of(kept.reply)):
                return memories, kept.at
        return None

    def clear(self) -> None:
        """Drop all answers: each may contain a memory that was deleted for good."""
        self._kept.clear()
        self._bytes = 0

    def _drop(self, question: Request[Any]) -> None:
        kept = self._kept.pop(question, None)
        self._bytes -= 0 if kept is None else kept.size_bytes


def _timeless(question: Request[Any], received_at: float) -> Request[Any]:
    """The request without its reference time, so that a later one for the current state equals it."""
    if getattr(question, "valid_at", None) == received_at:
        return msgspec.structs.replace(question, valid_at=math.inf)
    return question


def _memories_of(reply: Any) -> tuple[RecalledMemory, ...]:
    match reply:
        case Recalled(memories=memories) | GraphFound(memories=memories) | ContextGathered(memories=memories):
            return memories
    return ()
