"""The transport over HTTP, without a memory behind it: requests under way when it stops, faults, sessions, noise."""

import asyncio
import logging
import math
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import anyio
import anyio.abc
import anyio.from_thread
import httpx
import msgspec
import pytest
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.routing import Router

from remembrancer.actors.gateway import http_server as module
from remembrancer.actors.gateway.conversations import CallTool, McpService
from remembrancer.actors.gateway.http_server import HttpServer, Sessions
from remembrancer.config.settings import Settings
from remembrancer.config.tokens import Tokens
from remembrancer.toolsets.tools import CallResult, load_tools
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
VERSION = "2025-11-25"
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "recall_memories", "arguments": {}}}
ABOUT = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
BEGIN = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": ABOUT}


async def never(*_: object) -> CallResult:
    await anyio.sleep_forever()
    raise AssertionError


def http_server(home: Path, call_tool: CallTool = never, settings: Settings | None = None) -> HttpServer:
    settings = msgspec.structs.replace(settings or Settings(), http_port=0)
    service = McpService("test", lambda: Server("test"), call_tool, load_tools(), Mock())  # no store knows of sessions
    return HttpServer(home, settings, service, no_token=True, open_browser=Router)


@dataclass
class Open:
    door: HttpServer
    serving: anyio.abc.TaskGroup
    client: httpx.AsyncClient
    url: str = ""
    answers: list[httpx.Response] = field(default_factory=list)

    async def post(self, message: dict[str, Any], **headers: str) -> httpx.Response:
        self.answers.append(await self.client.post(self.url, json=message, headers=headers))
        return self.answers[-1]

    def stop(self) -> None:
        self.serving.cancel_scope.cancel()


@asynccontextmanager
async def served(home: Path, call_tool: CallTool = never) -> AsyncIterator[Open]:
    """A door in front of such tools, until the test stops it or has ended."""
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client, anyio.create_task_group() as serving:
        at = Open(http_server(home, call_tool), serving, client)
        await serving.start(at.door.serve)
        assert at.door.url is not None
        at.url = at.door.url
        yield at
        at.stop()


@pytest.mark.parametrize(
    ("owner", "place", "request_id", "message"),
    [
        (module, "read_body", None, CALL),
        (HttpServer, "_visitor", 7, CALL),
        (None, "the tool", 7, CALL),
        (StreamableHTTPSessionManager, "handle_request", 7, {**CALL, "method": "tools/list", "params": {}}),
        (Sessions, "handle_request", 7, BEGIN),
    ],
)
async def test_wherever_a_request_is_when_its_gateway_ends_it_is_told_to_try_again(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    place: str,
    request_id: int | None,
    message: dict[str, Any],
) -> None:
    is_there = anyio.Event()

    async def waiting(*_: object) -> Any:
        is_there.set()
        await anyio.sleep_forever()

    if owner is not None:
        monkeypatch.setattr(owner, place, waiting)
    async with anyio.create_task_group() as tasks, served(home, waiting) as at:
        tasks.start_soon(at.post, message)
        await is_there.wait()
        at.stop()
    (answer,) = at.answers
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
    error = answer.json()["error"]
    assert (answer.json()["id"], error["data"]) == (request_id, {"retry_possible": True})
    assert "with the same id" in error["message"]


async def test_a_request_that_fails_is_answered_as_an_error_and_logged_with_its_trace(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(HttpServer, "_visitor", failing)
    async with served(home) as at:
        with caplog.at_level(logging.ERROR):
            answer = await at.post(CALL)
    assert (answer.status_code, answer.json()["id"]) == (500, 7)
    assert "see gateway.log" in answer.json()["error"]["message"]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info is not None] == [ZeroDivisionError]


async def test_a_session_is_in_use_as_long_as_its_tools_are_called_and_over_with_its_end(home: Path) -> None:
    async def answered(*_: object) -> CallResult:
        return CallResult({}, "")

    async with served(home, answered) as at:
        begun = await at.post(BEGIN)
        session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": VERSION}
        (transport,) = at.door._sessions._server_instances.values()
        idle = transport.idle_scope
        assert idle is not None
        await until(lambda: idle.deadline < math.inf)  # the request that began it may still be ending
        idle.deadline = soon = anyio.current_time() + PATIENCE_S
        assert (await at.post(CALL, **session)).status_code == 200
        assert idle.deadline > soon
        assert at.door.sessions == 1
        idle.cancel()
        await until(lambda: not at.door.sessions)
        assert (await at.post(CALL, **session)).status_code == 404


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            Settings(http_certificate="/no/such/file.pem"),
            "certificate and its private key; /no/such/file.pem cannot be",
        ),
        (Settings(http_certificate=__file__), "certificate and its private key"),
        (Settings(http_host=f"{'a' * 64}.example"), ""),
        (Settings(http_hosts=("a*b.example",)), "whole names"),
    ],
    ids=["no certificate", "none that can be read", "no name of a host", "a pattern of names"],
)
async def test_a_door_that_cannot_open_says_so(home: Path, settings: Settings, reason: str) -> None:
    door = http_server(home, settings=settings)
    async with anyio.create_task_group() as tasks:
        await tasks.start(door.serve)
        tasks.cancel_scope.cancel()
    assert (door.url, (door.error or "").startswith("HTTP is off: ")) == (None, True)
    assert reason in (door.error or "")


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


async def said_to(port: int, data: bytes, patience_s: float = PATIENCE_S) -> bytes:
    """The answer to these bytes; empty: the connection was closed without one, or more was expected."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(data)
        while piece := await asyncio.wait_for(reader.read(65_536), patience_s):
            answer += piece
            head, _, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if length is not None and len(body) >= int(length[1]):
                break
    except (ConnectionError, TimeoutError):
        assert not answer or patience_s < PATIENCE_S
    finally:
        writer.close()
    return answer


async def test_no_noise_in_a_request_is_a_fault_or_shows_a_token(
    home: Path, dice: random.Random, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "IDLE_S", 1)  # the time that an unfinished request has
    token = Tokens(home).create("ana", (str(home),), time.time()).encode()
    lines = (
        b"POST /mcp HTTP/1.1",
        b"Host: localhost",
        b"Content-Type: application/json",
        b"Accept: application/json, text/event-stream",
        b"Authorization: Bearer " + token,
        b"Content-Length: %d" % len(PING),
    )
    whole = b"\r\n".join(lines) + b"\r\n\r\n" + PING
    pieces = (b"\r\n", b"\0", b"\xff", b":", b" ", b"chunked", b"{", b'"', b"-1", b"\r\n\r\n", b"999999", token, b"%00")
    with caplog.at_level(logging.DEBUG):
        async with served(home) as at:
            port = int(at.url.rpartition(":")[2].partition("/")[0])
            made = []
            for _ in range(300):
                data = whole
                for _ in range(dice.randint(1, 3)):
                    start, count = dice.randrange(len(data)), dice.randint(0, 6)
                    data = data[:start] + dice.choice(pieces) + data[start + count :]
                made.append(data)
            for data, answer in zip(
                made, await asyncio.gather(*(said_to(port, each, 1.0) for each in made)), strict=True
            ):
                assert not answer or answer[9:10] in (b"2", b"4"), (data, answer)
            assert b'"result":{}' in await said_to(port, whole)
    assert token.decode() not in caplog.text
