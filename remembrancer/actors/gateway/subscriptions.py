"""Tells subscribed sessions that a resource may have changed, at most once in a short interval."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import anyio
import anyio.abc

from remembrancer.actors.gateway.session_registry import ClientConversation
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import Operation, StoreMemory, WriteNote
from remembrancer.toolsets.memory.resources import STATUS, SUMMARY
from remembrancer.toolsets.service import Caller

COALESCE_S: Final = 0.3
MAX_WATCHES: Final = 200

Tell = Callable[[str], Awaitable[None]]


class SessionWatcher:
    """The resources that a session watches. `bus` carries the events of its streams (2026-07-28 protocol)."""

    def __init__(self, caller: Caller, tasks: anyio.abc.TaskGroup) -> None:
        from mcp.server.subscriptions import InMemorySubscriptionBus  # the SDK's server has already loaded it

        self.caller = caller
        self.bus = InMemorySubscriptionBus()
        self._tasks = tasks
        self._held: Counter[str] = Counter()
        self._subscribed: dict[str, Tell] = {}
        self._marked: set[str] = set()
        self._is_telling = False

    def subscribe(self, uri: str, tell: Tell) -> None:
        """For the handshake protocols; `tell` notifies the client. Raises the same errors as `hold`."""
        if uri not in self._subscribed:
            self.hold(uri)
        self._subscribed[uri] = tell

    def unsubscribe(self, uri: str) -> None:
        if self._subscribed.pop(uri, None) is not None:
            self.release((uri,))

    def hold(self, uri: str) -> None:
        """Watch a resource until `release`. The client is notified once, since the resource may have changed after it
        was read. Raises `InvalidInput` if the session already watches too many."""
        if uri not in self._held and len(self._held) >= MAX_WATCHES:
            raise InvalidInput(f"a session can subscribe to at most {MAX_WATCHES} resources", field="uri")
        self._held[uri] += 1
        self.mark((uri,))

    def release(self, uris: Iterable[str]) -> None:
        self._held.subtract(uris)
        self._held = +self._held

    def heard_write(self, operation: Operation) -> None:
        if isinstance(operation.change, StartSession | EndSession | RecordEvents):
            if (operation.project.id, operation.session_id) == (self.caller.project.id, self.caller.session_id):
                self.mark((SUMMARY, STATUS))
        elif not isinstance(operation.change, WriteNote) and _is_seen_by(operation, self.caller):
            self.mark()

    def mark(self, uris: Iterable[str] | None = None) -> None:
        """Mark some or all watched resources as possibly changed."""
        self._marked |= self._held.keys() & set(self._held if uris is None else uris)
        if self._marked and not self._is_telling:
            self._is_telling = True
            self._tasks.start_soon(self._tell)

    async def _tell(self) -> None:
        from mcp.server.subscriptions import ResourceUpdated

        while self._marked:
            await anyio.sleep(COALESCE_S)
            marked, self._marked = self._marked, set()
            for uri in marked & self._held.keys():
                await self.bus.publish(ResourceUpdated(uri))
                if uri in self._subscribed:
                    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session has ended
                        await self._subscribed[uri](uri)
        self._is_telling = False


def _is_seen_by(operation: Operation, caller: Caller) -> bool:
    """False only if a write cannot change anything that the caller sees."""
    change = operation.change
    if not isinstance(change, StoreMemory):  # may concern any memory that the writer can see, including the user's
        return True
    return change.scope == "user" or (
        operation.project.id == caller.project.id
        and (change.scope == "project" or change.session_id == caller.session_id)
    )


class Subscriptions:
    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._watchers: dict[str, SessionWatcher] = {}

    def watcher(self, session: ClientConversation, caller: Caller) -> SessionWatcher:
        return self._watchers.setdefault(session.key, SessionWatcher(caller, self._tasks))

    def move(self, session: ClientConversation, caller: Caller) -> None:
        watcher = self._watchers.get(session.key)
        if watcher is not None:
            watcher.caller = caller
            watcher.mark()

    def close(self, session: ClientConversation) -> None:
        self._watchers.pop(session.key, None)

    def heard_write(self, operation: Operation) -> None:
        for watcher in self._watchers.values():
            watcher.heard_write(operation)

    def heard_recall(self, caller: Caller) -> None:
        for watcher in self._watchers.values():
            if (caller.project.id, caller.session_id) == (watcher.caller.project.id, watcher.caller.session_id):
                watcher.mark((SUMMARY,))

    def heard_store(self) -> None:
        for watcher in self._watchers.values():
            watcher.mark()
