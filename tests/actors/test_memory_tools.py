"""The tools of the toolset `memory` through the gateway, with a real store behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

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


async def test_no_change_takes_a_secret_in_and_one_that_is_there_can_be_taken_away(rig: Rig) -> None:
    secret = "ghp_" + "aB3" * 12
    async with session(rig) as client:
        allowed = await client.store("a", tags=[secret], allow_secrets=True)
        memory_id = allowed["memory_id"]
        refused = [
            ("store_memory", {"content": "b", "type": "semantic", "scope": "user", "tags": [secret]}, "tags"),
            ("update_memory", {"memory_id": memory_id, "metadata": {"password": secret}}, "metadata"),
            ("tag_memory", {"memory_id": memory_id, "add": [secret]}, "add"),
            ("forget_memory", {"memory_id": memory_id, "reason": secret}, "reason"),
            ("promote_memory", {"memory_id": memory_id, "target_scope": "user", "reason": secret}, "reason"),
            ("restore_memory", {"memory_id": memory_id, "reason": secret}, "reason"),
        ]
        for tool, arguments, field in refused:
            answer = await client.call(tool, **arguments)
            assert (answer["error"], answer["field"]) == ("invalid_input", field), tool
            assert secret not in answer["message"]
        assert (await client.call("tag_memory", memory_id=memory_id, remove=[secret]))["tags"] == []


async def test_a_recall_of_the_forgotten_says_when_and_why(rig: Rig) -> None:
    async with session(rig) as client:
        stored = await client.store("The lantern stands in the attic")
        await client.call("forget_memory", memory_id=stored["memory_id"], reason="it was sold")
        answer = await client.call("recall_memories", query="lantern", include_forgotten=True)
        [memory] = answer["memories"]
        assert memory["forgotten"] is True
        assert memory["forgotten_reason"] == "it was sold"
        assert memory["forgotten_at"] >= memory["created_at"]
        await client.call("restore_memory", memory_id=stored["memory_id"])
        answer = await client.call("recall_memories", query="lantern", include_forgotten=True)
        assert not {"forgotten", "forgotten_at", "forgotten_reason"} & set(answer["memories"][0])


async def test_any_beginning_or_ending_of_an_id_will_do_for_whoever_sees_the_memory(rig: Rig) -> None:
    async with session(rig) as client:
        short = (await client.store("The lantern is green", scope="session"))["memory_id"]
        other = (await client.store("The lantern was bought in May"))["memory_id"]
        assert len(short) == len(other) == 4
        (first, *_) = (await client.call("recall_memories", query="green lantern"))["memories"]
        assert first["id"] == short
        whole = (await client.call("get_memory", memory_id=short.lower()))["id"]
        assert whole.endswith(short)
        for part in (whole, whole.removeprefix("memory:"), whole[:-3], whole[-9:]):
            assert (await client.call("tag_memory", memory_id=part, add=[part[-4:]]))["memory_id"] == short
        linked = await client.call("update_memory", memory_id=short, add_links=[{"relation": "related_to", "target": other}])
        assert linked["updated_fields"] == ["links"]
        (link,) = (await client.call("get_memory", memory_id=short))["links"]
        assert link["target"].endswith(other)
        missing = await client.call("forget_memory", memory_id="ZZZZ")
        assert (missing["error"], missing["field"]) == ("not_found", "memory_id")
        await client.call("forget_memory", memory_id=other)
        assert (await client.call("restore_memory", memory_id=other))["status"] == "active"
        async with rig.session("11" * 16, session="another") as intruder:
            refused = await intruder.call("get_memory", memory_id=short)
            assert refused["error"] == "not_found"
