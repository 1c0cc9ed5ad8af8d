"""The bridge's decisions: what to replay, what to drop, when to connect and when to give up. This module uses no
sockets and no clock. The client must not notice that a gateway died: the new gateway gets the handshake, the
subscriptions and the pending requests, in that order, and answers that the client already has are dropped."""

# ruff: noqa: PTH123
from __future__ import annotations

import json
import math
from collections import namedtuple

from remembrancer.protocol.gateway_link import (
    BYE,
    CONTROL,
    END,
    INVALID,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    REFUSED,
    REPLAY_ID,
    UNAVAILABLE,
    WELCOME,
    stamped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    RequestId: TypeAlias = int | str

HANDSHAKE = "initialize"
STREAMS = frozenset({"subscriptions/listen"})
"""Requests that stay open as long as the client wants, without a budget."""
LONG_TOOLS = ("reflect_and_consolidate", "memory_sync")
"""Slow tools, which report a timeout themselves."""
MAX_OPEN_REQUESTS = 512
START_S = 30.0
"""The time limit for starting a gateway, which may include starting the whole runtime on a slow machine."""
RETRY_S = 0.05
"""The pause between attempts to connect: short, because a client waits while a runtime starts."""
LONG_BUDGET_S = 130.0
"""The time limit for a slow tool's answer: longer than the limit in the gateway's settings."""
PREPARED_AFTER_S = 0.4
"""For a request whose answer is the same for every session, the bridge waits this long for the gateway before giving
its prepared answer: a runtime may need many seconds to start, and clients list the tools only once."""


OpenRequest = namedtuple("OpenRequest", "message line longest patient")
"""An unanswered request expires at `longest` if a gateway is connected, and at `patient` if none is."""


class PreparedAnswers:
    """The answers that are the same for every session with the default toolsets. `methods` are those with an answer."""

    METHODS = frozenset({HANDSHAKE, "tools/list", "prompts/list", "resources/list", "resources/templates/list"})

    def __init__(self, path: str) -> None:
        self._path = path
        self._results: dict[str, Any] = {}
        self.methods = self.METHODS

    def result(self, message: dict[str, Any]) -> Any:
        if not self._results:
            with open(self._path, "rb") as file:
                self._results = json.load(file)
        result = self._results[message["method"]]
        if message["method"] == HANDSHAKE:
            wanted = parameter(message, "protocolVersion")
            if '"io.modelcontextprotocol/ui"' in json.dumps(message):  # the gateway adds a card to the tools
                self.methods = self.methods - {"tools/list"}
            known = self._results["protocolVersions"]
            result = {**result, "protocolVersion": wanted if wanted in known else known[-1]}
        return result


class Conversation:
    """One client's conversation. Lines are passed in without their newline; the caller sends the contents of
    `to_client` and `to_gateway`, and connects at `connect_at`. Times are in seconds on a monotonic clock."""

    def __init__(self, budget_s: float, prepared: PreparedAnswers | None = None, hello: bytes = b"") -> None:
        """`budget_s` is the time limit for an answer. `hello` ends with a newline."""
        self.to_client = bytearray()
        self.to_gateway = bytearray()
        self.connect_at = 0.0
        """The time of the next attempt to connect while there is no connection. After an orderly stop of the runtime,
        or if it refuses this bridge, the time is infinite until the client sends a request."""
        self.has_ended = False
        self.is_served = False
        """True once a gateway has welcomed this conversation. Before that, the gateway may still be starting."""
        self._since = -math.inf
        self._budget_s = budget_s
        self._start_s = max(START_S, budget_s)
        self._prepared = prepared
        self._hello = hello
        self._open: dict[RequestId | None, OpenRequest] = {}
        self._initialize: dict[str, Any] | None = None
        self._initialized = b""
        self._subscriptions: dict[str, dict[str, Any]] = {}
        self._replays = 0
        self._is_connected = False
        self._unwelcome = 0
        """The number of connections since the last welcome. The pauses between them grow longer."""
        self._unserved = False
        """True if the bridge answered the handshake itself and no gateway has served the client since."""

    @property
    def has_open(self) -> bool:
        """True if the client is waiting for an answer other than an event stream, which never ends by itself."""
        return any(request.message["method"] not in STREAMS for request in self._open.values())

    # --- from the client ---

    def from_client(self, text: bytes, now: float, stamp_ms: int) -> None:
        """Without a gateway, the line is only recorded: `connect` sends the next gateway the lines that it needs."""
        line = stamped(text, stamp_ms)
        refusal = self._take(text, line, now)
        if refusal is not None:
            self._tell_client(refusal)
        elif self._is_connected:
            self.to_gateway += line
        elif self.connect_at == math.inf and self.has_open:
            self.connect_at = now

    def _take(self, text: bytes, line: bytes, now: float) -> bytes | None:
        """Returns an error message if the line is refused."""
        try:
            message = json.loads(text.decode())
        except (ValueError, RecursionError):
            return error_line(None, PARSE_ERROR, "the line is not valid JSON in UTF-8, or nested too deeply")
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            reason = 'a line must be one JSON-RPC message ("jsonrpc": "2.0"), not a batch'
            return error_line(_id_of(message), INVALID_REQUEST, reason)
        method = message.get("method")
        if not isinstance(method, str):  # a response: the gateway recognises its own requests
            if "result" in message or "error" in message:
                return None
            return error_line(_id_of(message), INVALID_REQUEST, "the line is neither a request nor a response")
        if "id" in message:
            return self._take_request(message, line, now)
        if method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled":
            cancelled = _id_of({"id": parameter(message, "requestId")})
            if cancelled in self._open and self._open[cancelled].message["method"] != HANDSHAKE:
                del self._open[cancelled]
        return None

    def _take_request(self, message: dict[str, Any], line: bytes, now: float) -> bytes | None:
        request_id = _id_of(message)
        if request_id is None:
            return error_line(None, INVALID_REQUEST, "the id of a request must be a string or an integer")
        if request_id in self._open:
            text = f"the id {json.dumps(request_id)} is in use by a request that has not been answered"
            return error_line(None, INVALID_REQUEST, text)
        if len(self._open) >= MAX_OPEN_REQUESTS:
            text = f"{MAX_OPEN_REQUESTS} requests are still unanswered; wait until one is answered"
            return error_line(request_id, UNAVAILABLE, text, retry=True)
        method = message["method"]
        longest = patient = now + self._start_s
        if method in STREAMS:
            longest = patient = math.inf
        elif self._is_prepared(message):
            longest = patient = now if self._unserved else now + PREPARED_AFTER_S
        elif method != HANDSHAKE:
            is_long = method == "tools/call" and parameter(message, "name") in LONG_TOOLS
            longest = now + (LONG_BUDGET_S if is_long else self._budget_s)
        self._open[request_id] = OpenRequest(message, line, longest, patient)
        return None

    def _is_prepared(self, message: dict[str, Any]) -> bool:
        """True if the bridge can answer the message itself: a handshake or, after it, an unrestricted list request."""
        if self._prepared is None or message["method"] not in self._prepared.methods:
            return False
        params = message.get("params")
        if message["method"] == HANDSHAKE:
            return isinstance(params, dict)
        is_whole = not params or (isinstance(params, dict) and params.keys() == {"_meta"})  # e.g. a progress token
        return self._initialize is not None and is_whole

    def end(self) -> None:
        if self._is_connected and not self.has_ended:
            self.to_gateway += END + b"\n"
        self.has_ended = True

    # --- from the gateway ---

    def connect(self, stamp_ms: int) -> None:
        """Bring a new gateway to the state of the previous one."""
        self._is_connected = True
        self._unwelcome += 1
        self.to_gateway += self._hello
        if self._initialize is not None:
            self.to_gateway += self._again(self._initialize, stamp_ms) + self._initialized
        for message in self._subscriptions.values():
            self.to_gateway += self._again(message, stamp_ms)
        for request in self._open.values():
            self.to_gateway += request.line
        if self.has_ended:
            self.to_gateway += END + b"\n"

    def _again(self, message: dict[str, Any], stamp_ms: int) -> bytes:
        """Repeat, under a new id, a request that has already been answered; the new answer is dropped."""
        self._replays += 1
        copy = {**message, "id": f"{REPLAY_ID}{self._replays}"}
        return stamped(json.dumps(copy, separators=(",", ":")).encode(), stamp_ms)

    def from_gateway(self, line: bytes, now: float) -> None:
        if line.startswith(CONTROL):
            self._obey(line, now)
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return  # the client must receive only JSON-RPC
        answered = _id_of(message)
        if "method" not in message and answered is not None:  # None: an error about an unreadable id
            request = self._open.pop(answered, None)
            if request is None:
                return
            if "result" in message:
                self._remember(request.message)
        self._tell_client(line)

    def _remember(self, message: dict[str, Any]) -> None:
        match message["method"]:
            case "initialize":
                self._initialize = message
            case "resources/subscribe":
                self._subscriptions[str(parameter(message, "uri"))] = message
            case "resources/unsubscribe":
                self._subscriptions.pop(str(parameter(message, "uri")), None)

    def _obey(self, line: bytes, now: float) -> None:
        if line.startswith(WELCOME):  # waiting requests get the same time limit as new ones
            self.is_served, self._unserved, self._since = True, False, now
            self._unwelcome = 0
        elif line.startswith((INVALID, REFUSED)):
            code = INVALID_PARAMS if line.startswith(INVALID) else UNAVAILABLE
            self.fail_all(line.partition(b" ")[2].decode("utf-8", "replace"), code=code)
            self.connect_at = math.inf
        elif line.startswith(BYE):
            self.connect_at = math.inf

    def disconnect(self, now: float) -> None:
        """Record that the connection is lost. Open requests wait for as long as a new gateway may take to start."""
        self._is_connected = False
        self.to_gateway.clear()
        if self.is_served:
            self.is_served, self._since = False, now
        if self.connect_at < math.inf or self.has_open:
            self.connect_at = now + (RETRY_S * 2 ** min(self._unwelcome - 1, 5) if self._unwelcome else 0.0)

    # --- time ---

    def _expiry(self, request: OpenRequest) -> float:
        longest, patient, limit = request.longest, request.patient, self._since + self._budget_s
        return float(max(longest, min(limit, patient)) if self.is_served else max(patient, min(limit, longest)))

    def next_expiry(self) -> float:
        return min(map(self._expiry, self._open.values()), default=math.inf)

    def expire(self, now: float) -> None:
        """Answer requests that have exceeded their budget, with prepared answers or errors."""
        for key, request in [item for item in self._open.items() if self._expiry(item[1]) <= now]:
            del self._open[key]
            if self._prepared is not None and self._is_prepared(request.message):
                self._remember(request.message)
                self._unserved = not self.is_served
                self._tell_client(_line(id=key, result=self._prepared.result(request.message)))
            else:
                missed = "did not answer" if self.is_served else "could not be reached"
                self._tell_client(error_line(key, UNAVAILABLE, _TOO_LATE.format(missed), retry=True))

    def fail_all(self, reason: str, *, retry: bool = True, code: int = UNAVAILABLE) -> None:
        """`retry` says whether the same requests may succeed later."""
        for key in self._open:
            self._tell_client(error_line(key, code, reason, retry=retry))
        self._open.clear()

    def _tell_client(self, line: bytes) -> None:
        self.to_client += line + b"\n"


def parameter(message: dict[str, Any], name: str) -> Any:
    params = message.get("params")
    return params.get(name) if isinstance(params, dict) else None


_TOO_LATE = "the memory service {} in time; try again in a moment (a write may still have been stored)"


def error_line(request_id: RequestId | None, code: int, message: str, *, retry: bool = False) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message}
    if code == UNAVAILABLE:
        error["data"] = {"error": "memory_unavailable", "retry_possible": retry}
    elif code == INVALID_PARAMS:
        error["data"] = {"error": "invalid_input", "retry_possible": False}
    return _line(id=request_id, error=error)


def _line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}, separators=(",", ":")).encode()


def _id_of(message: Any) -> RequestId | None:
    """The message's id; None if it has no valid MCP id (an encodable string, or an integer)."""
    found = message.get("id") if isinstance(message, dict) else None
    if isinstance(found, str):
        return None if any("\ud800" <= character <= "\udfff" for character in found) else found
    return found if isinstance(found, int) and not isinstance(found, bool) else None


class LineBuffer:
    def __init__(self, limit: float = math.inf) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their newlines. Raises `OverflowError` if one exceeds the limit."""
        if b"\n" in data:
            *lines, rest = (bytes(self._rest) + data).split(b"\n")
            self._rest = bytearray(rest)
        else:
            lines = []
            self._rest += data
        if max(len(self._rest), len(lines[0]) if lines else 0) > self._limit:
            raise OverflowError(f"a line may have at most {self._limit} bytes")
        return lines

    def finish(self) -> list[bytes]:
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest else []
