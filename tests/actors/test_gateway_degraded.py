"""The gateway while the store is away, hangs, comes back, or will not take what is queued."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from remembrancer.actors.gateway import store_access, write_queue
from remembrancer.config.project import project_of
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.writes import EraseMemory, UpdateMemory
from tests.actors.gateway_rig import AWAY, PATIENT, QUICK, PlayedStore, RawClient, Rig, warned
from tests.actors.store_process import store_rig
from tests.operations import change_operation
from tests.patience import PATIENCE_S, until


@pytest.fixture
def waits_for_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a store that does not come: each of many questions would, for the least budget of a request."""
    monkeypatch.setattr(store_access, "LEAST_BUDGET_S", 0.02)


async def test_writes_without_a_store_are_queued_and_reach_it_once_and_in_order(quick_rig: Rig) -> None:
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        for number in range(300):
            answer = await client.store(f"fact {number}")
            assert warned(answer) == ["queued"]
            assert answer.keys() - {"warnings"} == {"memory_id", "status", "degraded"}
        assert gateway.health().queue_depth in (300, 301), "and the start of the session, if that takes long"
        async with PlayedStore(quick_rig.paths).open() as store:
            await until(lambda: gateway.health().queue_depth == 0)
            await quick_rig.until_store_answers()
            assert store.contents == [f"fact {number}" for number in range(300)]
            assert warned(await client.store("direct")) == []
            assert store.submitted == ["direct"]


async def test_a_project_whose_queued_writes_get_no_answer_holds_up_no_other(
    quick_rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "BATCH_TIMEOUT_S", 0.2)
    hung, other = tmp_path / "hung", tmp_path / "other"
    for directory in (hung, other):
        directory.mkdir()
    async with (
        quick_rig.running() as gateway,
        quick_rig.session(directory=str(hung)) as first,
        quick_rig.session(directory=str(other), bridge="11" * 16, session="session:other") as second,
    ):
        await first.store("hangs")
        await second.store("goes on")
        store = PlayedStore(quick_rig.paths)
        store.hangs_for.add(project_of(hung).id)
        async with store.open():
            await until(lambda: "goes on" in store.contents)
            store.hangs_for.clear()
            await until(lambda: gateway.health().queue_depth == 0)
            assert "hangs" in store.contents


async def test_only_the_first_write_waits_for_a_store_that_hangs(quick_rig: Rig) -> None:
    async with (
        PlayedStore(quick_rig.paths).open() as store,
        quick_rig.running() as gateway,
        quick_rig.session() as client,
    ):
        await client.store("before")
        await store.hang(client)
        started = anyio.current_time()
        assert warned(await client.store("first")) == ["queued"]
        assert anyio.current_time() - started >= QUICK.write_budget_s
        assert gateway.health().store == "away"
        for number in range(10):
            assert warned(await client.store(f"next {number}")) == ["queued"]
        assert store.submitted == ["before", "first"], "the store was not even asked"
        store.hangs = False
        await until(lambda: gateway.health().queue_depth == 0)
        assert store.contents == ["before", "first", *(f"next {number}" for number in range(10))]
        assert gateway.health().store == "connected"


async def test_writes_line_up_behind_older_ones_while_the_store_will_not_take_those(quick_rig: Rig) -> None:
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        await client.store("older")
        async with PlayedStore(quick_rig.paths).open() as store:
            store.refuses = Failure("file_locked", "another program has locked it", retry_possible=True)
            await until(lambda: bool(gateway.health().queue_stuck))
            answer = await client.store("newer")
            assert warned(answer) == ["queued"]
            status = await client.call("get_memory_status")
            assert status["error"] == "file_locked"
            store.refuses = None
            await until(lambda: gateway.health().queue_depth == 0)
            assert store.contents == ["older", "newer"]


async def test_a_change_that_waited_for_the_store_goes_behind_one_that_was_queued_meanwhile(
    quick_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        PlayedStore(quick_rig.paths).open() as store,
        quick_rig.running() as gateway,
        quick_rig.session() as client,
    ):
        memory_id = (await client.store("first"))["memory_id"]
        connection, queue = gateway.access._store, gateway.access._queue
        wait_usable = connection.wait_usable

        async def while_another_is_queued(timeout_s: float) -> bool:
            await queue.append(change_operation("older", UpdateMemory(memory_id, content="second"), project=here))
            return await wait_usable(PATIENCE_S)

        here = project_of(quick_rig.paths.home)
        monkeypatch.setattr(connection, "wait_usable", while_another_is_queued)
        connection.health.note_connection()  # it broke a moment ago
        connection._announce()
        assert warned(await client.call("update_memory", memory_id=memory_id, content="third")) == ["queued"]
        monkeypatch.undo()
        await until(lambda: gateway.health().queue_depth == 0)
        assert store.memories[memory_id].content == "third"


async def test_what_can_never_be_applied_is_kept_aside_and_holds_nobody_up(quick_rig: Rig) -> None:
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        for content in ("one", "bad", "two"):
            await client.store(content)
        played = PlayedStore(quick_rig.paths)
        played.rejects = {"bad"}
        async with played.open() as store:
            await until(lambda: gateway.health().queue_depth == 0)
            assert store.contents == ["one", "two"]
            assert gateway.health().queue_rejected == 1
            status = await client.call("get_memory_status")
            assert status["write_queue"] == {"depth": 0, "rejected": 1}
            assert set(warned(status)) == {"queued_rejected"}
            assert any("never" in warning["message"] for warning in status["warnings"])  # the session's own, once
            assert warned(await client.call("get_memory_status")) == ["queued_rejected"]


async def test_a_session_reads_what_it_wrote_into_the_queue(quick_rig: Rig) -> None:
    async with quick_rig.running(), quick_rig.session() as client:
        queued = await client.store("queued")
        async with PlayedStore(quick_rig.paths).open() as store:
            answer = await client.call("recall_memories", query="queued")
            assert [memory["content"] for memory in answer["memories"]] == ["queued"]
            assert list(store.memories) == [queued["memory_id"]], "as its answer named it"


async def test_a_full_project_refuses_at_once_while_anything_is_queued_and_every_answer_says_so(quick_rig: Rig) -> None:
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        assert warned(await client.store("older")) == ["queued"]
        async with PlayedStore(quick_rig.paths).open() as store:
            store.refuses_writes = Failure("storage_full", "it has reached its limit", retry_possible=True)
            await until(lambda: gateway.health().full)
            for number in range(8):
                answer = await client.store(f"newer {number}")
                assert (answer["error"], "its limit" in answer["message"]) == ("storage_full", True)
            assert gateway.health().queue_depth <= 2, "what was queued before, and the start of the session"
            assert "storage_full" in warned(await client.call("recall_memories", query="harbour"))
            store.refuses_writes = None
            await until(lambda: "older" in store.contents)
            await until(lambda: not gateway.health().queue_depth)
            assert "warnings" not in await client.store("newest")
            store.refuses_writes = Failure("storage_full", "it has reached its limit", retry_possible=True)
            assert (await client.store("too much"))["error"] == "storage_full"
        await until(lambda: gateway.health().store != "connected")
        assert (await client.store("and more"))["error"] == "storage_full", "the store's last word"


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("recall_memories", {"query": "harbour"}),
    ("get_memory_context", {}),
    ("search_knowledge_graph", {"entity": "harbour"}),
    ("list_memories", {}),
    ("read_log", {}),
    ("get_valid", {}),
    ("search", {"query": "harbour"}),
    ("connections", {"node_id": None}),
    ("get_memory", {"memory_id": None}),
]
"""The tools that read, with the arguments of a call; None stands for a memory's id."""
EVERY = {"REMEMBRANCER_TOOLSETS": "memory,admin,graph,nodes"}


def said(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what depends on the time, and on who has been shown what."""
    own = ("warnings", "degraded", "note", "access_count", "strength", "query_time_ms", "tokens_used", "truncated")
    return {name: value for name, value in answer.items() if name not in own}


async def answers_of(client: RawClient, memory_id: str) -> dict[str, dict[str, Any]]:
    """The answers of all tools that read."""
    given = {tool: {name: value or memory_id for name, value in asked.items()} for tool, asked in ASKED}
    return {tool: await client.call(tool, **arguments) for tool, arguments in given.items()}


@pytest.mark.usefixtures("waits_for_no_store")
async def test_when_the_store_stays_away_every_tool_gives_its_last_answer_as_it_was_and_says_so(home: Path) -> None:
    rig = Rig(home, AWAY)
    async with rig.running() as gateway, rig.session(environment=EVERY) as client:
        async with store_rig(home):
            await rig.until_store_answers()
            gateway.access.settings = PATIENT
            entity = {"name": "harbour", "type": "place", "relationship": "is deep"}
            memory_id = (await client.store("The harbour is deep", related_entities=[entity]))["memory_id"]
            whole = (await client.call("get_memory", memory_id=memory_id))["id"]
            before = await answers_of(client, whole)
            assert not any(answer.get("degraded") for answer in before.values())
        await until(lambda: gateway.health().store != "connected")
        gateway.access.settings = AWAY
        queued = await client.call("update_memory", memory_id=whole, content="The harbour is shallow")
        assert (queued["status"], warned(queued)) == ("queued", ["queued"])
        for tool, answer in (await answers_of(client, whole)).items():
            assert answer["degraded"] is True, tool
            assert warned(answer) == ["memory_unavailable"], tool
            assert re.search(r"the answer of \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ to the same question", told(answer)), tool
            if tool not in ("get_memory_context", "recall_memories"):  # in which nobody has weighed them now
                assert said(answer) == said(before[tool])
            assert "deep" in json.dumps(answer), tool
            assert "shallow" not in json.dumps(answer), tool


@pytest.mark.usefixtures("waits_for_no_store")
async def test_another_question_gets_what_this_session_was_shown_last_and_no_other_session_does(home: Path) -> None:
    rig = Rig(home, AWAY)
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    async with rig.running() as gateway, rig.session(environment=EVERY) as client:
        async with store_rig(home):
            await rig.until_store_answers()
            gateway.access.settings = PATIENT
            await client.store("The harbour is deep", scope="session")
            await client.store("The crane is high", scope="user")
            await client.call("recall_memories", query="harbour crane")
        await until(lambda: gateway.health().store != "connected")
        gateway.access.settings = AWAY
        for tool in ("recall_memories", "recall", "search"):
            answer = await client.call(tool, query="lighthouse")
            assert {"The harbour is deep", "The crane is high"} == {
                each["content"] for each in answer["memories" if "memories" in answer else "nodes"]
            }
            assert "last found for this session" in told(answer)
            assert not any({"relevance_score", "answers"} & set(each) for each in answer.get("memories", ()))
        context = await client.call("get_memory_context", task_description="lighthouse")
        assert "The harbour is deep" in context["context_block"]
        for hello in ({"session": "session:other"}, {"directory": str(elsewhere)}):
            async with rig.session("22" * 16, environment=EVERY, **hello) as other:
                for tool, arguments in ASKED:
                    answer = await other.call(tool, **{name: value or "DEEP" for name, value in arguments.items()})
                    assert "harbour is deep" not in json.dumps(answer)
                    assert "crane" not in json.dumps(answer)
                    assert answer["degraded"] is True


async def test_what_another_machine_erases_is_in_no_answer_that_is_kept(home: Path) -> None:
    rig = Rig(home, AWAY)
    async with (
        PlayedStore(rig.paths).open() as store,
        rig.running() as gateway,
        rig.session() as client,
    ):
        gone = await client.store("the lantern burns oil", scope="project")
        assert (await client.call("recall_memories", query="lantern"))["memories"]
        heard: list[str] = []
        gateway.access.writes.listeners.append(lambda each: heard.append(each.operation_id))
        store.hangs = True
        change = EraseMemory(gone["memory_id"])
        store.tell([change_operation("elsewhere", change, project=project_of(rig.paths.home))])
        await until(lambda: "elsewhere" in heard)
        answer = await client.call("recall_memories", query="lantern")
        assert (answer["memories"], answer["degraded"]) == ([], True)


def told(answer: dict[str, Any]) -> str:
    return " ".join(warning["message"] for warning in answer["warnings"])


# Changes and questions about a memory


async def test_changes_without_a_store_are_queued_and_nothing_is_invented(quick_rig: Rig) -> None:
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        async with PlayedStore(quick_rig.paths).open():
            await quick_rig.until_store_answers()
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


async def test_a_short_id_that_was_shown_is_queued_as_the_whole_one(quick_rig: Rig) -> None:
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        async with PlayedStore(quick_rig.paths).open() as store:
            await quick_rig.until_store_answers()
            store.knows_short_ids = True
            short = (await client.store("The harbour is deep"))["memory_id"]
        await until(lambda: gateway.health().store != "connected")
        queued = await client.call("update_memory", memory_id=short, content="The harbour is shallow")
        assert (queued["memory_id"], warned(queued)) == (short, ["queued"])
        unknown = await client.call("forget_memory", memory_id="ZZZZ")
        assert (unknown["error"], unknown["field"]) == ("memory_unavailable", "memory_id")
        async with PlayedStore(quick_rig.paths).open() as store:
            await until(lambda: store.applied)
            assert [memory.content for memory in store.memories.values()] == ["The harbour is shallow"]
