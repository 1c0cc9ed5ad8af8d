"""The toolset `nodes` through real bridges and a whole runtime: linked memories, and what is deleted for good."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from remembrancer.commands import exit_codes
from remembrancer.toolsets.tools import DATA
from tests.processes.portable_rig import exported_memories
from tests.runtime import Caller, Runtime, bridged, command, done, files_with


async def test_nodes_are_linked_both_ways_and_walked_over(runtime: Runtime) -> None:
    async with bridged("session:nodes", toolsets="nodes") as client:
        call = Caller(client)
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["connections", "forget", "recall", "remember", "update"]
        assert sum(len(tool.model_dump_json(exclude_none=True)) for tool in tools) / 4 <= 700
        first = await call("remember", content="The cache is Redis", tags=["cache"], source="monday")
        assert first == {
            "note": DATA,
            "id": first["id"],
            "content": "The cache is Redis",
            "tags": ["cache"],
            "links": [],
            "source": "monday",
            "created_at": first["created_at"],
            "last_accessed": first["created_at"],
            "access_count": 0,
        }
        unknown = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"
        second = await call("remember", content="Redis runs on port 6380", links=[first["id"], unknown])
        assert second["links"] == [first["id"]]
        assert [(each["code"], unknown in each["message"]) for each in second["warnings"]] == [("unknown_link", True)]
        third = await call("remember", content="Port 6379 is taken by the proxy", links=[second["id"]])

        (found,) = (await call("recall", query="which cache", tags=["cache"]))["nodes"]
        assert (found["id"], found["links"], found["access_count"]) == (first["id"], [second["id"]], 1)
        assert [each["id"] for each in (await call("recall", tags=["cache", "none"]))["nodes"]] == [first["id"]]
        assert (await call("recall", query="Redis", tags=["other"]))["nodes"] == []
        assert (await call("recall", fails=True))["field"] == "query"

        near = (await call("connections", node_id=first["id"]))["nodes"]
        assert [(each["id"], each["distance"]) for each in near] == [(first["id"], 0), (second["id"], 1)]
        assert near[0]["access_count"] == 3
        far = (await call("connections", node_id=first["id"], depth=2))["nodes"]
        assert [(each["id"], each["distance"]) for each in far][2:] == [(third["id"], 2)]
        assert far[1]["links"] == [first["id"], third["id"]]
        assert (await call("connections", node_id=unknown, fails=True))["error"] == "not_found"

        changed = await call("update", node_id=second["id"], content="Redis runs on port 6381", links=[third["id"]])
        assert (changed["content"], changed["links"]) == ("Redis runs on port 6381", [third["id"]])
        assert (await call("update", node_id=second["id"], tags=["port"]))["tags"] == ["port"]
        assert (await call("update", node_id=second["id"], fails=True))["field"] == "content"
        near = (await call("connections", node_id=first["id"]))["nodes"]
        assert [each["links"] for each in near] == [[]]


async def test_a_forgotten_node_is_nowhere_in_the_home_and_its_links_are_gone(runtime: Runtime, home: Path) -> None:
    async with bridged("session:nodes", toolsets="nodes") as client:
        call = Caller(client)
        kept = await call("remember", content="the door is green")
        gone = await call("remember", content="the password hint is marigold", links=[kept["id"]])
        await call("update", node_id=gone["id"], content="the hint is marigold or lavender", tags=["marigold"])
        assert await call("forget", node_id=gone["id"]) == {"node_id": gone["id"], "status": "erased"}
        assert (await call("forget", node_id=gone["id"]))["already_erased"]
        assert (await call("connections", node_id=kept["id"]))["nodes"][0]["links"] == []
        assert (await call("recall", query="marigold"))["nodes"] == []
        assert (await call("update", node_id=gone["id"], content="back", fails=True))["error"] == "not_found"
        assert files_with(home, b"marigold") == []


@pytest.mark.usefixtures("without_embedders")
def test_a_database_of_nodes_is_taken_in_with_its_links(home: Path, tmp_path: Path) -> None:
    path, project = tmp_path / "memory.db", tmp_path / "project"
    project.mkdir()
    with sqlite3.connect(path) as nodes:
        nodes.execute(
            "CREATE TABLE nodes (id TEXT PRIMARY KEY, content TEXT NOT NULL, tags TEXT DEFAULT '[]', links TEXT"
            " DEFAULT '[]', source TEXT DEFAULT '', created_at TEXT NOT NULL, last_accessed TEXT NOT NULL,"
            " access_count INTEGER DEFAULT 0)"
        )
        at = "2026-02-03T04:05:06+00:00"
        rows = [("a", "the cache is Redis", '["cache"]', '["b", "lost"]', "monday", at, at, 3)]
        rows += [("b", "Redis listens on 6380", "[]", '["a"]', "", at, at, 0), ("c", " ", "[]", "[]", "", at, at, 0)]
        nodes.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    nodes.close()
    asked = ("import", str(path), "--json")
    finished = command(*asked, home=home, variables={"REMEMBRANCER_PROJECT": str(project)})
    assert finished.returncode == exit_codes.FAILED, "the empty one is passed over"
    said = json.loads(finished.stdout)
    assert (said["imported"], [each["line"] for each in said["bad_lines"]]) == (2, [5])
    again = command(
        *asked, "--project", str(project), home=home, variables={"REMEMBRANCER_PROJECT": str(tmp_path / "other")}
    )
    assert json.loads(again.stdout)["present"] == 2
    (best, *_) = json.loads(done("list", "--tag", "cache", "--project", str(project), "--json", home=home))["memories"]
    assert (best["content"], best["scope"]) == ("the cache is Redis", "project")
    lines = exported_memories(home).values()
    assert sorted(len(line.get("links", ())) for line in lines) == [0, 1], "a link of both is there once"
    assert {line["source"].get("label") for line in lines} == {"monday", None}
    assert {(line.get("access_count", 0), line["pinned"]) for line in lines} >= {(3, True)}
