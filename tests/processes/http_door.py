import functools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from remembrancer.config.tokens import Tokens
from tests.forked import ForkedProcess, start_command
from tests.patience import PATIENCE_S, wait_until
from tests.ports import free_port
from tests.runtime import Runtime, done, start, stop_runtime

VERSION = "2025-11-25"


class Door:
    """The HTTP side of a runtime. Requests come with a token of its own, unless another is given ("": none at all)."""

    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.port = port
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.client = httpx.Client(timeout=PATIENCE_S)
        self.opened: ForkedProcess | None = None
        """What a person started."""

    @functools.cached_property
    def own_token(self) -> str:
        return Tokens(self.home).create("door", (str(self.home),), time.time())

    def start(self, *, wait: bool = True, no_token: bool = False) -> None:
        """As a session does, or with `no_token` as a person does who says so."""
        if no_token:
            environ = {**os.environ, "REMEMBRANCER_HOME": str(self.home)}
            self.opened = start_command("up", "--no-token", environ=environ, printed=Path(os.devnull))
        else:
            start(self.home)
        if wait:
            wait_until(self.is_up)

    def is_up(self) -> bool:
        try:
            return bool(self.client.get(self.url.replace("/mcp", "/health")).json() == {"status": "ok"})
        except (httpx.TransportError, ValueError):  # nobody listens; or one who is going down says so
            return False

    def kill_gateway(self) -> None:
        """`kill -9`; returns when another answers in its place."""
        runtime = Runtime(self.home)
        killed = runtime.process("gateway")
        killed.kill()
        wait_until(lambda: runtime.pid("gateway") not in (0, killed.pid) and self.is_up())

    def token(self, name: str, *arguments: str) -> str:
        return done("token", "create", name, *arguments, home=self.home).strip()

    def post(self, body: Any, token: str | None = None, **headers: str | bytes) -> httpx.Response:
        named: dict[str, Any] = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is None:
            token = self.own_token
        if token:
            named["Authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(self.url, content=content, headers={"Content-Type": "application/json", **named})

    def call(self, tool: str, token: str | None = None, *, number: int = 1, headers: Any = None, **given: Any) -> Any:
        params = {"name": tool, "arguments": given}
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        answer = self.post(body, token, **(headers or {}))
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]["structuredContent"]

    def open_session(self, token: str | None = None, client_name: str = "test") -> dict[str, str]:
        """Shake hands; the headers of what follows."""
        client = {"name": client_name, "version": "1"}
        params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client}
        answer = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, token)
        assert '"name":"remembrancer"' in answer.text.replace(" ", "")
        headers = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": VERSION}
        said = self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, token, **headers)
        assert (said.status_code, said.content) == (202, b"")
        return headers


@contextmanager
def http_door(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """A port for the home's runtime, which the test starts; it is stopped in the end."""
    port = free_port()
    monkeypatch.setenv("REMEMBRANCER_HTTP_PORT", str(port))
    door = Door(home, port)
    with door.client:
        yield door
    stop_runtime(home)
    if door.opened is not None:
        door.opened.wait(PATIENCE_S)
