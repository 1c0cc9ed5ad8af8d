"""`recall_memories` through the gateway, with a real store behind it: budget, signals, times and repetitions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remembrancer.memory.tokens import estimate_tokens
from tests.actors.gateway_rig import PATIENT, RawClient, Rig
from tests.actors.store_process import store_rig

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(home: Path) -> Rig:
    return Rig(home, PATIENT)


@asynccontextmanager
async def session(rig: Rig) -> AsyncIterator[RawClient]:
    """A client that the gateway serves, and the gateway the store."""
    async with store_rig(rig.paths.home), rig.running(), rig.session() as client:
        yield client


async def test_when_something_happened_is_kept_shown_and_filtered_by(rig: Rig) -> None:
    async with session(rig) as client:
        stored = await client.store("The lantern was lit", occurred_at="2023-05-20T18:00:00+02:00", type="episodic")
        await client.store("The lantern was sold")
        query = {"query": "lantern", "reference_time": "2023-05-21"}
        answer = await client.call("recall_memories", **query, time_range={"before": "2023-05-31"})
        (memory,) = answer["memories"]
        assert (memory["id"], memory["occurred_at"]) == (stored["memory_id"], "2023-05-20")
        whole = await client.call("get_memory", memory_id=stored["memory_id"])
        assert whole["occurred_at"] == "2023-05-20T16:00:00Z"


@pytest.mark.parametrize("max_tokens", [64, 200, 500, 1200])
async def test_the_text_of_an_answer_has_the_promised_size_and_shows_what_was_asked_for(
    rig: Rig, max_tokens: int
) -> None:
    filler = "Nothing much happens at the pier, and nobody minds. "
    async with session(rig) as client:
        long = await client.store(f"{filler * 60}The lantern is painted green. {filler * 60}")
        for number in range(5):
            await client.store(f"{number}: the lantern has {number} lamps. {filler * 3}")
        arguments = {"query": "lantern painted green", "max_tokens": max_tokens}
        reply = await client.request("tools/call", name="recall_memories", arguments=arguments)
        text = reply["result"]["content"][0]["text"]
        answer = json.loads(text)
        assert estimate_tokens(text) <= max_tokens
        assert len(answer["memories"]) + answer.get("omitted", 0) == 6
        excerpts = {memory["id"]: memory["content"] for memory in answer["memories"] if memory.get("excerpt")}
        if max_tokens >= 500:
            assert "The lantern is painted green." in excerpts[long["memory_id"]]
            assert "…" in excerpts[long["memory_id"]]
        if excerpts:
            assert "get_memory" in answer["hint"]


async def test_what_is_said_twice_is_shown_once_and_the_other_is_named_and_can_be_looked_at(rig: Rig) -> None:
    async with session(rig) as client:
        ids = [(await client.store(text))["memory_id"] for text in ("The lantern is green.", "the lantern is  green")]
        other = await client.store("The lantern is not green.")
        answer = await client.call("recall_memories", query="green lantern")
        shown = {memory["id"]: memory.get("stands_for", []) for memory in answer["memories"]}
        (kept,) = set(ids) & set(shown)
        (hidden,) = set(ids) - set(shown)
        assert shown == {kept: [hidden], other["memory_id"]: []}
        assert (await client.call("get_memory", memory_id=hidden))["id"] == hidden


async def test_the_signals_are_shown_only_when_asked_for(rig: Rig) -> None:
    async with session(rig) as client:
        await client.store("The lantern is green.")
        (plain,) = (await client.call("recall_memories", query="lantern"))["memories"]
        (full,) = (await client.call("recall_memories", query="lantern", detail=True))["memories"]
        assert "scores" not in plain
        assert {"keyword", "recency"} <= set(full["scores"])
        assert set(plain) == {"id", "content", "scope", "relevance_score", "created_at"}


async def test_an_empty_answer_says_what_could_be_done_and_one_that_is_not_does_not(rig: Rig) -> None:
    async with session(rig) as client:
        await client.store("The lantern is green.")
        empty = await client.call("recall_memories", query="zeppelin", strategy="keyword", scope="user")
        assert (empty["memories"], empty["below_threshold"]) == ([], 0)
        assert empty["hint"] == "Nothing was found. Try other words, leave out scope or set include_forgotten."
        found = await client.call("recall_memories", query="lantern", strategy="keyword")
        assert "hint" not in found
        assert "below_threshold" not in found
