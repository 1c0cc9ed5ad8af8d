"""Resources, subscriptions and prompts through real bridges and a whole runtime, with the SDK's client in both eras."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning

from remembrancer.toolsets.memory.resources import PREFERENCES
from tests.actors.sdk_client import ERAS
from tests.actors.test_resources import Heard, read, store
from tests.forked import start_runtime
from tests.runtime import Runtime


@pytest.fixture
async def runtime(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runtime]:
    """A home without embedders, whose runtime is started by the first bridge."""
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "0")
    runtime = Runtime(home)
    yield runtime
    await runtime.down()


def bridged(era: str, session: str, heard: Heard | None = None) -> Client:
    environ = {**os.environ, "REMEMBRANCER_SESSION_ID": session}
    start_runtime(environ)
    command = StdioServerParameters(command=sys.executable, args=["-m", "remembrancer", "mcp"], env=environ)
    return Client(command, mode=era, message_handler=heard, cache=None)


@asynccontextmanager
async def watching(era: str, uri: str) -> AsyncIterator[Heard]:
    """A session that is told of a resource, in the way of its era."""
    heard = Heard()
    async with bridged(era, f"session:watching {era}", heard) as client, anyio.create_task_group() as tasks:
        if era == "legacy":
            with pytest.warns(MCPDeprecationWarning):
                await client.subscribe_resource(uri)
            yield heard
            return
        async with client.listen(resource_subscriptions=[uri]) as stream:

            async def hear() -> None:
                async for event in stream:
                    heard.updated.append(event.uri)  # type: ignore[union-attr]

            tasks.start_soon(hear)
            yield heard
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("era", ERAS)
async def test_a_subscription_outlives_the_gateway(runtime: Runtime, era: str) -> None:
    async with watching(era, PREFERENCES) as heard, bridged("legacy", "session:writing") as writer:
        await store(writer, "before the crash", scope="user")
        await heard.wait_for(PREFERENCES)
        await anyio.to_thread.run_sync(runtime.kill, "gateway")
        await store(writer, "after the crash", scope="user")
        await heard.wait_for(PREFERENCES, 2)
        told = len(heard.updated)
        await store(writer, "some time later", scope="user")
        await heard.wait_for(PREFERENCES, told + 1)
        assert "some time later" in await read(writer, PREFERENCES)
