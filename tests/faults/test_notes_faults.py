"""Trouble while notes are read: processes are killed, an index is deleted under load, many files change."""

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.client import StdioClient
from remembrancer.actors.indexer.watching import BATCH_FILES, MAX_OPEN_BATCHES
from tests.git import git
from tests.patience import until
from tests.processes.test_notes import paths
from tests.runtime import Runtime, note_session

FILES = 60
WELL = {"ready", "starting", "degraded"}
MANY_FILES = (MAX_OPEN_BATCHES + 1) * BATCH_FILES


def write(workspace: Path, number: int, about: str) -> None:
    text = f"# Note {number}\n\nThe {about} of harbour{number} is painted in the colour{number} of the year.\n"
    (workspace / "memory" / f"note{number}.md").write_text(text)


async def is_found(client: StdioClient, number: int) -> bool:
    return f"memory/note{number}.md" in await paths(client, f"harbour{number}")


async def has_read(client: StdioClient, files: int) -> bool:
    """True if so many files are there, and each has its vectors. There is no answer while the store is held up."""
    status = await client.call_or_error("memory_status")
    return status.get("totalFiles") == files and not status.get("pendingChunks")


async def test_a_process_that_is_killed_amid_a_sync_loses_nothing(
    home: Path, workspace: Path, dice: random.Random
) -> None:
    runtime = Runtime(home)
    write(workspace, 0, "lighthouse")
    async with note_session(home, workspace) as client:
        await until(lambda: is_found(client, 0))
        for count, role in enumerate(("indexer", "store", "embedder", "gateway"), start=1):
            for number in range((count - 1) * FILES, count * FILES):
                write(workspace, number, "lighthouse")
            syncing = asyncio.create_task(client.call_or_error("memory_sync"))
            await asyncio.sleep(dice.uniform(0, 0.3))
            runtime.kill(role)
            await syncing
            await until(partial(has_read, client, count * FILES))
            for number in dice.sample(range(count * FILES), 5):
                assert await is_found(client, number)
            await until(runtime.status, lambda said: {each["state"] for each in said["processes"]} <= WELL)


async def test_deleted_indexes_are_made_again(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, dice: random.Random
) -> None:
    monkeypatch.setenv("REMEMBRANCER_EXACT_SEARCH_PASSAGES", "0")
    for number in range(FILES):
        write(workspace, number, "lighthouse")
    async with note_session(home, workspace) as client:
        await until(lambda: has_read(client, FILES))
        searching = True
        errors: list[dict[str, Any]] = []

        async def search() -> None:
            while searching:
                await asyncio.sleep(0)  # a closed session answers at once
                answer = await client.call_or_error("memory_search", query=f"harbour{dice.randrange(FILES)}")
                if "error" in answer and not answer["retry_possible"]:
                    errors.append(answer)

        load = asyncio.create_task(search())
        for file in list(home.glob("projects/*/index.db*")):
            file.unlink(missing_ok=True)
        await until(lambda: has_read(client, FILES))
        await until((home / "vectors").exists)  # made once the texts have vectors
        (home / "vectors").rename(home / "gone")  # at once, though somebody may be writing there

        by_meaning = partial(client.call, "memory_search", query="which tower shows ships the way at night?")
        await until(by_meaning, lambda said: said["searchMode"] == "hybrid" and said["results"])
        for file in list(home.glob("projects/*/index.db")):
            file.write_bytes(b"damaged" * 1000)
        for number in range(FILES):
            write(workspace, number, "windmill")
        follows = partial(client.call_or_error, "memory_search", query="windmill harbour7")
        await until(follows, lambda said: "windmill" in str(said.get("results")))
        searching = False
        await load
        assert errors == []


async def test_bursts_and_branches_are_followed_and_while_nothing_changes_nothing_is_written(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "0")  # found by words: it is the changes that are in question

    here = partial(git, at=workspace)
    here("init")
    for number in range(FILES):
        write(workspace, number, "lighthouse")
    here("add", "-A")
    here("commit", "-m", "few")
    async with note_session(home, workspace, session=StdioClient) as client:  # an indexer that has imported its own

        async def has(files: int) -> bool:
            return bool((await client.call("memory_status")).get("totalFiles") == files)

        await until(lambda: has(FILES))

        async def is_quiet() -> bool:
            before = changed(home)
            await asyncio.sleep(4.5)
            return changed(home) == before

        await until(is_quiet)  # what the last file has brought about may be written behind it
        indexer = Runtime(home).process("indexer")
        assert indexer.memory_info().rss < 60 * 1024 * 1024
        here("checkout", "-qb", "many")
        for number in range(MANY_FILES):
            write(workspace, number, "windmill")
        await until(lambda: has(MANY_FILES))
        await until(lambda: is_found(client, MANY_FILES - 1))
        here("add", "-A")
        here("commit", "-qm", "many")
        here("checkout", "-q", "main")
        await until(lambda: has(FILES))
        old_note = partial(client.call, "memory_search", query="harbour0")
        await until(old_note, lambda said: "lighthouse" in str(said))  # what was changed may be read after what is gone
        await until(partial(paths, client, "windmill"), lambda found: found == [])


def changed(home: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in home.glob("projects/*/*")}
