"""A team's hosts behind a balancer: a client of the SDK whose requests go to two gateways in turn has one session."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from remembrancer.actors.gateway.actor import GatewayActor
from remembrancer.commands import exit_codes
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from tests.actors.gateway_rig import PATIENT, Rig
from tests.actors.store_process import store_rig
from tests.nats_servers import Started
from tests.patience import PATIENCE_S, PATIENT_JOURNAL
from tests.ports import free_port
from tests.runtime import command, patiently, until

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]

WITHOUT_ACCESSES = {**PATIENT_JOURNAL, "remembrancer.actors.store.shared_lane.ACCESSES_S": math.inf}
"""No host tells the others by itself what was found there: a lane has the entries that a test makes, however long it
takes."""
VERSION = "2025-11-25"
LANTERN = "The lantern burns oil"


@asynccontextmanager
async def balancer(*ports: int) -> AsyncIterator[tuple[str, list[int]]]:
    """An address whose connections go to ports in turn, and the ports that they went to."""
    turns, went = itertools.cycle(ports), list[int]()

    async def pump(source: anyio.abc.ByteStream, target: anyio.abc.ByteStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for chunk in source:
                await target.send(chunk)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await target.send_eof()

    async def connect(client: anyio.abc.SocketStream) -> None:
        went.append(next(turns))
        async with client, await anyio.connect_tcp("127.0.0.1", went[-1]) as host, anyio.create_task_group() as both:
            both.start_soon(pump, client, host)
            both.start_soon(pump, host, client)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, connect)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/mcp", went
        tasks.cancel_scope.cancel()


async def done(*arguments: str, home: Path, directory: Path | None = None) -> dict[str, Any]:
    answer = await asyncio.to_thread(patiently, *arguments, "--json", home=home, directory=directory)
    assert answer.returncode == exit_codes.OK, answer.stderr
    told: dict[str, Any] = json.loads(answer.stdout)
    return told


@asynccontextmanager
async def two_hosts(
    tmp_path: Path, stack: AsyncExitStack, *invited: str
) -> AsyncIterator[tuple[list[Path], list[Path], list[int]]]:
    """The homes of two hosts that share a project by a real server, its directory at each, and their HTTP ports. The
    second one is `invited` with these options."""
    homes, ports = [tmp_path / "a", tmp_path / "b"], [free_port(), free_port()]
    directories = [tmp_path / "srv" / "shop", tmp_path / "home" / "work" / "shop"]
    for directory in (*homes, *directories):
        directory.mkdir(parents=True, mode=0o700)
    address = f"127.0.0.1:{free_port()}"
    await done("share", "server-config", "--host", address, "--out", str(tmp_path / "nats"), home=homes[0])
    stack.enter_context(Started(tmp_path / "nats" / "server-1", address))
    for home, port in zip(homes, ports, strict=True):
        assert stack.enter_context(FileLock(RuntimePaths(home).runtime_lock)).try_acquire()
        await stack.enter_async_context(store_rig(home, constants=WITHOUT_ACCESSES))
        rig = Rig(home, msgspec.structs.replace(PATIENT, http_port=port, http_shared_tokens=True))
        gateway = await stack.enter_async_context(rig.running())
        await listening(gateway)
    await done("share", "start", home=homes[0])
    await done("share", "project", "--yes", home=homes[0], directory=directories[0])
    invitation = tmp_path / "invitation"
    await asyncio.to_thread(patiently, "share", "invite", "second", *invited, "--out", str(invitation), home=homes[0])
    await done("share", "join", str(invitation), home=homes[1])
    await done("share", "project", "--yes", home=homes[1], directory=directories[1])
    yield homes, directories, ports


async def listening(gateway: GatewayActor) -> None:
    """Return when a gateway listens for HTTP."""

    async def is_known() -> bool:
        return (gateway.health().http or gateway.health().http_error) is not None

    await until(is_known)
    assert gateway.health().http_error is None, gateway.health().http_error


async def begun(line: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """The headers of what follows in a new session."""
    params: dict[str, Any] = {
        "protocolVersion": VERSION,
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    answer = await line.post(url, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    return {"Mcp-Session-Id": answer.headers["mcp-session-id"], "Mcp-Protocol-Version": VERSION}


async def statuses(line: httpx2.AsyncClient, urls: list[str], session: dict[str, str]) -> list[int]:
    """The answers of each host to a request of a session."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    return [(await line.post(url, json=ping, headers=session)).status_code for url in urls]


async def stored_at_each(line: httpx2.AsyncClient, urls: list[str], content: str) -> list[str]:
    """The ids of the memory that one request of one session has stored, which was sent to each host."""
    headers = await begun(line, urls[0])
    called = {"name": "store_memory", "arguments": {"content": content}}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": called}
    answers = [(await line.post(url, json=body, headers=headers)).json() for url in urls]
    return [answer["result"]["structuredContent"]["memory_id"] for answer in answers]


async def finds(client: Client, content: str) -> bool:
    answer = await client.call_tool("recall_memories", {"query": "lantern", "strategy": "keyword"})
    assert not answer.is_error, answer
    found = answer.structured_content or {}
    return content in [memory["content"] for memory in found["memories"]]


async def test_a_session_goes_on_at_whichever_host_a_request_comes_to_until_its_token_is_revoked(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        homes, directories, ports = await stack.enter_async_context(two_hosts(tmp_path, stack))
        made = await done("token", "create", "ana", "--shared", home=homes[0], directory=directories[0])
        listed = await done("token", "list", home=homes[1])
        assert [each["name"] for each in listed["tokens"]] == ["ana"]
        assert not {"sha256", "session_key"} & listed["tokens"][0].keys()
        url, went = await stack.enter_async_context(balancer(*ports))
        urls = [f"http://127.0.0.1:{port}/mcp" for port in ports]
        headers = {"Authorization": f"Bearer {made['token']}"}
        line = httpx2.AsyncClient(
            headers=headers, timeout=PATIENCE_S, limits=httpx2.Limits(max_keepalive_connections=0)
        )
        await stack.enter_async_context(line)
        async with Client(streamable_http_client(url, http_client=line), mode="legacy", cache=None) as client:
            went.clear()
            for _ in range(4):
                assert {"store_memory", "recall_memories"} <= {tool.name for tool in (await client.list_tools()).tools}
            assert set(went) == set(ports), "both hosts have answered"
            went.clear()
            for number in range(4):
                stored = await client.call_tool("store_memory", {"content": f"{LANTERN} of kind {number}"})
                assert not stored.is_error, stored
            assert set(went) == set(ports)
            for content in (f"{LANTERN} of kind {number}" for number in range(4)):
                for _ in ports:  # it is found by each of them

                    async def is_there(content: str = content) -> bool:
                        return await finds(client, content)

                    await until(is_there)
            memory_ids = await stored_at_each(line, urls, "The lantern was lit again")
            assert memory_ids[0] == memory_ids[1]
            lane = (await done("share", "status", home=homes[1]))["lanes"][0]["lane"]
            with closing(sqlite3.connect(RuntimePaths(homes[1]).lane_database(lane))) as records:
                counted = records.execute("SELECT count(*) FROM memories WHERE content LIKE '%lit again'").fetchone()
            assert counted == (1,), "what is sent again to another host is done once"
            session = await begun(line, urls[0])
            assert await statuses(line, urls, session) == [200, 200]
            assert (await line.delete(urls[0], headers=session)).status_code in (200, 204)

            async def is_over() -> bool:
                return await statuses(line, urls, session) == [404, 404]

            await until(is_over)
            await done("token", "revoke", "ana", home=homes[1])
            for port in ports:

                async def is_refused(port: int = port) -> bool:
                    answer = await line.post(f"http://127.0.0.1:{port}/mcp", json={"jsonrpc": "2.0", "method": "ping"})
                    return bool(answer.status_code == 401)

                await until(is_refused)


async def test_who_may_only_read_is_told_so_at_once_and_nothing_waits(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        homes, directories, ports = await stack.enter_async_context(two_hosts(tmp_path, stack, "--read-only"))
        made = await done("token", "create", "ana", "--shared", home=homes[0], directory=directories[0])
        clients = []
        for port in ports:
            headers = {"Authorization": f"Bearer {made['token']}"}
            line = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S))
            url = f"http://127.0.0.1:{port}/mcp"

            async def is_let_in(line: httpx2.AsyncClient = line, url: str = url) -> bool:
                return (await line.post(url, json={"jsonrpc": "2.0", "method": "ping"})).status_code != 401

            await until(is_let_in)
            client = Client(streamable_http_client(url, http_client=line), mode="legacy", cache=None)
            clients.append(await stack.enter_async_context(client))
        writer, reader = clients
        stored = await writer.call_tool("store_memory", {"content": LANTERN})
        assert not stored.is_error, stored
        memory_id = (stored.structured_content or {})["memory_id"]

        async def is_there() -> bool:
            return await finds(reader, LANTERN)

        await until(is_there)
        own = await reader.call_tool("store_memory", {"content": "The lantern of the session", "scope": "session"})
        assert not own.is_error, "what is not shared is its own"
        own_id = (own.structured_content or {})["memory_id"]
        for tool, given in (
            ("store_memory", {"content": "The lantern burns gas"}),
            ("update_memory", {"memory_id": memory_id, "content": "The lantern burns gas"}),
            ("forget_memory", {"memory_id": memory_id}),
            ("promote_memory", {"memory_id": own_id, "target_scope": "project"}),
        ):
            refused = await reader.call_tool(tool, given)
            assert refused.is_error, (tool, refused)
            assert "this machine may only read what is shared" in str(refused.content), (tool, refused)
        status = (await reader.call_tool("get_memory_status", {})).structured_content or {}
        assert not status.get("queued"), status
        assert await finds(reader, "The lantern of the session"), "what was not promoted is where it was"
        for asked in (("create", "ben", "--shared"), ("revoke", "ana")):
            answer = await asyncio.to_thread(command, "token", *asked, home=homes[1], directory=directories[1])
            assert answer.returncode == exit_codes.REFUSED, answer
            assert "may only read" in answer.stderr
        assert await finds(writer, LANTERN)
        assert await finds(reader, LANTERN)
        lane = (await done("share", "status", home=homes[1]))["lanes"][0]
        assert "stopped" not in lane
        assert lane["head"] == 2, "the memory and the token: from the reader nothing has come"
