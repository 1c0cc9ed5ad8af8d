"""The tool `recall` of facts."""

from __future__ import annotations

from remembrancer.toolsets.graph.fact_answers import FactQuery, found
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Find memories by meaning, words and relations, best first.", read_only=True)
async def recall(call: Call, arguments: FactQuery) -> Answer:
    """The best by meaning, by words, and by PageRank over what shares entities with them."""
    return await found(call, arguments, "hybrid", "pagerank")
