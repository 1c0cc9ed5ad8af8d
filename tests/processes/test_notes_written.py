"""Notes that an assistant writes, in a real runtime: stored once, found, read, and nobody's edit lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from bench.client import StdioClient
from tests.patience import until
from tests.pure.test_transcripts import lines, said
from tests.runtime import Runtime, note_session


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "shop"
    directory.mkdir()
    subprocess.run(["git", "init", "-q", str(directory)], check=True)
    return directory


async def test_what_is_stored_is_in_the_log_of_the_day_and_is_found_and_read(home: Path, workspace: Path) -> None:
    async with note_session(home, workspace) as client:
        stored = await client.call("memory_store", content="## Ferry\n\nIt leaves at seven.", heading="Boats")
        assert stored["linesWritten"] == 5
        assert stored["addedToGitignore"] == ["memory/"]
        assert (workspace / ".gitignore").read_text() == "/memory/\n"
        text = "## Boats\n\n## Ferry\n\nIt leaves at seven.\n"
        (log,) = (workspace / "memory").iterdir()
        assert (f"memory/{log.name}", log.read_text()) == (stored["path"], text)
        await until(
            partial(client.call, "memory_search", query="ferry", minScore=0),
            lambda said: [each["path"] for each in said["results"]] == [stored["path"]],
        )
        assert await client.call("memory_read", path=stored["path"], fromLine=3, lines=2) == {
            "path": stored["path"],
            "content": "## Ferry",
            "fromLine": 3,
            "toLine": 4,
            "totalLines": 5,
        }
        again = await client.call("memory_store", content="- Bring cash.", path=stored["path"], heading="Ferry")
        assert again | {"indexed": True} == {  # a busy machine may index it later
            "path": stored["path"],
            "linesWritten": 1,
            "indexed": True,
        }
        replaced = await client.call(
            "memory_store", content="At eight.", mode="replace", path=stored["path"], heading="Ferry"
        )
        assert replaced["replaced"] == "It leaves at seven.\n\n- Bring cash."
        assert log.read_text() == "## Boats\n\n## Ferry\n\nAt eight.\n"


HOLDER = """
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
with open(sys.argv[1], "w") as file:
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    print("held", flush=True)
    sys.stdin.read()
"""
"""Holds a lease on a file: who opens it is kept waiting by the system until the holder lets go (fcntl(2))."""


@contextmanager
def hanging(path: Path) -> Iterator[None]:
    """To open a file for writing does not come to an end, as on a disk that hangs."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.stdin.close()


async def is_stored_at_once(client: StdioClient, content: str) -> bool:
    """True if the store keeps the memory within the budget of a write, which a busy machine may need two calls for."""
    return "warnings" not in await client.call("store_memory", content=content)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no leases")
async def test_a_note_on_a_hanging_disk_holds_nobody_up(home: Path, workspace: Path, tmp_path: Path) -> None:
    waits_for = workspace / ".gitignore.note.tmp"  # which the first note of a workspace in git goes by
    other = tmp_path / "other"
    other.mkdir()
    async with (
        note_session(home, workspace, write_budget_s="4") as client,
        note_session(home, other, is_last=False) as elsewhere,
    ):
        with hanging(waits_for):
            writing = asyncio.create_task(client.call("memory_store", content="- the harbour is deep"))
            for each in (client, elsewhere):
                await until(partial(is_stored_at_once, each, "The mole is long"))
            found = await client.call("recall_memories", query="mole", strategy="keyword")
            assert [memory["content"] for memory in found["memories"]] == ["The mole is long"]
            queued = await writing
            assert [each["code"] for each in queued["warnings"]] == ["queued"]
            log = Path(workspace, queued["path"])
            assert not log.exists()
            await until(partial(is_stored_at_once, client, "The mole is old"))  # while the note is queued
        await until(log.exists)
        assert log.read_text() == "- the harbour is deep\n"
        assert "memory" in (workspace / ".gitignore").read_text()
        await anyio.sleep(0.5)  # in which a repetition would come
        assert log.read_text() == "- the harbour is deep\n"


async def test_a_note_waits_for_a_store_that_is_away_and_is_written_once(home: Path, workspace: Path) -> None:
    runtime = Runtime(home)
    async with note_session(home, workspace, write_budget_s="0.2") as client:
        await client.call("memory_store", content="- first")
        store = runtime.process("store")
        store.suspend()
        try:
            queued = await client.call("memory_store", content="- second")
        finally:
            store.resume()
        assert (queued["indexed"], queued["linesWritten"]) == (False, 1)
        assert [each["code"] for each in queued["warnings"]] == ["queued"]
        log = Path(workspace, queued["path"])
        # On a busy machine the first one may be queued as well, and there is no file until the store goes on.
        await until(lambda: log.is_file() and log.read_text() == "- first\n- second\n")
        for number in range(3):
            runtime.kill("store" if number % 2 else "gateway")
            await client.call("memory_store", content=f"- after {number}")
        everything = ["- after 0", "- after 1", "- after 2", "- first", "- second"]
        await until(lambda: sorted(log.read_text().splitlines()) == everything)
        await anyio.sleep(0.5)  # in which a repetition would come
        assert sorted(log.read_text().splitlines()) == everything


async def test_what_was_said_in_earlier_sessions_is_found_and_read(home: Path, workspace: Path, tmp_path: Path) -> None:
    folder = "".join(each if each.isalnum() else "-" for each in str(workspace))
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    transcript = tmp_path / "projects" / folder / "5e55.jsonl"
    other = tmp_path / "projects" / "-other" / "0741.jsonl"
    for path, place in ((transcript, workspace), (other, tmp_path / "other")):
        path.parent.mkdir(parents=True)
        path.write_bytes(
            lines(
                said("user", f"Which ferry did we take to Helsinki? {token}", 1, cwd=str(place)),
                said("assistant", [{"type": "text", "text": "The Aurora, at seven."}], 2, cwd=str(place)),
            )
        )
    pattern = f"{tmp_path}/projects/*/*.jsonl"
    async with note_session(home, workspace, transcripts="true", transcripts_path=pattern) as client:

        async def search(query: str, **arguments: Any) -> list[dict[str, Any]]:
            found = await client.call("memory_search", query=query, minScore=0, **arguments)
            results: list[dict[str, Any]] = found["results"]
            return results

        await until(partial(search, "ferry to Helsinki"), lambda found: len(found) == 1)
        (hit,) = await search("ferry to Helsinki", sources=["sessions"])
        assert (hit["path"], hit["source"], hit["startLine"], hit["endLine"]) == (str(transcript), "sessions", 1, 2)
        assert "Aurora" in hit["snippet"]
        assert token not in str(hit)
        assert await search("ferry to Helsinki", sources=["memory"]) == []
        recalled = await client.call("recall_memories", query="ferry to Helsinki", sources=["memory", "sessions"])
        (memory,) = recalled["memories"]
        assert memory["path"] == str(transcript)
        assert (memory["source"], memory["lines"]) == ("sessions", [1, 2])
        alone = await client.call("recall_memories", query="ferry to Helsinki", sources=["sessions"])
        assert [each["path"] for each in alone["memories"]] == [str(transcript)]
        read = await client.call("memory_read", path=hit["path"], fromLine=2)
        assert (read["content"], read["fromLine"], read["totalLines"]) == ("Assistant: The Aurora, at seven.", 2, 2)
        refused = await client.call("memory_read", path=str(other))
        assert refused["error"] == "not_found"
        with transcript.open("ab") as file:
            file.write(lines(said("user", "And back we took the Borealis.", 3, cwd=str(workspace))))
        await client.call("memory_sync", source="sessions")
        await until(partial(search, "Borealis"), lambda found: "Borealis" in str(found))
        assert len(await search("ferry to Helsinki")) == 1
