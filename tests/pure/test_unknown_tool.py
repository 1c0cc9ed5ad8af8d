"""The answer to a client that asks for a tool which is not there."""

from __future__ import annotations

from remembrancer.toolsets.tools import unknown_tool

KNOWN = ["store_memory", "recall_memories"]


def test_the_nearest_known_tool_is_named() -> None:
    assert unknown_tool("store_memroy", KNOWN) == (
        "there is no tool 'store_memroy': did you mean store_memory? (known are store_memory, recall_memories)"
    )


def test_without_a_near_one_the_known_ones_are_listed() -> None:
    assert unknown_tool("zzzz", KNOWN) == "there is no tool 'zzzz': known are store_memory, recall_memories"
