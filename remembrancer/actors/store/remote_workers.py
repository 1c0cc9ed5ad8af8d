"""Embedders on other hosts: admission, connections, and checks of the data that they send.

The launcher does not watch them, so the store asks each of them for its state. A worker that is lost, hangs, is revoked
or has sent false data gets no more work, and other workers get its texts. Imported only if the store listens for them.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import anyio
import anyio.abc
import msgspec
import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator

from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.config.worker_keys import WorkerKeys
from remembrancer.protocol.control import RemoteEmbedder, RemoteEmbedders
from remembrancer.protocol.errors import ConfigurationError, PeerLost, PeerUnavailable, RemembrancerError, WorkerRefused
from remembrancer.protocol.sockets import Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope
from remembrancer.protocol.work import AskWorker, WorkerState, from_worker

PING_S: Final = 1.0
LISTEN_RETRY_S: Final = 5.0
SHOWN_CHARACTERS: Final = 300
"""The length to which a text from a worker is cut before it is shown."""
REVOKED: Final = "this embedder was revoked"

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Connection:
    peer: Peer
    heard_at: float
    error: str | None = None
    is_refused: bool = False


class NetworkRouter(Router[WorkerState]):
    """A router for other hosts, over TCP with CURVE (RFC 26). It admits only peers whose public key is currently in
    `allowed` (ZAP, RFC 27), and identifies a peer by its authenticated key. Since it has a ZeroMQ context of its own,
    it does not authenticate the handshakes of other sockets."""

    def __init__(
        self,
        endpoint: str,
        speaker: Speaker,
        handle: Callable[[Peer, Envelope, WorkerState], None],
        allowed: WorkerKeys,
    ) -> None:
        super().__init__(endpoint, speaker, from_worker, handle, allowed.own())
        self._allowed = allowed
        self._authenticator: AsyncioAuthenticator | None = None
        self.address = endpoint
        """The address on which it listens, with the actual port if the endpoint does not specify one."""

    async def __aenter__(self) -> Self:
        """Raises `ConfigurationError` if the address is not available."""
        self._context = zmq.asyncio.Context()
        self._authenticator = AsyncioAuthenticator(self._context)
        self._authenticator.configure_curve_callback(credentials_provider=self)
        self._authenticator.start()
        try:
            await super().__aenter__()
        except zmq.ZMQError as error:
            await self.aclose()
            raise ConfigurationError(f"cannot listen on {self._endpoint}: {error.strerror}") from error
        assert self._socket is not None
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        return self

    async def aclose(self) -> None:
        await super().aclose()
        if self._authenticator is not None:
            self._authenticator.stop()
        if self._context is not None:
            self._context.destroy(linger=0)
        self._authenticator = self._context = None

    def callback(self, _: str, key: bytes) -> bool:
        return self._allowed.find(key.decode()) is not None

    def take(self, frames: list[Any], key: str = "") -> None:
        super().take([frame.bytes for frame in frames], str(frames[-1].get("User-Id")))


class RemoteWorkers:
    """Passes verified embedders on other hosts to the scheduler. One that is silent for `silence_s` counts as hung."""

    def __init__(
        self, endpoint: str, speaker: Speaker, keys: WorkerKeys, scheduler: EmbeddingScheduler, silence_s: float
    ) -> None:
        self._endpoint = endpoint
        self._speaker = speaker
        self._keys = keys
        self._scheduler = scheduler
        self._silence_s = silence_s
        self._connections: dict[bytes, _Connection] = {}
        self._refusals: dict[str, str] = {}
        """The reason for each worker's last refusal, by its public key, until the worker is admitted."""
        self.router: NetworkRouter | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._error: str | None = None
        scheduler.on_false_answer = self._refuse

    async def run(self) -> None:
        while True:
            try:
                router = NetworkRouter(self._endpoint, self._speaker, self._hear, self._keys)
                router.on_mismatch = lambda peer, reason: self._note_refusal(peer.key, reason)
                async with router, anyio.create_task_group() as self._tasks:
                    self.router, self._error = router, None
                    logger.info("listening for embedders on other hosts", extra={"address": router.address})
                    await anyio.sleep_forever()
            except RemembrancerError as error:
                self._error = error.message
                logger.error("embedders on other hosts cannot connect", extra={"reason": error.message})
                await anyio.sleep(LISTEN_RETRY_S)
            finally:
                self.router = None

    def state(self) -> RemoteEmbedders:
        heard_since = time.monotonic() - self._silence_s
        embedders: list[RemoteEmbedder] = []
        try:
            members = self._keys.all()
        except RemembrancerError as error:
            return RemoteEmbedders(self._endpoint, (), error.message)
        for member in members:
            of_member = [each for each in self._connections.values() if each.peer.key == member.public]
            connected = [each for each in of_member if each.heard_at >= heard_since]
            embedders += (
                RemoteEmbedder(
                    member.name,
                    "refused" if each.is_refused else "ready" if self._is_admitted(each.peer) else "starting",
                    self._scheduler.embedded[each.peer.incarnation],
                    each.error,
                )
                for each in connected
            )
            if not connected:
                reason = self._refusals.get(member.public)
                embedders.append(RemoteEmbedder(member.name, "refused" if reason else "away", error=reason))
        address = self._endpoint if self.router is None else self.router.address
        return RemoteEmbedders(address, tuple(embedders), self._error)

    def _hear(self, peer: Peer, envelope: Envelope, state: WorkerState) -> None:
        connection = self._connections.get(peer.routing_id)
        if connection is None:
            member = self._keys.find(peer.key)
            if member is None:
                self._say_refused(peer, REVOKED)
                return
            named = Peer(peer.routing_id, member.name, f"{member.name}/{envelope.incarnation}", peer.key)
            for other in [each for each in self._connections.values() if each.peer.incarnation == named.incarnation]:
                self._forget(other)
            connection = self._connections[peer.routing_id] = _Connection(named, time.monotonic())
            assert self._tasks is not None
            self._tasks.start_soon(self._watch, connection)
        self._take(connection, state)

    def _take(self, connection: _Connection, state: WorkerState) -> None:
        peer, connection.heard_at = connection.peer, time.monotonic()
        if connection.is_refused:
            return
        if state.is_leaving:
            self._forget(connection)
            return
        if state.error is None and (identity := state.identity) is not None:
            known = self._scheduler.identity_of(state.choice)
            if state.choice not in self._scheduler.needed:
                model = state.choice.model[:SHOWN_CHARACTERS]
                self._refuse(peer, f"this memory does not use the model {model}; invite it again")
                return
            if known is not None and known != identity:
                key = identity.key[:SHOWN_CHARACTERS]
                self._refuse(peer, f"its model is {key}, but this memory's vectors are from {known.key}")
                return
            if known is None and self._scheduler.is_starting:
                self._scheduler.lose(peer)
                return  # this host's own embedder determines the model; the worker will be asked again
            self._refusals.pop(peer.key, None)
            logger.info("an embedder on another host is working", extra={"worker": peer.name})
        if state.error is not None or state.identity is not None:
            connection.error = None if state.error is None else state.error[:SHOWN_CHARACTERS]
            self._scheduler.hear(peer, msgspec.structs.replace(state, error=connection.error))

    async def _watch(self, connection: _Connection) -> None:
        peer, router = connection.peer, self.router
        assert router is not None
        while self._connections.get(peer.routing_id) is connection:
            if self._keys.find(peer.key) is None:
                self._say_refused(peer, REVOKED)
                self._forget(connection)
                return
            try:
                state = await router.ask(peer, AskWorker(), timeout_s=self._silence_s)
            except PeerLost:  # it is not gone: its texts were only given to other workers
                pass
            except PeerUnavailable:
                logger.warning("an embedder on another host is gone", extra={"worker": peer.name})
                self._forget(connection)
            except RemembrancerError as error:
                logger.warning("an embedder on another host hangs", extra={"worker": peer.name, "why": error.message})
                self._scheduler.lose(connection.peer)
            else:
                connection.heard_at = time.monotonic()
                if not self._is_admitted(peer):
                    self._take(connection, state)
            await anyio.sleep(PING_S)

    def _is_admitted(self, peer: Peer) -> bool:
        """A lost worker gets no work until it reports its state again."""
        return peer in self._scheduler.workers

    def _forget(self, connection: _Connection) -> None:
        self._connections.pop(connection.peer.routing_id, None)
        self._scheduler.lose(connection.peer)

    def _refuse(self, worker: Peer, reason: str) -> None:
        self._scheduler.lose(worker)
        if (connection := self._connections.get(worker.routing_id)) is not None:
            connection.error, connection.is_refused = reason, True
            self._note_refusal(worker.key, reason)
            self._say_refused(worker, reason)

    def _note_refusal(self, key: str, reason: str) -> None:
        self._refusals[key] = reason
        logger.error("an embedder on another host is refused", extra={"reason": reason})

    def _say_refused(self, peer: Peer, reason: str) -> None:
        if self.router is not None:
            self.router.send(peer, WorkerRefused(reason).to_failure())
