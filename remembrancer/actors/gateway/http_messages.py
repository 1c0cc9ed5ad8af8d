"""HTTP details below MCP: bodies, the form of an answer, and refusals."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import uvicorn
from mcp_types import INVALID_REQUEST, PARSE_ERROR
from starlette.types import Message, Receive, Send

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
SESSION: Final = "mcp-session-id"


class HttpRefusal(Exception):
    """A refused request, with its status and a message."""

    def __init__(
        self,
        status: int,
        reason: str,
        headers: dict[str, str] | None = None,
        code: int = INVALID_REQUEST,
        *,
        retry: bool = False,
    ) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers, self.code, self.retry = status, reason, headers, code, retry

    def body(self, request_id: Any) -> dict[str, Any]:
        """The error in JSON-RPC's form."""
        error = {
            "code": self.code,
            "message": self.reason,
            **({"data": {"retry_possible": True}} if self.retry else {}),
        }
        return {"jsonrpc": "2.0", "id": request_id, "error": error}


class Exchange:
    """A request whose answer may have begun; `id` is its JSON-RPC id, once known."""

    def __init__(self, send: Send) -> None:
        self.id: Any = None
        self.has_begun = False
        self._send = send

    async def send(self, message: Message) -> None:
        self.has_begun = True
        await self._send(message)


class QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the gateway."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class MessageHead(msgspec.Struct, frozen=True):
    """The parts of a message that are needed before the SDK reads it."""

    id: Any = msgspec.UNSET
    method: Any = None
    params: Any = None


_decode_head: Final = msgspec.json.Decoder(MessageHead).decode


def head_of(body: bytes) -> MessageHead:
    """Decode the head of a message. Raises `HttpRefusal` if it is not a message."""
    try:
        head = _decode_head(body)
    except msgspec.ValidationError as error:
        raise HttpRefusal(400, "one message of JSON-RPC is expected, which is an object (batches are not)") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpRefusal(400, f"Parse error: {error}", code=PARSE_ERROR) from error
    is_id = isinstance(head.id, int | str | msgspec.UnsetType) and not isinstance(head.id, bool)
    if head.method is not None and not is_id:
        raise HttpRefusal(400, "the id of a request is a string or an integer")
    return head


async def read_body(receive: Receive) -> bytes:
    """Read a request's whole body. Raises `HttpRefusal` if it is too large or cut off."""
    body, is_whole = bytearray(), False
    while not is_whole:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpRefusal(400, "the request has ended before its body")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise HttpRefusal(413, f"a request may have {MAX_BODY_BYTES} bytes at most", {"Connection": "close"})
        is_whole = not message.get("more_body", False)
    return bytes(body)


def replayed(body: bytes, receive: Receive) -> Receive:
    """A receive function that returns the body again, and then passes on further messages."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return left.pop() if left else await receive()

    return replay
