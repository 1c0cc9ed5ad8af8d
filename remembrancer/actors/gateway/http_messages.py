"""HTTP below MCP: connections and their limits, heads, bodies, and the form of an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import msgspec
import uvicorn
from mcp_types import INVALID_REQUEST, PARSE_ERROR
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from remembrancer.actors.gateway.conversations import CALL, MAX_CLIENT_NAME, is_plain
from remembrancer.actors.gateway.http_sessions import MAX_BODY_BYTES

MAX_HEADER_BYTES: Final = 32 * 1024
MAX_CONNECTIONS: Final = 1024
BODY_WAIT_S: Final = 20.0
FIRST_WAIT_S: Final = 15.0
"""The time that a client may take to send a request's body, and from its connection to its first request."""
TOO_LONG: Final = f"a request may have {MAX_BODY_BYTES} bytes at most"
SESSION: Final = "mcp-session-id"

Head = Mapping[str, str]
"""The headers of a request, by names in small letters; of several of one name the first."""


class Refused(Exception):
    """A request that is answered with this status and sentence."""

    def __init__(
        self,
        status: int,
        said: str,
        headers: dict[str, str] | None = None,
        code: int = INVALID_REQUEST,
        *,
        retry: bool = False,
    ) -> None:
        super().__init__(said)
        self.status, self.said, self.headers, self.code, self.retry = status, said, headers, code, retry

    def body(self, request_id: Any) -> dict[str, Any]:
        """The error as JSON-RPC has it."""
        error = {"code": self.code, "message": self.said, **({"data": {"retry_possible": True}} if self.retry else {})}
        return {"jsonrpc": "2.0", "id": request_id, "error": error}


class Exchange:
    """A request whose answer may have begun; `id` is its own in JSON-RPC, once that is known."""

    def __init__(self, send: Send) -> None:
        self.id: Any = None
        self.has_begun = False
        self._send = send

    async def send(self, message: Message) -> None:
        self.has_begun = True
        await self._send(message)


class QuietServer(uvicorn.Server):
    """Signals are the gateway's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Connection(H11Protocol):
    """Lets go of connections on which nothing is asked, or of an answer nothing is read, and of those too many."""

    _seen: tuple[object, int] = (None, 0)
    """The request of the last look, and how much of its answer was unsent."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.write(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            transport.close()
        else:
            self.loop.call_later(FIRST_WAIT_S, self._look)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        unsent = self.transport.get_write_buffer_size()
        is_waiting = cycle is not None and not cycle.response_complete and not unsent
        if not is_waiting and self._seen == (cycle, unsent):
            self.transport.abort()
        else:
            self._seen = (cycle, unsent)
            self.loop.call_later(FIRST_WAIT_S, self._look)


class Said(msgspec.Struct, frozen=True):
    """The parts of a message that are needed before the SDK reads it."""

    id: Any = msgspec.UNSET
    method: Any = None
    params: Any = None

    @property
    def is_call(self) -> bool:
        """True if it is a call of a tool of the usual form. Of what is not, the SDK says what is wrong with it."""
        is_request = self.method == CALL and isinstance(self.id, int | str) and isinstance(self.params, dict)
        return is_request and is_plain(self.params)

    @property
    def client(self) -> str:
        info = self.params.get("clientInfo") if isinstance(self.params, dict) else None
        name = info.get("name") if isinstance(info, dict) else None
        return " ".join(name.split())[:MAX_CLIENT_NAME] if isinstance(name, str) else ""


_decode_said: Final = msgspec.json.Decoder(Said).decode


def said_in(body: bytes) -> Said:
    """Raises `Refused` for what is no message."""
    try:
        said = _decode_said(body)
    except msgspec.ValidationError as error:
        raise Refused(400, "one message of JSON-RPC is expected, which is an object (batches are not)") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"Parse error: {error}", code=PARSE_ERROR) from error
    is_id = isinstance(said.id, int | str | msgspec.UnsetType) and not isinstance(said.id, bool)
    if said.method is not None and not is_id:
        raise Refused(400, "the id of a request is a string or an integer")
    return said


def check_head(scope: Scope, headers: Head) -> None:
    """Raises `Refused` for a head that is too long, or that two servers could read in two ways."""
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
        raise Refused(431, f"a request's head may have {MAX_HEADER_BYTES} bytes at most", {"Connection": "close"})
    length = headers.get("content-length")
    if length is not None and "transfer-encoding" in headers:  # RFC 9112, 6.1
        raise Refused(400, "a body has a length or comes in chunks, and not both", {"Connection": "close"})
    if length is not None and int(length) > MAX_BODY_BYTES:
        raise Refused(413, TOO_LONG, {"Connection": "close"})


def host_in(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # brackets that are no address
        return ""


async def read_body(receive: Receive) -> bytes:
    """A request's whole body. Raises `Refused` for one that is too large, or that does not come."""
    body = bytearray()
    try:
        with anyio.fail_after(BODY_WAIT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "the request has ended before its body")
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise Refused(413, TOO_LONG, {"Connection": "close"})
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError as error:
        raise Refused(408, f"the body has not come within {BODY_WAIT_S:g} s", {"Connection": "close"}) from error


def replayed(body: bytes, receive: Receive) -> Receive:
    """A body that has been read, once more; then whatever else comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return left.pop() if left else await receive()

    return replay


def with_headers(send: Send, headers: dict[str, str]) -> Send:
    more = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and more:
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


def as_json(send: Send) -> Send:
    """For a client that reads no events: the answer among them as one JSON text; nothing where there is none."""
    held: Message | None = None
    body = bytearray()

    async def sending(message: Message) -> None:
        nonlocal held
        if message["type"] == "http.response.start":
            is_events = Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")
            held = message if is_events else None
        if held is None:
            await send(message)
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))
            if message.get("more_body", False):
                return
            data = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
            answers = [each for each in data if each and "method" not in json.loads(each)]
            if not answers:
                return
            text = answers[-1].encode()
            kept = [each for each in held["headers"] if each[0] == SESSION.encode()]
            kept += [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
            await send({**held, "headers": kept})
            await send({"type": "http.response.body", "body": text})

    return sending
