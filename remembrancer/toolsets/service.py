"""The services that tools need from their process: a contract, and the results of reads and writes."""

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
    """`bridge` is the connection that its request ids belong to."""

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
    """An answer from the store. `is_old`: it is an earlier one, since the store is unavailable; a notice says so."""

    reply: T
    notices: tuple[Notice, ...] = ()
    is_old: bool = False

    @property
    def is_degraded(self) -> bool:
        return self.is_old or any(notice.code not in WHOLE for notice in self.notices)


class Written(msgspec.Struct, frozen=True):
    """A durable write. `applied` is None if it is queued. `degraded`: the store is unavailable, rather than busy."""

    applied: Applied | None
    notices: tuple[Notice, ...] = ()
    degraded: bool = False


@dataclass(slots=True)
class SessionState:
    """The state kept for a recently active session. `seen` are the memories that it has written, or was shown in their
    current form, `served` the memories in the answers to its `queries`. `short_ids` has the short form of each id that
    it was shown, and the id for each short form. `refused` are undelivered notices about queued writes that were
    refused."""

    seen: set[str] = field(default_factory=set)
    served: set[str] = field(default_factory=set)
    queries: int = 0
    short_ids: dict[str, str] = field(default_factory=dict)
    refused: list[Notice] = field(default_factory=list)


class MemoryService(Protocol):
    """The store as tools see it. Methods raise its errors. A call's budget counts from `received_at` (epoch)."""

    settings: Settings
    paths: RuntimePaths
    store_health: StoreAvailability
    past_actions: dict[str, PastActions]
    """The words in the sessions' commands and edits, by project id."""
    applied: Callable[[Operation], None]
    """Reports a write that the store has applied, which may change resources."""
    open_browser: Callable[[], Awaitable[str]]
    """Returns the browser's address. Raises `MemoryUnavailable`."""

    async def ask(self, question: Request[T], received_at: float) -> Asked[T]:
        """The store's answer. While the store restarts, the call waits within its budget, then gets the last answer to
        the same question or, for a search, the memories last shown to the session; or raises `MemoryUnavailable` or
        `DeadlineExceeded`."""

    async def require(self, question: Request[T], timeout_s: float) -> T:
        """The answer to a question that may be repeated. Raises `MemoryUnavailable` or `DeadlineExceeded`."""

    async def apply(self, operation: Operation, received_at: float) -> Written:
        """Make an operation durable, in the store or in the write queue. Must not be cancelled half-way."""

    async def erase(self, operation: Operation) -> ErasedResult:
        """Raises `MemoryUnavailable` if the deletion was not begun; after a `retry_possible` error, it continues."""

    async def await_embedding(self, caller: Caller, memory_id: str, received_at: float) -> EmbeddingState:
        """Wait, within the call's budget, until a memory has its vectors."""

    def session(self, of: Caller | Operation) -> SessionState:
        """The state of a session since the runtime started."""

    def take_refused(self, caller: Caller) -> list[Notice]:
        """The session's own queued writes that were later refused. Each is returned only once."""

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
        """Record the memories that a `tool` found for the `question`. Without a tool, nothing is logged. `counted` are
        the memories whose accesses count; `used` those requested by id, or probably useful. `listed` are all memories
        in the answer in order, if some had only one line."""

    def is_first_data_for(self, caller: Caller) -> bool:
        """True once per connection, whose client must be told that memories are data."""

    async def look(self, seen_by: ProjectRef | None) -> tuple[tuple[Problem, ...], RuntimeStatus | None]:
        """The runtime's problems that concern a project (None: all), and its state, if the launcher answers."""

    def queue_counts(self) -> tuple[int, int]:
        """The numbers of writes that wait, and that were refused and set aside."""
