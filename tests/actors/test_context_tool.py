"""`get_memory_context` through the gateway, with a real store behind it that comes and goes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from remembrancer.memory.tokens import estimate_tokens
from remembrancer.toolsets.memory.context_block import MARKED, NOTHING
from remembrancer.toolsets.tools import answer_text
from tests.actors.gateway_rig import AWAY, PATIENT, RawClient, Rig
from tests.actors.store_process import StoreRig, store_rig
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(home: Path) -> Rig:
    return Rig(home, PATIENT)


@asynccontextmanager
async def session(rig: Rig) -> AsyncIterator[tuple[StoreRig, RawClient]]:
    """A store, a gateway, and a client that the gateway serves."""
    async with store_rig(rig.paths.home) as store, rig.running(), rig.session() as client:
        yield store, client


def warned(answer: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in answer.get("warnings", ())]


async def test_the_block_has_the_seeds_shape_and_fields(rig: Rig) -> None:
    async with session(rig) as (_, client):
        stored = [
            await client.store("Prefers TypeScript", scope="user", importance=0.9),
            await client.store("Answers tersely", scope="user", source={"tool": "Bash", "file": "notes.md"}),
            await client.store("This service uses gRPC"),
            await client.store("Earlier discussed auth flow", scope="session", type="episodic"),
            await client.store("Run the linter first", type="procedural"),
        ]
        answer = await client.call("get_memory_context", detail=True)
        assert answer == {
            "context_block": (
                f"{MARKED}\n\n"
                "### User Preferences\n- Prefers TypeScript\n- Answers tersely (from tool Bash, file notes.md)\n\n"
                "### Project Knowledge\n- This service uses gRPC\n\n"
                "### Recent Session\n- Earlier discussed auth flow\n\n"
                "### Relevant Procedures\n- Run the linter first"
            ),
            "memories_used": 5,
            "tokens_used": answer["tokens_used"],
            "truncated": False,
            "memory_ids": [each["memory_id"] for each in stored],
        }
        some = await client.call("get_memory_context", detail=True, sections="session_history")
        assert some["context_block"] == f"{MARKED}\n\n### Recent Session\n- Earlier discussed auth flow"


async def test_an_empty_memory_gives_a_block_that_says_so(rig: Rig) -> None:
    async with session(rig) as (_, client):
        asked: list[dict[str, Any]] = [{}, {"task_description": "  "}, {"files_in_context": ["a.py"]}, {"sections": []}]
        for arguments in asked:
            answer = await client.call("get_memory_context", detail=True, **arguments)
            assert answer["context_block"] == f"## Memory Context\n\n{NOTHING}"
            assert (answer["memories_used"], answer["truncated"]) == (0, False)
            assert "warnings" not in answer


async def test_the_budget_holds_through_the_tool(rig: Rig) -> None:
    async with session(rig) as (_, client):
        for number in range(30):
            await client.store(f"Факт {number}: 我們在會議上決定使用新的資料庫 👩‍👩‍👧‍👦 " * (number + 1))
        for max_tokens in (100, 500, 8000):
            answer = await client.call("get_memory_context", detail=True, max_tokens=max_tokens)
            del answer["memory_ids"]
            assert estimate_tokens(answer_text(answer)) <= answer["tokens_used"] + 2 <= max_tokens + 2
            assert answer["truncated"]
            assert answer["memories_used"] > 0


async def test_many_short_memories_fill_the_budget_and_are_all_shown_where_they_fit(rig: Rig) -> None:
    async with session(rig) as (_, client):
        for number in range(60):
            await client.store(f"wish {number}", scope="user")
            await client.store(f"event {number}", scope="session", type="episodic")
            await client.store(f"step {number}", type="procedural")
        answer = await client.call("get_memory_context", detail=True, max_tokens=3000)
        assert (answer["memories_used"], answer["truncated"]) == (180, False)
        answer = await client.call("get_memory_context", detail=True, max_tokens=500)
        assert answer["truncated"]
        assert 420 <= answer["tokens_used"] <= 500


async def test_one_very_long_memory_keeps_no_other_away(rig: Rig) -> None:
    async with session(rig) as (_, client):
        await client.store("word " * 20_000, scope="user", importance=1.0)
        others = [await client.store(f"wish {number}", scope="user") for number in range(15)]
        answer = await client.call("get_memory_context", detail=True, max_tokens=300)
        assert answer["truncated"]
        assert {each["memory_id"] for each in others} <= set(answer["memory_ids"])


async def test_what_was_shown_counts_as_accessed_and_what_was_left_out_does_not(rig: Rig) -> None:
    async with session(rig) as (_, client):
        shown = await client.store("Prefers tabs. " * 1000, scope="user")
        left_out = await client.store("word " * 3000, scope="user", importance=0.1)
        answer = await client.call("get_memory_context", detail=True, max_tokens=200)
        assert answer["memory_ids"] == [shown["memory_id"]]
        counts: dict[str, int] = {}
        with anyio.fail_after(PATIENCE_S):
            while not counts.get(shown["memory_id"]):
                found = await client.call("get_memory", memory_id=shown["memory_id"])
                counts[shown["memory_id"]] = found["access_count"]
        assert counts[shown["memory_id"]] == 1
        assert (await client.call("get_memory", memory_id=left_out["memory_id"]))["access_count"] == 0


async def test_a_session_sees_what_it_wrote_a_moment_ago_and_words_are_said_to_be_all_that_was_searched(
    rig: Rig,
) -> None:
    async with session(rig) as (_, client):
        stored = await client.store("The lantern stands in the harbour")
        await client.store("Accounts are closed in March")
        answer = await client.call("get_memory_context", detail=True, task_description="mend the lantern")
        assert answer["memory_ids"] == [stored["memory_id"]]
        assert "degraded" not in answer
        assert warned(answer) == ["embedding_starting"]


async def test_without_a_store_the_last_answer_stands_with_what_was_queued_since(rig: Rig) -> None:
    async with session(rig) as (store, client):
        known = await client.store("The lantern stands in the harbour")
        gone = await client.store("The lantern stands in the attic")
        task = {"task_description": "mend the lantern"}
        await client.call("get_memory_context", detail=True, **task)
        await store.store.kill()
        await client.call("forget_memory", memory_id=gone["memory_id"])
        fresh = await client.store("The lantern needs a new wick")
        private = await client.store("Bought a wick for it", scope="session", type="episodic")
        await client.store("Accounts are closed in March")
        assert warned(fresh) == ["queued"]
        answer = await client.call("get_memory_context", detail=True, **task)
        assert answer["degraded"]
        assert len(warned(answer)) == 1
        assert answer["memory_ids"] == [known["memory_id"], fresh["memory_id"], private["memory_id"]]


async def test_without_a_store_or_an_earlier_answer_what_is_known_here_is_gathered(home: Path) -> None:
    rig = Rig(home, AWAY)
    async with rig.running(), rig.session() as client:
        user = await client.store("Prefers tabs", scope="user", importance=0.9)
        how = await client.store("Run the linter first", scope="user", type="procedural")
        light = await client.store("To light the lantern turn the key", type="procedural")
        fact = await client.store("The lantern stands in the harbour")
        other = await client.store("Accounts are closed in March")
        event = await client.store("Bought a wick", scope="session", type="episodic")
        answer = await client.call("get_memory_context", detail=True, task_description="mend the lantern")
        assert answer["memory_ids"] == [each["memory_id"] for each in (user, how, fact, event, light)]
        assert (answer["degraded"], warned(answer)) == (True, ["memory_unavailable"])
        answer = await client.call("get_memory_context", detail=True)
        sought = {"preferences": {user["memory_id"], how["memory_id"]}}
        assert set(answer["memory_ids"][:2]) == sought["preferences"]
        assert {fact["memory_id"], other["memory_id"], light["memory_id"]} < set(answer["memory_ids"])
        async with rig.session(session="session:other") as stranger:
            elsewhere = await stranger.call("get_memory_context", detail=True, sections=["session_history"])
            assert elsewhere["memory_ids"] == []


async def test_the_tool_costs_few_tokens_in_every_session(home: Path) -> None:
    rig = Rig(home, AWAY)
    async with rig.running(), rig.session() as client:
        listed = (await client.request("tools/list"))["result"]["tools"]
        (tool,) = [each for each in listed if each["name"] == "get_memory_context"]
        assert len(json.dumps(tool, separators=(",", ":"), ensure_ascii=False)) / 4 <= 170
        assert tool["annotations"]["readOnlyHint"]


async def test_with_a_prompt_alone_only_what_likely_answers_it_is_given(rig: Rig) -> None:
    review = "Incident review of the autumn outage: the pool was exhausted, and the relay was restarted by hand. " * 5
    async with session(rig) as (store, client):
        await store.worker()
        await client.store(review, wait_for_embedding=True)
        await client.store("The aardvark service is deployed on Fridays.", wait_for_embedding=True)
        only = {"sections": ["project_context", "relevant_procedures"]}
        idle = await client.call("get_memory_context", task_description="write a haiku about autumn", **only)
        assert idle["memories_used"] == 0
        asked = "When is the aardvark service deployed?"
        answer = await client.call("get_memory_context", task_description=asked, **only)
        assert "Fridays" in answer["context_block"]
        assert "outage" not in answer["context_block"]
