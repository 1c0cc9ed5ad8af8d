"""Notes in a project's own files, in a real runtime: written by a person, found by an assistant."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from bench.client import StdioClient
from tests.patience import until
from tests.runtime import command, note_session

DATABASE = "# Decisions\n\n## Database\n\nWe chose PostgreSQL for the billing service, because it keeps transactions.\n"


async def found(client: StdioClient, query: str, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await client.call("memory_search", query=query, **arguments)
    return answer


async def paths(client: StdioClient, query: str, **arguments: Any) -> list[str]:
    return [each["path"] for each in (await found(client, query, **arguments))["results"]]


async def test_what_a_person_wrote_is_found_by_words_and_meaning_and_followed(home: Path, workspace: Path) -> None:
    note = workspace / "memory" / "decisions.md"
    note.write_text(DATABASE)
    async with note_session(home, workspace) as client:

        async def is_found_by_meaning() -> bool:
            answer = await found(client, "which relational store holds the invoices?")
            hits = [each["path"] for each in answer["results"]]
            return (answer["searchMode"], hits) == ("hybrid", ["memory/decisions.md"])

        await until(is_found_by_meaning)
        context = (await client.call("get_memory_context"))["context_block"]
        assert context.endswith("here yet. The project has 1 file of notes, too: recall_memories searches them.")
        answer = await found(client, "PostgreSQL")
        (hit,) = answer["results"]
        assert (hit["startLine"], hit["endLine"], hit["source"]) == (1, 5, "memory")
        assert "keeps transactions" in hit["snippet"]
        assert 0.3 <= hit["score"] <= 1
        assert answer["indexAge"].endswith(" ago")
        in_shell = await asyncio.to_thread(command, "search", "PostgreSQL", home=home, directory=workspace)
        assert in_shell.stdout.split("\t")[:3] == ["memory/decisions.md:1", "", "notes"]

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
        assert done["filesScanned"] == 3
        passed_over = {each["path"]: each["reason"] for each in done["skipped"]}
        assert passed_over == {
            "memory/picture.md": "binary",
            "memory/latin.md": "not UTF-8",
            "memory/link.md": "a link out of the workspace",
            "memory/large.md": "larger than 4 MB",
        }
        again = await client.call("memory_sync")
        counts = [again[name] for name in ("filesScanned", "chunksUpdated", "chunksAdded", "chunksRemoved")]
        assert counts == [3, 0, 0, 0]
        status = await client.call("memory_status")
        assert (status["totalFiles"], status["totalChunks"], status["staleFiles"]) == (1, 1, 0)
        assert status["sources"] == {"memory": {"files": 1, "chunks": 1}, "sessions": {"files": 0, "chunks": 0}}
        forced = await client.call("memory_sync", force=True, source="memory")
        assert (forced["filesScanned"], forced["chunksUpdated"], forced["chunksAdded"]) == (3, 1, 0)
        of_sessions = await client.call("memory_sync", force=True, source="sessions")
        assert (of_sessions["filesScanned"], of_sessions["chunksUpdated"]) == (0, 0)
        assert len(status["skipped"]) == 4
        assert status["lastSync"].endswith("Z") or "+" in status["lastSync"]
        assert "nobody" not in str(await found(client, "nobody's business")), "what a link leads out to is not read"


async def test_a_recall_answers_from_memories_and_notes_and_says_which_is_which(home: Path, workspace: Path) -> None:
    (workspace / "memory" / "decisions.md").write_text(DATABASE)
    async with note_session(home, workspace) as client:
        stored = await client.store("The billing service's database is backed up to Bucharest every night.")
        recall = partial(client.call, "recall_memories", query="database of the billing service")
        answer = await until(recall, lambda said: len(said["memories"]) == 2)
        by_source = {each.get("source", "memory"): each for each in answer["memories"]}
        note = by_source["notes"]
        assert (note["path"], note["lines"]) == ("memory/decisions.md", [1, 5])
        assert "PostgreSQL" in note["content"]
        assert "id" not in note
        assert by_source["memory"]["id"] == stored["memory_id"]

        async def sources(*wanted: str, **arguments: Any) -> list[str]:
            asked = {"query": "database of the billing service", **arguments}
            found = await client.call("recall_memories", **asked, **({"sources": [*wanted]} if wanted else {}))
            return sorted(each.get("source", "memory") for each in found["memories"])

        assert await sources("memory") == ["memory"]
        assert await sources("notes") == ["notes"]
        assert await sources("memory", "notes") == ["memory", "notes"]
        assert await sources("sessions") == []
        assert await sources(scope=["user"]) == []
        assert await sources(min_importance=0.1) == ["memory"]  # which notes do not have
        assert await sources(time_range={"before": "2020-01-01T00:00:00Z"}) == []
        refused = await client.call_or_error("recall_memories", query="database", sources=["notes"], tags=["x"])
        assert refused["error"] == "invalid_input"
