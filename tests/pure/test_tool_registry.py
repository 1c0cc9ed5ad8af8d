"""A tool registers itself, once, in the toolset of its folder."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from remembrancer import toolsets
from remembrancer.toolsets.tools import Answer, Call, choose_tools, load_tools, tool


class NoArguments(msgspec.Struct):
    pass


def test_each_module_that_is_named_as_a_tool_is_a_tool_of_its_folder() -> None:
    folder = Path(toolsets.__file__).parent
    tools = load_tools()
    assert len(tools) == 17
    for each in tools.values():
        assert (folder / each.toolset / f"{each.name}.py").exists()


def test_two_tools_of_one_name_are_an_error() -> None:
    load_tools()

    async def store_memory(call: Call, arguments: NoArguments) -> Answer:
        raise AssertionError

    with pytest.raises(ValueError, match="two tools have the name store_memory: in memory and in tests"):
        tool("Another one.")(store_memory)


def test_an_unknown_toolset_is_told_of_and_the_default_stands() -> None:
    tools = load_tools().values()
    chosen, notices = choose_tools(tools, "memroy")
    assert chosen == choose_tools(tools, None)[0]
    assert [notice.code for notice in notices] == ["unknown_toolset"]
    assert "known are admin, memory" in notices[0].message
