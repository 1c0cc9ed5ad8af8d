"""Sessions over HTTP that are too many, or that were ended: who makes room, and who comes back.

Against the gateway's own transport in this process, behind which is no memory.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from remembrancer.actors.gateway import http_sessions
from remembrancer.actors.gateway.http_sessions import EndedSessions
from remembrancer.config.tokens import Tokens
from tests.clients.conformance_server import served
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
VERSION = "2025-11-25"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ABOUT = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@asynccontextmanager
async def client(url: str, token: str) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(base_url=url.removesuffix("/mcp"), headers=headers, timeout=PATIENCE_S) as made:
        yield made


async def begin(line: httpx.AsyncClient) -> str:
    """A new session's id, "" where there is none."""
    answer = await line.post("/mcp", json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": ABOUT})
    return str(answer.headers.get("mcp-session-id", "")) if answer.status_code == 200 else ""


def of(session: str) -> dict[str, str]:
    return {"mcp-session-id": session, "mcp-protocol-version": VERSION}


async def status_of(line: httpx.AsyncClient, session: str) -> int:
    return (await line.post("/mcp", json=PING, headers=of(session))).status_code


@pytest.mark.anyio
async def test_a_token_with_too_many_sessions_loses_its_own_idlest_and_nobody_else_any(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sessions, "MAX_SESSIONS_OF_ONE", 4)
    monkeypatch.setattr(http_sessions, "MAX_SESSIONS", 6)
    ended: list[str] = []
    forget = http_sessions.HttpSessions._forget

    def forgotten(self: http_sessions.HttpSessions, session_id: str) -> None:
        ended.append(session_id)
        forget(self, session_id)

    monkeypatch.setattr(http_sessions.HttpSessions, "_forget", forgotten)
    tokens = Tokens(home)
    many, few, late = (tokens.create(name, (str(home),), time.time()) for name in ("many", "few", "late"))
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(home))
        flood, other, third = [await stack.enter_async_context(client(url, each)) for each in (many, few, late)]
        theirs = await begin(other)
        mine = [await begin(flood) for _ in range(4)]
        assert not ended
        assert await status_of(flood, mine[0]) == 200
        mine += [await begin(flood) for _ in range(20)]
        assert all(mine)
        assert len(ended) == 20
        assert ended[:3] == [mine[1], mine[2], mine[3]], "the one that was asked last was not the idlest"
        assert theirs not in ended
        assert await status_of(other, theirs) == 200
        assert await status_of(flood, mine[1]) == 200, "it made room, and is there again when it is needed"
        assert await begin(third), "and another gets in"
        assert await begin(third), "also where all are too many"
        assert theirs not in ended


@pytest.mark.anyio
async def test_a_stream_of_events_makes_room_after_those_that_do_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sessions, "MAX_SESSIONS_OF_ONE", 2)
    token = Tokens(home).create("one", (str(home),), time.time())
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(home))
        line = await stack.enter_async_context(client(url, token))
        listening = await begin(line)
        stream = await stack.enter_async_context(line.stream("GET", "/mcp", headers=of(listening)))
        assert stream.status_code == 200
        idle, _ = await begin(line), await begin(line)
        again = await line.get("/mcp", headers=of(listening))
        assert again.status_code == 409, "its stream is open still"
        assert idle


def test_what_a_client_has_ended_stays_ended_for_the_next_gateway(home: Path) -> None:
    token = Tokens(home).create("one", (str(home),), time.time())
    sessions: list[str] = []

    async def end_one() -> None:
        async with served(home) as url, client(url, token) as line:
            sessions.extend([await begin(line), await begin(line)])
            assert (await line.delete("/mcp", headers=of(sessions[1]))).status_code in (200, 204)
            assert await status_of(line, sessions[1]) == 404

    async def go_on(expected: list[int]) -> None:
        async with served(home) as url, client(url, token) as line:
            assert [await status_of(line, each) for each in sessions] == expected
            assert await begin(line)

    anyio.run(end_one)
    anyio.run(go_on, [200, 404])
    (home / "keys" / "http-ended").write_bytes(b"\xff")
    anyio.run(go_on, [404, 404])  # nobody knows which were ended


@pytest.mark.anyio
async def test_of_sessions_that_were_ended_none_comes_back_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sessions, "ENDED_KEPT", 10)
    ended = EndedSessions(tmp_path / "ended")
    names = [f"{at:08x}{'0' * 32}" for at in range(1, 51)]
    for name in names:
        await ended.add(name)
    for known in (ended, EndedSessions(tmp_path / "ended")):
        assert all(name in known for name in names)
        assert f"{60:08x}{'0' * 32}" not in known
    assert len((tmp_path / "ended").read_text().split()) <= 11
