"""Records when sessions begin and end. A session begins with its first bridge, once its project is known, and ends when
its last bridge reports that the client has gone. The store detects sessions that do not return."""

import abc
import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import anyio

from remembrancer.actors.gateway.store_access import StoreAccess
from remembrancer.protocol.consolidation import NotePresence
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.ids import derive_id
from remembrancer.protocol.session_life import EndSession, StartSession
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import Operation, ProjectRef
from remembrancer.toolsets.service import Caller
from remembrancer.toolsets.tools import Tool

PRESENCE_S: Final = 5.0
"""The interval between reports of presence. A session's grace period is several times as long."""
FIRST_WAIT_S: Final = 10.0
"""A new gateway's first session waits this long for a starting store; then its start is queued."""

logger = logging.getLogger(__name__)


class ClientConversation(abc.ABC):
    """A client's conversation over any transport. `key` is unique; `notices` are added to the first answer."""

    def __init__(self, key: str, tools: dict[str, Tool[Any]], notices: list[Notice], client: str | None = None) -> None:
        self.key = key
        self.tools = tools
        self.withheld = frozenset[str]()
        """The tools hidden from a read-only token."""
        self.client = client
        self.has_announced_end = False
        """True if the client has gone for good; if False, a broken connection may be restored."""
        self._notices = notices

    @abc.abstractmethod
    async def caller(self) -> Caller: ...

    def take_notices(self) -> list[Notice]:
        notices, self._notices = self._notices, []
        return notices


class SessionRegistry:
    """`on_known` is called when a session's project becomes known or changes, `on_left` when a connection has ended.
    `of_hooks` returns the sessions that only hooks report as present."""

    def __init__(
        self,
        access: StoreAccess,
        store: StoreClient,
        of_hooks: Callable[[], Iterable[tuple[ProjectRef, str]]],
        on_known: Callable[[ClientConversation, Caller], None],
        on_left: Callable[[ClientConversation], None],
    ) -> None:
        self._access = access
        self._store = store
        self._of_hooks, self._on_known, self._on_left = of_hooks, on_known, on_left
        self._callers: dict[str, Caller] = {}
        """The callers, by connection key."""
        self._waiting: asyncio.Queue[Operation] = asyncio.Queue()
        self._connection = anyio.Event()
        self._patience = anyio.CancelScope()
        """The wait for the store's first answer, cancelled when the runtime stops."""
        self._stopping = False

    def left(self, session: ClientConversation) -> None:
        self._on_left(session)
        if session.key in self._callers:
            self._replace(session, None)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._note_presence)
            while True:
                await self._submit(await self._waiting.get())
                self._waiting.task_done()

    async def drain(self) -> None:
        """Report all session ends so far. A session whose start is not reported yet begins at its next request."""
        self._stopping = True
        self._patience.cancel()
        await self._waiting.join()

    def known(self, session: ClientConversation, caller: Caller) -> None:
        self._on_known(session, caller)
        self._replace(session, caller)

    def _replace(self, session: ClientConversation, caller: Caller | None) -> None:
        before, old = self._present(), self._callers.pop(session.key, None)
        if caller is not None:
            self._callers[session.key] = caller
        now = self._present()
        self._connection.set()
        self._connection = anyio.Event()
        has_left = caller is not None or session.has_announced_end
        if old is not None and _session_of(old) not in now and has_left:
            self._report(session, old, EndSession(old.session_id))
        if caller is not None and _session_of(caller) not in before:
            self._report(session, caller, StartSession(caller.session_id, session.client, caller.directory))

    def _present(self) -> set[tuple[ProjectRef, str]]:
        return {_session_of(caller) for caller in self._callers.values()}

    def _report(self, session: ClientConversation, caller: Caller, change: StartSession | EndSession) -> None:
        """Queue a start or an end. The operation's id is derived from the connection's unique key: a bridge that
        reconnects starts its session again, which changes nothing unless the session has ended."""
        kind = type(change).__name__
        operation_id = derive_id(caller.bridge, session.key, kind, [caller.project.id, caller.session_id])
        self._waiting.put_nowait(Operation(operation_id, caller.project, caller.session_id, time.time(), change))

    async def _submit(self, operation: Operation) -> None:
        if not self._store.health.has_answered and not self._stopping:
            with self._patience:
                await self._store.wait_usable(FIRST_WAIT_S)
            self._patience = anyio.CancelScope()
        if self._stopping and isinstance(operation.change, StartSession):
            return
        try:
            with anyio.CancelScope(shield=True):
                await self._access.apply(operation, time.time())
        except RemembrancerError as error:
            logger.warning(
                "a session's start or end could not be stored",
                extra={"session": operation.session_id, "code": error.code, "reason": error.message},
            )

    async def _note_presence(self) -> None:
        was_present = False
        while True:
            connected, present = self._connection, {*self._present(), *self._of_hooks()}
            if present or was_present:
                was_present = bool(present)
                directories = {(caller.project, caller.directory): None for caller in self._callers.values()}
                if self._store.health.usable:
                    self._store.send(NotePresence(tuple(present), tuple(directories)))
            with anyio.move_on_after(PRESENCE_S):
                await connected.wait()


def _session_of(caller: Caller) -> tuple[ProjectRef, str]:
    return ProjectRef(caller.project.id, caller.project.path), caller.session_id
