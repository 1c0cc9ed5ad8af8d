"""The tool `recall` of facts."""

from __future__ import annotations

from remembrancer.toolsets.graph.fact_answers import FactQuery, found
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Find memories by meaning, words and relations, best first.", read_only=True)
async def recall(call: Call, arguments: FactQuery) -> Answer:
    """The best by everything that is known of them."""
    return await found(call, arguments, "hybrid")
