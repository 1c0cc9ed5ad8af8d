"""Resources, subscriptions and prompts through real bridges and a whole runtime, with the SDK's client in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp.shared.exceptions import MCPDeprecationWarning

from remembrancer.toolsets.memory.resources import PREFERENCES
from tests.actors.sdk_client import ERAS, store
from tests.actors.test_resources import Heard, read
from tests.runtime import Runtime, bridged


@asynccontextmanager
async def watching(era: str, uri: str) -> AsyncIterator[Heard]:
    """A session that is told of a resource, in the way of its era."""
    heard = Heard()
    async with (
        bridged(f"session:watching {era}", era, message_handler=heard) as client,
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
                    heard.updated.append(event.uri)  # type: ignore[union-attr]

            tasks.start_soon(hear)
            yield heard
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("era", ERAS)
async def test_a_subscription_outlives_the_gateway(runtime: Runtime, era: str) -> None:
    async with watching(era, PREFERENCES) as heard, bridged("session:writing", "legacy") as writer:
        await store(writer, "before the crash", scope="user")
        await heard.wait_for(PREFERENCES)
        await anyio.to_thread.run_sync(runtime.kill, "gateway")
        await store(writer, "after the crash", scope="user")
        await heard.wait_for(PREFERENCES, 2)
        told = len(heard.updated)
        await store(writer, "some time later", scope="user")
        await heard.wait_for(PREFERENCES, told + 1)
        assert "some time later" in await read(writer, PREFERENCES)
