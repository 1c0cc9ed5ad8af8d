"""Code in a real runtime: indexed in the background, found, followed, and forgotten."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from bench.client import StdioClient
from tests.git import git
from tests.patience import until
from tests.runtime import PatientSession, Runtime, command, note_session

POOL = (
    "class ConnectionPool:\n    '''Keeps open connections for reuse.'''\n\n    def acquire(self):\n        return 1\n"
)


code_session = partial(note_session, session=PatientSession, toolsets="memory,code")


async def index(client: StdioClient, path: Path | str, **arguments: Any) -> str:
    """Have a tree indexed, and wait until it is; its id."""
    tree_id: str = (await client.call("index_project", path=str(path), **arguments))["project_id"]
    await until(partial(client.call, "get_index_status", project_id=tree_id), lambda said: said["status"] == "ready")
    return tree_id


async def paths(client: StdioClient, query: str, **arguments: Any) -> list[str]:
    found = await client.call("search_code", query=query, **arguments)
    return [each["file_path"] for each in found["results"]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    (root / "src").mkdir(parents=True)
    (root / "src" / "pool.py").write_text(POOL)
    (root / "src" / "use.py").write_text("from pool import ConnectionPool\n\nPOOL = ConnectionPool()\n")
    (root / "README.md").write_text("# Shop\n")
    return root


async def test_a_tree_is_indexed_searched_followed_and_forgotten(home: Path, tree: Path) -> None:
    async with code_session(home, tree) as client:
        for path in ("/", "~", str(tree / "README.md"), "missing"):
            refused = await client.call_or_error("index_project", path=path)
            assert (refused["error"], refused["field"]) == ("invalid_input", "path"), "it is no repository"
        assert await paths(client, "pool") == []
        tree_id = await index(client, ".")
        status = await client.call("get_index_status", project_id=tree_id)
        assert (status["total_files"], status["indexed_files"], status["path"]) == (3, 3, str(tree))
        assert status["completed_at"] >= status["started_at"]
        await until(  # the indexer's next heartbeat
            lambda: to_thread.run_sync(lambda: command("status", home=home)),
            lambda said: "3 files of code in 1 tree" in said.stdout,
        )
        found = await client.call("search_code", query="ConnectionPool", project_id=tree_id)
        best = found["results"][0]
        place, cut = (best["file_path"], best["start_line"], best["end_line"]), (best["language"], best["chunk_type"])
        assert (place, cut, best["name"]) == (("src/pool.py", 1, 5), ("python", "class"), "ConnectionPool")
        assert "Keeps open connections" in best["content"]

        (tree / "src" / "pool.py").write_text(POOL.replace("ConnectionPool", "Reservoir"))
        shutil.move(tree / "src" / "use.py", tree / "src" / "user.py")

        async def has_followed() -> bool:
            found = await paths(client, "POOL")
            has_moved = "src/user.py" in found and "src/use.py" not in found
            return has_moved and await paths(client, "Reservoir") == ["src/pool.py"]

        await until(has_followed)
        assert [each["project_id"] for each in (await client.call("list_projects"))["projects"]] == [tree_id]
        await client.call("delete_project", project_id=tree_id)
        assert (await client.call("list_projects"))["projects"] == []
        assert await paths(client, "Reservoir") == []
        refused = await client.call_or_error("get_index_status", project_id=tree_id)
        assert refused["error"] == "not_found"
        assert not list(home.glob("projects/*/code/*.db*"))


def committed(tree: Path) -> str:
    """Begin a repository, and the short name of its commit."""
    git("init", at=tree)
    git("commit", "--allow-empty", "-m", "first", at=tree)
    return subprocess.check_output(["git", "-C", str(tree), "rev-parse", "HEAD"], text=True)[:9]


async def test_a_memory_and_its_code_are_found_by_each_other(home: Path, tree: Path) -> None:
    why = "Backpressure: a slow relay must not be flooded."
    async with code_session(home, tree) as client:
        await index(client, tree)
        stored = await client.store(why, source={"file": "src/pool.py"})
        await client.store(
            "`ConnectionPool` is kept small.",
            related_entities=[{"name": "ConnectionPool", "type": "concept", "relationship": "about"}],
        )
        await until(
            partial(client.call, "recall_memories", query="slow relay flooded"),
            lambda said: any("code" in each for each in said["memories"] if each["id"] == stored["memory_id"]),
        )
        answer = await client.call("recall_memories", query="slow relay flooded", sources=["memory", "code"])
        assert answer["memories"][0]["id"] == stored["memory_id"]
        first = answer["code"][0]  # which has none of the question's words
        alone = await client.call("recall_memories", query="ConnectionPool", sources=["code"], max_tokens=600)
        assert (alone["memories"], alone["code"][0]["name"]) == ([], "ConnectionPool")
        assert "code" not in await client.call("recall_memories", query="ConnectionPool")
        assert (first["file_path"], first["name"]) == ("src/pool.py", "ConnectionPool")
        assert {"id": stored["memory_id"]} in first["memories"]
        found = await client.call("search_code", query="acquire")
        assert {"id": stored["memory_id"], "content": why} in found["results"][0]["memories"]


async def test_a_recall_says_what_has_become_of_the_code_that_a_memory_is_about(home: Path, tree: Path) -> None:
    pool, code = tree / "src" / "pool.py", "def opened_at(host):\n    address = parse(host)\n    return dial(address)\n"
    pool.write_text(POOL + code)
    head = await to_thread.run_sync(committed, tree)
    async with code_session(home, tree) as client:
        await index(client, ".")
        dialling = await client.store("`opened_at` dials without a retry because the relay has its own.")
        pooling = await client.store(
            "Opening connections is slow: hence ConnectionPool.", source={"file": "src/pool.py"}
        )

        async def said(memory: dict[str, Any], query: str = "connections opened") -> str:
            answer = await client.call("recall_memories", query=query, detail=True)
            of = [each.get("code", "") for each in answer["memories"] if each["id"] == memory["memory_id"]]
            return str(of[0]) if of else ""

        async def says(memory: dict[str, Any], wanted: str) -> bool:
            return await said(memory) == wanted

        await until(lambda: says(dialling, "unchanged: src/pool.py:6 opened_at"))
        await until(lambda: says(pooling, "unchanged: src/pool.py:1 ConnectionPool"))
        pool.write_text(POOL + code.replace("address)", "address, 3)"))
        await until(lambda: says(dialling, f"changed since {head}, 33 % of it: src/pool.py:6 opened_at"))
        (tree / "src" / "dialling.py").write_text(code)
        pool.write_text("import dialling\n")
        await until(lambda: says(dialling, "moved from src/pool.py opened_at: src/dialling.py:1 opened_at"))
        await until(lambda: says(pooling, f"gone since {head}: src/pool.py:1 ConnectionPool"))
        answer = await client.call("recall_memories", query="connections opened")
        assert [each["id"] for each in answer["memories"]] == [dialling["memory_id"], pooling["memory_id"]]
        listed = json.loads(
            (await to_thread.run_sync(lambda: command("stale", "--json", home=home, directory=tree))).stdout
        )
        gone, moved = listed["memories"]
        assert (gone["verdict"], moved["verdict"]) == ("gone", "moved")
        assert gone["memory_id"].endswith(pooling["memory_id"])
        assert moved["memory_id"].endswith(dialling["memory_id"])
        text = "`opened_at` lies in a module of its own: connections are opened there."
        await client.call("update_memory", memory_id=dialling["memory_id"], content=text)
        await until(lambda: says(dialling, "unchanged: src/dialling.py:1 opened_at"))


async def test_an_indexer_that_is_killed_goes_on_and_another_project_sees_nothing(
    home: Path, tree: Path, tmp_path: Path
) -> None:
    for number in range(600):
        (tree / "src" / f"part_{number}.py").write_text(f"def part_{number}():\n    return {number}\n" * 20)
    runtime = Runtime(home)
    other = tmp_path / "other"
    other.mkdir()
    async with code_session(home, tree) as client:
        tree_id = (await client.call("index_project", path=str(tree)))["project_id"]

        status = partial(client.call, "get_index_status", project_id=tree_id)
        await until(status, lambda said: said["status"] != "queued")
        runtime.kill("indexer")
        await until(status, lambda said: (said["status"], said["indexed_files"]) == ("ready", 603))
        assert (await paths(client, "part_77"))[0] == "src/part_77.py"
        assert await index(client, tree) == tree_id  # a second session that asks for the same tree shares it
        async with code_session(home, other, is_last=False) as stranger:
            assert (await stranger.call("list_projects"))["projects"] == []
            assert await paths(stranger, "part_77") == []
            refused = await stranger.call_or_error("get_index_status", project_id=tree_id)
            assert refused["error"] == "not_found"
