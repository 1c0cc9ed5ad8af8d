"""Between the store and the consolidator: what is to be done, and what there is to think about.

The consolidator asks for a job and waits; the store hands one out when there is one. What has to survive a crash is
in the records (sessions that have ended, consolidation requests, when maintenance was last done), so a consolidator
that dies is handed the same job again. Whatever it decides comes back as operations.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from remembrancer.protocol.errors import Failure
from remembrancer.protocol.kinds import Kind, MemoryType, Scope, Status
from remembrancer.protocol.runs import Prune
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import EntityRef, ProjectRef

ReflectStrategy = Literal["summarize", "extract_patterns", "full"]
JobSort = Literal["asked", "session", "long"]
"""The sorts of jobs, of which one each is done at a time: what an assistant waits for; ends of sessions and promotions;
the work on a whole file."""


class ConsolidatedMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory that was (or in a dry run would be) derived from others."""

    id: str
    content: str
    type: MemoryType
    kind: Kind
    scope: Scope
    derived_from: tuple[str, ...]


class Pattern(msgspec.Struct, frozen=True, omit_defaults=True):
    """A theme that recurs: in how many sessions, and where it belongs. `memory_id`: the memory that was made of it."""

    pattern: str
    frequency: int
    suggested_scope: Scope
    memory_id: str | None = None
    derived_from: tuple[str, ...] = ()


class Reflected(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The outcome of a reflection, or what it would do. `run_id` names it for undoing (None: nothing was written)."""

    memories: tuple[ConsolidatedMemory, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    analyzed: int = 0
    run_id: str | None = None
    skipped: int = 0
    not_embedded: int = 0
    """Memories that could not be looked at yet, because their vectors are still being made."""


class Reflect(Request[Reflected], frozen=True):
    """Consolidate a session's memories. Refused when no consolidator is there.

    `about` is the session to consolidate; it must be the asking session's own.
    """

    project: ProjectRef
    session_id: str
    about: str
    strategy: ReflectStrategy = "full"
    dry_run: bool = False
    operation_id: str = ""
    """From which the ids of the run and of its memories are derived: a repetition does nothing twice."""


Upkept = Literal["archived", "deleted", "duplicates", "orphans", "proposed", "promoted", "notes", "pruned"]
"""The sorts of what a maintenance does: `proposed` are memories of the project that are proposed to go to the user,
`notes` those of closed sessions for themselves alone, which are forgotten, and `pruned` rows of turns, tool calls, runs
and operations that were removed."""


class Done(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number of a sort, and the ids of the first of them, where they are memories."""

    count: int
    ids: tuple[str, ...] = ()


class Maintained(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The outcome of a maintenance, or in a dry run what it would do. A sort of which there was nothing is left out."""

    place: str
    examined: int = 0
    done: dict[Upkept, Done] = {}
    run_ids: tuple[str, ...] = ()
    dry_run: bool = False

    def of(self, sort: Upkept) -> Done:
        """The outcome of one sort."""
        return self.done.get(sort, Done(0))


class Maintain(Request[Maintained], frozen=True):
    """Do the maintenance of a project's memories (None: of the user's)."""

    project: ProjectRef | None
    dry_run: bool = False


class NotePresence(msgspec.Struct, frozen=True, tag=True):
    """Gateway to store, every few seconds: these sessions are connected. Nothing is written. No answer."""

    sessions: tuple[tuple[ProjectRef, str], ...]
    directories: tuple[tuple[ProjectRef, str], ...] = ()
    """The roots of the working trees that they are in."""


class NoJob(msgspec.Struct, frozen=True, tag=True):
    """There is nothing to do: ask again."""


class SessionEndJob(msgspec.Struct, frozen=True, tag=True):
    """A session has ended: promote, consolidate, and write its summary. Ends with a `CloseSession`."""

    job_id: int
    project: ProjectRef
    session: SessionEntry


class PromoteJob(msgspec.Struct, frozen=True, tag=True):
    """These memories of running sessions may be worth a promotion at once."""

    job_id: int
    project: ProjectRef
    memory_ids: tuple[str, ...]


class ConsolidateJob(msgspec.Struct, frozen=True, tag=True):
    """A project (None: the user) has more memories than it should: consolidate them. Ends with a `CloseRequest`."""

    job_id: int
    project: ProjectRef | None
    request_id: int
    reason: str
    lane_time: float | None = None
    """The time of a shared lane, whose name stands in the place of the project's id; None for all else. It is that of
    the newest entry: no clock of a host decides what becomes of everybody's memories."""


class MaintainJob(msgspec.Struct, frozen=True, tag=True):
    """Maintenance is due, or somebody asked for it and waits for `JobReport`."""

    job_id: int
    request: Maintain
    lane_time: float | None = None
    """As in `ConsolidateJob`."""


class ReflectJob(msgspec.Struct, frozen=True, tag=True):
    """Somebody asked for a reflection and waits for `JobReport`."""

    job_id: int
    request: Reflect


Work = SessionEndJob | PromoteJob | ConsolidateJob | MaintainJob | ReflectJob


class AwaitJob(Request[NoJob | Work], frozen=True):
    """Consolidator to store: what is to be done? There is an answer when the deadline comes at the latest.

    `sort` limits what is handed out (None: anything): whoever asks for a sort has no job of that sort any more.
    """

    sort: JobSort | None = None


def sort_of(job: Work) -> JobSort:
    """The sort of a job: two of one sort are not done beside each other."""
    match job:
        case ReflectJob():
            return "asked"
        case SessionEndJob() | PromoteJob():
            return "session"
        case ConsolidateJob() | MaintainJob():
            return "long"


class JobReport(msgspec.Struct, frozen=True, tag=True):
    """Consolidator to store: a job is done, with the answer where somebody waits for one, or why it is not."""

    job_id: int
    answer: Reflected | Maintained | Failure | None = None


class Material(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory as the consolidator needs it. Times are seconds since the epoch; `last_accessed_at` is at least
    `created_at`. `vector` is the normalised mean of its passages' vectors (little-endian float32), empty while it has
    none."""

    number: int
    id: str
    content: str
    kind: Kind
    type: MemoryType
    scope: Scope
    session_id: str
    version: int
    created_at: float
    happened_at: float
    updated_at: float
    last_accessed_at: float
    importance: float = 0.5
    confidence: float = 0.5
    access_count: int = 0
    sessions_used: int = 0
    """The number of sessions that have used it: it was asked for by its id, changed, linked, or shown as a sure
    answer."""
    status: Status = "active"
    summary: str | None = None
    domain: str | None = None
    tags: tuple[str, ...] = ()
    entities: tuple[EntityRef, ...] = ()
    is_derived: bool = False
    """True if it was derived from other memories."""
    derived_from: tuple[str, ...] = ()
    """Ids of what it was derived from. Known where content is asked for."""
    archived_at: float | None = None
    """The time at which it was archived, for one that is."""
    valid_until: float | None = None
    pinned: bool = False
    """True also of an open end that is not done."""
    is_replaced: bool = False
    """True if a later memory more probably than not says what holds in its place."""
    vector: bytes = b""
    undone: str = ""
    """The work of a run on it (as the history calls it), if undoing that was the last change to it."""


class ReadProjects(Request[tuple[ProjectRef, ...]], frozen=True):
    """Which other projects than this one have memories?"""

    project: ProjectRef


class MemoriesRead(msgspec.Struct, frozen=True, tag=True):
    """A page. `more`: ask again after the last one's number."""

    memories: tuple[Material, ...]
    more: bool


class ReadMemories(Request[MemoriesRead], frozen=True):
    """Memories of a file that are not forgotten, in the order of their numbers.

    `project` None: the user's. Empty tuples allow all. `session_id` limits to what that session stored; it says nothing
    about scopes. `after` is the number of the last one of the page before. Without content a page is smaller and sooner
    there: it has neither contents nor summaries nor entities.
    """

    project: ProjectRef | None
    scopes: tuple[Scope, ...] = ()
    statuses: tuple[Status, ...] = ()
    types: tuple[MemoryType, ...] = ()
    session_id: str | None = None
    memory_ids: tuple[str, ...] = ()
    after: int = 0
    limit: int = 500
    with_vectors: bool = False
    with_content: bool = True
    min_sessions: int = 0
    """Only memories that were used in so many sessions."""
    kinds: tuple[Kind, ...] = ()
    min_importance: float = 0.0
    waiting: bool = False
    """Only memories that wait for their vectors."""
    before: int | None = None
    """If given: the last page of those whose numbers are below this, the last one first. `after` is not looked at."""
    closed_before: float | None = None
    """Only memories of sessions that were closed before this time."""
    made_by: str | None = None
    """Only memories that this run made."""
    proposed: bool | None = None
    """Only memories that are proposed to go to the user, and not refused; or (False) those that never were proposed."""


class FindNear(Request[tuple[tuple[tuple[Material, float], ...], ...]], frozen=True):
    """For each of some vectors the active memories of a project (or, None, of the user) nearest to it with their
    cosines, the nearest first, and without vectors of their own. No session's own memories are among them.

    `vectors` are little-endian float32 rows, of the model in use.
    """

    project: ProjectRef | None
    vectors: bytes
    rows: int
    min_cosine: float
    limit: int = 5


class EntityEdges(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Names and weights: how many memories of the page say so. `next_after`: where the next page begins, if there is
    one. `topics_at`: when topics were found last (seconds since the epoch)."""

    edges: tuple[tuple[str, str, float], ...]
    next_after: int | None = None
    topics_at: float | None = None


class ReadEntityEdges(Request[EntityEdges], frozen=True):
    """The edges between the entities of a file that its memories say, and of those that one memory names together.

    The answer is for a page of memories: those whose numbers are above `after`. A session's memories do
    not count.
    """

    project: ProjectRef | None
    after: int = 0


class Upkeep(msgspec.Struct, frozen=True, tag=True):
    """The number of entities that no memory names and that were made before the time that was asked about, and of rows
    to be pruned."""

    orphans: int = 0
    prunable: int = 0


class ReadUpkeep(Request[Upkeep], frozen=True):
    """Asks for the facts that the maintenance of a file has to know. Times are seconds since the
    epoch."""

    project: ProjectRef | None
    orphans_before: float
    prune: Prune | None = None


class SessionRead(msgspec.Struct, frozen=True, tag=True):
    """The registry's entry (None: the session is unknown)."""

    entry: SessionEntry | None
    promoted: int = 0
    """Memories of the session that have been promoted to its project, by the log."""


class ReadSession(Request[SessionRead], frozen=True):
    """Asks for what is known of a session."""

    project: ProjectRef
    session_id: str


MaterialRequest = ReadMemories | ReadProjects | FindNear | ReadEntityEdges | ReadUpkeep | ReadSession
