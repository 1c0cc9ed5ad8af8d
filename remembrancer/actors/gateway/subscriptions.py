"""Subscriptions: a session is told when a resource that it watches says something else than before.

What may have changed is told by the writes and recalls of all sessions; whether it has changed is seen by
reading it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.abc
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated

from remembrancer.actors.gateway.attendance import Conversation
from remembrancer.actors.gateway.recent_writes import RecentWrites, Write
from remembrancer.actors.gateway.resources import GRAPH, PREFERENCES, STATUS, SUMMARY, Content, memory_id_of
from remembrancer.memory.short_ids import has_part
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import ImportMemory, Operation, StoreMemory, WriteNote
from remembrancer.protocol.writes import memory_id_of as changed_memory
from remembrancer.toolsets.service import Caller

COALESCE_S: Final = 0.3
"""The time that a marked resource must have been left alone."""
LONGEST_S: Final = 1.0
"""The time that it waits at the most, however busy it is."""
MAX_WATCHES: Final = 200


@dataclass(slots=True)
class Watch:
    """One resource. `told` is the digest of what the session knows of it (None: that is not known)."""

    told: str | None
    holders: int = 1
    first_marked: float | None = None
    last_marked: float = 0.0

    @property
    def due_at(self) -> float | None:
        """The time at which it is to be looked at; None while nothing has happened to it."""
        if self.first_marked is None:
            return None
        return min(self.last_marked + COALESCE_S, self.first_marked + LONGEST_S)


class Watches:
    """The resources of one session that are watched, by their URI."""

    def __init__(self) -> None:
        self._watches: dict[str, Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def __contains__(self, uri: str) -> bool:
        return uri in self._watches

    @property
    def uris(self) -> list[str]:
        """Everything that is watched."""
        return list(self._watches)

    def check_room(self, uris: Iterable[str]) -> None:
        """Refuse what would be too much.

        Raises:
            InvalidInput: the session would watch more than `MAX_WATCHES` resources.
        """
        if len(self._watches.keys() | set(uris)) > MAX_WATCHES:
            raise InvalidInput(f"a session can subscribe to {MAX_WATCHES} resources at most", field="uri")

    def add(self, uri: str, digest: str | None) -> None:
        """Watch a resource whose content has this digest, once more if it is watched already."""
        self.check_room((uri,))
        watch = self._watches.get(uri)
        if watch is None:
            self._watches[uri] = Watch(digest)
        else:
            watch.holders += 1

    def remove(self, uri: str) -> None:
        """One holder less; nothing is remembered of a resource without holders."""
        watch = self._watches.get(uri)
        if watch is not None:
            watch.holders -= 1
            if watch.holders == 0:
                del self._watches[uri]

    def mark(self, uri: str, now: float) -> None:
        """Something happened that may have changed a resource."""
        watch = self._watches.get(uri)
        if watch is not None:
            watch.last_marked = now
            if watch.first_marked is None:
                watch.first_marked = now

    def mark_all(self, now: float) -> None:
        """Something happened that may have changed anything."""
        for uri in self._watches:
            self.mark(uri, now)

    def next_due(self) -> float | None:
        """The time at which the first marked resource is to be looked at."""
        return min((watch.due_at for watch in self._watches.values() if watch.due_at is not None), default=None)

    def take_due(self, now: float) -> list[str]:
        """The resources to be looked at now. Their marks are taken off."""
        due = [uri for uri, watch in self._watches.items() if watch.due_at is not None and watch.due_at <= now]
        for uri in due:
            self._watches[uri].first_marked = None
        return due

    def has_news(self, uri: str, digest: str) -> bool:
        """True if that digest is another than the one last told; it counts as told from now on."""
        watch = self._watches.get(uri)
        if watch is None or watch.told == digest:
            return False
        watch.told = digest
        return True


def concerns(operation: Operation, uri: str, project_id: str, session_id: str) -> bool:
    """True if a write may change what a resource says to a session. False only when that is certain."""
    change = operation.change
    if isinstance(change, WriteNote):
        return False
    if isinstance(change, StartSession | EndSession | RecordEvents):
        is_its_own = (operation.project.id, change.session_id) == (project_id, session_id)
        return is_its_own and uri in (SUMMARY, STATUS)
    memory_id: str | None
    if isinstance(change, StoreMemory):
        memory_id, scope, owner = change.memory_id, change.scope, change.session_id
    elif isinstance(change, ImportMemory):
        memory_id, scope, owner = change.memory.id, change.memory.scope, change.memory.session_id
    else:  # the memory, or memories, may be anybody's that the writer can see, the user's included
        memory_id, scope, owner = changed_memory(change), None, None
    is_everybodys = scope is None or scope == "user"
    if operation.project.id != project_id and not is_everybodys:
        return False
    if scope == "session" and owner != session_id:
        return False
    if uri == PREFERENCES:
        return is_everybodys
    if uri == SUMMARY:
        return owner is None or session_id in (owner, operation.session_id)
    if uri in (STATUS, GRAPH):
        return True
    named = memory_id_of(uri) or ""
    return memory_id is None or memory_id == named or (bool(named) and has_part(memory_id, named))


LOOK_S: Final = 2.0
"""The time between two looks at what changes without a write (embedding, the way to the store), while somebody
watches."""
READERS: Final = 4
"""Resources that are read at once for subscriptions, so that clients come before them."""
GONE: Final = "gone"
"""The digest of a memory that is not there (any more)."""

Tell = Callable[[str], Awaitable[None]]
Read = Callable[[Caller, str, float], Awaitable[Content]]
logger = logging.getLogger(__name__)


class SessionWatcher:
    """The subscriptions of one session. `bus` carries the events of its 2026-07-28 streams."""

    def __init__(
        self, caller: Caller, read: Read, readers: anyio.CapacityLimiter, is_store_there: Callable[[], bool]
    ) -> None:
        self.caller = caller
        self.bus = InMemorySubscriptionBus()
        self.streams = 0
        """The number of them that are open."""
        self._read = read
        self._readers = readers
        self._is_store_there = is_store_there
        self._watches = Watches()
        self._subscribed: set[str] = set()
        self._tell: Tell | None = None
        self._woken = anyio.Event()
        self._scope = anyio.CancelScope()
        self._was_store_there = is_store_there()
        self._unread: set[str] = set()
        """Marked, and could not be read: to be tried again."""

    async def subscribe(self, uri: str, tell: Tell, received_at: float, *, is_replay: bool) -> None:
        """Watch a resource for the handshake protocols; `tell` reaches the client. Twice is once.

        Raises:
            NotFound: there is no such resource for this caller.
            InvalidInput: the session watches too many already.
        """
        self._tell = tell
        if uri not in self._subscribed:
            await self.hold((uri,), received_at, is_replay=is_replay)
            self._subscribed.add(uri)

    def unsubscribe(self, uri: str) -> None:
        """The end of `subscribe`. A resource that is not watched is nobody's loss."""
        if uri in self._subscribed:
            self._subscribed.discard(uri)
            self.release((uri,))

    async def hold(self, uris: Sequence[str], received_at: float, *, is_replay: bool) -> None:
        """Watch resources until `release`. After `is_replay` each is told of once: what changed since the session last
        heard of it, from another process, is not known.

        Raises:
            NotFound, InvalidInput: as `subscribe`; then none of them is watched.
        """
        self._watches.check_room(uris)
        digests = [await self._digest(uri, received_at, is_known=False) for uri in uris]
        self._watches.check_room(uris)
        for uri, digest in zip(uris, digests, strict=True):
            self._watches.add(uri, None if is_replay else digest)
            if is_replay or digest is None:
                self._watches.mark(uri, time.monotonic())
        self._wake()

    def release(self, uris: Sequence[str]) -> None:
        """The end of `hold`."""
        for uri in uris:
            self._watches.remove(uri)

    def read_writes(self, writes: Sequence[Write] | None) -> None:
        """Mark what these writes of any session may have changed; None: there were too many to be told which."""
        now = time.monotonic()
        if writes is None:
            self._watches.mark_all(now)
        for write in writes or ():
            for uri in (STATUS,) if write.stage == "queued" else self._watches.uris:
                if concerns(write.operation, uri, self.caller.project.id, self.caller.session_id):
                    self._watches.mark(uri, now)
        self._wake()

    def move(self, caller: Caller) -> None:
        """The session works in another project from now on: everything that is watched may be another."""
        self.caller = caller
        self._watches.mark_all(time.monotonic())
        self._wake()

    def heard_recall(self, caller: Caller) -> None:
        """A session was shown memories."""
        if (caller.project.id, caller.session_id) == (self.caller.project.id, self.caller.session_id):
            self._watches.mark(SUMMARY, time.monotonic())
            self._wake()

    def close(self) -> None:
        """End `run`; the session has gone."""
        self._scope.cancel()

    async def run(self) -> None:
        """Look at what is due, and tell. Ends with `close`."""
        with self._scope:
            looked_at = time.monotonic()
            while True:
                await self._wait(looked_at + LOOK_S)
                if time.monotonic() >= looked_at + LOOK_S:
                    looked_at = time.monotonic()
                    self._look_around(looked_at)
                for uri in self._watches.take_due(time.monotonic()):
                    await self._look_at(uri)

    async def _wait(self, look_at: float) -> None:
        """Until something is due, or something happens; without anything to watch only for that."""
        woken = self._woken
        if not self._watches:
            await woken.wait()
            return
        due = self._watches.next_due()
        until = look_at if due is None else min(due, look_at)
        with anyio.move_on_after(max(0.0, until - time.monotonic())):
            await woken.wait()

    def _look_around(self, now: float) -> None:
        """Whatever happens without a write."""
        is_there = self._is_store_there()
        if is_there and not self._was_store_there:
            self._watches.mark_all(now)
        self._was_store_there = is_there
        for uri in (STATUS, *self._unread):
            self._watches.mark(uri, now)
        self._unread.clear()

    async def _look_at(self, uri: str) -> None:
        digest = await self._digest(uri, time.time(), is_known=True)
        if digest is None:
            self._unread.add(uri)
            return
        if not self._watches.has_news(uri, digest):
            return
        await self.bus.publish(ResourceUpdated(uri))
        if uri in self._subscribed and self._tell is not None:
            try:
                await self._tell(uri)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                logger.debug("a session has gone", extra={"session": self.caller.session_id})

    async def _digest(self, uri: str, received_at: float, *, is_known: bool) -> str | None:
        """The digest of a resource; None when it cannot be read now. One that was known and is not there is `GONE`."""
        try:
            async with self._readers:
                content = await self._read(self.caller, uri, received_at)
                return None if content.is_part else content.digest
        except NotFound:
            if not is_known:
                raise
            return GONE
        except RemembrancerError as error:
            logger.debug("a watched resource cannot be read", extra={"uri": uri, "code": error.code})
            return None

    def _wake(self) -> None:
        self._woken.set()
        self._woken = anyio.Event()


class Subscriptions:
    """The watchers of all sessions, which read the list of writes: run `run` as a task. `heard_recall` is told of
    recalls."""

    def __init__(
        self, read: Read, writes: RecentWrites, is_store_there: Callable[[], bool], tasks: anyio.abc.TaskGroup
    ) -> None:
        self._read = read
        self._writes = writes
        self._is_store_there = is_store_there
        self._tasks = tasks
        self._readers = anyio.CapacityLimiter(READERS)
        self._watchers: dict[str, SessionWatcher] = {}
        """By the key of the session's connection."""
        self._wanted = anyio.Event()
        self._seen = 0
        """The number of the first write that the watchers have not read."""

    def __len__(self) -> int:
        """The number of sessions that have a watcher."""
        return len(self._watchers)

    def watcher(self, session: Conversation, caller: Caller) -> SessionWatcher:
        """A session's watcher, made when it has none."""
        watcher = self._watchers.get(session.key)
        if watcher is None:
            if not self._watchers:
                self._seen = self._writes.next_number
                self._wanted.set()
            watcher = SessionWatcher(caller, self._read, self._readers, self._is_store_there)
            self._watchers[session.key] = watcher
            self._tasks.start_soon(self._run, session.key, watcher)
            session.when_known(watcher.move)
            session.at_end(lambda: self.close(session.key))
        return watcher

    def close(self, session: str) -> None:
        """The session has gone: nothing is kept of it."""
        watcher = self._watchers.pop(session, None)
        if watcher is not None:
            watcher.close()

    async def run(self) -> None:
        """Have every watcher read the list of writes, as long as there is one. Ends when it is cancelled."""
        while True:
            await self._wanted.wait()
            while self._watchers:
                happened = self._writes.happened
                writes, self._seen = self._writes.since(self._seen), self._writes.next_number
                for watcher in self._watchers.values():
                    watcher.read_writes(writes)
                await happened.wait()
            self._wanted = anyio.Event()

    def heard_recall(self, caller: Caller, _: tuple[str, ...]) -> None:
        """A session was shown memories."""
        for watcher in self._watchers.values():
            watcher.heard_recall(caller)

    async def _run(self, session: str, watcher: SessionWatcher) -> None:
        """A watcher's task. A fault of it costs its session the notifications, and nobody anything else."""
        try:
            await watcher.run()
        except Exception:
            logger.exception("a session's subscriptions failed", extra={"session": watcher.caller.session_id})
            self.close(session)
