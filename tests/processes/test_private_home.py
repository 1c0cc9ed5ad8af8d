"""Everything that a runtime makes is its user's alone, whatever the umask of whoever starts it."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from tests.patience import until
from tests.runtime import Runtime, Session, command, patiently


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


async def test_a_home_that_is_made_is_private_with_all_that_is_in_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
