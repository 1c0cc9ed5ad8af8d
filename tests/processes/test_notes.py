"""Notes in a project's own files, in a real runtime: by a person, an assistant, or kept with a project's memories."""

import asyncio
import shutil
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
from remembrancer.actors.gateway.shown_log import ShownLog
from tests.cases import cases
from tests.git import make_repository
from tests.patience import until
from tests.pure.test_transcripts import lines, said
from tests.runtime import READ_AT_ONCE, Runtime, Session, command, done, note_session

DATABASE = "# Decisions\n\n## Database\n\nWe chose PostgreSQL for the billing service, because it keeps transactions.\n"


async def found(client: StdioClient, query: str, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await client.call("memory_search", query=query, **arguments)
    return answer


async def paths(client: StdioClient, query: str, **arguments: Any) -> list[str]:
    return [each["path"] for each in (await found(client, query, **arguments))["results"]]


async def test_what_a_person_wrote_is_found_by_words_and_meaning_beside_memories_and_followed(
    home: Path, workspace: Path
) -> None:
    note = workspace / "memory" / "decisions.md"
    note.write_text(DATABASE)
    async with note_session(home, workspace) as client:

        async def is_found_by_meaning() -> bool:
            answer = await found(client, "which relational store holds the invoices?")
            hits = [each["path"] for each in answer["results"]]
            return (answer["searchMode"], hits) == ("hybrid", ["memory/decisions.md"])

        await until(is_found_by_meaning)
        context = (await client.call("get_memory_context"))["context_block"]
        assert context.endswith("here yet. The project also has 1 file of notes, which recall_memories searches.")
        answer = await found(client, "PostgreSQL")
        (hit,) = answer["results"]
        assert (hit["startLine"], hit["endLine"], hit["source"]) == (1, 5, "memory")
        assert "keeps transactions" in hit["snippet"]
        assert 0.3 <= hit["score"] <= 1
        for query, arguments, number in cases("notes", "searches"):
            assert len((await found(client, query, **arguments))["results"]) == number, (query, arguments)
        assert answer["indexAge"].endswith(" ago")
        in_shell = await asyncio.to_thread(command, "search", "PostgreSQL", home=home, directory=workspace)
        assert in_shell.stdout.split("\t")[:3] == ["memory/decisions.md:1", "", "notes"]

        (warning,) = (await found(client, "PostgreSQL", path="memory/no.md"))["warnings"]
        assert warning["code"] == "unknown_path"

        stored = await client.store("The billing service's database is backed up to Bucharest every night.")
        recall = partial(client.call, "recall_memories", query="database of the billing service")
        answer = await until(recall, lambda said: len(said["memories"]) == 2)
        by_source = {each.get("source", "memory"): each for each in answer["memories"]}
        recalled = by_source["notes"]
        assert (recalled["path"], recalled["lines"]) == ("memory/decisions.md", [1, 5])
        assert "PostgreSQL" in recalled["content"]
        assert "id" not in recalled
        assert by_source["memory"]["id"] == stored["memory_id"]
        for narrowed, sources in cases("notes", "narrowed"):
            found_there = (await recall(**narrowed))["memories"]
            assert sorted(each.get("source", "memory") for each in found_there) == sources, narrowed
        refused = await client.call_or_error("recall_memories", query="database", sources=["notes"], tags=["x"])
        assert refused["error"] == "invalid_input"

        note.write_text(DATABASE.replace("PostgreSQL", "CockroachDB"))

        await until(partial(found, client, "database of the billing service"), lambda said: "CockroachDB" in str(said))
        assert "PostgreSQL" not in str(await found(client, "PostgreSQL"))

        shutil.move(note, workspace / "memory" / "choices.md")
        await until(partial(paths, client, "CockroachDB"), lambda said: said == ["memory/choices.md"])


async def test_sync_and_status_say_what_was_read_and_what_was_passed_over(home: Path, workspace: Path) -> None:
    outside = workspace.parent / "secret.md"
    outside.write_text("# Secret\n\nnobody's business\n")
    (workspace / "MEMORY.md").write_text(DATABASE)
    (workspace / "memory" / "picture.md").write_bytes(b"\x89PNG\0\0\0")
    (workspace / "memory" / "latin.md").write_bytes("# Über\n".encode("latin-1"))
    (workspace / "memory" / "link.md").symlink_to(outside)
    with (workspace / "memory" / "large.md").open("wb") as file:
        file.truncate(200_000_000)
    async with note_session(home, workspace) as client:
        done = await client.call("memory_sync")
        passed_over = {each["path"]: each["reason"] for each in done["skipped"]}
        assert passed_over == {
            "memory/picture.md": "binary",
            "memory/latin.md": "not UTF-8",
            "memory/link.md": "a link out of the workspace",
            "memory/large.md": "larger than 4 MB",
        }
        status = await client.call("memory_status")
        assert (status["totalFiles"], status["totalChunks"], status["staleFiles"]) == (1, 1, 0)
        assert status["sources"] == {"memory": {"files": 1, "chunks": 1}, "sessions": {"files": 0, "chunks": 0}}
        for given, counts in cases("notes", "syncs"):
            done = await client.call("memory_sync", **given)
            names = ("filesScanned", "chunksUpdated", "chunksAdded", "chunksRemoved")
            assert [done[name] for name in names] == counts, given
        assert len(status["skipped"]) == 4
        assert status["lastSync"].endswith("Z") or "+" in status["lastSync"]
        assert "nobody" not in str(await found(client, "nobody's business")), "what a link leads out to is not read"


@pytest.mark.usefixtures("without_embedders")
async def test_what_was_imported_is_found_once_as_long_as_the_file_and_its_memories_agree(
    home: Path, workspace: Path
) -> None:
    note = workspace / "MEMORY.md"
    note.write_text(
        DATABASE
        + "\n## Travel\n\n- The ferry to Helsinki leaves at noon.\n- Trams have seats.\n## TODO\n\n- [x] Buy bread.\n"
    )
    imports = partial(done, "backup", "import", str(note), home=home, directory=workspace)
    assert imports().startswith("3 memories imported, 0 already there; ")
    async with note_session(home, workspace) as client:

        async def where(query: str, **arguments: Any) -> list[str]:
            await client.call("memory_sync")
            answer = await client.call("recall_memories", query=query, detail=True, **arguments)
            return sorted("note" if "path" in each else each["content"] for each in answer["memories"])

        ferry, changed = (f"Travel: The ferry to Helsinki leaves at {at}." for at in ("noon", "nine"))
        assert await where("ferry to Helsinki") == [ferry]
        assert await where("ferry to Helsinki", sources=["notes"]) == ["note"]
        assert await paths(client, "ferry to Helsinki") == ["MEMORY.md"]
        note.write_text(note.read_text().replace("noon", "nine"))
        assert await where("ferry to Helsinki") == [ferry, "note"]
        assert (await asyncio.to_thread(imports)).startswith("1 memory imported, 2 already there; ")
        assert await where("ferry to Helsinki") == [changed, ferry]
        renamed = note.rename(workspace / "memory" / "travel.md")
        again = partial(done, "backup", "import", str(renamed), home=home, directory=workspace)
        assert (await asyncio.to_thread(again)).startswith("0 memories imported, 3 already there; ")
        assert await where("ferry to Helsinki") == [changed, ferry]
        await asyncio.to_thread(done, "undo", "--yes", home=home, directory=workspace)
        assert await where("ferry to Helsinki") == [ferry, "note"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "shop")


async def test_what_an_assistant_wrote_itself_is_found_by_another_and_stays_as_it_is(
    home: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    note = tmp_path / ".codex" / "memories" / "ferry.md"
    note.parent.mkdir(parents=True)
    note.write_text("The ferry to Helsinki leaves at noon.\n")
    async with note_session(home, repository, native_memories="true") as client:

        async def is_found() -> bool:
            memories = (await client.call("recall_memories", query="ferry to Helsinki"))["memories"]
            return [(each["source"], each["path"]) for each in memories] == [("notes", str(note))]

        await until(is_found)
        await until(lambda: "also read the assistants' own files: codex 1" in command("status", home=home).stdout)
    await Runtime(home).down()
    async with note_session(home, repository, native_memories="false") as client:
        recall = partial(client.call, "recall_memories", query="ferry to Helsinki")
        await until(recall, lambda answer: answer["memories"] == [])
    assert [path.read_text() for path in note.parent.iterdir()] == ["The ferry to Helsinki leaves at noon.\n"]


async def test_what_is_stored_is_in_the_log_of_the_day_and_is_found_and_read(home: Path, repository: Path) -> None:
    async with note_session(home, repository) as client:
        stored = await client.call("memory_store", content="## Ferry\n\nIt leaves at seven.", heading="Boats")
        assert stored["linesWritten"] == 5
        assert stored["addedToGitignore"] == ["memory/"]
        assert (repository / ".gitignore").read_text() == "/memory/\n"
        text = "## Boats\n\n## Ferry\n\nIt leaves at seven.\n"
        (log,) = (repository / "memory").iterdir()
        assert (f"memory/{log.name}", log.read_text()) == (stored["path"], text)
        await until(partial(paths, client, "ferry", minScore=0), lambda said: said == [stored["path"]])
        read = await client.call("memory_read", path=stored["path"], fromLine=3, lines=2)
        assert (read["content"], read["fromLine"], read["toLine"], read["totalLines"]) == ("## Ferry", 3, 4, 5)
        under = {"path": stored["path"], "heading": "Ferry"}
        assert (await client.call("memory_store", content="- Bring cash.", **under))["linesWritten"] == 1
        replaced = await client.call("memory_store", content="At eight.", mode="replace", **under)
        assert replaced["replaced"] == "It leaves at seven.\n\n- Bring cash."
        assert log.read_text() == "## Boats\n\n## Ferry\n\nAt eight.\n"
        await client.call("memory_store", content="- one more\n" * 60, path="memory/long.md")
        read = await client.call("memory_read", path="memory/long.md")
        assert (read["fromLine"], read["toLine"], read["totalLines"]) == (1, 50, 60)


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
async def test_a_note_on_a_hanging_disk_holds_nobody_up(home: Path, repository: Path, tmp_path: Path) -> None:
    waits_for = repository / ".note-.gitignore.tmp"  # which the first note of a repository in git goes by
    other = tmp_path / "other"
    other.mkdir()
    patient = note_session(home, repository, call_budget_s="8")
    async with patient as client, note_session(home, other) as elsewhere:
        with hanging(waits_for):
            writing = asyncio.create_task(client.call("memory_store", content="- the harbour is deep"))
            for each in (client, elsewhere):
                await until(partial(is_stored_at_once, each, "The mole is long"))
            found = await client.call("recall_memories", query="mole", strategy="keyword")
            assert [memory["content"] for memory in found["memories"]] == ["The mole is long"]
            queued = await writing
            assert [each["code"] for each in queued["warnings"]] == ["queued"]
            log = Path(repository, queued["path"])
            assert not log.exists()
            await until(partial(is_stored_at_once, client, "The mole is old"))  # while the note is queued
        await until(log.exists)
        assert log.read_text() == "- the harbour is deep\n"
        assert "memory" in (repository / ".gitignore").read_text()
        await anyio.sleep(0.5)  # in which a repetition would come
        assert log.read_text() == "- the harbour is deep\n"


async def test_earlier_sessions_and_files_elsewhere_are_found(home: Path, repository: Path, tmp_path: Path) -> None:
    folder = "".join(each if each.isalnum() else "-" for each in str(repository))
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    transcript = tmp_path / "projects" / folder / "5e55.jsonl"
    other = tmp_path / "projects" / "-other" / "0741.jsonl"
    for path, place in ((transcript, repository), (other, tmp_path / "other")):
        path.parent.mkdir(parents=True)
        asked = said("user", f"Which ferry did we take to Helsinki? {token}", 1, cwd=str(place))
        answer = said("assistant", [{"type": "text", "text": "The Aurora, at seven."}], 2, cwd=str(place))
        path.write_bytes(lines(asked, answer))
    shared = tmp_path / "shared" / "tea.md"
    shared.parent.mkdir()
    pattern, extra = f"{tmp_path}/projects/*/*.jsonl", str(shared.parent)
    async with note_session(
        home, repository, transcripts="true", transcripts_path=pattern, notes_extra_paths=extra
    ) as client:

        async def search(query: str, **arguments: Any) -> Any:
            return (await found(client, query, minScore=0, **arguments))["results"]

        await until(partial(search, "ferry to Helsinki"), lambda found: len(found) == 1)
        (hit,) = await search("ferry to Helsinki", sources=["sessions"])
        assert (hit["path"], hit["source"], hit["startLine"], hit["endLine"]) == (str(transcript), "sessions", 1, 2)
        assert "Aurora" in hit["snippet"]
        assert token not in str(hit)
        assert await search("ferry to Helsinki", sources=["memory"]) == []
        for sources in (["memory", "sessions"], ["sessions"]):
            (memory,) = (await client.call("recall_memories", query="ferry to Helsinki", sources=sources))["memories"]
            assert (memory["path"], memory["source"], memory["lines"]) == (str(transcript), "sessions", [1, 2])
        log = ShownLog(home, kept_s=0.0)
        await until(lambda: any(each.question == "ferry to Helsinki" for each in log.read()))
        assert {each.place > 0 for each in log.read() if each.question == "ferry to Helsinki"} == {True}, "it was found"
        shell = partial(command, "search", "ferry", "--in", "sessions", home=home, directory=repository)
        assert (await asyncio.to_thread(shell)).stdout.startswith(f"{transcript}:1\t")
        read = await client.call("memory_read", path=hit["path"], fromLine=2)
        assert (read["content"], read["fromLine"], read["totalLines"]) == ("Assistant: The Aurora, at seven.", 2, 2)
        refused = await client.call("memory_read", path=str(other))
        assert refused["error"] == "not_found"
        with transcript.open("ab") as file:
            file.write(lines(said("user", "And back we took the Borealis.", 3, cwd=str(repository))))
        await client.call("memory_sync", source="sessions")
        await until(partial(search, "Borealis"), lambda found: "Borealis" in str(found))
        assert len(await search("ferry to Helsinki")) == 1
        shared.write_text("# Tea\n\nThe samovar is on the upper deck.\n")
        await until(partial(paths, client, "samovar deck"), lambda found: found[:1] == [str(shared)])
        refused = await client.call("memory_store", path=str(shared), content="no more")
        assert refused["field"] == "path", "it is read, and never written"


@pytest.mark.usefixtures("without_embedders")
async def test_the_block_follows_the_memories_and_a_persons_words_stay_behind_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.toml").write_text(READ_AT_ONCE)
    monkeypatch.setenv("REMEMBRANCER_MARKDOWN_INDEX", "MEMORY.md")
    (file := tmp_path / "app" / "MEMORY.md").parent.mkdir()
    file.write_text("# Mine\n")
    async with Session(home, cwd=file.parent) as client:
        stored = await client.store("Deploys are on Fridays.", kind="convention")
        await client.store("The user likes short answers.", scope="user", kind="preference")
        await until(lambda: "Deploys are on Fridays." in file.read_text())
        assert file.read_text().startswith("# Mine\n")
        assert "short answers" not in file.read_text(), "the file may be everybody's"
        file.write_text(file.read_text().replace("Fridays", "Mondays").replace("# Mine", "# Still mine"))
        await client.store("Revisions are rebased, never merged.", kind="convention")
        await until(lambda: "rebased" in file.read_text())
        assert file.read_text().startswith("# Still mine\n")
        block, _, behind = file.read_text().partition("<!-- /remembrancer -->")
        assert "Deploys are on Fridays." in block
        assert "Deploys are on Mondays. (edited above" in behind
        await client.call("forget_memory", memory_id=stored["memory_id"])
        await until(lambda: "Fridays" not in file.read_text())
    await until(lambda: [each.name for each in file.parent.iterdir()] == ["MEMORY.md"])  # a last change may be written
