"""A recall in the order of the client's own model, over the SDK's own client; what is no order changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import msgspec
import pytest

from remembrancer.config.settings import Settings
from remembrancer.protocol.reads import NoteAccess, Recall
from tests.actors.gateway_rig import QUICK, PlayedStore, Rig
from tests.actors.sdk_client import ERAS, sdk_client
from tests.actors.test_reflect_tool import model, text
from tests.patience import until

pytestmark = pytest.mark.anyio
ORDERED = msgspec.structs.replace(
    QUICK, reranker="client", sampling=True, reranker_candidates=3, reranker_budget_s=0.5, sampling_length=50
)
CONTENTS = ("alpha", "beta", "gamma", "delta")
Answering = Callable[[mcp.CreateMessageRequestParams], Awaitable[mcp.CreateMessageResult | mcp.ErrorData]]


def saying(answer: mcp.CreateMessageResult | mcp.ErrorData) -> Answering:
    async def answers(_: mcp.CreateMessageRequestParams) -> mcp.CreateMessageResult | mcp.ErrorData:
        return answer

    return answers


async def recall(
    home: Path, answers: Answering | None, settings: Settings = ORDERED, era: str = "legacy", limit: int = 10
) -> tuple[list[str], dict[str, Any], PlayedStore]:
    """The contents in the order of the answer, the answer, and the store, which knows what of it was shown."""
    rig = Rig(home, settings)
    options = {} if answers is None else {"sampling_callback": model(answers)}
    async with PlayedStore(rig.paths).open() as store, rig.running() as gateway:
        async with sdk_client(rig, era, **options) as client:
            await until(lambda: gateway.health().store == "connected")
            for content in CONTENTS:
                await client.call_tool("store_memory", {"content": content, "type": "semantic", "scope": "project"})
            result = await client.call_tool("recall_memories", {"query": "greek", "limit": limit})
            answer = result.structured_content
            assert isinstance(answer, dict)
            reranker = gateway.health().reranker
            assert (reranker is None) == (settings.reranker != "client")
            if not store.asked(Recall)[0].counts_accesses:
                await until(lambda: store.asked(NoteAccess))
        return [memory["content"] for memory in answer["memories"]], answer, store


async def test_the_clients_model_orders_what_it_was_shown_and_what_it_left_out_follows(home: Path) -> None:
    prompts: list[mcp.CreateMessageRequestParams] = []

    async def answers(params: mcp.CreateMessageRequestParams) -> mcp.CreateMessageResult:
        prompts.append(params)
        return text("3, 1")

    contents, answer, store = await recall(home, answers, limit=3)
    assert contents == ["gamma", "alpha", "beta"]
    assert "warnings" not in answer
    (prompt,) = prompts
    assert prompt.max_tokens == 50
    said = prompt.messages[0].content
    assert isinstance(said, mcp.TextContent)
    assert "greek" in said.text
    assert "gamma" in said.text
    assert "delta" not in said.text, "three candidates are read"
    (asked,) = store.asked(Recall)
    assert (asked.limit, asked.with_passages, asked.counts_accesses) == (3, True, False)
    (note,) = store.asked(NoteAccess)
    assert note.memory_ids == tuple(memory["id"] for memory in answer["memories"])


async def test_more_is_asked_for_than_is_shown_so_that_the_best_can_rise(home: Path) -> None:
    contents, _, store = await recall(home, saying(text("3")), limit=1)
    assert contents == ["gamma"]
    assert store.asked(Recall)[0].limit == 3
    assert len(store.asked(NoteAccess)[0].memory_ids) == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (mcp.ErrorData(code=-1, message="the user said no"), "refused"),
        (text("gamma is the best"), "no list of numbers"),
        (text("4"), "there is not"),
        (text("3, 3"), "twice"),
        (text("3", "maxTokens"), "cut off"),
    ],
)
async def test_an_answer_that_is_no_order_changes_nothing_and_is_said(
    home: Path, answer: mcp.CreateMessageResult | mcp.ErrorData, why: str
) -> None:
    contents, result, _ = await recall(home, saying(answer), limit=4)
    assert contents == list(CONTENTS)
    assert (result["warning"], result.get("degraded", False)) == ("not_reranked", False)
    assert why in result["warnings"][0]["message"]


async def test_a_model_that_is_slow_is_not_waited_for_and_not_asked_again_at_once(home: Path) -> None:
    asked = 0

    async def answers(_: mcp.CreateMessageRequestParams) -> mcp.CreateMessageResult:
        nonlocal asked
        asked += 1
        await anyio.sleep_forever()
        raise AssertionError

    rig = Rig(home, ORDERED)
    async with PlayedStore(rig.paths).open(), rig.running() as gateway:
        async with sdk_client(rig, "legacy", sampling_callback=model(answers)) as client:
            await until(lambda: gateway.health().store == "connected")
            for content in CONTENTS:
                await client.call_tool("store_memory", {"content": content, "type": "semantic", "scope": "project"})
            said = []
            for _ in range(2):
                result = await client.call_tool("recall_memories", {"query": "greek"})
                assert isinstance(result.structured_content, dict)
                said.append(result.structured_content["warnings"][0]["message"])
        figures = gateway.health().reranker
    assert "longer than 0.5 s" in said[0]
    assert "a moment ago" in said[1]
    assert asked == 1
    assert figures is not None
    assert (figures.kind, figures.asked, figures.failed, figures.last_ms) == ("client", 1, 1, None)


@pytest.mark.parametrize("settings", [QUICK, msgspec.structs.replace(ORDERED, sampling=False)])
async def test_without_the_settings_the_client_is_not_asked(home: Path, settings: Settings) -> None:
    async def answers(_: mcp.CreateMessageRequestParams) -> mcp.CreateMessageResult:
        raise AssertionError

    contents, answer, store = await recall(home, answers, settings)
    assert contents == list(CONTENTS)
    assert "warnings" not in answer
    assert store.asked(Recall)[0].counts_accesses


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_without_a_model_gets_the_order_of_the_search(home: Path, era: str) -> None:
    contents, answer, _ = await recall(home, None, era=era)
    assert contents == list(CONTENTS)
    assert "warnings" not in answer
