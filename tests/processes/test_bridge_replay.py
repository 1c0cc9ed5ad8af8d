"""Real bridges: what a client sees of crashes, of nobody being there, of its own bad lines and of its end."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from bench.client import ClientError, StdioClient
from remembrancer.config.settings import Settings
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.session_life import EndSession, StartSession
from tests.actors.gateway_rig import PATIENT, Rig
from tests.actors.store_process import Launched
from tests.patience import PATIENCE_S, until
from tests.runtime import ColdSession, Runtime
from tests.spaces import rows_of

QUICK = Settings(call_budget_s=0.8)
FOREVER = "3600"
"""Seconds in which no test comes to its end: a bridge that leaves has not waited for them."""
WAITING = f"""
import sys, remembrancer.actors.bridge.bridge as bridge
bridge.LEAVE_S = {PATIENCE_S}
sys.exit(bridge.main([]))
"""
"""A bridge that waits long for open answers when its input has ended."""
NOISY = """
import os, sys, remembrancer.actors.bridge.bridge as bridge
claim = bridge._claim_output
def claim_and_print():
    descriptor = claim()
    print("stray", flush=True)
    os.system("echo stray")
    return descriptor
bridge._claim_output = claim_and_print
sys.exit(bridge.main([]))
"""


@pytest.fixture
def alone(home: Path) -> Iterator[Path]:
    """A home whose lock is held, as by a launcher: no bridge starts a runtime of its own."""
    with FileLock(RuntimePaths(home).runtime_lock) as lock:
        assert lock.try_acquire()
        yield home


@pytest.fixture
def listener(alone: Path) -> Iterator[socket.socket]:
    paths = RuntimePaths(alone)
    paths.run.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(paths.gateway_socket))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        yield listener


@asynccontextmanager
async def gateway(home: Path) -> AsyncIterator[Launched]:
    """A gateway with this test as its launcher, which is killed at the end."""
    paths = RuntimePaths(home)
    paths.run.mkdir(mode=0o700, exist_ok=True)
    process = Launched("gateway", home, QUICK, {})
    try:
        await until(paths.gateway_socket.exists)
        yield process
    finally:
        await process.kill()


@asynccontextmanager
async def bridge(home: Path, **environ: str) -> AsyncIterator[StdioClient]:
    """A client whose bridge has begun, without a handshake; it is killed at the end."""
    client = StdioClient(home, environ=environ)
    await client.start()
    try:
        yield client
    finally:
        if client.process.returncode is None:
            client.process.kill()
        await client.aclose()


def input_of(client: StdioClient) -> int:
    assert client.process.stdin is not None
    return int(client.process.stdin.transport.get_extra_info("pipe").fileno())


async def test_a_client_has_its_tools_at_once_however_long_the_runtime_takes_to_start(home: Path) -> None:
    lock = FileLock(RuntimePaths(home).start_lock)
    assert lock.try_acquire()  # somebody else is starting one, and is slow
    async with ColdSession(home) as client:
        assert "store_memory" in [tool["name"] for tool in (await client.request("tools/list"))["tools"]]
        lock.release()
        assert (await client.store("Deployments are on Tuesdays."))["memory_id"]


async def test_a_client_with_toolsets_of_its_own_is_never_told_of_other_tools(home: Path) -> None:
    async with bridge(home, REMEMBRANCER_TOOLSETS="code") as client:  # which has to start a runtime
        instructions = (await client.initialize())["instructions"]
    assert "index_project" in instructions
    assert "store_memory" not in instructions


async def test_a_runtime_keeps_no_secrets_and_makes_way_when_its_sockets_are_deleted(home: Path) -> None:
    names = ("ANTHROPIC_API_KEY", "HTTPS_PROXY", "REMEMBRANCER_X_TOKEN")
    async with StdioClient(home, environ=dict.fromkeys(names, "sk-secret")) as client:
        assert (await client.store("Deployments are on Tuesdays."))["memory_id"]
        launcher = psutil.Process(json.loads((home / "runtime.json").read_text())["pid"])
        children = await until(launcher.children, lambda found: len(found) >= 2)
        environments = [Path(f"/proc/{each.pid}/environ").read_bytes() for each in (launcher, *children)]
        assert all(b"PATH=" in environment for environment in environments)
        assert not any(b"sk-secret" in environment for environment in environments)
        while (home / "run").exists():  # in which somebody may be making files
            shutil.rmtree(home / "run", ignore_errors=True)
        async with ColdSession(home) as newcomer:
            assert (await newcomer.store("Releases are on Fridays."))["memory_id"]
        assert (await client.store("Reviews are on Mondays."))["memory_id"]


async def test_a_runtime_that_cannot_be_started_is_named_as_the_reason(home: Path) -> None:
    async with bridge(home, REMEMBRANCER_EMBEDDERS="many", REMEMBRANCER_BRIDGE_BUDGET_S=FOREVER) as client:
        try:
            await client.initialize()
            answer = await client.call_or_error("get_memory_status")
        except ClientError as error:  # the start has failed before the handshake was answered
            answer = error.as_envelope()
        assert "could not be started: REMEMBRANCER_EMBEDDERS has a value" in answer["message"]
        assert answer["retry_possible"] is False
        assert not list(home.glob("*.err"))
        assert "REMEMBRANCER_EMBEDDERS" in (home / "logs" / "launcher.log").read_text()
        refused = await client.request_or_error("ping")
        assert "could not be started" in refused["message"], "the budget is not waited out"


async def test_a_home_that_cannot_be_made_is_named_and_not_called_a_passing_trouble(home: Path) -> None:
    async with bridge(home, REMEMBRANCER_HOME="/dev/null/home") as client:
        refused = await client.request_or_error("ping")
    assert "home /dev/null/home cannot be used: Not a directory" in refused["message"]
    assert refused["retry_possible"] is False


async def test_many_answers_and_a_slow_reader_lose_nothing(alone: Path) -> None:
    async with gateway(alone), bridge(alone) as client:
        await client.initialize()
        text = "word " * 3_000
        asked = {"jsonrpc": "2.0", "method": "prompts/get", "params": {"name": "remember", "arguments": {"what": text}}}
        lines = [json.dumps({**asked, "id": f"slow {number}"}).encode() + b"\n" for number in range(400)]
        data, sent = b"".join(lines), 0
        while sent < len(data):  # nobody reads as long as the bridge takes more
            try:
                sent += os.write(input_of(client), data[sent : sent + 65_536])
            except BlockingIOError:
                await asyncio.sleep(0.02)
        await until(lambda: len(client.strays) == 400)
        answers = [json.loads(line) for line in client.strays]
        assert {answer["id"] for answer in answers} == {f"slow {number}" for number in range(400)}
        assert all(text.strip() in answer["result"]["messages"][0]["content"]["text"] for answer in answers)


@pytest.mark.usefixtures("listener")
async def test_a_bridge_leaves_soon_although_the_socket_is_full(alone: Path) -> None:
    async with bridge(alone, REMEMBRANCER_BRIDGE_BUDGET_S=FOREVER) as client:
        data = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"x":"' + b"y" * 60_000 + b'"}}\n'
        sent = 0
        while sent < 4_000_000:
            try:
                sent += os.write(input_of(client), data[sent % len(data) :])
            except BlockingIOError:
                break
        await client.aclose()
        assert client.process.returncode == 0


async def test_what_is_under_way_at_the_end_is_still_answered(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.client.command_line", lambda: [sys.executable, "-c", WAITING])
    async with gateway(alone), bridge(alone) as client:
        await client.initialize()
        storing = asyncio.create_task(client.store("last words"))
        await asyncio.sleep(0)
        await client.aclose()
        assert "memory_id" in await storing
        assert client.process.returncode == 0
    memories = "SELECT count(*) FROM queued WHERE memory_id != ''"  # the ends of sessions may wait there, too
    assert rows_of(RuntimePaths(alone).write_queue, memories) == [(1,)]


async def test_nothing_but_the_protocol_reaches_the_output(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.client.command_line", lambda: [sys.executable, "-c", NOISY])
    async with gateway(alone), bridge(alone) as client:
        await client.initialize()
        assert client.strays == []
    assert capfd.readouterr().err.count("stray") == 2


async def test_a_client_that_ends_input_or_server_ends_its_session(alone: Path) -> None:
    rig = Rig(alone, PATIENT)
    async with rig.store(), rig.running():
        for number in (None, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            await ends_its_session(rig, f"session:{number}", number)


async def ends_its_session(rig: Rig, session: str, number: signal.Signals | None) -> None:
    before = len(rig.life)
    async with StdioClient(rig.paths.home, environ={"REMEMBRANCER_SESSION_ID": session}) as client:
        await until(lambda: len(rig.life) == before + 1)
        if number is not None:
            client.process.send_signal(number)
            assert await client.process.wait() >= 0
    await until(lambda: len(rig.life) == before + 2)
    start, end = rig.life[before:]
    assert isinstance(start, StartSession)
    assert start.session_id == session
    assert end == EndSession(session, "completed")


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
