"""The tool `search`."""

from __future__ import annotations

from remembrancer.toolsets.graph.fact_answers import FactQuery, found
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Find memories by meaning alone.", read_only=True)
async def search(call: Call, arguments: FactQuery) -> Answer:
    """The nearest by their vectors."""
    return await found(call, arguments, "vector")
