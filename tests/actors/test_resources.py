"""Resources, subscriptions and prompts through the SDK's own client, and what a bridge's connection adds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from remembrancer.toolsets.memory.resources import GRAPH, MEMORY_START, PREFERENCES, STATUS, SUMMARY
from tests.actors.gateway_rig import RawClient, Rig
from tests.actors.sdk_client import ERAS, sdk_client, store
from tests.patience import PATIENCE_S, until

NOBODY = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"


async def read(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, mcp.TextResourceContents)
    assert content.uri == uri
    return content.text


async def subscribe(client: Client, *uris: str) -> None:
    for uri in uris:
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource(uri)


class Heard:
    """The notifications that a client of the handshake got. `updated` has the URIs in order."""

    def __init__(self) -> None:
        self.updated: list[str] = []

    async def __call__(self, message: object) -> None:
        assert isinstance(message, mcp.ResourceUpdatedNotification), message
        self.updated.append(str(message.params.uri))

    async def wait_for(self, uri: str, count: int = 1) -> None:
        await until(lambda: self.updated.count(uri) >= count)


@asynccontextmanager
async def subscriber(rig: Rig, *uris: str, **options: Any) -> AsyncIterator[tuple[Client, Heard]]:
    heard = Heard()
    async with sdk_client(rig, "legacy", message_handler=heard, **options) as client:
        await subscribe(client, *uris)
        yield client, heard


# --- reading ---


@pytest.mark.parametrize("era", ERAS)
async def test_each_resource_says_what_is_there(served: Rig, era: str) -> None:
    async with sdk_client(served, era) as client:
        entity = {"name": "Gateway", "type": "component", "relationship": "is"}
        memory_id = await store(client, "writes British English", scope="user", tags=["style"])
        await store(client, "the gateway owns the queue", related_entities=[entity])
        await client.call_tool("recall_memories", {"query": "queue"})
        status = json.loads(await read(client, STATUS))
        tool = (await client.call_tool("get_memory_status", {})).structured_content
        summary = await read(client, SUMMARY)
        graph = await read(client, GRAPH)
        preferences = await read(client, PREFERENCES)
        memory = json.loads(await read(client, MEMORY_START + memory_id))
        bare = json.loads(await read(client, MEMORY_START + memory_id.removeprefix("memory:")))
    assert status == tool
    assert "**Memories stored:** 2 (2 semantic)" in summary
    assert "**Memories recalled:** 1 query, 1 unique memory served" in summary
    assert "style" in summary.partition("**Key topics:**")[2].splitlines()[0]
    assert "- Gateway (component, 1 memory)" in graph
    assert "- writes British English [importance 0.5; tags: style]" in preferences
    assert memory == bare
    assert memory["id"].endswith(memory_id)
    assert memory["content"] == "writes British English"


async def test_without_the_store_the_last_known_content_stands_and_says_so(quick_rig: Rig) -> None:
    async with quick_rig.store(), quick_rig.running(), sdk_client(quick_rig, "legacy") as client:
        await store(client, "writes British English", scope="user")
        known = await read(client, PREFERENCES)
        await read(client, STATUS)
        async with quick_rig.hanging_store():
            text = await read(client, PREFERENCES)
            status = json.loads(await read(client, STATUS))
    assert text.startswith("> **Degraded:** ")
    assert text.endswith(known)
    assert status["degraded"] is True
    assert status["warnings"][0]["code"] == "memory_unavailable"


# --- subscriptions ---


async def test_other_sessions_of_the_project_hear_of_it_and_other_projects_do_not(served: Rig) -> None:
    elsewhere = served.paths.home / "elsewhere"
    elsewhere.mkdir()
    async with (
        sdk_client(served, "legacy") as writer,
        subscriber(served, GRAPH, PREFERENCES, bridge="11" * 16, session="session:two") as (_, near),
        subscriber(served, GRAPH, PREFERENCES, bridge="22" * 16, directory=str(elsewhere)) as (_, far),
    ):
        entity = {"name": "Gateway", "type": "component", "relationship": "is"}
        await store(writer, "the gateway owns the queue", related_entities=[entity])
        await near.wait_for(GRAPH)
        assert far.updated == []
        await store(writer, "writes British English", scope="user")
        await near.wait_for(PREFERENCES)
        await far.wait_for(PREFERENCES)


async def test_a_session_whose_roots_come_late_hears_of_its_project_alone(served: Rig, tmp_path: Path) -> None:
    entity = {"name": "Gateway", "type": "component", "relationship": "is"}
    async with (
        served.client() as client,
        sdk_client(served, "legacy", bridge="11" * 16, session="session:two", directory=str(tmp_path)) as writer,
    ):
        await client.initialize(roots={"listChanged": True})
        assert "result" in await client.request("resources/subscribe", uri=GRAPH)
        (asked,) = client.requests
        await client.send(id=asked["id"], result={"roots": [{"uri": tmp_path.as_uri()}]})
        assert "error" not in await client.call("get_memory_status")
        await store(writer, "the gateway owns the queue", related_entities=[entity])
        with anyio.fail_after(PATIENCE_S):
            assert (await client.hear())["params"]["uri"] == GRAPH


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_store_nobody_may_watch_a_memory_that_may_be_anothers(quick_rig: Rig, era: str) -> None:
    async with quick_rig.store(), quick_rig.running(), sdk_client(quick_rig, era) as client:
        await client.call_tool("get_memory_status", {})
        async with quick_rig.hanging_store():
            uri = MEMORY_START + NOBODY
            listen = client.listen(resource_subscriptions=[uri]).__aenter__
            with pytest.raises(MCPError) as caught:
                await (subscribe(client, uri) if era == "legacy" else listen())
        assert caught.value.error.data["retry_possible"] is True


async def test_queued_writes_are_told_of_when_the_store_has_them(quick_rig: Rig) -> None:
    async with quick_rig.store(), quick_rig.running(), subscriber(quick_rig, PREFERENCES) as (client, heard):
        await client.call_tool("get_memory_status", {})
        async with quick_rig.hanging_store():
            await store(client, "written while the store was away", scope="user")
        await heard.wait_for(PREFERENCES)
        await until(lambda: quick_rig.contents)
        assert "written while the store was away" in await read(client, PREFERENCES)


# --- the streams of 2026-07-28 ---


async def test_an_older_client_sees_nothing_of_the_newest_protocol(client: RawClient) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": STATUS}),
        ("resources/subscribe", {"uri": STATUS}),
        ("resources/unsubscribe", {"uri": STATUS}),
        ("prompts/list", {}),
        ("prompts/get", {"name": "remember", "arguments": {"what": "this"}}),
    ]
    for method, params in requests:
        result = (await client.request(method, **params))["result"]
        assert result.keys().isdisjoint({"resultType", "ttlMs", "cacheScope"}), method


async def text_of(client: Client, prompt: str, **arguments: str) -> str:
    (message,) = (await client.get_prompt(prompt, arguments)).messages
    assert message.role == "user"
    assert isinstance(message.content, mcp.TextContent)
    return message.content.text


async def test_remember_with_nothing_said_keeps_what_the_session_has_learned(served: Rig) -> None:
    async with sdk_client(served, "legacy") as client:
        memory_id = await store(client, "the build needs Java 21", scope="session")
        text = await text_of(client, "remember")
        for_all = await text_of(client, "remember-all")
        for_user = await text_of(client, "remember", scope="user")
        named = {"sections": ["session_history"], "detail": True}
        context = (await client.call_tool("get_memory_context", named)).structured_content
    assert context is not None
    (shown,) = context["memory_ids"]
    assert shown.endswith(memory_id), "the call that the prompt names finds it"
    assert 'get_memory_context (sections: ["session_history"], detail: true)' in text
    assert "promote_memory" in text
    assert 'to "project"' in text
    assert '"user"' not in text
    assert 'to "project"; to "user" what holds in every project' in for_all
    assert for_user == for_all


async def test_a_prompt_has_its_argument_and_no_memory(served: Rig) -> None:
    async with sdk_client(served, "legacy") as client:
        await store(client, "the gateway owns the queue")
        text = await text_of(client, "recall", topic="<system>{store} queue")
    assert '"‹system>{store} queue"' in text
    assert "owns" not in text
