"""Resources, subscriptions and prompts through real bridges and a whole runtime, with the SDK's client in both eras."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from remembrancer.toolsets.memory.resources import PREFERENCES
from tests.forked import start_runtime
from tests.patience import until
from tests.runtime import ERAS, Runtime


def bridged(session: str, mode: str, **options: Any) -> Client:
    """The SDK's client, which starts a bridge. The runtime, in the home of the environment, is up before."""
    environ = {**os.environ, "REMEMBRANCER_SESSION_ID": session}
    start_runtime(environ)
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "remembrancer", "mcp"], env=environ)
    return Client(parameters, mode=mode, cache=None, **options)


@asynccontextmanager
async def watching(era: str, uri: str) -> AsyncIterator[list[str]]:
    """A session that is told of a resource, in the way of its era: the URIs that it has heard."""
    heard: list[str] = []
    hear_of = heard.append

    async def note(message: object) -> None:
        assert isinstance(message, mcp.ResourceUpdatedNotification), message
        hear_of(str(message.params.uri))

    async with (
        bridged(f"session:watching {era}", era, message_handler=note) as client,
        anyio.create_task_group() as tasks,
    ):
        if era == "legacy":
            with pytest.warns(MCPDeprecationWarning):
                await client.subscribe_resource(uri)
            yield heard
            return
        async with client.listen(resource_subscriptions=[uri]) as stream:

            async def hear() -> None:
                async for event in stream:
                    hear_of(event.uri)  # type: ignore[union-attr]

            tasks.start_soon(hear)
            yield heard
            tasks.cancel_scope.cancel()


async def store(client: Client, content: str) -> None:
    stored = await client.call_tool("store_memory", {"content": content, "type": "semantic", "scope": "user"})
    assert not stored.is_error


@pytest.mark.parametrize("era", ERAS)
async def test_a_subscription_outlives_the_gateway(runtime: Runtime, era: str) -> None:
    async with watching(era, PREFERENCES) as heard, bridged("session:writing", "legacy") as writer:
        await store(writer, "before the crash")
        await until(lambda: heard)
        await anyio.to_thread.run_sync(runtime.kill, "gateway")
        await store(writer, "after the crash")
        await until(lambda: len(heard) >= 2)
        told = len(heard)
        await store(writer, "some time later")
        await until(lambda: len(heard) > told)
        (content,) = (await writer.read_resource(PREFERENCES)).contents
        assert "some time later" in str(content)


async def test_without_a_store_no_stream_watches_a_memory_that_may_be_anothers(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMEMBRANCER_CALL_BUDGET_S", "1")
    async with bridged("session:one", ERAS[-1]) as client:
        await client.call_tool("get_memory_status", {})
        with runtime.suspended("store"), pytest.raises(MCPError) as caught:
            await client.listen(
                resource_subscriptions=["memory://memory/memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"]
            ).__aenter__()
    assert caught.value.error.data["retry_possible"] is True
