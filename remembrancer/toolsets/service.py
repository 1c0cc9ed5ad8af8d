"""The interface of the services that tools use, and the results of reads and writes."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from remembrancer.code.actions import PastActions
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import RuntimeStatus
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.problems import Problem
from remembrancer.protocol.reads import EmbeddingState
from remembrancer.protocol.store_client import StoreAvailability
from remembrancer.protocol.wire import Notice, Request
from remembrancer.protocol.writes import Applied, ErasedResult, Operation, ProjectRef

WHOLE: Final = ("no_entity", "graph_cut", "answer_cut", "embedding_starting", "embedding_pending", "unknown_path")
"""Codes of warnings that do not mark an answer as degraded."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caller:
    """`bridge` identifies the connection to which the request ids belong."""

    bridge: str
    session_id: str
    project: ProjectRef
    started_at: float
    directory: str = ""
    """The root of the session's working tree."""

    @property
    def viewer(self) -> tuple[ProjectRef, str]:
        return self.project, self.session_id


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """An answer from the store. `is_old` marks an earlier answer, used with a notice while the store is unavailable."""

    reply: T
    notices: tuple[Notice, ...] = ()
    is_old: bool = False

    @property
    def is_degraded(self) -> bool:
        return self.is_old or any(notice.code not in WHOLE for notice in self.notices)


class Written(msgspec.Struct, frozen=True):
    """A durable write. `applied` is None if it is queued. `degraded` means that the store is unavailable, not busy."""

    applied: Applied | None
    notices: tuple[Notice, ...] = ()
    degraded: bool = False


@dataclass(slots=True)
class SessionState:
    """The state of a recently active session. `seen` holds the memories that it wrote, or was shown in their current
    form, and `served` those in answers to its `queries`. `short_ids` maps each id that it was shown to its short form,
    and back. `refused` holds undelivered notices about queued writes that were rejected."""

    seen: set[str] = field(default_factory=set)
    served: set[str] = field(default_factory=set)
    queries: int = 0
    short_ids: dict[str, str] = field(default_factory=dict)
    refused: list[Notice] = field(default_factory=list)


class MemoryService(Protocol):
    """The store as tools see it. Methods raise its errors. A call's budget starts at `received_at` (epoch seconds)."""

    settings: Settings
    paths: RuntimePaths
    store_health: StoreAvailability
    past_actions: dict[str, PastActions]
    """The words in the sessions' commands and edits, by project id."""
    applied: Callable[[Operation], None]
    """Called when the store has applied a write, which may change resources."""
    open_browser: Callable[[], Awaitable[str]]
    """Returns the browser's address. Raises `MemoryUnavailable`."""

    async def ask(self, question: Request[T], received_at: float) -> Asked[T]:
        """Return the store's answer. While the store restarts, wait within the call's budget, and then use the last
        answer to the same question or, for a search, what the session was shown last. Raises as `require` does."""

    async def require(self, question: Request[T], timeout_s: float) -> T:
        """Ask a question that may be repeated. Raises `MemoryUnavailable` or `DeadlineExceeded`."""

    async def apply(self, operation: Operation, received_at: float) -> Written:
        """Make an operation durable, in the store or in the write queue. Must not be cancelled midway."""

    async def erase(self, operation: Operation) -> ErasedResult:
        """Raises `MemoryUnavailable` if the deletion has not begun. After a `retry_possible` error, it continues."""

    async def await_embedding(self, caller: Caller, memory_id: str, received_at: float) -> EmbeddingState:
        """Wait, within the call's budget, until a memory has its vectors."""

    def session(self, of: Caller | Operation) -> SessionState:
        """The state of a session since the runtime started."""

    def take_refused(self, caller: Caller) -> list[Notice]:
        """Return notices about the session's queued writes that were later rejected, each only once."""

    def shown(
        self,
        caller: Caller,
        memory_ids: Sequence[str],
        *,
        counted: Sequence[str] = (),
        used: Sequence[str] = (),
        tool: str = "",
        question: str = "",
        listed: Sequence[str] = (),
    ) -> None:
        """Record the memories that a `tool` found for a `question`; without a tool, nothing is logged. Memories in
        `counted` count as accessed, and those in `used` were requested by id or are probably useful. `listed` holds all
        memories in the answer, in order, if some had only one line."""

    def is_first_data_for(self, caller: Caller) -> bool:
        """True once per connection, so that its client is told that memories are data."""

    async def look(self, seen_by: ProjectRef | None) -> tuple[tuple[Problem, ...], RuntimeStatus | None]:
        """The runtime's problems that concern a project (None: any), and its status if the launcher answers."""

    def queue_counts(self) -> tuple[int, int]:
        """The number of waiting writes, and of rejected writes that were set aside."""
