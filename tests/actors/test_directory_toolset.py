"""The toolset `directory` through the gateway, beside the SDK's own tool over files; our memory tool for the SDK.

The SDK, 3,000 modules, is imported by those tests alone that use it.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.actors.gateway_rig import RawClient, Rig
from tests.cases import cases
from tests.patience import PATIENCE_S
from tests.runtime import Runtime, done, start


@pytest.fixture
async def client(served: Rig) -> AsyncIterator[RawClient]:
    async with served.session(environment={"REMEMBRANCER_TOOLSETS": "directory,memory"}) as client:
        yield client


async def said(client: RawClient, command: str, path: str | None = None, **arguments: Any) -> str:
    """The text of an answer, behind `error: ` where it is one. There is nothing structured beside it."""
    given = {"command": command, **arguments} | ({} if path is None else {"path": path})
    result = (await client.request("tools/call", name="memory", arguments=given))["result"]
    (content,) = result["content"]
    assert "structuredContent" not in result
    return ("error: " if result["isError"] else "") + str(content["text"])


def said_by_sdk(tool: Any, command: dict[str, Any]) -> str:
    from anthropic.lib.tools import ToolError

    try:
        return str(tool.call(command))
    except ToolError as error:
        return f"error: {error}"


async def test_it_answers_as_the_tool_of_the_sdk_does(client: RawClient, tmp_path: Path) -> None:
    from anthropic.tools.memory import BetaLocalFilesystemMemoryTool

    own = BetaLocalFilesystemMemoryTool(str(tmp_path / "sdk"))
    for each in cases("directory_toolset", "commands"):
        given = dict(each)
        answer = await said(client, given.pop("command"), **given)
        assert answer == said_by_sdk(own, each), each
    wanted = said_by_sdk(own, {"command": "view", "path": "/memories"}).splitlines()
    shown = (await said(client, "view", "/memories")).splitlines()
    names = [line.split("\t")[-1] for line in wanted]
    assert [line.split("\t")[-1] for line in shown if "/repo/" not in line and "/session/" not in line] == names


async def test_memories_that_were_not_created_as_files_are_lines_of_a_file_a_kind(client: RawClient) -> None:
    await client.store("Revisions are rebased.", kind="decision", type="episodic")
    second = await client.store("Two lines:\nthe second one.", kind="decision", type="episodic")
    await client.store("Prefers tabs.", kind="preference", scope="user")
    path = "/memories/repo/decisions.md"
    assert "/memories/preferences.md" in await said(client, "view", "/memories")
    assert (await said(client, "view", path)).splitlines()[1:4] == [
        "     1\t- Revisions are rebased.",
        "     2\t- Two lines:",
        "     3\t  the second one.",
    ]
    await said(client, "str_replace", path, old_str="second one", new_str="second line")
    shown = await client.call("get_memory", memory_id=second["memory_id"])
    assert (shown["content"], shown["version"]) == ("Two lines:\nthe second line.", 2)
    await said(client, "insert", path, insert_line=1, new_str="- Releases are on Mondays.\n- Never on Fridays.\n")
    await said(client, "str_replace", path, old_str="- Revisions are rebased.\n")
    assert (await said(client, "view", path)).splitlines()[1:] == [
        "     1\t- Two lines:",
        "     2\t  the second line.",
        "     3\t- Releases are on Mondays.",
        "     4\t- Never on Fridays.",
        "     5\t",
    ]
    found = await client.call("recall_memories", query="releases on Mondays")
    assert found["memories"][0]["content"] == "Releases are on Mondays."
    assert (await said(client, "delete", path)).startswith("error: /memories/repo/decisions.md shows 3 memories")
    assert (await said(client, "rename", old_path=path, new_path="/memories/x.md")).startswith("error: ")


async def test_a_file_is_a_memory_of_its_scope_and_goes_to_a_broader_one_by_being_renamed(client: RawClient) -> None:
    await said(client, "create", "/memories/session/draft.md", file_text="Try the blue queue.")
    found = await client.call("recall_memories", query="blue queue")
    assert [each["scope"] for each in found["memories"]] == ["session"]
    await said(client, "rename", old_path="/memories/session/draft.md", new_path="/memories/repo/queue.md")
    found = await client.call("recall_memories", query="blue queue")
    assert [each["scope"] for each in found["memories"]] == ["project"]
    back = await said(client, "rename", path="/memories/repo/queue.md", new_path="/memories/session/queue.md")
    assert back.startswith("error: /memories/repo/queue.md cannot be moved to a narrower scope")
    await said(client, "delete", "/memories/repo/queue.md")
    assert (await said(client, "view", "/memories/repo/queue.md")).startswith("error: The path")


async def test_a_line_becomes_the_file_with_its_text_and_a_group_gives_way_to_a_file_of_its_name(
    client: RawClient,
) -> None:
    line = (await client.store("Try the blue queue.", kind="fact"))["memory_id"]
    await said(client, "create", "/memories/repo/queue.md", file_text="Try the blue queue.")
    assert (await client.call("get_memory", memory_id=line))["metadata"] == {"path": "queue.md"}
    await said(client, "create", "/memories/repo/decisions.md", file_text="- Revisions are rebased.\n")
    await client.store("Revisions are rebased.", kind="decision", metadata={"path": "queue.md"})
    await said(client, "insert", "/memories/repo/more-decisions.md", insert_line=1, insert_text="Never on Fridays.")
    assert (await said(client, "view", "/memories/repo/more-decisions.md")).splitlines()[1:] == [
        "     1\t- Revisions are rebased.",
        "     2\t- Never on Fridays.",
        "     3\t",
    ]


async def test_bad_input_is_refused_in_a_sentence(client: RawClient) -> None:
    await said(client, "create", "/memories/own.md", file_text="Own.")
    key = "api_key = sk-ant-api03-" + "aB3" * 30
    secret = {"command": "create", "path": "/memories/repo/k.md", "file_text": key}
    for arguments, message in (*cases("directory_toolset", "refused"), (secret, "a credential")):
        answer = await said(client, **arguments)
        assert answer.startswith("error: "), arguments
        assert message in answer
        assert (await said(client, "view", "/memories")).count("\n") == 4


def test_what_the_tool_keeps_outlives_its_session_and_a_killed_store(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anthropic.lib.tools import ToolError

    from remembrancer.anthropic_memory import MemoryTool

    file = {"path": "/memories/repo/cache.md"}
    create = {"command": "create", "file_text": "The cache is Valkey 8.\n", **file}
    change = {"command": "str_replace", "old_str": "8", "new_str": "9", **file}
    monkeypatch.setenv("REMEMBRANCER_CALL_BUDGET_S", str(PATIENCE_S))  # a store that is slow to come back is waited for
    start(home)
    with MemoryTool(tmp_path, home=home) as tool:
        assert tool.to_dict() == {"type": "memory_20250818", "name": "memory"}
        assert tool.call(create) == "File created successfully at: /memories/repo/cache.md"
        with pytest.raises(ToolError, match="already exists"):
            tool.call(create)
        Runtime(home).kill("store")
        assert "The cache is Valkey 9." in str(tool.call(change))
    tool.close()
    with MemoryTool(tmp_path, home=home) as tool:
        shown = str(tool.call({"command": "view", **file}))
        assert shown.splitlines()[1:] == ["     1\tThe cache is Valkey 9.", "     2\t"]
    assert "The cache is Valkey 9." in done("search", "what do we cache with", home=home, directory=tmp_path)
