"""A gateway on another host, which the bridge sees as one end of a socket pair. A thread at the other end turns lines
into HTTP requests. When the connection to the host is lost, the socket pair is closed, and the bridge sends pending
requests again. Each carries the bridge's own id, so the server recognises repeated requests."""

# ruff: noqa: PTH123
from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from base64 import b64encode
from urllib.parse import quote, urlsplit

from remembrancer import __version__
from remembrancer.actors.bridge.replay import HANDSHAKE, error_line, parameter
from remembrancer.protocol.gateway_link import (
    CONTROL,
    END,
    INVALID,
    INVALID_REQUEST,
    REFUSED,
    REPLAY_ID,
    UNAVAILABLE,
    WELCOME,
    split_stamp,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

CONNECT_S = 5.0
ANSWER_S = 150.0
"""The maximum time without data before an answer: longer than the time limit of any tool."""
LISTEN_S = 60.0
"""The maximum time without data on the event stream, where the server sends a keep-alive every 15 s."""
UNREACHABLE_S = 3.0
"""The bridge tries to reach a host for this long before the client gets an error. A host that was reached and then lost
is expected to come back: requests wait for it until their time limit."""
GOODBYE_S = 1.0
HEADER_ARGUMENTS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""For each method, the argument that the 2026-07-28 protocol also requires in a header."""
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"


class RemoteGateway:
    """Used instead of a `Starter` if there is nothing to start."""

    failure: str | None = None
    is_lasting = False

    def __init__(
        self, url: str, identity: str, *, token_file: str | None, ca_file: str | None, project: str, toolsets: str
    ) -> None:
        """Raises `ValueError` if an argument cannot be used."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ValueError(f"--url must be http(s)://HOST[:PORT]/mcp, not {url[:200]!a}")
        self.url = url
        self.host, self.port = parts.hostname, parts.port
        self.path = (parts.path if parts.path not in ("", "/") else "/mcp") + (
            f"?project={quote(project)}" if project else ""
        )
        self.tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self.tls = ssl.create_default_context(cafile=ca_file)
            except OSError as error:
                raise ValueError(f"--ca-file {ca_file} cannot be used: {error}") from error
        self._token_file = token_file
        self._fixed = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "User-Agent": f"remembrancer/{__version__}",
            "X-Remembrancer-Bridge": identity,
            **({"X-Remembrancer-Toolsets": toolsets} if toolsets else {}),
        }
        self.read_token()
        self.session: dict[str, str] = {}
        self.was_reached = False
        self.sought_since = time.monotonic()

    def read_token(self) -> dict[str, str]:
        """The headers of every request. The token is read each time, since it may have been replaced."""
        if self._token_file is None:
            return self._fixed
        try:
            with open(self._token_file, encoding="ascii") as file:
                token = file.read().strip()
        except (OSError, ValueError) as error:
            raise ValueError(f"--token-file {self._token_file} cannot be read: {error}") from error
        if not token or any(character.isspace() for character in token):
            raise ValueError(f"--token-file {self._token_file} must contain only the token, on one line")
        return {**self._fixed, "Authorization": f"Bearer {token}"}

    def dial(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        threading.Thread(target=_FarEnd(self, theirs).run, daemon=True).start()
        return ours

    def _ignore(self, *_: object) -> None:
        """There is no runtime to start, and no child process."""

    tend = connected = _ignore

    def finish(self) -> None:
        if self.session:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                self.request("DELETE", {**self.read_token(), **self.session}, GOODBYE_S).getresponse().read()

    def request(
        self, method: str, headers: dict[str, str], silence_s: float, body: bytes = b""
    ) -> http.client.HTTPConnection:
        line: http.client.HTTPConnection
        timeout_s = min(CONNECT_S, silence_s)
        if self.tls is not None:
            line = http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=self.tls)
        else:
            line = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        line.connect()
        line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sock.settimeout(silence_s)
        line.request(method, self.path, body or None, headers)
        return line


class _FarEnd:
    """The other end of a socket pair, which lasts until the first error."""

    def __init__(self, remote: RemoteGateway, end: socket.socket) -> None:
        self._remote = remote
        self._end = end
        self._saying = threading.Lock()
        self._is_open = True

    def run(self) -> None:
        with self._end.makefile("rb") as lines:
            self._attempt(self._read, lines)

    def _read(self, lines: BinaryIO) -> None:
        lines.readline()  # the hello; the parts of it that the host needs are in the headers
        for line in lines:
            if not line.startswith(CONTROL):
                self._forward(split_stamp(line.rstrip(b"\n"))[1])
            elif line.rstrip() == END:
                break
        raise ConnectionError("the bridge has ended")

    def _attempt(self, work: Callable[..., None], *arguments: Any) -> None:
        """Report any error to the bridge, and close the socket. A person must fix the cause of a `ValueError`."""
        remote, is_done = self._remote, False
        try:
            work(*arguments)
            is_done = True
        except ssl.SSLCertVerificationError as error:
            why = f"the certificate of {remote.host} is not trusted ({error.verify_message}); pass it with --ca-file"
            self._say(INVALID + _sentence(why))
        except ValueError as error:
            self._say(INVALID + _sentence(error))
        except (OSError, http.client.HTTPException) as error:
            if not remote.was_reached and time.monotonic() - remote.sought_since >= UNREACHABLE_S:
                self._say(REFUSED + _sentence(f"{remote.url} cannot be reached: {error or type(error).__name__}"))
        finally:
            if not is_done:
                self._is_open = False
                with contextlib.suppress(OSError):
                    self._end.shutdown(socket.SHUT_RDWR)

    def _in_thread(self, work: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=self._attempt, args=(work, *arguments), daemon=True).start()

    def _say(self, line: bytes) -> None:
        with self._saying, contextlib.suppress(OSError):
            if self._is_open:
                self._end.sendall(line.replace(b"\r", b" ") + b"\n")

    def _forward(self, text: bytes) -> None:
        message = json.loads(text)
        method, asked = message.get("method"), message.get("id")
        if method == HANDSHAKE:
            if str(asked).startswith(REPLAY_ID) and self._remote.session:
                return  # the session continues with the current gateway
            self._remote.session = {}
        line = self._remote.request("POST", self._headers(message), ANSWER_S, text)
        if asked is None or method is None or method == HANDSHAKE:
            self._take(line, message)
            if method == "notifications/initialized" and self._remote.session:
                self._in_thread(self._listen)
        else:
            self._in_thread(self._take, line, message)

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {**self._remote.read_token(), **self._remote.session}
        meta = parameter(message, "_meta")
        version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        if not self._remote.session and isinstance(version, str) and message.get("method"):
            headers |= {"MCP-Protocol-Version": _header(version), "Mcp-Method": _header(str(message["method"]))}
            name = parameter(message, HEADER_ARGUMENTS.get(message["method"], ""))
            if isinstance(name, str):
                headers["Mcp-Name"] = _header(name)
        return headers

    def _take(self, line: http.client.HTTPConnection, message: dict[str, Any]) -> None:
        with contextlib.closing(line), contextlib.closing(line.getresponse()) as response:
            self._remote.was_reached = True
            if response.status in (200, 202, 204):
                self._say(WELCOME + b"{}")
                self._pass_on(response, message)
            else:
                self._explain(response, message)

    def _pass_on(self, response: http.client.HTTPResponse, message: dict[str, Any]) -> None:
        is_stream = response.getheader("Content-Type", "").startswith("text/event-stream")
        for answer in _events(response) if is_stream else (response.read(),):
            if answer.strip():
                self._note_session(response, message, answer)
                self._say(answer.replace(b"\n", b" "))

    def _note_session(self, response: http.client.HTTPResponse, message: dict[str, Any], answer: bytes) -> None:
        if message.get("method") not in (HANDSHAKE, "server/discover"):
            return
        try:
            result = json.loads(answer).get("result", {})
        except (ValueError, AttributeError):
            result = None
        if not isinstance(result, dict):
            raise ValueError(f"the server at {self._remote.url} does not speak MCP")
        made = response.getheader("Mcp-Session-Id")
        if made and message["method"] == HANDSHAKE:
            self._remote.session = {
                "Mcp-Session-Id": made,
                "MCP-Protocol-Version": str(result.get("protocolVersion", "")),
            }

    def _explain(self, response: http.client.HTTPResponse, message: dict[str, Any]) -> None:
        url, status = self._remote.url, response.status
        try:
            error = json.loads(response.read())["error"]
            code, reason = int(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            if status >= 500:
                raise ConnectionError("its server is down") from None  # a proxy answered in its place
            raise ValueError(f"{url} is not Remembrancer: it answered with HTTP {status}") from None
        if status in (401, 403, 421):
            raise ValueError(f"{url} refused access ({status}): {reason}")
        if status == 404 and self._remote.session:
            self._remote.session = {}
            raise ConnectionError("the session is gone")
        if status == 503 and response.getheader("Retry-After"):
            raise ConnectionError(reason)  # the server is stopping: the request is sent again to its successor
        is_busy = status in (408, 429) or status >= 500
        if message.get("method") and message.get("id") is not None:
            code = UNAVAILABLE if is_busy else code or INVALID_REQUEST
            self._say(error_line(message["id"], code, reason, retry=is_busy))

    def _listen(self) -> None:
        headers = {**self._remote.read_token(), **self._remote.session, "Accept": "text/event-stream"}
        line = self._remote.request("GET", headers, LISTEN_S)
        with contextlib.closing(line), contextlib.closing(line.getresponse()) as response:
            if response.status != 200:
                self._explain(response, {})
                return
            for data in _events(response):
                self._say(data)
        raise ConnectionError("the stream has ended")


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The data of each event (https://html.spec.whatwg.org/multipage/server-sent-events.html). Event ids are not
    needed: when a stream breaks, all subscriptions are renewed, and each one is announced."""
    data = []
    for line in response:
        text = line.rstrip(b"\r\n")
        if text.startswith(b"data:"):
            data.append(text[5:].removeprefix(b" "))
        elif not text:
            if any(data):  # skips the first event of a stream, which has only an id
                yield b" ".join(data)
            data = []


def _header(value: str) -> str:
    """The value, encoded as the protocol requires: a header allows no line breaks or non-ASCII characters."""
    if value.isascii() and value.isprintable() and value.strip() == value and not value.startswith("=?"):
        return value
    return f"=?base64?{b64encode(value.encode('utf-8', 'replace')).decode()}?="


def _sentence(text: object) -> bytes:
    return " ".join(str(text).split()).encode("utf-8", "replace")
