import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from bench.client import StdioClient
from remembrancer.actors.launcher.home import claim_home, prepare_home, read_record, write_record
from remembrancer.command_line import main
from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask
from remembrancer.config.home import memory_directory
from remembrancer.protocol import sockets, wire
from remembrancer.protocol.control import AskStatus
from remembrancer.protocol.errors import HomeUnusable, VersionMismatch
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.system import IS_PORTABLE
from remembrancer.protocol.wire import PROTOCOL_VERSION
from tests import patience
from tests.conftest import processes_of
from tests.patience import PATIENCE_S, wait_until
from tests.processes.runtimes import is_dead, runtime
from tests.runtime import ColdSession, Runtime, Session, command, done

STRANGE = """
import os, pathlib, subprocess, sys
from remembrancer.protocol import sockets, wire

home = pathlib.Path(os.environ["REMEMBRANCER_HOME"])
if sys.orig_argv[-1] == "store":
    (home / "child").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
    if (home / "of another release").exists():
        wire.PROTOCOL_VERSION = sockets.PROTOCOL_VERSION = wire.PROTOCOL_VERSION + 1
"""
"""Run by every process of Remembrancer that finds it on its path: a store has a child, or is of another release."""


@pytest.fixture
def strange(tmp_path: Path) -> dict[str, str]:
    """The environment of a runtime whose store is a strange one."""
    (tmp_path / "sitecustomize.py").write_text(STRANGE)
    return {"PYTHONPATH": str(tmp_path)}


def assert_nothing_left(paths: RuntimePaths) -> None:
    assert processes_of(paths.home) == []
    assert not paths.runtime_record.exists()
    assert list(paths.run.glob("*")) == []
    assert not FileLock(paths.runtime_lock).is_held_elsewhere()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])  # the other tests here end it by SIGTERM
def test_a_signal_stops_everything(home: Path, number: int) -> None:
    with runtime(home, settings={"REMEMBRANCER_EMBEDDERS": "2"}) as running:
        running.until_ready("gateway", "store", "embedder-1", "embedder-2")
        running.process.send_signal(number)
        assert running.process.wait(PATIENCE_S) == 0
        assert_nothing_left(running.paths)


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
        assert_nothing_left(running.paths)


def test_a_command_never_ends_a_process_that_is_not_the_launcher(home: Path) -> None:
    stranger = psutil.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with runtime(home) as running:
            running.until_ready()
            write_record(running.paths, stranger.pid)
            assert main(["down"]) == exit_codes.OK
            assert stranger.poll() is None
            assert running.process.wait(PATIENCE_S) == 0
    finally:
        stranger.kill()
        stranger.communicate()


def test_a_killed_process_takes_what_it_started_along_and_is_replaced_unless_its_release_is_another_now(
    home: Path, strange: dict[str, str]
) -> None:
    with runtime(home, settings=strange) as running:
        before = running.until_ready()["store"]
        child = int((home / "child").read_text())
        os.kill(before.pid, signal.SIGKILL)
        store = running.until_state("store", "ready", besides_pid=before.pid)
        assert store.restarts == 1
        wait_until(lambda: is_dead(child))
        (home / "of another release").touch()
        os.kill(store.pid, signal.SIGKILL)
        assert "store.log" in (running.until_state("store", "failed").error or "")
        log = (running.paths.logs / "store.log").read_text()
        assert "remembrancer down" in log


async def test_a_runtime_for_sessions_ends_when_the_last_one_has_left(home: Path) -> None:
    async with ColdSession(home, environ={"REMEMBRANCER_IDLE_TIMEOUT_S": "1.0"}) as client:
        await client.store("The lantern is lit.")
        await patience.until(Runtime(home).status, lambda said: said["gateway"] and said["gateway"]["sessions"])
    assert_nothing_left(RuntimePaths(home))


def test_the_children_of_a_killed_launcher_leave_by_themselves_also_one_that_stands_still(home: Path) -> None:
    with runtime(home, settings={"REMEMBRANCER_EMBEDDERS": "2"}) as running:
        store = running.until_ready("store", "embedder-2")["store"]
        if sys.platform == "linux" and not IS_PORTABLE:  # there the kernel ends them
            os.kill(store.pid, signal.SIGSTOP)
        running.process.kill()
        running.process.wait()
        assert processes_of(home) == []


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_home_that_others_could_read_is_closed_and_one_in_which_everyone_may_write_is_refused(home: Path) -> None:
    home.chmod(0o755)
    paths = RuntimePaths(home)
    paths.run.mkdir(mode=0o755)
    claim_home(paths, in_memory=False)
    prepare_home(paths)
    assert (mode(home), mode(paths.run)) == (0o700, 0o700)
    home.chmod(0o777)
    with pytest.raises(HomeUnusable, match="everyone can write"):
        claim_home(paths, in_memory=False)


def test_two_launchers_at_once_are_one_runtime(home: Path) -> None:
    with runtime(home) as one, runtime(home) as two:
        wait_until(lambda: one.process.poll() is not None or two.process.poll() is not None)
        loser, winner = (one, two) if one.process.poll() is not None else (two, one)
        assert loser.process.poll() == exit_codes.ALREADY_RUNNING
        said = loser.output.read_text()
        assert ("already running" in said, f"process {winner.process.pid}" in said, said.count("\n")) == (True, True, 1)
        winner.until_ready()


def test_a_deep_home_has_its_sockets_elsewhere_and_private(home: Path) -> None:
    deep = home / ("d" * 120)
    paths = RuntimePaths(deep)
    with runtime(deep) as running:
        running.until_ready()
        assert paths.run.parent == Path("/tmp"), "whatever TMPDIR is"
        assert mode(paths.run) == 0o700
    assert not paths.run.exists()


MODE = {"REMEMBRANCER_DEPLOYMENT_MODE": "embedded-memory"}


@pytest.fixture
def memory(home: Path) -> Iterator[RuntimePaths]:
    """The place where the home in memory will be. Fails the test whose processes are left."""
    directory = memory_directory(home)
    assert not directory.exists()
    yield RuntimePaths(directory)
    left = processes_of(directory)
    for process in left:
        process.kill()
    shutil.rmtree(directory, ignore_errors=True)
    assert not left


async def recall(client: StdioClient, query: str) -> list[str]:
    answer = await client.call("recall_memories", query=query, strategy="keyword")
    return [memory["content"] for memory in answer["memories"]]


async def test_sessions_share_a_memory_in_memory_which_outlives_a_kill_and_is_gone_after_a_stop(
    home: Path, memory: RuntimePaths
) -> None:
    theirs = {"MEMORY_DEPLOYMENT_MODE": "embedded-memory"}
    async with Session(home, environ=MODE) as one, Session(home, environ=theirs) as other:
        assert "error" not in await one.store("the heron stands in the water")
        assert await recall(other, "heron") == ["the heron stands in the water"]
        assert memory.home.stat().st_mode & 0o777 == 0o700
        assert (memory.logs / "launcher.log").exists()
        assert list(home.iterdir()) == [], "nothing is on disk"
        assert command("status", home=home, variables=MODE).returncode in (exit_codes.OK, exit_codes.DEGRADED)
        done("status", home=home, status=exit_codes.NOT_RUNNING)
        launcher = psutil.Process(read_record(memory))
        processes = [launcher, *launcher.children(recursive=True)]
        for client in (one, other):
            client.process.kill()
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # it has noticed that its launcher is gone
            process.kill()
    async with Session(home, environ=MODE) as client:
        assert await recall(client, "heron") == ["the heron stands in the water"]
    done("down", home=home, variables=MODE)
    wait_until(lambda: {path.suffix for path in memory.home.iterdir()} == {".lock"})


def test_a_link_in_the_place_of_the_directory_for_sockets_is_refused(home: Path) -> None:
    paths = RuntimePaths(home / ("d" * 120))
    claim_home(paths, in_memory=False)
    paths.run.symlink_to(home)
    try:
        with pytest.raises(HomeUnusable, match="other users can access it"):
            prepare_home(paths)
    finally:
        paths.run.unlink()


def test_a_directory_that_is_not_this_users_alone_is_no_home(home: Path, memory: RuntimePaths) -> None:
    memory.home.mkdir()
    memory.home.chmod(0o755)
    with pytest.raises(HomeUnusable, match="other users can access it"):
        claim_home(memory, in_memory=True)
    memory.home.rmdir()
    memory.home.symlink_to(home)
    with pytest.raises(HomeUnusable, match="other users can access it"):
        claim_home(memory, in_memory=True)
    (home / "kept").write_text("")
    done("up", home=home, variables=MODE, status=exit_codes.HOME_UNUSABLE)
    assert (home / "kept").exists()
    memory.home.unlink()


def wide(top: Path) -> list[str]:
    """Everything from `top` down that others can get at."""
    found = []
    for path in [top, *below(top)]:
        with suppress(FileNotFoundError):  # files come and go while a runtime is up
            mode = path.lstat().st_mode
            if mode & 0o077 and not stat.S_ISLNK(mode):
                found.append(f"{path} {stat.S_IMODE(mode):04o}")
    return found


def below(top: Path) -> list[Path]:
    """Everything in a directory, which changes meanwhile."""
    return [Path(place) / name for place, folders, files in os.walk(top) for name in (*folders, *files)]


async def test_a_home_is_private_with_all_in_it(home: Path, tmp_path: Path) -> None:
    """A session that stores and recalls, a store that dies, a queued write, and the copy of the day."""
    os.umask(0o022)  # under which files can be read by everyone; each test has the former one back
    shutil.rmtree(home)
    runtime = Runtime(home)
    async with Session(home, cwd=tmp_path) as client:
        await client.store("Ana prefers tabs.")
        await patience.until(runtime.is_drained)
        await client.call("recall_memories", query="what does Ana prefer?")
        runtime.kill("store")
        await client.store("Ana prefers short answers.", scope="user")
        files = {"memory.db", "queue.db", "shown.db", "backups", "store.log", "embedder-1.out"}
        await patience.until(lambda: files <= {path.name for path in below(home)})
        assert wide(home) == []
    await runtime.down()
    assert wide(home) == []
