"""Changes and questions about a memory while the store is away, hangs, or comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.actors.gateway_rig import QUICK, PlayedStore, Rig, warned
from tests.patience import until


@pytest.fixture
def rig(home: Path) -> Rig:
    return Rig(home, QUICK)


async def test_changes_without_a_store_are_queued_and_nothing_is_invented(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await rig.until_store_answers()
            identity = (await client.store("The harbour is deep", scope="session", tags=["sea"]))["memory_id"]
            await client.call("recall_memories", query="harbour")
        await until(lambda: gateway.health().store != "connected")

        async def change(tool: str, **arguments: Any) -> None:
            answer = await client.call(tool, memory_id=identity, **arguments)
            assert warned(answer) == ["queued"]
            del answer["warnings"]
            assert answer == {"memory_id": identity, "status": "queued", "degraded": True}

        await change("update_memory", content="The harbour is shallow", tags={"add": ["new"]})
        await change("tag_memory", add=["x"], remove=["sea"])
        await change("promote_memory", target_scope="project")
        await change("forget_memory", reason="why")
        await change("restore_memory")
        assert gateway.health().queue_depth == 5


async def test_a_short_id_that_was_shown_is_queued_as_the_whole_one(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open() as store:
            await rig.until_store_answers()
            store.knows_short_ids = True
            short = (await client.store("The harbour is deep"))["memory_id"]
        await until(lambda: gateway.health().store != "connected")
        queued = await client.call("update_memory", memory_id=short, content="The harbour is shallow")
        assert (queued["memory_id"], warned(queued)) == (short, ["queued"])
        unknown = await client.call("forget_memory", memory_id="ZZZZ")
        assert (unknown["error"], unknown["field"]) == ("memory_unavailable", "memory_id")
        async with PlayedStore(rig.paths).open() as store:
            await until(lambda: store.applied)
            assert [memory.content for memory in store.memories.values()] == ["The harbour is shallow"]
