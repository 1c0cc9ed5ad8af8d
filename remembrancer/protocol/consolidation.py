"""Messages between the store and the consolidator, which asks for a job and waits until the store has one. A query over
the records finds due jobs (ended sessions, the time of the last maintenance), so a job outlives a consolidator that
dies. The consolidator's decisions come back as operations."""

from typing import Final, Literal, NamedTuple

import msgspec

from remembrancer.protocol.errors import Failure
from remembrancer.protocol.kinds import Kind, MemoryType, Scope, Status
from remembrancer.protocol.reads import ListedMemory, Memories
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import EntityRef, ProjectRef

ReflectStrategy = Literal["summarize", "extract_patterns", "full"]
JobSort = Literal["asked", "session", "long"]
"""One job of each kind runs at a time: reflections (an assistant waits); session ends and promotions; whole spaces."""

SMALLEST_CLUSTER: Final = 3


class ConsolidatedMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    content: str
    type: MemoryType
    scope: Scope
    derived_from: tuple[str, ...]


class Pattern(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recurring theme. `frequency` is the number of sessions it occurs in, `memory_id` the memory made from it."""

    pattern: str
    frequency: int
    suggested_scope: Scope
    memory_id: str | None = None
    derived_from: tuple[str, ...] = ()


class Reflected(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The outcome of a reflection, or of a dry run. `run_id`, for an undo, is None if nothing was written."""

    memories: tuple[ConsolidatedMemory, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    analyzed: int = 0
    run_id: str | None = None
    skipped: int = 0
    not_embedded: int = 0
    """The number of memories not considered because they have no vectors yet."""


class Reflect(Request[Reflected], frozen=True):
    """Consolidate the session's memories. The run's id is derived from `operation_id`."""

    project: ProjectRef
    session_id: str
    operation_id: str
    strategy: ReflectStrategy = "full"
    dry_run: bool = False


Upkeep = Literal["archived", "deleted", "derived", "proposed", "promoted", "notes", "pruned"]
"""`derived` are new summaries and procedures, `proposed` are proposed for promotion to the user, `notes` are private
notes of closed sessions, now forgotten, and `pruned` are removed rows of turns, tool calls, runs and operations."""


class Done(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number of changes of one kind and, if memories were changed, the first few of their ids."""

    count: int
    ids: tuple[str, ...] = ()


class Maintained(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The outcome of maintenance, or of a dry run. Work that changed nothing is omitted."""

    place: str
    examined: int = 0
    done: dict[Upkeep, Done] = {}
    run_ids: tuple[str, ...] = ()
    dry_run: bool = False

    def of(self, sort: Upkeep) -> Done:
        return self.done.get(sort, Done(0))


class Maintain(Request[Maintained], frozen=True):
    """Run maintenance on a project's memories (None: the user's)."""

    project: ProjectRef | None
    dry_run: bool = False


class NotePresence(msgspec.Struct, frozen=True, tag=True):
    """Gateway to store, every few seconds: these sessions are connected. There is no answer."""

    sessions: tuple[tuple[ProjectRef, str], ...]
    directories: tuple[tuple[ProjectRef, str], ...] = ()
    """The roots of the sessions' working trees."""


class SessionEnded(msgspec.Struct, frozen=True, tag=True):
    """A session has ended: promote, consolidate, and write its summary. The last edit is a `CloseSession`."""

    session: SessionEntry


class Promotable(NamedTuple):
    """A running session's memory that is being considered for promotion. Its score depends on its version."""

    memory_id: str
    version: int


class PromoteAtOnce(msgspec.Struct, frozen=True, tag=True):
    memories: tuple[Promotable, ...]


Work = SessionEnded | PromoteAtOnce | Maintain | Reflect


class Job(msgspec.Struct, frozen=True, tag=True):
    """Work for the consolidator, in a project or (None) with the user's memories. In a shared lane, the lane's name
    takes the place of the project's id, and `lane_time` is the time of the newest entry, so that no host's clock
    decides about shared memories."""

    project: ProjectRef | None
    work: Work
    lane_time: float | None = None

    @property
    def key(self) -> tuple[ProjectRef | None, Work]:
        return self.project, self.work

    @property
    def sort(self) -> JobSort:
        match self.work:
            case Reflect():
                return "asked"
            case SessionEnded() | PromoteAtOnce():
                return "session"
            case Maintain():
                return "long"


class AwaitJob(Request[tuple[Job, ...]], frozen=True):
    """Consolidator to store: the job `done` (if any) is finished; send the next one of this kind. At the deadline, the
    answer has no job. `outcome` is the finished job's failure, or its answer if a caller waits for one."""

    sort: JobSort
    done: Job | None = None
    outcome: Reflected | Maintained | Failure | None = None


class Material(ListedMemory, frozen=True, kw_only=True, omit_defaults=True):
    """A memory as the consolidator needs it. `derived_from` and `superseded_by` are complete, and the other ids that
    lists show are left out. `vector` is the normalised mean of its passages' vectors (little-endian float32), empty
    until it has vectors."""

    number: int
    kind: Kind
    session_id: str
    sessions_used: int = 0
    """The number of sessions that requested it by id, changed it, linked it, or received it as a likely answer."""
    entities: tuple[EntityRef, ...] = ()
    archived_at: float | None = None
    pinned: bool = False
    """Also true for an open end that is not done."""
    is_replaced: bool = False
    vector: bytes = b""
    undone: str = ""
    """The history's name for the run's change that the memory's last change undid, if any."""

    @property
    def is_derived(self) -> bool:
        return bool(self.derived_from)

    @property
    def is_summary(self) -> bool:
        """True for a summary of events: a fact with their time, derived from at least as many memories as the smallest
        cluster contains. A fact that a session linked to its sources has no time."""
        return self.kind == "fact" and self.occurred_at is not None and len(self.derived_from) >= SMALLEST_CLUSTER


class ReadProjects(Request[tuple[ProjectRef, ...]], frozen=True):
    """List the other projects that have memories."""

    project: ProjectRef


class ReadMemories(Request[Memories[Material]], frozen=True):
    """Read the memories of a project (None: of the user) that are not forgotten, in order of their numbers. Empty
    tuples allow all. `session_id` selects memories that this session stored, whatever their scope. `after` is the
    number of the last memory of the previous page."""

    project: ProjectRef | None
    scopes: tuple[Scope, ...] = ()
    statuses: tuple[Status, ...] = ()
    types: tuple[MemoryType, ...] = ()
    session_id: str | None = None
    memory_ids: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    after: int = 0
    limit: int = 500
    with_vectors: bool = False
    min_sessions: int = 0
    kinds: tuple[Kind, ...] = ()
    min_importance: float = 0.0
    newest_first: bool = False
    closed_before: float | None = None
    """Only memories of sessions that were closed before this time."""
    proposed: bool | None = None
    """True: only memories whose proposal for promotion is open. False: only memories that were never proposed."""


class FindNear(Request[tuple[tuple[tuple[Material, float], ...], ...]], frozen=True):
    """For each of these memories (by number), find the nearest active memories of a project (None: of the user) and
    their cosines, nearest first. The answer has no vectors and no session memories."""

    project: ProjectRef | None
    numbers: tuple[int, ...]
    min_cosine: float
    limit: int = 5


class ReadEntityEdges(Request[tuple[tuple[str, str, int], ...]], frozen=True):
    """Read the pairs of entities that memories of a space name together, with the number of memories that name each
    pair, highest first. A session's own memories do not count."""

    project: ProjectRef | None


MaterialRequest = ReadMemories | ReadProjects | FindNear | ReadEntityEdges
