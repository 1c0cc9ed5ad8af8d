"""Changes and questions about a memory while the store is away, hangs, or comes back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from remembrancer.config.project import project_of
from remembrancer.protocol.reads import Recall, Refused
from remembrancer.protocol.writes import memory_id_of
from tests.actors.gateway_rig import NEAR, QUICK, PlayedStore, RawClient, Rig
from tests.patience import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(home: Path) -> Rig:
    return Rig(home, QUICK)


def warned(answer: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in answer.get("warnings", ())]


async def recalled(client: RawClient, query: str = "harbour", **arguments: Any) -> list[str]:
    answer = await client.call("recall_memories", query=query, **arguments)
    return [memory["content"] for memory in answer["memories"]]


async def test_changes_without_a_store_are_queued_and_answered_with_what_is_known(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await rig.until_store_answers()
            identity = (await client.store("The harbour is deep", scope="session", tags=["sea"]))["memory_id"]
            await client.call("recall_memories", query="harbour")
        await until(lambda: gateway.health().store != "connected")

        async def change(tool: str, **arguments: Any) -> dict[str, Any]:
            answer = await client.call(tool, memory_id=identity, **arguments)
            assert warned(answer) == ["queued"]
            del answer["warnings"]
            assert answer.pop("degraded") is True
            assert answer.pop("memory_id") == identity
            return answer

        assert await change("update_memory", content="The harbour is shallow", tags={"add": ["new"]}) == {
            "updated_fields": ["content", "tags"],
            "re_embedded": True,
            "embedding": "pending",
        }
        assert await change("tag_memory", add=["x"], remove=["sea"]) == {"tags": ["new", "x"]}
        promotion = {"previous_scope": "session", "new_scope": "project", "reason": None}
        assert await change("promote_memory", target_scope="project") == promotion
        assert await change("forget_memory", reason="why") == {"status": "forgotten", "reason": "why"}
        assert await change("restore_memory") == {"status": "active"}
        assert gateway.health().queue_depth == 5

        unknown = await client.call("tag_memory", memory_id=NEAR, add=["x"])
        assert unknown["tags"] == ["x"]
        unknown = await client.call("promote_memory", memory_id=NEAR, target_scope="user")
        assert "previous_scope" not in unknown


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


async def test_queued_changes_reach_the_store_in_order_and_those_that_it_refuses_are_kept_aside(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        identity = (await client.store("first"))["memory_id"]
        await client.call("update_memory", memory_id=identity, content="second")
        await client.call("forget_memory", memory_id=identity)
        await client.call("update_memory", memory_id=identity, content="never")
        await client.call("tag_memory", memory_id=NEAR, add=["never"])
        await client.call("restore_memory", memory_id=identity)
        await client.call("tag_memory", memory_id=identity, add=["last"])
        async with PlayedStore(rig.paths).open() as store:
            await until(lambda: gateway.health().queue_depth == 0)
            assert gateway.health().queue_rejected == 2
            (memory,) = store.memories.values()
            assert (memory.content, memory.tags, memory.forgotten_at, memory.version) == ("second", ("last",), None, 5)


async def test_reads_without_the_store_show_what_was_changed_before_it_left_and_after(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await rig.until_store_answers()
            ids = [(await client.store(f"harbour {name}"))["memory_id"] for name in ("one", "two", "three", "four")]
            await client.call("recall_memories", query="harbour")
            await client.call("forget_memory", memory_id=ids[0])
            await client.call("update_memory", memory_id=ids[1], content="harbour II")
        await until(lambda: gateway.health().store != "connected")
        assert await recalled(client) == ["harbour II", "harbour three", "harbour four"]
        await client.call("forget_memory", memory_id=ids[2])
        await client.call("promote_memory", memory_id=ids[3], target_scope="user")
        await client.call("tag_memory", memory_id=ids[3], add=["kept"])
        assert await recalled(client) == ["harbour II", "harbour four"]
        assert await recalled(client, "harbours", scope="user") == ["harbour four"]
        assert await recalled(client, "harbours", tags="kept") == ["harbour four"]
        assert await recalled(client, "harbours", include_forgotten=True, limit=50) == [
            "harbour one",
            "harbour II",
            "harbour three",
            "harbour four",
        ]


async def test_what_the_queue_brought_to_the_store_is_not_forgotten_when_it_goes_away_again(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await rig.until_store_answers()
            identity = (await client.store("The harbour is deep"))["memory_id"]
            await client.call("recall_memories", query="harbour")
        await until(lambda: gateway.health().store != "connected")
        await client.call("forget_memory", memory_id=identity)
        async with PlayedStore(rig.paths).open():
            await until(lambda: gateway.health().queue_depth == 0)
        await until(lambda: gateway.health().store != "connected")
        assert await recalled(client) == []


async def test_a_memory_is_shown_without_the_store_as_far_as_it_is_known(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await rig.until_store_answers()
            whole, part = [(await client.store(f"harbour {n}"))["memory_id"] for n in range(2)]
            await client.call("get_memory", memory_id=whole)
            await client.call("recall_memories", query="harbour", limit=2)
        await until(lambda: gateway.health().store != "connected")
        queued = (await client.store("queued", tags=["t"]))["memory_id"]
        await client.call("update_memory", memory_id=whole, content="new", metadata={"a": 1})
        await client.call("forget_memory", memory_id=part)

        answer = await client.call("get_memory", memory_id=whole)
        assert (answer["content"], answer["metadata"], answer["degraded"]) == ("new", {"a": 1}, True)
        assert len(answer["history"]) == 1
        assert warned(answer) == ["memory_unavailable"]
        assert (await client.call("get_memory", memory_id=whole, version=1))["content"] == "harbour 0"

        answer = await client.call("get_memory", memory_id=part)
        assert (answer["content"], answer["status"], answer["degraded"]) == ("harbour 1", "forgotten", True)
        assert "history" not in answer
        answer = await client.call("get_memory", memory_id=queued)
        assert (answer["tags"], answer["session_id"], answer["degraded"]) == (["t"], "session:test", True)

        answer = await client.call("get_memory", memory_id=NEAR)
        assert (answer["error"], answer["degraded"], answer["retry_possible"]) == ("memory_unavailable", True, True)
        answer = await client.call("get_memory", memory_id=part, version=1)
        assert answer["error"] == "memory_unavailable"
        async with rig.session("22" * 16, directory="/elsewhere") as other:
            assert (await other.call("get_memory", memory_id=whole))["error"] == "memory_unavailable"


async def test_while_a_return_to_a_version_waits_a_memory_is_shown_as_it_was_with_a_word_of_it(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await rig.until_store_answers()
            whole, recent = [(await client.store(f"harbour {n}"))["memory_id"] for n in range(2)]
            await client.call("update_memory", memory_id=whole, content="new")
            await client.call("get_memory", memory_id=whole)
        await until(lambda: gateway.health().store != "connected")
        for identity, content in ((whole, "new"), (recent, "harbour 1")):
            await client.call("tag_memory", memory_id=identity, add=["t"])
            await client.call("restore_memory", memory_id=identity, version=1)
            await client.call("tag_memory", memory_id=identity, add=["later"])
            answer = await client.call("get_memory", memory_id=identity)
            assert (answer["content"], answer["tags"], answer["degraded"]) == (content, ["t"], True)
            assert answer["warnings"][0]["message"].startswith("A return to an earlier version waits for the store")
        assert (await client.call("get_memory", memory_id=whole, version=1))["content"] == "harbour 0"


async def test_a_memory_that_was_returned_to_a_version_before_the_store_left_is_said_to_be_that(rig: Rig) -> None:
    async with rig.running() as gateway, rig.session() as client:
        async with PlayedStore(rig.paths).open():
            await rig.until_store_answers()
            identity = (await client.store("harbour"))["memory_id"]
            await client.call("update_memory", memory_id=identity, content="new")
            await client.call("restore_memory", memory_id=identity, version=1)
        await until(lambda: gateway.health().store != "connected")
        answer = await client.call("get_memory", memory_id=identity)
        assert answer["content"] == "new"
        assert answer["warnings"][0]["message"].startswith("It has been returned to an earlier version since")
        assert await recalled(client) == []


async def test_a_memory_on_its_way_to_the_store_is_shown_all_the_same(rig: Rig) -> None:
    async with rig.running(), rig.session() as client:
        identity = (await client.store("older"))["memory_id"]
        async with PlayedStore(rig.paths).open() as store:
            store.refuses_writes = Refused("file_locked", "another program has locked it", retry_possible=True)
            await until(lambda: "older" in store.submitted)
            answer = await client.call("get_memory", memory_id=identity)
            assert (answer["content"], answer["degraded"]) == ("older", True)
            assert warned(answer) == ["partial_results"]
            assert (await client.call("get_memory", memory_id=NEAR))["error"] == "not_found"


async def test_a_memory_is_shown_with_its_queued_changes_while_the_store_answers(rig: Rig) -> None:
    async with PlayedStore(rig.paths).open() as store, rig.running() as gateway, rig.session() as client:
        changed, gone = [(await client.store(f"harbour {n}"))["memory_id"] for n in range(2)]
        store.refuses_writes = Refused("journal_away", "the journal is away", retry_possible=True)
        assert warned(await client.call("update_memory", memory_id=changed, content="new")) == ["queued"]
        assert warned(await client.call("tag_memory", memory_id=changed, add=["t"])) == ["queued"]
        assert warned(await client.call("forget_memory", memory_id=gone)) == ["queued"]

        answer = await client.call("get_memory", memory_id=changed)
        assert (answer["content"], answer["tags"], answer["version"]) == ("new", ["t"], 3)
        assert warned(answer) == ["partial_results"]
        assert (await client.call("get_memory", memory_id=changed, version=1))["content"] == "harbour 0"
        read = await client.request("resources/read", uri=f"memory://memory/{changed}")
        assert json.loads(read["result"]["contents"][0]["text"])["content"] == "new"
        assert (await client.call("get_memory", memory_id=gone))["status"] == "forgotten"

        store.refuses_writes = None
        await until(lambda: gateway.health().queue_depth == 0)
        answer = await client.call("get_memory", memory_id=changed)
        assert (answer["content"], answer["tags"], answer["version"]) == ("new", ["t"], 3)
        assert warned(answer) == []


async def test_a_list_has_queued_changes_in_their_places_on_every_page(rig: Rig) -> None:
    chosen = {"REMEMBRANCER_TOOLSETS": "memory,admin,nodes"}
    async with (
        PlayedStore(rig.paths).open() as store,
        rig.running() as gateway,
        rig.session(environment=chosen) as client,
    ):
        kept, changed, gone, tagged = [
            (await client.store(f"harbour {n}", tags=["sea"] if n else [], importance=0.5))["memory_id"]
            for n in range(4)
        ]
        store.refuses_writes = Refused("journal_away", "the journal is away", retry_possible=True)
        await client.call("update_memory", memory_id=changed, content="new", importance=0.9)
        await client.call("tag_memory", memory_id=tagged, add=["t"], remove=["sea"])
        await client.call("forget_memory", memory_id=gone)
        made = (await client.store("harbour 4", tags=["t"], importance=0.6))["memory_id"]

        async def pages(limit: int, **arguments: Any) -> list[str]:
            found: list[str] = []
            while True:
                page = await client.call("list_memories", limit=limit, offset=len(found), **arguments)
                if not page["memories"]:
                    return found
                found += [each["id"] for each in page["memories"]]

        async def seen() -> list[Any]:
            linked = await client.call("recall", tags=["sea"])
            return [
                [await pages(limit) for limit in (1, 2, 10)],
                await pages(2, order="important"),
                await pages(2, tags=["t"]),
                await pages(2, tags=["sea"]),
                [(each["id"], each["content"], each["links"]) for each in linked["nodes"]],
            ]

        expected = [
            [[made, tagged, changed, kept]] * 3,
            [changed, made, tagged, kept],
            [made, tagged],
            [changed],
            [(changed, "new", [])],
        ]
        assert await seen() == expected
        assert warned(await client.call("list_memories")) == ["partial_results"]
        store.refuses_writes = None
        await until(lambda: gateway.health().queue_depth == 0)
        assert await seen() == expected
        assert warned(await client.call("list_memories")) == []


async def test_what_a_recall_left_out_is_shown_with_its_queued_changes(rig: Rig) -> None:
    async with PlayedStore(rig.paths).open() as store, rig.running() as gateway, rig.session() as client:
        _, changed, gone = [(await client.store(f"harbour {n}"))["memory_id"] for n in range(3)]
        store.refuses_writes = Refused("journal_away", "the journal is away", retry_possible=True)
        await client.call("update_memory", memory_id=changed, content="the new harbour")
        await client.call("forget_memory", memory_id=gone)
        project = project_of(rig.paths.home)
        question = Recall("session:test", project=project, query="harbour", limit=1, left_out=5)
        found, is_degraded = await gateway.access.recall(question, time.time())
        assert is_degraded
        assert [(each.id, each.content) for each in found.left_out] == [(changed, "the new harbour")]


async def test_a_question_that_times_out_says_so_and_the_next_does_not_wait(rig: Rig) -> None:
    async with PlayedStore(rig.paths).open() as store, rig.running(), rig.session() as client:
        identity = (await client.store("The harbour is deep"))["memory_id"]
        await client.call("recall_memories", query="harbour")
        await store.hang(client)
        answer = await client.call("recall_memories", query="harbour")
        assert [memory["content"] for memory in answer["memories"]] == ["The harbour is deep"]
        assert (warned(answer), answer["degraded"]) == (["query_timeout"], True)
        answer = await client.call("recall_memories", query="harbour")
        assert warned(answer) == ["memory_unavailable"]
        assert warned(await client.call("get_memory", memory_id=identity)) == ["memory_unavailable"]


async def test_a_memory_of_which_nothing_is_known_times_out_with_that_error(rig: Rig) -> None:
    async with PlayedStore(rig.paths).open() as store, rig.running(), rig.session() as client:
        await client.store("x")
        await store.hang(client)
        answer = await client.call("get_memory", memory_id=NEAR)
        assert (answer["error"], answer["degraded"], answer["retry_possible"]) == ("query_timeout", True, True)


async def test_writes_are_noted_when_they_are_queued_and_when_they_are_applied(rig: Rig) -> None:
    seen: list[tuple[str, int]] = []
    async with rig.running() as gateway, rig.session() as client:

        def noted() -> list[tuple[str, str]]:
            writes = sorted(gateway.access.writes.since(0) or [], key=lambda each: each.number)
            return [(memory_id_of(each.operation.change) or "", each.stage) for each in writes]

        gateway.access.on_recall.append(lambda caller, ids: seen.append((caller.session_id, len(ids))))
        identity = (await client.store("x"))["memory_id"]
        await client.call("tag_memory", memory_id=identity, add=["y"])
        assert [each for each in noted() if each[0]] == [(identity, "queued")] * 2
        async with PlayedStore(rig.paths).open():
            await until(lambda: gateway.health().queue_depth == 0)
            assert [each for each in noted() if each[0]][2:] == [(identity, "applied")] * 2
            await client.call("forget_memory", memory_id=identity)
            assert [each for each in noted() if each[0]][4:] == [(identity, "applied")]
            await client.call("recall_memories", query="x", include_forgotten=True)
            await client.call("recall_memories", query="x")
        assert seen == [("session:test", 1), ("session:test", 0)]
