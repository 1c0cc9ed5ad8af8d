"""Everything that a runtime makes is its user's alone, whatever the umask of whoever starts it."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench.client import command_line
from tests.patience import PATIENCE_S, until
from tests.runtime import Runtime, Session, command, patiently


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The usual umask of a desktop, under which files can be read by everyone."""
    before = os.umask(0o022)
    yield
    os.umask(before)


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


@contextmanager
def started_by_hand() -> Iterator[None]:
    """`remembrancer up`, stopped at the end."""
    process = subprocess.Popen([*command_line()[:1], "up"], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


async def use_everything(home: Path, project: Path) -> None:
    """A session that stores and recalls, another embedder, a store that dies, a queued write, and the commands."""
    runtime = Runtime(home)
    async with Session(home, cwd=project) as client:
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


async def test_a_home_that_is_made_is_private_with_all_that_is_in_it(
    home: Path, tmp_path: Path, open_umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMEMBRANCER_EXACT_SEARCH_PASSAGES", "0")
    shutil.rmtree(home)
    await use_everything(home, tmp_path)
    files = {"memory.db", "queue.db", "chroma.sqlite3", "store.log", "embedder-2.log"}
    assert files <= {path.name for path in below(home)}


@pytest.fixture
def made_open(home: Path) -> None:
    """A home as `mkdir` leaves it."""
    home.chmod(0o755)
    (home / "run").mkdir()


async def test_a_runtime_that_a_person_starts_closes_a_home_as_mkdir_leaves_it(
    home: Path, open_umask: None, made_open: None
) -> None:
    with started_by_hand():
        await until(Runtime(home).is_ready)
        assert wide(home) == []
    assert wide(home) == []
