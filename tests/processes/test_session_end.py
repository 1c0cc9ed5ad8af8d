"""What a real bridge says when its client goes: an end is told from a loss."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from remembrancer.protocol.gateway_link import END
from remembrancer.protocol.paths import FileLock, RuntimePaths
from remembrancer.protocol.session_life import EndSession, StartSession
from tests.actors.gateway_rig import PATIENT, PlayedStore, Rig
from tests.patience import PATIENCE_S, until
from tests.processes.bridge_rig import HANDSHAKE, BridgeClient, bridge

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[tuple[PlayedStore, Rig]]:
    """A store, a gateway to it, and the lock held as by a launcher: no bridge starts a runtime of its own."""
    rig = Rig(home, PATIENT)
    with FileLock(RuntimePaths(home).runtime_lock) as lock:
        assert lock.try_acquire()
        async with PlayedStore(rig.paths).open() as store, rig.running():
            yield store, rig


def end_input(client: BridgeClient) -> None:
    client.end_input()


def terminate(client: BridgeClient) -> None:
    client.process.send_signal(signal.SIGTERM)


def hang_up(client: BridgeClient) -> None:
    client.process.send_signal(signal.SIGHUP)


def interrupt(client: BridgeClient) -> None:
    client.process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("go", [end_input, terminate, hang_up, interrupt])
async def test_a_client_that_goes_in_good_order_ends_its_session(
    home: Path, go: Callable[[BridgeClient], None]
) -> None:
    async with served(home) as (store, _):
        with bridge(REMEMBRANCER_SESSION_ID="session:real") as client:
            await anyio.to_thread.run_sync(client.initialize)
            await until(lambda: len(store.life) == 1)
            go(client)
            await until(lambda: len(store.life) == 2)
            assert await anyio.to_thread.run_sync(client.process.wait) >= 0
        start, end = store.life
        assert isinstance(start, StartSession)
        assert start.session_id == "session:real"
        assert end == EndSession("session:real", "completed")


async def test_a_bridge_that_is_killed_ends_no_session(home: Path) -> None:
    async with served(home) as (store, rig):
        with bridge() as client:
            await anyio.to_thread.run_sync(client.initialize)
            await until(lambda: len(store.life) == 1)
            client.process.kill()
            await until(lambda: rig.gateway.health().sessions == 0)
        with bridge() as another:
            await anyio.to_thread.run_sync(another.initialize)
            await until(lambda: len(store.life) == 2)
        assert [type(change) for change in store.life] == [StartSession, StartSession]


async def test_the_last_answer_comes_before_the_end(home: Path) -> None:
    async with served(home) as (store, _):
        with bridge() as client:
            await anyio.to_thread.run_sync(client.initialize)
            arguments = {"content": "x", "type": "semantic", "scope": "project"}
            client.send(id="last", method="tools/call", params={"name": "store_memory", "arguments": arguments})
            client.end_input()
            answer = await anyio.to_thread.run_sync(client.hear)
            assert answer["result"]["structuredContent"]["memory_id"] in store.memories
            await until(lambda: len(store.life) == 2)


async def test_an_end_that_a_crash_of_the_gateway_swallowed_is_said_again(home: Path) -> None:
    paths = RuntimePaths(home)
    paths.run.mkdir(mode=0o700)
    with FileLock(paths.runtime_lock) as lock:
        assert lock.try_acquire()
        async with await anyio.create_unix_listener(paths.gateway_socket) as listener:
            with bridge() as client:
                client.send(id="open", method="initialize", params=HANDSHAKE)
                client.end_input()
                for _ in range(2):
                    with anyio.fail_after(PATIENCE_S):
                        async with await listener.accept() as connection:
                            heard = await said_until_end(connection)
                    assert b'"id": "open"' in heard
                with anyio.fail_after(PATIENCE_S):
                    assert await anyio.to_thread.run_sync(client.process.wait) == 0


async def said_until_end(connection: anyio.abc.SocketStream) -> bytes:
    """What a bridge says to a gateway that dies when it hears of the end."""
    heard = b""
    while not heard.endswith(b"\n" + END + b"\n"):
        heard += await connection.receive()
    return heard
