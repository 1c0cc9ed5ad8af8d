import asyncio
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.client import StdioClient
from remembrancer.memory.markdown_index import with_block
from tests.git import make_worktree
from tests.patience import until
from tests.runtime import PatientSession, command, note_session

POOL = (
    "class ConnectionPool:\n    '''Keeps open connections for reuse.'''\n\n    def acquire(self):\n        return 1\n"
)


code_session = partial(note_session, session=PatientSession, toolsets="memory,code")


async def index(client: StdioClient, path: Path | str, **arguments: Any) -> str:
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
    (root / "README.md").write_text(with_block("# Shop\n", "- AB12 The Reservoir is a memory.", 0.0))
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
            partial(asyncio.to_thread, command, "status", home=home),
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
        await until(lambda: not list(home.glob("projects/*/code/*.db*")))


async def test_of_the_working_trees_of_a_repository_a_session_searches_its_own(home: Path, tree: Path) -> None:
    branch = tree.with_name("branch")
    make_worktree(tree, branch)
    (branch / "pool.py").write_text(POOL)
    async with code_session(home, tree) as one, code_session(home, branch) as two:
        await index(one, ".")
        assert await paths(two, "ConnectionPool") == ["src/pool.py", "src/use.py"], "it has no index of its own yet"
        await index(two, ".")
        assert await paths(two, "ConnectionPool") == ["pool.py"]
        assert await paths(one, "ConnectionPool") == ["src/pool.py", "src/use.py"]
        assert len((await two.call("list_projects"))["projects"]) == 2


async def test_a_file_of_nested_trees_is_found_once_and_a_search_says_which_tree_is_gone(
    home: Path, tree: Path
) -> None:
    async with code_session(home, tree) as client:
        await index(client, tree)
        inner = await index(client, tree / "src")
        for query in ("ConnectionPool", "ConnectionPool src"):
            found = await paths(client, query)
            assert sorted(path.removeprefix("src/") for path in found) == ["pool.py", "use.py"], query
        assert await paths(client, "ConnectionPool", project_id=inner) == ["pool.py", "use.py"]
        await client.call("delete_project", project_id=inner)
        library = tree.with_name("library")
        shutil.copytree(tree / "src", library)
        failed = await index(client, library)
        answer = await client.call("search_code", query="ConnectionPool")
        assert "warnings" not in answer
        shutil.move(library, library.with_name("elsewhere"))
        status = partial(client.call, "get_index_status", project_id=failed)
        await until(status, lambda said: said["status"] == "failed")
        answer = await client.call("search_code", query="ConnectionPool")
        (warning,) = answer["warnings"]
        assert (
            "could not be read again; an earlier state was searched: the directory does not exist" in warning["message"]
        )
        assert {each["file_path"] for each in answer["results"]} == {"pool.py", "use.py", "src/pool.py", "src/use.py"}


async def test_a_recall_finds_memories_and_code_and_says_which_file_of_a_memory_is_gone(home: Path, tree: Path) -> None:
    why = "Backpressure: a ConnectionPool keeps a slow relay from being flooded."
    async with code_session(home, tree) as client:
        await index(client, ".")
        stored = await client.store(why, source={"file": "src/pool.py"})
        answer = await client.call("recall_memories", query="ConnectionPool slow relay", sources=["memory", "code"])
        assert answer["memories"][0]["id"] == stored["memory_id"]
        first = answer["code"][0]
        assert (first["file_path"], first["name"]) == ("src/pool.py", "ConnectionPool")
        alone = await client.call("recall_memories", query="ConnectionPool", sources=["code"], max_tokens=600)
        assert (alone["memories"], alone["code"][0]["name"]) == ([], "ConnectionPool")
        assert "code" not in await client.call("recall_memories", query="ConnectionPool")
        await client.call("forget_memory", memory_id=stored["memory_id"])

        named = await client.store("Connections are opened in src/pool.py, one for each relay.")
        source = await client.store("Opening connections is slow: keep them.", source={"file": "src/pool.py"})
        other = await client.store("Connections of the old client (lib/relay.py) were opened anew each time.")

        async def gone() -> dict[str, str]:
            answer = await client.call("recall_memories", query="connections opened", detail=True)
            assert len(answer["memories"]) == 3
            return {each["id"]: each["code"] for each in answer["memories"] if "code" in each}

        assert await gone() == {}
        (tree / "src" / "pool.py").unlink()
        both = {named["memory_id"], source["memory_id"]}
        assert await gone() == dict.fromkeys(both, "gone: src/pool.py"), "what has no directory here is not judged"
        answer = await client.call("recall_memories", query="connections opened")
        assert answer["memories"][0]["id"] == other["memory_id"]
        printed = await asyncio.to_thread(command, "list", "--stale", "--json", home=home, directory=tree)
        listed = json.loads(printed.stdout)["memories"]
        assert [each["code"] for each in listed] == ["gone: src/pool.py"] * 2
