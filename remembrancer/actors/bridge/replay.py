"""The bridge's state of a conversation, and its decisions: what to replay, what to drop, when to give up.

It has no sockets and no clock. The client must not notice that a gateway died: a new one gets the handshake, the
subscriptions and the open requests, in that order, and answers that the client already has are dropped. Ids of
different types are different: 1 and "1" are two requests.
"""

# ruff: noqa: PTH123
from __future__ import annotations

import json
import math

from remembrancer.protocol.gateway_link import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    REPLAY_ID,
    UNAVAILABLE,
    stamped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    RequestId: TypeAlias = int | str

HANDSHAKE = "initialize"
STREAMS = frozenset({"subscriptions/listen"})
"""Requests that stay open as long as the client wants: they have no budget."""
LONG_TOOLS = ("reflect_and_consolidate", "memory_sync")
"""Slow tools, which report a timeout themselves."""
MAX_OPEN_REQUESTS = 512
LONG_BUDGET_S = 130.0
"""The time limit of these tools while there is a gateway: longer than the gateway's own limit in its settings."""
PREPARED_AFTER_S = 0.4
"""The time that a request with the same answer for every session waits for the gateway, before the bridge gives its
prepared answer: a runtime may need many seconds to start, and clients list the tools only once."""


class OpenRequest:
    """A client's request without an answer yet, and its line for the gateway. `expires` is on the clock that the caller
    passes in, in seconds; `longest` is the time limit while there is a gateway, `patient` while there is none."""

    __slots__ = ("expires", "line", "longest", "message", "patient")

    def __init__(self, message: dict[str, Any], line: bytes, longest: float, patient: float) -> None:
        self.message = message
        self.line = line
        self.expires = self.longest = longest
        self.patient = patient


class PreparedAnswers:
    """This release's answers to the requests that every session makes, read when the first one is needed.

    `methods` leaves out the answers that this session's environment has changed.
    """

    METHODS = frozenset({HANDSHAKE, "tools/list", "prompts/list", "resources/list", "resources/templates/list"})

    def __init__(self, path: str, *, own_toolsets: bool = False) -> None:
        self._path = path
        self._results: dict[str, Any] = {}
        self.methods = self.METHODS - {"tools/list", "prompts/list"} if own_toolsets else self.METHODS

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
    """One client's conversation. Lines are passed without their newline."""

    def __init__(self, budget_s: float, start_s: float, prepared: PreparedAnswers | None = None) -> None:
        """`budget_s`: the time that a gateway has for an answer; `start_s`: the time that it may take to start."""
        self._budget_s = budget_s
        self._start_s = max(start_s, budget_s)
        self._prepared = prepared
        self._open: dict[RequestId, OpenRequest] = {}
        self._initialize: dict[str, Any] | None = None
        self._initialized: bytes | None = None
        self._subscriptions: dict[str, dict[str, Any]] = {}
        self._replays = 0
        self._unserved = False
        """True if the bridge answered the handshake and no gateway has served since: one is still starting."""
        self._served = False
        """True if a gateway has welcomed this conversation: until then, it may still be starting."""

    @property
    def has_open(self) -> bool:
        """True if the client waits for an answer other than an event stream, which never ends by itself."""
        return any(request.message["method"] not in STREAMS for request in self._open.values())

    def from_client(self, line: bytes, now: float, stamp_ms: int) -> tuple[bytes | None, bytes | None]:
        """Process a client's line. Returns the line for the gateway, if there is one (`connect` repeats what the next
        one needs), and the line for the client."""
        try:
            message = json.loads(line.decode())
        except (ValueError, RecursionError):
            reason = "the line is not valid JSON in UTF-8, or nested too deeply"
            return None, error_line(None, PARSE_ERROR, reason)
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            reason = 'a line must be one JSON-RPC message ("jsonrpc": "2.0"), not a batch'
            return None, error_line(_id_of(message), INVALID_REQUEST, reason)
        method, line = message.get("method"), stamped(line, stamp_ms)
        if isinstance(method, str):
            if "id" in message:
                return self._request(message, line, now)
            return self._notification(method, message, line), None
        if "result" in message or "error" in message:  # a gateway knows its own requests
            return line, None
        return None, error_line(_id_of(message), INVALID_REQUEST, "neither a request nor an answer")

    def _request(self, message: dict[str, Any], line: bytes, now: float) -> tuple[bytes | None, bytes | None]:
        request_id = _id_of(message)
        if request_id is None:
            return None, error_line(None, INVALID_REQUEST, "the id of a request must be a string or an integer")
        if request_id in self._open:
            text = f"the id {json.dumps(request_id)} belongs to a request that has no answer yet"
            return None, error_line(None, INVALID_REQUEST, text)
        if len(self._open) >= MAX_OPEN_REQUESTS:
            text = f"{MAX_OPEN_REQUESTS} requests have no answer yet: wait for one"
            return None, error_line(request_id, UNAVAILABLE, text, retry=True)
        method = message["method"]
        patient = now + self._start_s
        if method in STREAMS:
            longest = patient = math.inf
        elif self._is_prepared(message):
            longest = patient = now if self._unserved else now + PREPARED_AFTER_S
        elif method == HANDSHAKE:
            longest = patient
        else:
            is_long = method == "tools/call" and parameter(message, "name") in LONG_TOOLS
            longest = now + (LONG_BUDGET_S if is_long else self._budget_s)
        request = self._open[request_id] = OpenRequest(message, line, longest, patient)
        request.expires = longest if self._served else patient
        return line, None

    def _is_prepared(self, message: dict[str, Any]) -> bool:
        """True if the bridge can answer itself: a handshake, and later an unrestricted list request."""
        if self._prepared is None or message["method"] not in self._prepared.methods:
            return False
        params = message.get("params")
        if message["method"] == HANDSHAKE:
            return isinstance(params, dict)
        is_whole = not params or (isinstance(params, dict) and params.keys() == {"_meta"})  # such as a progress token
        return self._initialize is not None and is_whole

    def _notification(self, method: str, message: dict[str, Any], line: bytes) -> bytes:
        if method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled":
            cancelled = parameter(message, "requestId")
            if isinstance(cancelled, int | str) and not isinstance(cancelled, bool):
                request = self._open.get(cancelled)
                if request is not None and request.message["method"] != HANDSHAKE:
                    del self._open[cancelled]
        return line

    def from_gateway(self, line: bytes) -> bytes | None:
        """The line for the client, or None if the client must not see it."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            return None  # the client must get nothing but JSON-RPC
        answered = _id_of(message)
        if "method" in message or answered is None:  # without an id: an error about a message whose id is unreadable
            return line
        request = self._open.get(answered)
        if request is None:
            return None
        del self._open[answered]
        if "result" in message:
            self._remember(request.message)
        return line

    def _remember(self, message: dict[str, Any]) -> None:
        """Remember the parts of a successful request that a new gateway needs to know."""
        match message["method"]:
            case "initialize":
                self._initialize = message
            case "resources/subscribe":
                self._subscriptions[str(parameter(message, "uri"))] = message
            case "resources/unsubscribe":
                self._subscriptions.pop(str(parameter(message, "uri")), None)

    def connect(self, stamp_ms: int) -> list[bytes]:
        """The lines that bring a new gateway to the state of the last one."""
        lines = [self._again(self._initialize, stamp_ms)] if self._initialize else []
        if self._initialize and self._initialized is not None:
            lines.append(self._initialized)
        lines += [self._again(message, stamp_ms) for message in self._subscriptions.values()]
        lines += [request.line for request in self._open.values()]
        return lines

    def welcome(self, now: float = -math.inf) -> None:
        """Note that the gateway serves this conversation. Waiting requests get the same time limit as new ones."""
        self._served, self._unserved = True, False
        for request in self._open.values():
            request.expires = max(request.longest, min(now + self._budget_s, request.patient))

    def _again(self, message: dict[str, Any], stamp_ms: int) -> bytes:
        """Repeat a request that the client already has the answer to, under a new id: the new answer is dropped."""
        self._replays += 1
        copy = {**message, "id": f"{REPLAY_ID}{self._replays}"}
        return stamped(json.dumps(copy, separators=(",", ":")).encode(), stamp_ms)

    def disconnect(self, now: float = math.inf) -> None:
        """Note that the gateway is gone. Open requests wait for as long as a new gateway may take to start."""
        self._served = False
        for request in self._open.values():
            request.expires = max(request.patient, min(request.expires, now + self._budget_s))

    def next_expiry(self) -> float:
        return min((request.expires for request in self._open.values()), default=math.inf)

    def expire(self, now: float) -> list[bytes]:
        """Answers to the requests that exceeded their budget: prepared ones, or errors. Late answers to these are
        dropped."""
        answers = []
        for key, request in [item for item in self._open.items() if item[1].expires <= now]:
            del self._open[key]
            if self._prepared is not None and self._is_prepared(request.message):
                self._remember(request.message)
                self._unserved = not self._served
                answer = {"jsonrpc": "2.0", "id": key, "result": self._prepared.result(request.message)}
                answers.append(json.dumps(answer, separators=(",", ":")).encode())
            else:
                missed = "did not answer" if self._served else "could not be reached"
                answers.append(error_line(key, UNAVAILABLE, _TOO_LATE.format(missed), retry=True))
        return answers

    def fail_all(self, reason: str, *, retry: bool = True, code: int = UNAVAILABLE) -> list[bytes]:
        """Error answers for all open requests; `retry` says whether the same request may succeed later."""
        failed, self._open = self._open, {}
        return [error_line(key, code, reason, retry=retry) for key in failed]


def parameter(message: dict[str, Any], name: str) -> Any:
    params = message.get("params")
    return params.get(name) if isinstance(params, dict) else None


_TOO_LATE = "the memory service {} in time; try again in a moment (a write may have been stored nevertheless)"


def error_line(request_id: RequestId | None, code: int, message: str, *, retry: bool = False) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message}
    if code == UNAVAILABLE:
        error["data"] = {"error": "memory_unavailable", "retry_possible": retry}
    elif code == INVALID_PARAMS:
        error["data"] = {"error": "invalid_input", "retry_possible": False}
    answer = {"jsonrpc": "2.0", "id": request_id, "error": error}
    return json.dumps(answer, separators=(",", ":")).encode()


def _id_of(message: Any) -> RequestId | None:
    """The message's id; None if it has no valid MCP id (an encodable string, or an integer)."""
    found = message.get("id") if isinstance(message, dict) else None
    if isinstance(found, str):
        return None if any("\ud800" <= character <= "\udfff" for character in found) else found
    return found if isinstance(found, int) and not isinstance(found, bool) else None


class LineBuffer:
    """Collects bytes and returns complete lines."""

    def __init__(self, limit: float = math.inf) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their newlines. Raises `OverflowError` if one would exceed the
        limit."""
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
        """The last line, if it does not end with a newline."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest else []
