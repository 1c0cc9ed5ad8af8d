"""The end of a runtime: in order, by force, by itself, and after the launcher's own death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from remembrancer.actors.launcher.home import write_record
from remembrancer.command_line import main
from remembrancer.commands import exit_codes, runtime_commands
from remembrancer.commands.runtime_client import ask
from remembrancer.protocol import sockets, wire
from remembrancer.protocol.control import AskStatus
from remembrancer.protocol.errors import DeadlineExceeded, PeerLost, PeerUnavailable, VersionMismatch
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.wire import PROTOCOL_VERSION
from tests.conftest import processes_of
from tests.patience import PATIENCE_S
from tests.processes.runtimes import RunningRuntime, behave, is_dead, runtime, until


def assert_nothing_left(running: RunningRuntime) -> None:
    """No process, no socket, no record; and the lock is free."""
    assert processes_of(running.home) == []
    assert not running.paths.runtime_record.exists()
    assert list(running.paths.run.glob("*")) == []
    assert not FileLock(running.paths.runtime_lock).is_held_elsewhere()


def has_a_session(running: RunningRuntime) -> bool:
    """True if the launcher, which may be starting still, has heard of a session."""
    try:
        gateway = ask(running.paths, AskStatus()).gateway
    except (PeerUnavailable, PeerLost, DeadlineExceeded):
        return False
    return gateway is not None and gateway.sessions > 0


@pytest.fixture
def heeds_hangups() -> Iterator[None]:
    """Have processes that are started meanwhile not ignore SIGHUP, even where the tests themselves do (nohup)."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


@pytest.mark.usefixtures("heeds_hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_everything_in_order(home: Path, number: int) -> None:
    with runtime(home, "--embedders", "2") as running:
        running.until_ready("gateway", "store", "embedder-1", "embedder-2")
        running.process.send_signal(number)
        assert running.process.wait(PATIENCE_S) == 0
        ended = running.lines("ended")
        assert (ended[0], set(ended[1:3]), ended[3]) == ("gateway", {"embedder-1", "embedder-2"}, "store")
        assert_nothing_left(running)


def test_a_command_stops_a_runtime_of_another_release_and_asks_it_nothing_else(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with runtime(home) as running:
        running.until_ready()
        for module in (wire, sockets):
            monkeypatch.setattr(module, "PROTOCOL_VERSION", PROTOCOL_VERSION + 1)  # in this process alone
        with pytest.raises(VersionMismatch, match="remembrancer down"):
            ask(running.paths, AskStatus())
        assert main(["down"]) == exit_codes.OK
        assert capsys.readouterr().out.startswith("Stopped the runtime")
        assert running.process.wait(PATIENCE_S) == 0
        assert running.lines("ended") == ["gateway", "embedder-1", "store"]
        assert_nothing_left(running)


def test_a_command_never_ends_a_process_that_is_not_the_launcher(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = psutil.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with runtime(home) as running:
            running.until_ready()
            write_record(running.paths, stranger.pid)
            monkeypatch.setattr(runtime_commands, "STOP_LIMIT_S", 0.5)
            assert main(["down"]) == exit_codes.NO_ANSWER
            assert f"the process that holds {running.paths.runtime_lock}" in capsys.readouterr().err
            assert stranger.poll() is None
            assert running.process.poll() is None
    finally:
        stranger.kill()
        stranger.communicate()


def test_a_process_of_another_release_than_its_launcher_says_so_and_is_not_started_again(home: Path) -> None:
    with runtime(home) as running:
        store = running.until_ready()["store"]
        behave(home, "store", "is of another release")
        os.kill(store.pid, signal.SIGKILL)
        assert "store.log" in (running.until_state("store", "failed").error or "")
        log = (running.paths.logs / "store.log").read_text()
        assert "remembrancer down" in log


def test_processes_that_will_not_stop_are_killed(home: Path) -> None:
    behave(home, "store", "lingers")
    behave(home, "embedder-1", "blocks at the start")
    with runtime(home, quick_to_stop=True) as running:
        running.until_ready("gateway", "store")
        until(lambda: running.starts("embedder-1"))
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE_S) == 0
        assert_nothing_left(running)


def test_a_runtime_for_sessions_ends_when_the_last_one_has_left(home: Path) -> None:
    behave(home, "sessions", "1")
    with runtime(home, "--for-sessions", settings={"REMEMBRANCER_IDLE_TIMEOUT_S": "1.0"}) as running:
        assert running.process.wait(PATIENCE_S) == 0, "the runtime is a process of its own by now"
        lock = FileLock(running.paths.runtime_lock)
        # Who has never had a session waits for the first much longer. A gateway that is stopped meanwhile has lost it.
        until(lambda: has_a_session(running) or not lock.is_held_elsewhere())
        behave(home, "sessions", "0")
        until(lambda: not lock.is_held_elsewhere() and not processes_of(home))
        assert_nothing_left(running)


def test_the_children_of_a_killed_launcher_leave_by_themselves(home: Path) -> None:
    with runtime(home, "--embedders", "2") as running:
        running.until_ready("embedder-2")
        running.process.kill()
        running.process.wait()
        assert processes_of(home) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends them")
def test_a_stopped_process_of_a_killed_launcher_ends_too(home: Path) -> None:
    with runtime(home) as running:
        stopped = running.until_ready()["store"]
        os.kill(stopped.pid, signal.SIGSTOP)
        running.process.kill()
        running.process.wait()
    with runtime(home) as running:
        store = running.until_ready()["store"]
        assert store.pid != stopped.pid
        assert is_dead(stopped.pid)
