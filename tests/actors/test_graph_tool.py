"""`search_knowledge_graph` through the gateway, with a real store behind it that comes and goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.actors.gateway_rig import PATIENT, RawClient, Rig

TOOL = "search_knowledge_graph"


@pytest.fixture
def rig(home: Path) -> Rig:
    return Rig(home, PATIENT)


async def say(client: RawClient, content: str, *entities: tuple[str, str, str], **fields: Any) -> str:
    """Store a memory that names entities; its id."""
    named = [dict(zip(("name", "type", "relationship"), each, strict=True)) for each in entities]
    for each in named[1:]:
        each["subject"] = named[0]["name"]
    answer = await client.store(content, related_entities=named, **fields)
    memory_id: str = answer["memory_id"]
    return memory_id


async def auth(client: RawClient) -> tuple[str, str]:
    """Two memories about one service."""
    first = await say(
        client,
        "Tokens are checked.",
        ("AuthService", "component", "is"),
        ("TokenValidator", "component", "depends_on"),
        importance=0.9,
    )
    second = await say(
        client, "The gateway logs in.", ("APIGateway", "component", "is"), ("AuthService", "component", "uses")
    )
    return first, second


async def test_the_answer_has_the_seeds_shape_and_fields(rig: Rig) -> None:
    async with rig.over_store() as (_, client):
        first, second = await auth(client)
        answer = await client.call(TOOL, entity="AuthService")
        recalled = await client.call("recall_memories", query="tokens", strategy="keyword")
    assert set(answer) == {"note", "entities", "memories", "graph_stats", "relationship_types"}
    assert answer["graph_stats"] == {"entities_traversed": 3, "relationships_found": 2, "depth_reached": 1}
    assert answer["entities"][0] == {
        "name": "AuthService",
        "type": "component",
        "relationships": [
            {"type": "uses", "target": "APIGateway", "direction": "incoming"},
            {"type": "depends_on", "target": "TokenValidator", "direction": "outgoing"},
        ],
        "memory_count": 2,
    }
    assert [each["distance"] for each in answer["entities"][1:]] == [1, 1]
    assert [each["id"] for each in answer["memories"]] == [first, second]
    assert set(answer["memories"][0]) == set(recalled["memories"][0]), "memories as recall_memories shows them"
