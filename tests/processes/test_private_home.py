"""A home on disk is its user's alone with all that is in it; one in memory, too, and it is gone after the stop."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
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
from tests.patience import until
from tests.processes import runtimes
from tests.runtime import Runtime, Session, command, done, patiently

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
    runtimes.until(lambda: {path.suffix for path in memory.home.iterdir()} == {".lock"})


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


async def test_what_was_acknowledged_outlives_a_kill_and_goes_with_a_stop(home: Path, memory: RuntimePaths) -> None:
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


async def test_a_home_is_private_with_all_in_it(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that stores and recalls, another embedder, a store that dies, a queued write, and the commands."""
    os.umask(0o022)  # under which files can be read by everyone; each test has the former one back
    monkeypatch.setenv("REMEMBRANCER_EXACT_SEARCH_PASSAGES", "0")
    shutil.rmtree(home)
    runtime = Runtime(home)
    async with Session(home, cwd=tmp_path) as client:
        await client.store("Ana prefers tabs.")
        await client.store("Ana prefers short answers.", scope="user")
        await until(runtime.is_drained)
        assert (await asyncio.to_thread(patiently, "scale", "embedder=2", home=home)).returncode == 0
        await client.call("recall_memories", query="what does Ana prefer?")
        runtime.kill("store")
        for number in range(20):
            await client.store(f"Note {number} was written while the store was away.")
        await until(runtime.is_drained)

        async def the_second_has_come() -> bool:
            return sum(role == "embedder" for role, pid in runtime.recorded() if pid) == 2 and await runtime.is_ready()

        await until(the_second_has_come)

        async def is_well() -> bool:
            return (await asyncio.to_thread(command, "doctor", home=home)).returncode == 0

        await until(is_well)
        assert wide(home) == []
    await runtime.down()
    assert wide(home) == []
    files = {"memory.db", "queue.db", "chroma.sqlite3", "store.log", "embedder-2.log"}
    assert files <= {path.name for path in below(home)}
