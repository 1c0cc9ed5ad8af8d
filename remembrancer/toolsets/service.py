"""The services that tools need of the process that they run in: the contract, and what comes of asking and writing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from remembrancer.code.actions import PastActions
from remembrancer.config.settings import Settings
from remembrancer.protocol.reads import EmbeddingState, Notice
from remembrancer.protocol.store_client import StoreAvailability
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import ErasedResult, NearMemory, Operation, ProjectRef, Result

WHOLE: Final = frozenset(
    {
        *("no_entity", "similar_name", "graph_cut", "answer_cut"),
        *("embedding_starting", "storage_full", "memories_lost"),
    }
)
"""Codes of warnings which do not mark an answer as degraded: nothing is wrong, or it is only not there yet."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose a call is. `bridge` names the one connection that request ids belong to."""

    bridge: str
    session_id: str
    project: ProjectRef
    started_at: float
    directory: str = ""
    """The root of the working tree that the session is in: its notes are the project's files there."""


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """An answer of the store, and everything that is to be said of it. `is_old`: the store is away, and this is what it
    said before, with a notice of why and as of when."""

    reply: T
    notices: tuple[Notice, ...] = ()
    is_old: bool = False

    @property
    def is_degraded(self) -> bool:
        """True if something is wrong with it."""
        return self.is_old or any(notice.code not in WHOLE for notice in self.notices)


class Written(msgspec.Struct, frozen=True):
    """A write that is durable. `result` is None when it is queued: the store has yet to apply it.

    `degraded`: the store is away (and not only busy with older writes). `embedding_error` is the store's word on why
    what was written cannot be embedded now, `near` what it found beside what was stored.
    """

    operation: Operation
    result: Result | None
    notices: tuple[Notice, ...] = ()
    degraded: bool = False
    embedding_error: str | None = None
    near: tuple[NearMemory, ...] = ()


class QueueHealth(msgspec.Struct, frozen=True):
    """The state of the write queue: how many operations wait, and how many were set aside."""

    depth: int
    rejected: int
    stuck: dict[str, str]
    """The lanes (a project's id, or `user`) whose oldest queued write is refused at the moment, and why."""
    damage: str | None
    """The damage that was found in the queue's file at the start."""


class MemoryService(Protocol):
    """The store as tools see it, with its last answers for when it is away.

    Every method that asks raises the `RemembrancerError` with which the store refuses; times are seconds since the
    epoch, and `received_at` is when the client made the call, whose budget counts from then.
    """

    settings: Settings
    home: str
    """The place that the status shows while the store is away."""
    store_health: StoreAvailability
    short_ids: dict[tuple[str, str, str], str]
    """Short forms of ids that were shown, by the project, the session and the whole id: what is short for one session
    may stand for another one's memory."""
    past_actions: dict[str, PastActions]
    """The words of the commands and edits of this runtime's sessions, by the project's id."""

    async def ask(self, question: Request[T], received_at: float) -> Asked[T]:
        """The store's answer. A store that restarts is waited for as long as the call may take; after
        that: its last answer to the same question, or to what is searched the memories that the session was shown last.

        Raises:
            MemoryUnavailable, DeadlineExceeded: the store is away or late, and there is no such answer.
        """

    async def require(self, question: Request[T], timeout_s: float) -> T:
        """The store's answer to what only it can do. Raises `MemoryUnavailable` or `DeadlineExceeded`
        without it."""

    async def apply(self, operation: Operation, received_at: float) -> Written:
        """Make an operation durable, in the store or in the write queue. Must not be cancelled half-way."""

    async def erase(self, operation: Operation) -> ErasedResult:
        """Delete a memory for good, wherever it is, and forget it here.

        Raises:
            MemoryUnavailable: the store is away, and nothing was begun.
            RemembrancerError: it is refused; if `retry_possible`, it goes on by itself as soon as it can.
        """

    async def await_embedding(self, caller: Caller, memory_id: str, received_at: float) -> EmbeddingState:
        """Wait until a memory has its vectors, within the call's budget."""

    def seen(self, caller: Caller) -> set[str]:
        """Ids of the memories that the session was shown as they are, or wrote, since the runtime has been up."""

    def shown(
        self,
        caller: Caller,
        memory_ids: Sequence[str],
        *,
        count: bool = False,
        used: Sequence[str] = (),
        tool: str = "",
        question: str = "",
    ) -> None:
        """These memories were found for somebody (none: nothing was), by a `tool` that was asked the `question`: the
        record of what was shown to whom has it, where a tool is named. `count`: as an access of each, too. `used`:
        those that were asked for by their ids, or answer so surely that they were of use."""

    def is_first_data_for(self, caller: Caller) -> bool:
        """True once for each connection: its client has yet to be told that memories are data."""

    def answered(self, caller: Caller, tool: str, answer: dict[str, Any], received_at: float) -> None:
        """A tool that only reads has given this answer: the record of what was shown has its size and its time."""

    def applied(self, operations: Sequence[Operation]) -> None:
        """The store has these, which may change what resources say."""

    def take_refused(self, caller: Caller) -> list[Notice]:
        """The session's own writes that were queued and refused later; each is told once."""

    def queue_health(self) -> QueueHealth:
        """The state of the write queue."""

    async def browser_url(self) -> str:
        """The address of the memory browser, which is opened if it is not. Raises `MemoryUnavailable`: it cannot be."""
