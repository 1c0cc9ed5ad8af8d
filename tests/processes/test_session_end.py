"""The end of a real bridge's client is told from a loss, and takes nothing from other sessions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import psutil
import pytest

from bench.client import StdioClient
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.gateway_link import END
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.session_life import EndSession, StartSession
from tests.actors.gateway_rig import PATIENT, Rig
from tests.patience import PATIENCE_S, until
from tests.runtime import Runtime, Session, command, files_with, patiently
from tests.spaces import locked


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[Rig]:
    """A store, a gateway to it, and the lock held as by a launcher: no bridge starts a runtime of its own."""
    rig = Rig(home, PATIENT)
    with FileLock(RuntimePaths(home).runtime_lock) as lock:
        assert lock.try_acquire()
        async with rig.store(), rig.running():
            yield rig


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_client_that_ends_input_or_server_ends_its_session(home: Path, number: signal.Signals | None) -> None:
    async with served(home) as rig:
        async with StdioClient(home, environ={"REMEMBRANCER_SESSION_ID": "session:real"}) as client:
            await until(lambda: len(rig.life) == 1)
            if number is not None:
                client.process.send_signal(number)
                assert await client.process.wait() >= 0
        await until(lambda: len(rig.life) == 2)
        start, end = rig.life
        assert isinstance(start, StartSession)
        assert start.session_id == "session:real"
        assert end == EndSession("session:real", "completed")


async def test_an_end_that_a_crash_of_the_gateway_swallowed_is_said_again(home: Path) -> None:
    paths = RuntimePaths(home)
    paths.run.mkdir(mode=0o700)
    with FileLock(paths.runtime_lock) as lock:
        assert lock.try_acquire()
        async with await anyio.create_unix_listener(paths.gateway_socket) as listener:
            client = StdioClient(home)
            await client.start()
            await client.send({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": {}})
            ending = asyncio.create_task(client.aclose())
            for _ in range(2):
                with anyio.fail_after(PATIENCE_S):
                    async with await listener.accept() as connection:
                        assert b'"id":"open"' in await said_until_end(connection)
            with anyio.fail_after(PATIENCE_S):
                await ending
            assert client.process.returncode == 0


async def said_until_end(connection: anyio.abc.SocketStream) -> bytes:
    heard = b""
    while not heard.endswith(b"\n" + END + b"\n"):
        heard += await connection.receive()
    return heard


async def test_an_erasing_cut_off_by_kills_is_repeated(home: Path, tmp_path: Path, without_embedders: None) -> None:
    secret = "the vault opens with marigold"
    runtime = Runtime(home)
    async with Session(home, cwd=tmp_path, environ={"REMEMBRANCER_SESSION_ID": "session:vault"}) as client:
        await client.store("this makes the file", scope="project")
        memory_id = (await client.store(secret, scope="user"))["memory_id"]
        prompt = {"session_id": "session:vault", "cwd": str(tmp_path), "prompt": f"Do this: {secret}!"}
        hook = partial(command, "hook", "UserPromptSubmit", home=home, stdin=json.dumps(prompt))
        assert (await anyio.to_thread.run_sync(hook)).returncode == 0
        await until(lambda: not list(RuntimePaths(home).hooks.glob("*.event")))
        await client.call("recall_memories", query=secret)
        with locked(RuntimePaths(home).database):
            erase = partial(command, "erase", memory_id, "--yes", home=home, directory=tmp_path)
            assert (await anyio.to_thread.run_sync(erase)).returncode != 0
            await anyio.to_thread.run_sync(runtime.kill, "gateway")
            await anyio.to_thread.run_sync(runtime.kill, "store")
        again = partial(patiently, "erase", memory_id, "--yes", home=home, directory=tmp_path)
        assert (await anyio.to_thread.run_sync(again)).returncode == 0
    await runtime.down()
    assert files_with(home, b"marigold") == []


async def test_the_runtime_outlives_the_process_tree_that_started_it(home: Path, runtime: Runtime) -> None:
    async with StdioClient(home) as first, StdioClient(home) as other:
        stored = await first.store("The lantern stands in the harbour.")
        before = sorted(runtime.recorded())
        bridge = psutil.Process(first.process.pid)
        for each in [*bridge.children(recursive=True), bridge]:
            each.kill()
        launcher = dict(before)["launcher"]
        assert os.getpgid(launcher) not in (os.getpgid(0), bridge.pid)
        assert os.getsid(launcher) == launcher
        found = await other.call("recall_memories", query="lantern", strategy="keyword")
        assert [memory["id"] for memory in found["memories"]] == [stored["memory_id"]]
        assert sorted(runtime.recorded()) == before
        assert await first.process.wait() == -signal.SIGKILL
