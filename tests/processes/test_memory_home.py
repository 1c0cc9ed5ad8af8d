"""A memory in memory: shared by the sessions of one user, and gone when its runtime is stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from bench.client import StdioClient
from remembrancer.actors.launcher.home import claim_memory_home, read_record
from remembrancer.commands import exit_codes
from remembrancer.config.home import memory_directory
from remembrancer.protocol.errors import HomeUnusable
from remembrancer.protocol.paths import RuntimePaths
from tests.conftest import processes_of
from tests.processes.runtimes import until
from tests.runtime import Session, command, done

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


async def recall(client: StdioClient, query: str) -> list[str]:
    """The contents of the memories with a word of the query."""
    answer = await client.call("recall_memories", query=query, strategy="keyword")
    return [memory["content"] for memory in answer["memories"]]


def end(home: Path, memory: RuntimePaths) -> None:
    """Stop the runtime, after which there are only locks."""
    done("down", home=home, variables=MODE)
    until(lambda: {path.suffix for path in memory.home.iterdir()} == {".lock"})


async def test_sessions_share_a_memory_in_memory_which_is_gone_after_the_stop(home: Path, memory: RuntimePaths) -> None:
    theirs = {"MEMORY_DEPLOYMENT_MODE": "embedded-memory"}
    async with Session(home, environ=MODE) as one, Session(home, environ=theirs) as other:
        assert "error" not in await one.store("the heron stands in the water")
        assert await recall(other, "heron") == ["the heron stands in the water"]
        assert memory.home.stat().st_mode & 0o777 == 0o700
        assert (memory.logs / "launcher.log").exists()
        assert list(home.iterdir()) == [], "nothing is on disk"
        assert command("status", home=home, variables=MODE).returncode in (exit_codes.OK, exit_codes.DEGRADED)
        assert command("status", home=home).returncode == exit_codes.NOT_RUNNING
    end(home, memory)


async def test_what_was_acknowledged_before_a_kill_is_there_in_the_next_runtime_and_gone_after_its_stop(
    home: Path, memory: RuntimePaths
) -> None:
    async with Session(home, environ=MODE) as client:
        assert "error" not in await client.store("the heron stands in the water")
        launcher = psutil.Process(read_record(memory))
        processes = [launcher, *launcher.children(recursive=True)]
        client.process.kill()
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # it has noticed that its launcher is gone
            process.kill()
    async with Session(home, environ=MODE) as client:
        assert await recall(client, "heron") == ["the heron stands in the water"]
    end(home, memory)


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
