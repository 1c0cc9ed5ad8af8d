"""Prompts through the SDK's own client."""

from __future__ import annotations

import mcp_types as mcp
from mcp import Client

from tests.actors.gateway_rig import Rig
from tests.actors.sdk_client import sdk_client, store


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
