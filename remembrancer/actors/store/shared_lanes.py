"""The shared lanes of a home: their connections to journals, and the entries of other hosts. The code for sharing is
imported only when something is shared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never, TypeAlias, TypeVar, cast

import msgspec

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.dispatcher import Handler, RequestContext, by_request
from remembrancer.actors.store.records.moves import delete_handed_over
from remembrancer.actors.store.records.sqlite_records import Limits, Records
from remembrancer.actors.store.records.types import Clock, Outcome
from remembrancer.actors.store.spaces import USER, HomeSpaces
from remembrancer.protocol.errors import InvalidInput, JournalAway, JournalRefused, KeyMissing, RemembrancerError
from remembrancer.protocol.ids import derive_memory_id, new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sharing import DescribeLanes, LaneState, LeaveLane, MemoriesMoved, RejoinLane, ShareProject
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ImportMemory, Operation, PortableMemory, ProjectRef

if TYPE_CHECKING:
    from remembrancer.actors.store.lane_follower import LaneFollower
    from remembrancer.actors.store.shared_lane import SharedLane
    from remembrancer.journal.contract import Journal

ANSWER_S: Final = 3.0
"""The maximum time that a write waits for the journal. A retry first searches the journal for its entries."""
SILENT_S: Final = 10.0
"""Answers mention a journal only after it has been unreachable for this long: a restarted server needs no notice."""
MOVE_BATCH: Final = 50

T = TypeVar("T")
logger = logging.getLogger(__name__)


Scrub = Callable[[Sequence[str]], Coroutine[Any, Any, None]]
Wake = Callable[[], None]
Connection: TypeAlias = "tuple[Journal, str]"
"""A journal, and the name of this host as a member of its lane."""


class NoJournal:
    """Takes the place of a journal that cannot be reached: every request fails with the reason."""

    def __init__(self, error: RemembrancerError) -> None:
        self._error = error

    async def aclose(self) -> None:
        pass

    def __getattr__(self, _: str) -> Never:
        raise self._error


class SharedLanes:
    """The shared lanes of a home. Each is followed while it is open. Belongs to one event loop."""

    def __init__(
        self,
        paths: RuntimePaths,
        committer: Committer,
        clock: Clock,
        connect: Callable[[str], Connection] | None = None,
    ) -> None:
        self._committer = committer
        self._clock = clock
        self._connect = connect or partial(_connection, paths)
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, LaneFollower] = {}
        self._files: HomeSpaces
        self._changing = asyncio.Lock()

    def attach(self, files: HomeSpaces, scrub: Scrub, tell: Callable[[Sequence[Operation]], None], wake: Wake) -> None:
        """`scrub` removes erased memories from every space, `tell` gets others' operations, `wake` embeds new texts."""
        self._files, self._scrub, self._tell_others, self._wake = files, scrub, tell, wake

    def handlers(self) -> dict[type, Handler]:
        return by_request(self._share, self._leave, self._rejoin, self._describe)

    def open(self, name: str, database: SqliteFile, key: str, limits: Limits) -> SharedLane:
        """Open a lane. If its journal cannot be reached, the lane serves the entries applied so far, with a notice."""
        return self._follow(self._made(name, database, key, limits))

    async def purge(self) -> None:
        """Remove erased memories from the journals. If one cannot be reached, this happens later."""
        for opened in list(self._open.values()):
            with suppress(RemembrancerError):  # `LaneFollower` tries again
                await opened.compact()

    def notices(self, project_id: str) -> tuple[Notice, ...]:
        lane = self._files.shared.get(project_id)
        if lane is None:
            return ()
        if lane.problem is not None:
            text = f"Changes are no longer exchanged with the other machines: {lane.problem.message}"
        elif lane.silent is not None and self._is_cut_off(lane):
            since, error = lane.silent
            text = f"Changes by other machines in the last {self._clock() - since:.0f} s are missing ({error.message})."
        else:
            return ()
        return (Notice("partial_results", text),)

    def cut_off(self) -> tuple[LaneState, ...]:
        return self._states({key: lane for key, lane in self._files.shared.items() if self._is_cut_off(lane)})

    def _is_cut_off(self, lane: SharedLane) -> bool:
        since, _ = lane.silent or (self._clock(), None)
        return lane.problem is not None or self._clock() - since >= SILENT_S

    def _states(self, lanes: Mapping[str, SharedLane]) -> tuple[LaneState, ...]:
        paths = {project.id: project.path for project in self._files.catalog.projects()} | {USER: ""} if lanes else {}

        def state_of(key: str, lane: SharedLane) -> LaneState:
            why = () if (error := lane.obstacle) is None else (error.message, error.code)
            return LaneState(lane.name, paths.get(key, key), lane.mark.position, *why)

        return tuple(state_of(*each) for each in sorted(lanes.items()))

    # Journals.

    def _made(self, name: str, database: SqliteFile, key: str, limits: Limits) -> SharedLane:
        from remembrancer.actors.store.shared_lane import SharedLane

        problem = None
        try:
            journal, member = self._connect(name)
        except RemembrancerError as error:  # the entries applied so far can be read
            logger.error("a shared lane has no journal", extra={"lane": name, "reason": error.message})
            journal, member, problem = cast("Journal", NoJournal(error)), "", error
        lane = SharedLane(
            database,
            name,
            self._clock,
            journal,
            member,
            self._ask,
            lambda operations: self._loop.call_soon_threadsafe(self._tell, name, operations),
            is_users=key == USER,
            limits=limits,
        )
        lane.problem = problem
        return lane

    def _follow(self, lane: SharedLane) -> SharedLane:
        from remembrancer.actors.store.lane_follower import LaneFollower

        opened = self._open[lane.name] = LaneFollower(
            lane,
            self._committer,
            self._clock,
            lambda: self._wake(),
            lambda erased: self._scrub(erased),
        )
        opened.start()
        return lane

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return asked.result(ANSWER_S)
        except TookTooLong as error:
            asked.cancel()
            raise JournalAway("the server of this shared lane does not answer in time") from error

    def _tell(self, name: str, operations: Sequence[Operation]) -> None:
        project = ProjectRef(self._files.sharer_of(name) or "", "")
        self._wake()
        self._tell_others([msgspec.structs.replace(each, project=project) for each in operations])

    async def aclose(self) -> None:
        for opened in self._open.values():
            await opened.stop()
            await opened.lane.journal.aclose()

    # Requests.

    async def _share(self, request: ShareProject, _context: RequestContext) -> MemoriesMoved:
        project, files = request.project, self._files
        key, whose = (USER, "the user") if project is None else (project.id, "this project")
        async with self._changing:
            shared, sharer = files.shared.get(key), files.sharer_of(request.lane)
            if shared is not None and shared.name != request.lane:
                leave = "remembrancer share leave --user" if project is None else "remembrancer share leave"
                raise InvalidInput(f"{whose} already shares {shared.name}; run '{leave}' to stop")
            if sharer not in (None, key):
                move = f"if it was moved here, run 'remembrancer admin projects move {sharer} .' first"
                raise InvalidInput(f"another project ({sharer}) already shares {request.lane}: {move}")
            if request.dry_run:
                own = files.user_file if project is None else files.open_project(project)
                return MemoriesMoved(0 if own is None else len(await self._committer.run(own.name, own.shareable)))
            if request.lane not in self._open:
                make = partial(self._made, request.lane, files.database, key, files.limits)
                self._follow(await self._committer.run(request.lane, make))
            opened = self._open[request.lane]
            await opened.catch_up()  # raises an error if sharing cannot start
            own = await self._own(project)
            await files.share(key, opened.lane)
            return await self._move_into(opened.lane, own, project or ProjectRef(USER, ""))

    async def _own(self, project: ProjectRef | None) -> Records:
        return self._files.user_file if project is None else await self._files.project(project)

    async def _move_into(self, lane: SharedLane, own: Records, project: ProjectRef) -> MemoriesMoved:
        ids = await self._committer.run(own.name, own.shareable)
        moved, reasons = 0, list[str]()
        for begin in range(0, len(ids), MOVE_BATCH):
            some = ids[begin : begin + MOVE_BATCH]
            outcomes = await self._committer.run(lane.name, partial(self._move_some, lane, own, project, some))
            errors = [outcome for outcome in outcomes if isinstance(outcome, RemembrancerError)]
            for error in errors:
                if isinstance(error, JournalAway | JournalRefused):
                    raise error
            self._wake()
            moved += len(outcomes) - len(errors)
            reasons += [error.message for error in errors]
        return MemoriesMoved(moved, left=len(reasons), reason=reasons[0] if reasons else None)

    def _move_some(self, lane: SharedLane, own: Records, project: ProjectRef, ids: Sequence[str]) -> list[Outcome]:
        """Runs on the lane's thread."""
        memories = [memory for each in ids if (memory := own.portable(each, None)) is not None]
        given = [_apart(lane, memory) for memory in memories]
        outcomes = lane.apply([self._import(lane, project, memory) for memory in given])
        for memory, other, outcome in zip(memories, given, outcomes, strict=True):
            if other.id != memory.id and not isinstance(outcome, RemembrancerError):
                own.complete(self._import(lane, project, memory), partial(delete_handed_over, memory=memory))
        return outcomes

    async def _leave(self, request: LeaveLane, _context: RequestContext) -> tuple[str, int]:
        project = request.project
        async with self._changing:
            key, whose = (USER, "the user") if project is None else (project.id, "this project")
            lane = self._files.shared.get(key)
            if lane is None:
                raise InvalidInput(f"{whose} shares nothing")
            own, opened = await self._own(project), self._open[lane.name]
            ids = await self._committer.run(lane.name, lane.shareable)
            if request.dry_run:
                return lane.name, len(ids)
            with suppress(RemembrancerError):  # skip entries that cannot be read
                await opened.catch_up()
            await self._committer.run(lane.name, partial(lane.leave, own))
            del self._files.shared[key]
            self._wake()
            await opened.stop()
            del self._open[lane.name]
            await lane.journal.aclose()
            return lane.name, len(ids)

    async def _rejoin(self, request: RejoinLane, context: RequestContext) -> tuple[LaneState, ...]:
        name = request.lane
        async with self._changing:
            if name in self._open:
                connection, opened = self._connect(name), self._open[name]
                former = opened.lane.journal
                await opened.stop()
                await self._committer.run(name, partial(opened.lane.rejoin, *connection))
                opened.start()
                await former.aclose()
                if request.has_new_key:
                    await self._committer.run(name, opened.lane.announce_key)
        return await self._describe(DescribeLanes(), context)

    def _import(self, lane: SharedLane, project: ProjectRef, memory: PortableMemory) -> Operation:
        """Return the operation that imports a memory. This host becomes the author of all changes without a member. The
        operation can be repeated, since an existing memory is not changed. Entries from a session are omitted, since
        other members may not see them. The user's memories keep theirs; of two with the same text, one's is kept."""
        is_users = project.id == USER
        history = tuple(
            msgspec.structs.replace(entry, details={"member": lane.member, **entry.details})
            for entry in memory.history
            if is_users or entry.record.scope != "session"
        )
        given = msgspec.structs.replace(memory, history=history)
        return Operation(new_ulid(), project, "", self._clock(), ImportMemory(given, joins_same=is_users))

    async def _describe(self, _request: DescribeLanes, _context: RequestContext) -> tuple[LaneState, ...]:
        return self._states(self._files.shared)


def _connection(paths: RuntimePaths, lane: str) -> Connection:
    """Raises `KeyMissing` if this home is not a member, `ConfigurationError` if packages for sharing are missing."""
    from remembrancer.journal import sharing_of

    sharing = sharing_of(paths.home)
    try:
        membership = sharing.membership(lane)
    except InvalidInput as error:
        raise KeyMissing(f"{error.message}; run 'remembrancer share join' with an invitation to continue") from error
    return sharing.open(membership), membership.member


def _apart(lane: SharedLane, memory: PortableMemory) -> PortableMemory:
    """Return a memory with a new, deterministic id if the lane has a memory with its id, but lacks some of its changes,
    because a host changed it after leaving the lane."""
    there = lane.portable(memory.id, None)
    known = set() if there is None else {entry.operation_id for entry in there.history}
    ours = [entry for entry in memory.history if entry.record.scope != "session" and entry.change != "imported"]
    missing = [entry.operation_id for entry in ours if entry.operation_id not in known]
    if there is None or not missing:
        return memory
    return msgspec.structs.replace(memory, id=derive_memory_id(f"{memory.id} {missing[-1]}", memory.created_at))
