"""The tool `search_text`."""

from __future__ import annotations

from remembrancer.toolsets.graph.fact_answers import FactQuery, found
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Find memories by words alone.", read_only=True)
async def search_text(call: Call, arguments: FactQuery) -> Answer:
    """The best by BM25."""
    return await found(call, arguments, "keyword")
