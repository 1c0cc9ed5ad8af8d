"""ZeroMQ sockets with the envelope format: a `Dealer` asks one peer, a `Router` serves many.

A frame that cannot be decoded is logged and dropped; a peer with a different protocol version is refused. Both classes
use Unix sockets or, if keys are given, TCP under CURVE (RFC 26), and then ignore a peer without an accepted key.
"""

import abc
import asyncio
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar, cast

import anyio
import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from remembrancer.protocol.errors import (
    ConfigurationError,
    DeadlineExceeded,
    Failure,
    FrameRejected,
    InternalError,
    PeerLost,
    PeerUnavailable,
    RemembrancerError,
    VersionMismatch,
    from_failure,
)
from remembrancer.protocol.wire import (
    PROTOCOL_VERSION,
    UNDECODABLE,
    Envelope,
    Notice,
    Request,
    answer_decoder,
    decode_envelope,
    encoder,
)

LINGER_MS: Final = 200
"""The time that a closing socket has for sending its last messages."""
HIGH_WATER_MARK: Final = 20_000
RECONNECT_MS: Final = 10
RECONNECT_MAX_MS: Final = 40
NETWORK_RECONNECT_MS: Final = 250
NETWORK_RECONNECT_MAX_MS: Final = 4000
"""The intervals for a peer on another host are longer."""
NETWORK_HEARTBEAT_MS: Final = 2000
NETWORK_SILENCE_MS: Final = 8000
"""A connection to another host is considered broken after this time without a message, whatever TCP reports."""
NETWORK_HIGH_WATER_MARK: Final = 256
"""Low, so that messages do not pile up if a peer on another host does not read them."""
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
YIELD_AFTER: Final = 64
"""The number of messages after which a reader yields to the event loop, which one sender could otherwise block."""
FIRST_ID_BITS: Final = 48
"""Message ids begin at a random number, so that an answer to an earlier process of the same name matches no request."""
_HANDSHAKE_FAILED: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)

In = TypeVar("In")
T = TypeVar("T")
logger = logging.getLogger(__name__)


class Speaker:
    """A sender, with its role name and the ULID of its current start. Creates its envelopes."""

    def __init__(self, name: str, incarnation: str) -> None:
        self.name = name
        self.incarnation = incarnation
        self._ids = itertools.count(secrets.randbits(FIRST_ID_BITS))

    def envelope(
        self, *, timeout_s: float | None = None, in_reply_to: int | None = None, notices: tuple[Notice, ...] = ()
    ) -> Envelope:
        return Envelope(
            version=PROTOCOL_VERSION,
            message_id=next(self._ids),
            sender=self.name,
            incarnation=self.incarnation,
            deadline=None if timeout_s is None else time.time() + timeout_s,
            in_reply_to=in_reply_to,
            notices=notices,
        )


class CurveKeys(NamedTuple):
    """The keys of one end of a connection, in Z85. `server` is the listening end's public key; None at that end."""

    public: str
    secret: str
    server: str | None = None


class Reply(NamedTuple, Generic[T]):
    body: T
    notices: tuple[Notice, ...] = ()


class _OpenRequest(NamedTuple):
    question: type[Request[Any]]
    future: asyncio.Future[Any]
    to: bytes


class _Endpoint(abc.ABC, Generic[In]):
    """The common part of both kinds of sockets. `to` and `sender` are the routing id of a router's peer, the first
    frame of a router's messages. A dealer leaves them empty."""

    _frame_count: ClassVar[int]

    def __init__(
        self, endpoint: str, speaker: Speaker, decoder: msgspec.msgpack.Decoder[In], keys: CurveKeys | None = None
    ) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._speaker = speaker
        self._decoder = decoder
        self._socket: zmq.asyncio.Socket | None = None
        self._read: list[tuple[zmq.asyncio.Socket, asyncio.Task[None]]] = []
        """The sockets that are being read, with the tasks that read them."""
        self._context: zmq.asyncio.Context | None = None
        """None means the process's context."""
        self._pending: dict[int, _OpenRequest] = {}

    def _make(self, kind: int) -> zmq.asyncio.Socket:
        if self._keys is None and not self._endpoint.startswith("ipc://"):
            raise ConfigurationError(f"{self._endpoint} is not a Unix socket: nothing is sent in the clear")
        socket = (self._context or zmq.asyncio.Context.instance()).socket(kind)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        high_water_mark = HIGH_WATER_MARK if self._keys is None else NETWORK_HIGH_WATER_MARK
        socket.setsockopt(zmq.SNDHWM, high_water_mark)
        socket.setsockopt(zmq.RCVHWM, high_water_mark)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        if self._keys is not None:
            socket.setsockopt(zmq.IPV6, int(self._keys.server is not None or "[" in self._endpoint))
            socket.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.public.encode())
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret.encode())
            if self._keys.server is None:
                socket.setsockopt(zmq.CURVE_SERVER, 1)
            else:
                socket.setsockopt(zmq.CURVE_SERVERKEY, self._keys.server.encode())
            socket.setsockopt(zmq.HEARTBEAT_IVL, NETWORK_HEARTBEAT_MS)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, NETWORK_SILENCE_MS)
            socket.setsockopt(zmq.HEARTBEAT_TTL, NETWORK_SILENCE_MS)
        return socket

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Pending requests end with `PeerLost`. Queued messages have `LINGER_MS` to be sent. May be called twice."""
        self._fail_pending(PeerLost, "this side closed the connection")
        for socket, reader in self._read:
            reader.cancel()
            socket.disable_monitor()
            socket.close()
        self._read.clear()
        self._socket = None

    async def exchange(self, question: Request[T], *, timeout_s: float | None, to: bytes = b"") -> Reply[T | Failure]:
        """Return the answer to a request, or the refusal. Raises `PeerUnavailable` if nothing was sent,
        `VersionMismatch`, and `InternalError` for an answer of the wrong type. If this raises `PeerLost` or
        `DeadlineExceeded`, the peer may have done the work."""
        envelope = self._speaker.envelope(timeout_s=timeout_s)
        future: asyncio.Future[Reply[T | Failure]] = asyncio.get_running_loop().create_future()
        self._pending[envelope.message_id] = _OpenRequest(type(question), future, to)
        try:
            self._send(envelope, question, to)
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise DeadlineExceeded(f"no answer within {timeout_s:.1f} s") from None
        finally:
            self._pending.pop(envelope.message_id, None)

    def _send(self, envelope: Envelope, body: Any, to: bytes = b"") -> None:
        """Raises `PeerUnavailable`."""
        if self._socket is None:
            raise PeerUnavailable("this side has closed the connection")
        frames = [encoder.encode(envelope), encoder.encode(body)]
        try:
            sent = self._socket.send_multipart([to, *frames] if to else frames, flags=zmq.NOBLOCK)
            cast("asyncio.Future[None]", sent).result()  # a send that does not block has succeeded or failed already
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            raise PeerUnavailable("the peer is not connected, or is too busy") from error

    def _start_reading(self, socket: zmq.asyncio.Socket, take: Callable[[Any], None], *, copy: bool = True) -> None:
        """Pass each message of a socket to `take`. Without `copy`, these are ZeroMQ's frames, which name the sender."""

        async def read() -> None:
            for number in itertools.count(1):
                frames = await socket.recv_multipart(copy=copy)
                try:
                    take(frames)
                except Exception:  # one failing message must not stop the reader
                    logger.exception("a message failed")
                if number % YIELD_AFTER == 0:
                    await asyncio.sleep(0)

        self._read.append((socket, asyncio.create_task(read())))

    def take(self, frames: list[Any], key: str = "") -> None:
        """Process a message from the peer with this authenticated key."""
        sender = b"".join(frames[:-2])
        try:
            if len(frames) != self._frame_count:
                raise FrameRejected(f"{len(frames)} frames instead of {self._frame_count}")
            envelope = decode_envelope(frames[-2])
            if envelope.in_reply_to is not None:
                self._take_answer(envelope, frames[-1], sender)
                return
            body = _decode(self._decoder, frames[-1])
        except (FrameRejected, VersionMismatch) as error:
            logger.warning("frame dropped", extra={"reason": error.message, "endpoint": self._endpoint})
            if isinstance(error, VersionMismatch):
                self._hear_stranger(sender, key, error)
        else:
            self._hear(sender, key, envelope, body)

    @abc.abstractmethod
    def _hear(self, sender: bytes, key: str, envelope: Envelope, body: In) -> None:
        """Handle a message that does not answer a request."""

    @abc.abstractmethod
    def _hear_stranger(self, sender: bytes, key: str, error: VersionMismatch) -> None:
        """Handle a peer that speaks a different version of the protocol."""

    def _take_answer(self, envelope: Envelope, body: bytes, sender: bytes) -> None:
        request = self._pending.get(envelope.in_reply_to or 0)
        if request is None or request.future.done() or request.to != sender:
            return
        question, future, _ = request
        try:
            future.set_result(Reply(_decode(answer_decoder(question), body), envelope.notices))
        except FrameRejected:
            future.set_exception(InternalError(f"the answer to {question.__name__} has the wrong type"))
            raise

    def _fail_pending(self, kind: type[RemembrancerError], reason: str, peer: bytes | None = None) -> None:
        for request in self._pending.values():
            if peer in (None, request.to) and not request.future.done():
                request.future.set_exception(kind(reason))


def _decode(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except UNDECODABLE as error:
        raise FrameRejected(f"the body does not decode: {error}") from error


class Dealer(_Endpoint[In]):
    """A connection to one peer, which reconnects automatically. While it is down, `request` raises `PeerUnavailable` at
    once. `on_message` gets messages that do not answer a request, and must not block. `on_refused` is called when the
    peer speaks a different version (a message), does not admit this key (True), or breaks off the handshake (False)."""

    _frame_count = 2

    def __init__(
        self,
        endpoint: str,
        speaker: Speaker,
        decoder: msgspec.msgpack.Decoder[In],
        *,
        on_message: Callable[[In], None] = lambda body: None,
        on_connection: Callable[[bool], None] = lambda is_up: None,
        keys: CurveKeys | None = None,
        on_refused: Callable[[bool | str], None] = lambda why: None,
    ) -> None:
        super().__init__(endpoint, speaker, decoder, keys)
        self._on_message = on_message
        self._on_connection = on_connection
        self._on_refused = on_refused
        self._up = asyncio.Event()
        self.heard: Envelope
        """The envelope of the message that is being passed to `on_message`."""

    @property
    def connected(self) -> bool:
        return self._up.is_set()

    async def wait_connected(self, timeout_s: float) -> bool:
        """Returns False after the timeout."""
        with anyio.move_on_after(timeout_s):
            await self._up.wait()
        return self._up.is_set()

    async def __aenter__(self) -> Self:
        socket = self._make(zmq.DEALER)
        try:
            socket.setsockopt(zmq.IMMEDIATE, 1)
            if self._keys is None:
                socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
                socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
                socket.setsockopt(zmq.IDENTITY, f"{self._speaker.name}/{self._speaker.incarnation}".encode())
            else:  # its key identifies it: a peer that chose its own routing id could impersonate another one
                socket.setsockopt(zmq.RECONNECT_IVL, NETWORK_RECONNECT_MS)
                socket.setsockopt(zmq.RECONNECT_IVL_MAX, NETWORK_RECONNECT_MAX_MS)
            monitor = socket.get_monitor_socket(
                zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | _HANDSHAKE_FAILED
            )
            socket.connect(self._endpoint)
        except BaseException:
            socket.close()
            raise
        self._socket = socket
        self._start_reading(socket, self.take)
        self._start_reading(monitor, self._take_event)
        return self

    def send(self, body: Any, *, in_reply_to: int | None = None) -> bool:
        """Send `body` without waiting. Returns False if there is no connection, or its queue is full."""
        try:
            self._send(self._speaker.envelope(in_reply_to=in_reply_to), body)
        except PeerUnavailable:
            logger.debug("not sent", extra={"message_type": type(body).__name__})
            return False
        return True

    async def request(self, question: Request[T], *, timeout_s: float) -> T:
        """Raises the same errors as `exchange`, and the peer's refusal as an error."""
        return unless_refused((await self.exchange(question, timeout_s=timeout_s)).body)

    def _hear(self, sender: bytes, key: str, envelope: Envelope, body: In) -> None:
        self.heard = envelope
        self._on_message(body)

    def _hear_stranger(self, sender: bytes, key: str, error: VersionMismatch) -> None:
        self._fail_pending(VersionMismatch, error.message)  # it cannot read our requests either
        self._on_refused(error.message)

    def _take_event(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)["event"]
        if event & _HANDSHAKE_FAILED:
            self._on_refused(event == zmq.EVENT_HANDSHAKE_FAILED_AUTH)
            return
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._up.set()
        else:
            self._up.clear()
            self._fail_pending(PeerLost, "the connection was lost")
        self._on_connection(self._up.is_set())


def unless_refused(answer: T | Failure) -> T:
    if isinstance(answer, Failure):
        raise from_failure(answer)
    return answer


def let_messages_leave() -> None:
    """Allow `LINGER_MS` for sending the queued messages of closed sockets. Call it last, before a process exits."""
    ending = threading.Thread(target=zmq.asyncio.Context.instance().term, daemon=True)
    ending.start()
    ending.join(2 * LINGER_MS / 1000)


class Peer(msgspec.Struct, frozen=True):
    """A peer that a `Router` can answer. `key` is the authenticated public key of a peer on another host."""

    routing_id: bytes
    name: str
    incarnation: str
    key: str = ""


class Router(_Endpoint[In]):
    """A socket that serves many peers. `handle` gets each message whose deadline has not passed; it must not block."""

    _frame_count = 3

    def __init__(
        self,
        endpoint: str,
        speaker: Speaker,
        decoder: msgspec.msgpack.Decoder[In],
        handle: Callable[[Peer, Envelope, In], None],
        keys: CurveKeys | None = None,
    ) -> None:
        super().__init__(endpoint, speaker, decoder, keys)
        self._handle = handle
        self.on_mismatch: Callable[[Peer, str], None] = lambda peer, reason: None
        """Called with a peer that speaks a different version of the protocol."""

    async def __aenter__(self) -> Self:
        socket = self._make(zmq.ROUTER)
        try:
            socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            socket.setsockopt(zmq.ROUTER_HANDOVER, int(self._keys is None))
            socket.bind(self._endpoint)
        except BaseException:
            socket.close()
            raise
        self._socket = socket
        self._start_reading(socket, self.take, copy=self._keys is None)
        return self

    def send(self, peer: Peer, body: Any, *, in_reply_to: int | None = None, notices: Iterable[Notice] = ()) -> bool:
        """Send `body` without waiting. Returns False if the peer is gone or its queue is full."""
        envelope = self._speaker.envelope(in_reply_to=in_reply_to, notices=tuple(notices))
        try:
            self._send(envelope, body, peer.routing_id)
        except PeerUnavailable:
            return False
        return True

    async def ask(self, peer: Peer, question: Request[T], *, timeout_s: float | None) -> T:
        """Raises the same errors as `exchange`, and the peer's refusal as an error."""
        return unless_refused((await self.exchange(question, timeout_s=timeout_s, to=peer.routing_id)).body)

    def lose(self, peer: Peer) -> None:
        self._fail_pending(PeerLost, f"{peer.name} is gone", peer.routing_id)

    def _hear(self, sender: bytes, key: str, envelope: Envelope, body: In) -> None:
        if envelope.remaining_s >= 0.0:
            self._handle(Peer(sender, envelope.sender, envelope.incarnation, key), envelope, body)

    def _hear_stranger(self, sender: bytes, key: str, error: VersionMismatch) -> None:
        stranger = Peer(sender, "?", "?", key)
        self.send(stranger, error.to_failure())
        self.on_mismatch(stranger, error.message)
