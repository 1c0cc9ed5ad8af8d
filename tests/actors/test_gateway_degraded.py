"""The gateway while the store is away, hangs, comes back, or will not take what is queued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from remembrancer.protocol.reads import Notice, Refused
from tests.actors.gateway_rig import QUICK, PlayedStore, Rig, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(home: Path) -> Rig:
    return Rig(home, QUICK)


def warned(answer: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in answer.get("warnings", ())]


async def test_writes_without_a_store_are_queued_and_reach_it_once_and_in_order(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        for number in range(300):
            answer = await client.store(f"fact {number}")
            assert warned(answer) == ["queued"]
            assert answer["embedding"] == "pending"
        assert gateway.vitals().queue_depth == 300
        async with PlayedStore(rig.paths).open() as store:
            await until(lambda: gateway.vitals().queue_depth == 0)
            assert store.contents == [f"fact {number}" for number in range(300)]
            assert warned(await client.store("direct")) == []
            assert store.submitted == ["direct"]


async def test_a_queued_memory_keeps_the_id_that_its_answer_named(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        answer = await client.store("x")
        async with PlayedStore(rig.paths).open() as store:
            await until(lambda: gateway.vitals().queue_depth == 0)
            assert list(store.memories) == [answer["memory_id"]]


async def test_a_request_that_comes_again_is_queued_once(rig: Rig) -> None:
    async with rig.running() as gateway:
        answers = []
        for _ in range(2):
            async with rig.session() as client:
                params = {"name": "store_memory", "arguments": {"content": "x", "type": "semantic", "scope": "user"}}
                await client.send(stamp_ms=1_700_000_000_000, id=5, method="tools/call", params=params)
                answers.append((await client.hear())["result"]["structuredContent"])
        assert answers[0] == answers[1]
        assert gateway.vitals().queue_depth == 1


async def test_the_next_gateway_drains_what_it_finds(rig: Rig) -> None:
    async with rig.running(), rig.session() as client:
        for number in range(20):
            await client.store(f"fact {number}")
    async with PlayedStore(rig.paths).open() as store, rig.running() as gateway:
        await until(lambda: gateway.vitals().queue_depth == 0)
        assert store.contents == [f"fact {number}" for number in range(20)]


async def test_only_the_first_write_waits_for_a_store_that_hangs(rig: Rig) -> None:
    async with PlayedStore(rig.paths).open() as store, rig.running() as gateway, rig.session() as client:
        await client.store("before")
        store.hangs = True
        started = anyio.current_time()
        assert warned(await client.store("first")) == ["queued"]
        assert anyio.current_time() - started >= QUICK.write_budget_s
        assert gateway.vitals().store == "away"
        started = anyio.current_time()
        for number in range(10):
            assert warned(await client.store(f"next {number}")) == ["queued"]
        assert anyio.current_time() - started < QUICK.write_budget_s
        store.hangs = False
        await until(lambda: gateway.vitals().queue_depth == 0)
        assert store.contents == ["before", "first", *(f"next {number}" for number in range(10))]
        assert gateway.vitals().store == "connected"


async def test_writes_line_up_behind_older_ones_while_the_store_will_not_take_those(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        await client.store("older")
        async with PlayedStore(rig.paths).open() as store:
            store.refuses = Refused("storage_full", "the disk is full", retry_possible=True)
            await until(lambda: "older" in store.submitted)
            answer = await client.store("newer")
            assert warned(answer) == ["queued"]
            status = await client.call("get_memory_status")
            assert status["error"] == "storage_full"
            store.refuses = None
            await until(lambda: gateway.vitals().queue_depth == 0)
            assert store.contents == ["older", "newer"]


async def test_a_store_that_is_stopping_loses_no_write(rig: Rig) -> None:
    async with PlayedStore(rig.paths).open() as store, rig.running() as gateway, rig.session() as client:
        await client.store("first")
        store.refuses = Refused("memory_unavailable", "the store is stopping", retry_possible=True)
        assert warned(await client.store("second")) == ["queued"]
        store.refuses = None
        await until(lambda: gateway.vitals().queue_depth == 0)
        assert store.contents == ["first", "second"]


async def test_what_can_never_be_applied_is_kept_aside_and_holds_nobody_up(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        for content in ("one", "bad", "two"):
            await client.store(content)
        played = PlayedStore(rig.paths)
        played.rejects = {"bad"}
        async with played.open() as store:
            await until(lambda: gateway.vitals().queue_depth == 0)
            assert store.contents == ["one", "two"]
            assert gateway.vitals().queue_rejected == 1
            status = await client.call("get_memory_status")
            assert status["write_queue"] == {"depth": 0, "rejected": 1}
            assert warned(status) == ["queued_rejected"]


async def test_a_full_queue_says_so(home: Path) -> None:
    rig = Rig(home, msgspec.structs.replace(QUICK, queue_limit=2))
    async with rig.running(), rig.session() as client:
        await client.store("1")
        await client.store("2")
        answer = await client.store("3")
    assert answer["error"] == "queue_full"
    assert answer["retry_possible"] is True
    assert answer["degraded"] is True


async def test_a_read_without_the_store_shows_recent_answers_and_queued_writes(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await client.store("The harbour is deep")
            await client.call("recall_memories", query="harbour")
        await until(lambda: gateway.vitals().store != "connected")
        await client.store("The lighthouse stands at the harbour")
        await client.store("Nothing of the kind")
        answer = await client.call("recall_memories", query="harbours")
        assert answer["degraded"] is True
        assert warned(answer) == ["memory_unavailable"]
        assert {memory["content"] for memory in answer["memories"]} == {
            "The harbour is deep",
            "The lighthouse stands at the harbour",
        }
        exact = await client.call("recall_memories", query="harbour")
        assert len(exact["memories"]) == 2


async def test_a_read_without_the_store_shows_nobody_else_s_memories(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await client.store("The harbour is deep")
            await client.call("recall_memories", query="harbour")
        await until(lambda: gateway.vitals().store != "connected")
        await client.store("Harbour of this session", scope="session")
        await client.store("Harbour of this project", scope="project")
        await client.store("Harbour of this user", scope="user")

        async def seen(**hello: Any) -> set[str]:
            async with rig.session("22" * 16, **hello) as other:
                answer = await other.call("recall_memories", query="harbour")
                assert answer["degraded"] is True
                return {memory["content"] for memory in answer["memories"]}

        assert await seen(session="session:other") == {"Harbour of this project", "Harbour of this user"}
        assert await seen(session="session:test", directory="/elsewhere") == {"Harbour of this user"}
        assert await seen() == {
            "The harbour is deep",
            "Harbour of this session",
            "Harbour of this project",
            "Harbour of this user",
        }


async def test_the_status_without_the_store_shows_the_last_known_figures(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await client.store("x")
            assert (await client.call("get_memory_status"))["connection"]["status"] == "connected"
        await until(lambda: gateway.vitals().store != "connected")
        await client.store("y")
        status = await client.call("get_memory_status")
        assert status["connection"]["status"] == "degraded"
        assert status["degraded"] is True
        assert status["counts"]["total"] == 1
        assert status["write_queue"] == {"depth": 1, "rejected": 0}
        assert warned(status) == ["memory_unavailable"]
        async with rig.session(directory="/elsewhere") as other:
            assert "counts" not in await other.call("get_memory_status")


async def test_a_session_reads_what_it_wrote_into_the_queue(rig: Rig) -> None:
    async with rig.running(), rig.session() as client:
        await client.store("queued")
        async with PlayedStore(rig.paths).open() as store:
            answer = await client.call("recall_memories", query="queued")
            assert [memory["content"] for memory in answer["memories"]] == ["queued"]
            store.notices = (Notice("x", "y"),)


async def test_a_store_that_comes_back_is_used_again_at_once(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        for _ in range(3):
            async with PlayedStore(rig.paths).open() as store:
                await until(lambda: gateway.vitals().store == "connected")
                assert warned(await client.store("x")) == []
                assert store.contents == ["x"]
            await until(lambda: gateway.vitals().store == "reconnecting")
