"""A tool registers itself, once, in the toolset of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer import toolsets
from remembrancer.toolsets.arguments import ArgumentDecoder
from remembrancer.toolsets.tools import Answer, Call, Tool, _registered, choose_tools, load_tools, tool


class NoArguments(msgspec.Struct):
    pass


def test_each_module_that_is_named_as_a_tool_is_a_tool_of_its_folder() -> None:
    folder = Path(toolsets.__file__).parent
    tools = load_tools()
    assert {each.toolset for each in tools} == {"admin", "files", "memory", "nodes"}
    for each in tools:
        assert (folder / each.toolset / f"{each.name}.py").exists()


def test_two_tools_of_one_name_in_a_toolset_are_an_error() -> None:
    load_tools()

    async def anything(call: Call, arguments: NoArguments) -> Answer:
        raise AssertionError

    tool("One.")(anything)
    try:
        with pytest.raises(ValueError, match="two tools of the toolset pure have the name anything"):
            tool("Another one.")(anything)
    finally:
        del _registered["pure", "anything"]


def test_of_two_tools_of_one_name_the_toolset_that_is_named_first_has_it() -> None:
    def named(toolset: str) -> Tool[Any]:
        return Tool("recall", toolset, toolset, ArgumentDecoder(NoArguments), NotImplemented)

    tools = [named("graph"), named("nodes")]
    assert choose_tools(tools, "nodes,graph")[0]["recall"].toolset == "nodes"
    assert choose_tools(tools, "graph,nodes")[0]["recall"].toolset == "graph"


def test_an_unknown_toolset_is_told_of_and_the_default_stands() -> None:
    tools = load_tools()
    chosen, notices = choose_tools(tools, "memroy")
    assert chosen == choose_tools(tools, None)[0]
    assert [notice.code for notice in notices] == ["unknown_toolset"]
    assert "known are admin, files, memory, nodes" in notices[0].message
