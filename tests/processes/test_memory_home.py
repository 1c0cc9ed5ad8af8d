"""A memory in memory: shared by the sessions of one user, and gone when its runtime is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from remembrancer.actors.launcher.home import claim_memory_home, read_record
from remembrancer.commands import exit_codes
from remembrancer.config.home import memory_directory
from remembrancer.protocol.errors import HomeUnusable
from remembrancer.protocol.paths import RuntimePaths
from tests.conftest import processes_of
from tests.forked import start_runtime
from tests.patience import PATIENCE_S
from tests.processes.bridge_rig import BridgeClient, forked_bridge
from tests.processes.runtimes import until
from tests.runtime import command

MODE = {"REMEMBRANCER_DEPLOYMENT_MODE": "embedded-memory"}


@pytest.fixture
def memory(home: Path) -> Iterator[RuntimePaths]:
    """The place where the home in memory will be. Fails the test that leaves anything of it behind."""
    directory = memory_directory(home)
    assert not directory.exists()
    yield RuntimePaths(directory)
    left = processes_of(directory)
    for process in left:
        process.kill()
    left_files = [path for path in directory.glob("*") if path.suffix != ".lock"] if directory.exists() else []
    subprocess.run(["rm", "-rf", str(directory)], check=True)
    assert not left
    assert not left_files


@contextmanager
def session(**environ: str) -> Iterator[BridgeClient]:
    """A session that has shaken hands. Where no runtime is up, one is forked."""
    start_runtime({**os.environ, **environ})
    with forked_bridge(**environ) as client:
        client.initialize()
        yield client


def recall(client: BridgeClient, query: str) -> list[str]:
    """The contents of the memories with a word of the query."""
    answer = client.call("recall_memories", query=query, strategy="keyword")
    return [memory["content"] for memory in answer["memories"]]


def runtime_pids(memory: RuntimePaths) -> list[int]:
    """The launcher of the home and its children."""
    launcher = psutil.Process(read_record(memory))
    return [launcher.pid, *(child.pid for child in launcher.children(recursive=True))]


def test_sessions_share_a_memory_in_memory_which_is_gone_after_the_stop(home: Path, memory: RuntimePaths) -> None:
    with session(**MODE) as one, session(MEMORY_DEPLOYMENT_MODE="embedded-memory") as other:
        assert "error" not in one.store("the heron stands in the water")
        assert recall(other, "heron") == ["the heron stands in the water"]
        assert memory.home.stat().st_mode & 0o777 == 0o700
        assert (memory.logs / "launcher.log").exists()
        assert list(home.iterdir()) == [], "nothing is on disk"
        assert command("status", home=home, variables=MODE).returncode in (exit_codes.OK, exit_codes.DEGRADED)
        assert command("status", home=home).returncode == exit_codes.NOT_RUNNING
        one.end_input()
        other.end_input()
        assert one.process.wait(PATIENCE_S) == other.process.wait(PATIENCE_S) == 0
        done = command("down", home=home, variables=MODE)
        assert done.returncode == exit_codes.OK, done.stderr
    until(lambda: {path.suffix for path in memory.home.iterdir()} == {".lock"})


def test_what_was_acknowledged_before_a_kill_is_there_in_the_next_runtime_and_gone_after_its_stop(
    home: Path, memory: RuntimePaths
) -> None:
    with session(**MODE) as client:
        assert "error" not in client.store("the heron stands in the water")
        pids = runtime_pids(memory)
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()
    for pid in pids:
        with suppress(ProcessLookupError):  # it has noticed that its launcher is gone
            os.kill(pid, signal.SIGKILL)
    with session(**MODE) as client:
        assert recall(client, "heron") == ["the heron stands in the water"]
    assert command("down", home=home, variables=MODE).returncode == exit_codes.OK
    until(lambda: {path.suffix for path in memory.home.iterdir()} == {".lock"})


def test_a_directory_that_is_not_this_users_alone_is_no_home(home: Path, memory: RuntimePaths) -> None:
    memory.home.mkdir()
    memory.home.chmod(0o755)
    with pytest.raises(HomeUnusable, match="other users can access it"):
        claim_memory_home(memory.home)
    memory.home.rmdir()
    memory.home.symlink_to(home)
    with pytest.raises(HomeUnusable, match="other users can access it"):
        claim_memory_home(memory.home)
    (home / "kept").write_text("")
    done = command("up", home=home, variables=MODE)
    assert done.returncode == exit_codes.HOME_UNUSABLE
    assert (home / "kept").exists()
    memory.home.unlink()
