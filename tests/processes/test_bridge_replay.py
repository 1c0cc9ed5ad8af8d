"""Real bridges, real gateways: what a client sees of crashes, of nobody being there, and of its own bad lines."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from remembrancer.config.settings import Settings
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from tests.patience import PATIENCE_S
from tests.processes.bridge_rig import (
    HANDSHAKE,
    BridgeClient,
    bridge,
    forked_bridge,
    gateway,
)
from tests.processes.runtimes import until
from tests.runtime import stop_runtime

QUICK = Settings(write_budget_s=0.2, read_budget_s=0.2)
FOREVER = 3600.0
"""Seconds in which no test comes to its end: a bridge that leaves has not waited for them."""


@pytest.fixture
def runtime(home: Path) -> Iterator[Path]:
    """A home whose lock is held, as by a launcher: no bridge starts a runtime of its own."""
    with FileLock(RuntimePaths(home).runtime_lock) as lock:
        assert lock.try_acquire()
        yield home


def queued_contents(home: Path) -> int:
    """The memories that wait in the queue; beside them the ends of sessions may, of which a busy machine hears late."""
    database = sqlite3.connect(RuntimePaths(home).write_queue)
    try:
        (count,) = database.execute("SELECT count(*) FROM queued WHERE memory_id != ''").fetchone()
    finally:
        database.close()
    return int(count)


def test_a_crash_of_the_gateway_is_not_seen_by_the_client(runtime: Path) -> None:
    with bridge() as client:
        with gateway(runtime, QUICK):
            assert client.initialize()["result"]["serverInfo"]["name"] == "remembrancer"
            first = client.store("before the crash")
        with gateway(runtime, QUICK):
            second = client.store("after the crash")
            tools = client.request("tools/list")["result"]["tools"]
    assert first["memory_id"] != second["memory_id"]
    assert "store_memory" in {tool["name"] for tool in tools}
    assert [json.loads(line)["id"] for line in client.lines] == [1, 2, 3, 4]


def test_a_request_that_a_crash_interrupts_is_done_once(runtime: Path) -> None:
    with bridge() as client:
        with gateway(runtime, QUICK) as first:
            client.initialize()
            client.store("warm")
            first.process.send_signal(signal.SIGSTOP)
            arguments = {"content": "interrupted", "type": "semantic", "scope": "project"}
            client.send(id="x", method="tools/call", params={"name": "store_memory", "arguments": arguments})
        with gateway(runtime, QUICK):
            answer = client.hear()
            assert answer["id"] == "x"
            assert answer["result"]["structuredContent"]["warnings"][0]["code"] == "queued"
            with pytest.raises(TimeoutError):
                client.hear(0.3)
        assert queued_contents(runtime) == 2


def test_a_gateway_that_hangs_is_not_waited_for_longer_and_its_late_answer_is_swallowed(runtime: Path) -> None:
    with gateway(runtime, QUICK) as hanging, bridge(REMEMBRANCER_BRIDGE_BUDGET_S="1.0") as client:
        hanging.until_open()
        client.initialize()
        hanging.process.send_signal(signal.SIGSTOP)
        assert client.request("ping")["error"]["code"] == -32000
        assert client.request("tools/list")["result"]["tools"], "what is the same for all is known without it"
        hanging.process.send_signal(signal.SIGCONT)
        until(lambda: "result" in client.request("ping"))
        with pytest.raises(TimeoutError):
            client.hear(0.3)


def test_a_client_has_its_tools_at_once_however_long_the_runtime_takes_to_start(home: Path) -> None:
    lock = FileLock(RuntimePaths(home).start_lock)
    assert lock.try_acquire()  # somebody else is starting one, and is slow
    with forked_bridge() as client:
        assert client.initialize()["result"]["serverInfo"]["name"] == "remembrancer"
        assert "store_memory" in [tool["name"] for tool in client.request("tools/list")["result"]["tools"]]
        lock.release()
        assert client.store("Deployments are on Tuesdays.")["memory_id"]
    stop_runtime(home)


def launched(home: Path) -> list[int]:
    """The process ids of a runtime, once there are some beside the launcher."""
    launcher = psutil.Process(json.loads((home / "runtime.json").read_text())["pid"])
    processes = [launcher.pid, *(child.pid for child in launcher.children())]
    return processes if len(processes) >= 3 else []


def is_removed(directory: Path) -> bool:
    """Try to remove a directory, in which somebody may be making files; True when it is gone."""
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def test_a_runtime_keeps_no_secrets_of_the_session_that_started_it_and_makes_way_when_its_sockets_are_deleted(
    home: Path,
) -> None:
    names = ("ANTHROPIC_API_KEY", "HTTPS_PROXY", "REMEMBRANCER_X_TOKEN")
    with bridge(**dict.fromkeys(names, "sk-secret")) as client:
        client.initialize()
        assert client.store("Deployments are on Tuesdays.")["memory_id"]
        processes = until(lambda: launched(home))
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in processes]
        assert all(b"PATH=" in environment for environment in environments)
        assert not any(b"sk-secret" in environment for environment in environments)
        until(lambda: is_removed(home / "run"))
        with bridge() as newcomer:
            newcomer.initialize()
            assert newcomer.store("Releases are on Fridays.")["memory_id"]
        assert client.store("Reviews are on Mondays.")["memory_id"]
    stop_runtime(home)


def test_a_runtime_that_cannot_be_started_is_named_as_the_reason(home: Path) -> None:
    with bridge(REMEMBRANCER_EMBEDDERS="many", REMEMBRANCER_BRIDGE_BUDGET_S=f"{FOREVER}") as client:
        client.initialize()
        answer = client.request("tools/call", name="get_memory_status")
        assert "could not be started: REMEMBRANCER_EMBEDDERS has a value" in answer["error"]["message"]
        assert answer["error"]["data"]["retry_possible"] is False
        assert not list(home.glob("*.err"))
        assert "could not be started" in client.request("ping")["error"]["message"], "the budget is not waited out"


def test_broken_lines_are_answered_and_harm_nobody(runtime: Path) -> None:
    with gateway(runtime, QUICK), bridge() as client:
        client.initialize()
        for data, code in ((b"{broken", -32700), (b"\xff\xfe", -32700), (b"[]", -32600), (b"x" * 17_000_000, -32600)):
            client.say(data)
            refusal = client.hear()
            assert refusal["id"] is None
            assert refusal["error"]["code"] == code
        client.say(b"")
        client.say(b'{"jsonrpc":"2.0","id":"crlf","method":"ping"}\r')
        assert client.hear() == {"jsonrpc": "2.0", "id": "crlf", "result": {}}
        for params in (b'{"n":NaN}', b"[" * 940 + b"]" * 940, b"3"):  # the second is too deep for the gateway alone
            client.say(b'{"jsonrpc":"2.0","id":"unread","method":"ping","params":' + params + b"}")
            refusal = client.hear()
            assert (refusal["id"], refusal["error"]["code"]) == ("unread", -32700)
        with bridge(REMEMBRANCER_SESSION_ID="x" * 201) as misfit:
            error = misfit.request("initialize", **HANDSHAKE)["error"]
            assert (error["code"], error["data"]) == (-32602, {"error": "invalid_input", "retry_possible": False})
            assert error["message"] == "REMEMBRANCER_SESSION_ID may have at most 200 characters, but has 201"


def test_many_answers_and_a_slow_reader_lose_nothing(runtime: Path) -> None:
    with gateway(runtime, QUICK), bridge() as client:
        client.initialize()
        text = "word " * 3_000
        for number in range(400):
            params = {"name": "remember", "arguments": {"what": text}}
            client.send(id=f"slow {number}", method="prompts/get", params=params)
        until(lambda: client.process.poll() is None)
        answered = set()
        for _ in range(400):
            answer = client.hear()
            answered.add(answer["id"])
            assert text.strip() in answer["result"]["messages"][0]["content"]["text"]
        assert len(answered) == 400


@contextmanager
def silent_gateway(home: Path) -> Iterator[None]:
    """Something that listens where the gateway should, and never reads."""
    paths = RuntimePaths(home)
    paths.run.mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(paths.gateway_socket))
        listener.listen()
        yield
    paths.gateway_socket.unlink()


def leave(client: BridgeClient) -> None:
    client.end_input()
    assert client.process.wait(PATIENCE_S) == 0


def test_a_bridge_leaves_soon_although_the_socket_is_full(runtime: Path) -> None:
    with silent_gateway(runtime), bridge(REMEMBRANCER_BRIDGE_BUDGET_S=f"{FOREVER}") as client:
        assert client.process.stdin is not None
        os.set_blocking(client.process.stdin.fileno(), False)
        data = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"x":"' + b"y" * 60_000 + b'"}}\n'
        sent = 0
        while sent < 4_000_000:
            try:
                sent += os.write(client.process.stdin.fileno(), data[sent % len(data) :])
            except BlockingIOError:
                break
        leave(client)


def test_what_is_under_way_at_the_end_of_input_is_still_answered(runtime: Path) -> None:
    with gateway(runtime, QUICK), bridge(PATIENCE_S) as client:
        client.initialize()
        client.request("ping")
        arguments = {"content": "last words", "type": "semantic", "scope": "project"}
        client.send(id="last", method="tools/call", params={"name": "store_memory", "arguments": arguments})
        client.end_input()
        assert client.hear()["result"]["isError"] is False
        assert client.process.wait(PATIENCE_S) == 0
    assert queued_contents(runtime) == 1


def test_nothing_but_the_protocol_reaches_the_output(runtime: Path) -> None:
    noisy = (
        "import sys, os; import remembrancer.actors.bridge.bridge as b; claim = b._claim_output\n"
        "def claim_and_print():\n"
        "    descriptor = claim()\n"
        "    print('stray'); sys.stdout.flush(); os.system('echo stray')\n"
        "    return descriptor\n"
        "b._claim_output = claim_and_print\n"
        f"b.LEAVE_S = {PATIENCE_S}\n"
        "sys.exit(b.main([]))"
    )
    with gateway(runtime, QUICK) as process:
        process.until_open()
        done = subprocess.run(
            [sys.executable, "-c", noisy],
            input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
    assert json.loads(done.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert done.stderr.count(b"stray") == 2


def test_a_gateway_of_another_release_is_named_as_the_reason_and_left_alone(runtime: Path) -> None:
    paths = RuntimePaths(runtime)
    paths.run.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener, bridge() as client:
        listener.bind(str(paths.gateway_socket))
        listener.listen()
        for _ in range(2):
            client.send(id="x", method="tools/list")
            link, _ = listener.accept()
            with link:
                assert b'"link":1' in link.recv(65536)
                link.sendall(b"!refused run remembrancer down\n")
            assert client.hear()["error"]["message"] == "run remembrancer down"
        listener.settimeout(0.3)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_after_an_ordered_stop_nothing_is_started_until_the_client_asks_again(runtime: Path) -> None:
    paths = RuntimePaths(runtime)
    paths.run.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener, bridge() as client:
        listener.bind(str(paths.gateway_socket))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        link, _ = listener.accept()
        with link:
            link.sendall(b"!welcome {}\n!bye idle\n")
        listener.settimeout(0.3)
        with pytest.raises(TimeoutError):
            listener.accept()
        listener.settimeout(PATIENCE_S)
        client.send(id=1, method="ping")
        link, _ = listener.accept()
        with link:
            link.sendall(b'!welcome {}\n{"jsonrpc":"2.0","id":1,"result":{}}\n')
            assert client.hear()["id"] == 1
