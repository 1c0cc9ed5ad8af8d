"""`recall_memories` through the gateway, with a real store behind it: budget, signals, times and repetitions."""

from __future__ import annotations

import json

import pytest
from mcp_types import TextContent

from remembrancer.memory.relevance import LIKELY, PERHAPS
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.toolsets.memory.recall_memories import AND_STANDING, NEAREST
from tests.actors.gateway_rig import RawClient, Rig
from tests.actors.sdk_client import sdk_client


@pytest.mark.parametrize("max_tokens", [64, 200, 500, 1200])
async def test_the_text_of_an_answer_has_the_promised_size(client: RawClient, max_tokens: int) -> None:
    filler = "Nothing much happens at the pier, and nobody minds. "
    await client.store(f"{filler * 60}The lantern is painted green. {filler * 60}")
    for number in range(5):
        await client.store(f"{number}: the lantern has {number} lamps. {filler * 3}")
    arguments = {"query": "green lantern lamps", "limit": 6, "max_tokens": max_tokens}
    reply = await client.request("tools/call", name="recall_memories", arguments=arguments)
    text = reply["result"]["content"][0]["text"]
    answer = json.loads(text)
    assert estimate_tokens(text) <= max_tokens
    assert len(answer["memories"]) + answer.get("omitted", 0) == 6
    excerpts = [memory["content"] for memory in answer["memories"] if memory.get("excerpt")]
    if max_tokens >= 500:
        (excerpt,) = excerpts
        assert excerpt.endswith(" …")
        assert "get_memory" in answer["hint"]


async def test_what_is_said_twice_is_shown_once_and_the_other_is_named_and_can_be_looked_at(client: RawClient) -> None:
    ids = [(await client.store(text))["memory_id"] for text in ("The lantern is green.", "the lantern is  green")]
    other = await client.store("The lantern is not green.")
    answer = await client.call("recall_memories", query="green lantern")
    shown = {memory["id"]: memory.get("stands_for", []) for memory in answer["memories"]}
    (kept,) = set(ids) & set(shown)
    (hidden,) = set(ids) - set(shown)
    assert shown == {kept: [hidden], other["memory_id"]: []}
    assert (await client.call("get_memory", memory_id=hidden))["id"].endswith(hidden)


async def test_each_result_says_in_a_word_how_surely_it_answers(served: Rig) -> None:
    words = {"likely": (LIKELY, 1.0), "perhaps": (PERHAPS, LIKELY), "hardly": (0.0, PERHAPS)}
    async with sdk_client(served, "legacy") as client:
        for content in (
            "The lantern is green.",
            "The harbour is dredged in May.",
            "A ferry leaves for the island at six.",
        ):
            await client.call_tool("store_memory", {"content": content})
        reply = await client.call_tool("recall_memories", {"query": "Which colour does the lantern have?"})
        (text,) = reply.content
        assert isinstance(text, TextContent)
        memories = json.loads(text.text)["memories"]
        assert memories
        for memory in (each for each in memories if "answers" in each):
            least, most = words[memory["answers"]]
            assert least <= memory["relevance_score"] <= most


FILLER = "and whoever comes by in the evening sees its light from the pier and from the ferry"


@pytest.mark.parametrize(
    ("query", "more", "whole", "lines"),
    [
        ("green lantern at the quay", {}, 1, 2),
        ("green lantern at the quay", {"limit": 9}, 1, 8),
        ("green lantern at the quay", {"limit": 3}, 1, 2),
        ("green lantern at the quay", {"detail": True}, 10, 0),
        ("who mends a broken lantern", {}, 1, 4),
        ("who mends a broken lantern", {"limit": 9}, 1, 8),
    ],
)
async def test_a_memory_that_hardly_answers_has_one_line_unless_nothing_is_nearer(
    served: Rig, client: RawClient, query: str, more: dict[str, int], whole: int, lines: int
) -> None:
    await client.store(f"The lantern at the quay was painted green {FILLER}.")
    for number in range(11):
        await client.store(f"Lantern {number} of the quay has {number + 2} lamps {FILLER}.")
    answer = await client.call("recall_memories", query=query, **more)
    memories = answer["memories"]
    assert [len(each["content"].split()) > 15 for each in memories] == [True] * whole + [False] * lines
    logged = served.gateway.access.shown_log.read()
    assert [each.place for each in logged] == list(range(1, len(memories) + 1))
    assert all(one.memory_id.endswith(each["id"]) for one, each in zip(logged, memories, strict=True))
    for each in memories[whole:]:
        assert set(each) == {"id", "content"}
        assert each["content"].endswith(" …")
        assert "light from the pier" in (await client.call("get_memory", memory_id=each["id"]))["content"]
    assert (answer.get("hint") == NEAREST) == ("mends" in query)


async def test_what_holds_for_every_task_is_given_to_a_query_that_nothing_answers_once_in_a_session(
    served: Rig,
) -> None:
    rules = ("Start names with f_, also those of private ones, and end them with nothing.", "Never use floats.")
    task = "merges two sorted lists"
    async with served.session("01" * 16, session="session:one") as client:
        for rule in rules:
            await client.store(rule, kind="convention")
        await client.store("The ferry leaves at six.", kind="fact")
        own = await client.call("recall_memories", query=task)
    async with served.session("02" * 16, session="session:two") as client:
        filtered = await client.call("recall_memories", query=task, kind=["convention"])
        few = await client.call("recall_memories", query=task, limit=2)
        asked = await client.call("recall_memories", query=task)
        again = await client.call("recall_memories", query=task)
    async with served.session("03" * 16, session="session:three") as client:
        await client.call("get_memory_context")
        after_context = await client.call("recall_memories", query=task)
    assert {each["content"] for each in asked["memories"]} >= set(rules)
    assert asked["hint"] == AND_STANDING
    assert len(few["memories"]) <= 2
    for other in (own, filtered, few, again, after_context):
        assert other.get("hint") != AND_STANDING
