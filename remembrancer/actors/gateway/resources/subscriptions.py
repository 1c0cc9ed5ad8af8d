"""Subscriptions: a session is told when a resource that it watches says something else than before.

One task for each session that watches anything, which ends with the session. What may have changed is heard from the
writes and recalls of all sessions; whether it has changed is seen by reading it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import anyio.abc
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated

from remembrancer.actors.gateway.resources.reading import Content
from remembrancer.actors.gateway.resources.resource_uris import STATUS, SUMMARY
from remembrancer.actors.gateway.resources.watches import Watches, concerns
from remembrancer.actors.gateway.toolkit.tools import Caller
from remembrancer.protocol.errors import NotFound, RemembrancerError
from remembrancer.protocol.writes import Operation

LOOK_S: Final = 2.0
"""How often what changes without a write (embedding, the way to the store) is looked at while somebody watches."""
READERS: Final = 4
"""Resources that are read at once for subscriptions, so that clients come before them."""
GONE: Final = "gone"
"""The digest of a memory that is not there (any more)."""

Tell = Callable[[str], Awaitable[None]]
Read = Callable[[Caller, str, float], Awaitable[Content]]
logger = logging.getLogger(__name__)


class SessionWatcher:
    """What one session watches. `bus` carries the events of its 2026-07-28 streams."""

    def __init__(
        self, caller: Caller, read: Read, readers: anyio.CapacityLimiter, is_store_there: Callable[[], bool]
    ) -> None:
        self.caller = caller
        self.bus = InMemorySubscriptionBus()
        self.streams = 0
        """How many of them are open."""
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

    def heard_write(self, operation: Operation, *, applied: bool) -> None:
        """A write of any session was applied, or queued: then it is heard of again when it is applied."""
        now = time.monotonic()
        for uri in self._watches.uris if applied else (STATUS,):
            if concerns(operation, uri, self.caller.project.id, self.caller.session_id):
                self._watches.mark(uri, now)
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
    """The watchers of all sessions. `heard_write` and `heard_recall` are told what happens in the gateway."""

    def __init__(self, read: Read, is_store_there: Callable[[], bool], tasks: anyio.abc.TaskGroup) -> None:
        self._read = read
        self._is_store_there = is_store_there
        self._tasks = tasks
        self._readers = anyio.CapacityLimiter(READERS)
        self._watchers: set[SessionWatcher] = set()

    def __len__(self) -> int:
        """How many sessions have a watcher."""
        return len(self._watchers)

    def open(self, caller: Caller) -> SessionWatcher:
        """A watcher for a session. Whoever opens it closes it, with `close`."""
        watcher = SessionWatcher(caller, self._read, self._readers, self._is_store_there)
        self._watchers.add(watcher)
        self._tasks.start_soon(self._run, watcher)
        return watcher

    def close(self, watcher: SessionWatcher) -> None:
        """The session has gone: nothing is kept of it."""
        self._watchers.discard(watcher)
        watcher.close()

    def heard_write(self, operation: Operation, applied: bool) -> None:
        """A write was applied, or queued."""
        for watcher in self._watchers:
            watcher.heard_write(operation, applied=applied)

    def heard_recall(self, caller: Caller, _: tuple[str, ...]) -> None:
        """A session was shown memories."""
        for watcher in self._watchers:
            watcher.heard_recall(caller)

    async def _run(self, watcher: SessionWatcher) -> None:
        """A watcher's task. A fault of it costs its session the notifications, and nobody anything else."""
        try:
            await watcher.run()
        except Exception:
            logger.exception("a session's subscriptions failed", extra={"session": watcher.caller.session_id})
            self.close(watcher)
