"""The gateway while its store hangs or is away, and its write queue: durable, in order, each operation once."""

import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import anyio
import msgspec
import pytest

from remembrancer.actors.gateway import write_queue
from remembrancer.actors.gateway.store_access import MAX_ANSWERS, WRITE_SHARE, LastAnswers
from remembrancer.actors.gateway.write_queue import INTERNAL_TRIES, REJECTED_KEPT_S, USER_LANE, Drain, WriteQueue
from remembrancer.command_line import main
from remembrancer.config.project import project_of
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    Failure,
    InternalError,
    MemoryUnavailable,
    QueueFull,
)
from remembrancer.protocol.reads import ContextGathered, Recall, Recalled, TakeNear
from remembrancer.protocol.sockets import Reply
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import (
    Applied,
    BatchApplied,
    EraseMemory,
    Operation,
    ProjectRef,
    SubmitBatch,
    UpdateMemory,
)
from tests.actors.gateway_rig import AWAY, QUICK, RawClient, Rig, call, warned
from tests.cases import cases
from tests.operations import PROJECT, change_operation, store_operation
from tests.patience import PATIENCE_S, until
from tests.spaces import locked, write_rows


def test_so_many_last_answers_are_kept() -> None:
    answers = LastAnswers()
    questions = [Recall(project=PROJECT, session_id=f"session:{number}", query="gate") for number in range(MAX_ANSWERS)]
    for question in (*questions, questions[0], Recall(project=PROJECT, session_id="session:more", query="gate")):
        answers.put(question, 0.0, None)
    assert [answers.find(each, 0.0) is not None for each in questions[:3]] == [True, False, True]


async def test_writes_without_a_store_are_queued_and_reach_it_once_and_in_order(
    quick_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "BATCH_OPERATIONS", 20)
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        for number in range(45):
            answer = await client.store(f"fact {number}")
            assert warned(answer) == ["queued"]
            assert answer.keys() - {"warnings"} == {"memory_id", "status", "degraded"}
        assert gateway.health().queue_depth in (45, 46), "and the start of the session, if that takes long"
        async with quick_rig.store():
            await until(lambda: gateway.health().queue_depth == 0)
            assert quick_rig.contents == [f"fact {number}" for number in range(45)]
            assert warned(await client.store("direct")) == []
            assert quick_rig.submitted == ["direct"]


async def test_one_hung_project_holds_nobody(quick_rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        exchange = gateway.access._store.exchange

        async def hanging(question: Request[Any], *, timeout_s: float) -> Reply[Any]:
            if isinstance(question, SubmitBatch) and project_of(hung) in {each.project for each in question.operations}:
                await anyio.sleep(timeout_s)
                raise DeadlineExceeded("the store hangs for one project")
            return await exchange(question, timeout_s=timeout_s)

        with monkeypatch.context() as patch:
            patch.setattr(gateway.access._store, "exchange", hanging)
            async with quick_rig.store():
                await until(lambda: quick_rig.contents == ["goes on"])
                patch.undo()
                await until(lambda: gateway.health().queue_depth == 0)
                assert quick_rig.contents == ["goes on", "hangs"]


async def test_only_the_first_write_waits_for_a_store_that_hangs(quick_rig: Rig) -> None:
    async with quick_rig.over_store() as (_, client):
        gateway = quick_rig.gateway
        await client.store("before")
        async with quick_rig.hanging_store(client):
            started = anyio.current_time()
            assert warned(await client.store("first")) == ["queued"]
            assert anyio.current_time() - started >= WRITE_SHARE * QUICK.call_budget_s
            assert gateway.health().store == "away"
            for number in range(10):
                assert warned(await client.store(f"next {number}")) == ["queued"]
            assert quick_rig.submitted == ["before", "first"], "the store was not even asked"
        await until(lambda: gateway.health().queue_depth == 0)
        assert quick_rig.contents == ["before", "first", *(f"next {number}" for number in range(10))]
        assert gateway.health().store == "connected"


async def test_writes_line_up_behind_older_ones_while_the_store_will_not_take_those(quick_rig: Rig) -> None:
    async with quick_rig.over_store(environment={"REMEMBRANCER_TOOLSETS": "memory,files"}) as (_, client):
        health = quick_rig.gateway.health
        with locked(quick_rig.paths.database):
            await client.store("older")
            await until(lambda: bool(health().queue_stuck))
            assert warned(await client.store("newer")) == ["queued"]
            assert quick_rig.submitted == ["older"]
            assert "another program" in told(await client.call("recall_memories", query="older"))
            assert warned(await client.call("memory_search", query="older")) == [], "notes are not queued"
        await until(lambda: health().queue_depth == 0)
        assert quick_rig.contents == ["older", "newer"]


async def test_a_change_that_waited_goes_behind_a_queued_one(quick_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with quick_rig.over_store() as (_, client):
        memory_id = (await client.store("first"))["memory_id"]
        whole = (await client.call("get_memory", memory_id=memory_id))["id"]
        connection, queue = quick_rig.gateway.access._store, quick_rig.gateway.access._queue
        wait_usable, here = connection.wait_usable, project_of(quick_rig.paths.home)

        async def while_another_is_queued(timeout_s: float) -> bool:
            await queue.append(change_operation("older", UpdateMemory(whole, content="second"), project=here))
            return await wait_usable(PATIENCE_S)

        async with quick_rig.hanging_store():
            monkeypatch.setattr(connection, "wait_usable", while_another_is_queued)
            connection.health.note_connection()
            connection.health.has_answered = False  # as at the start: only then a write waits
            connection._announce()
            await client.send(id=99, **call("update_memory", memory_id=whole, content="third"))
            await until(lambda: quick_rig.gateway.health().queue_depth)
            monkeypatch.undo()
        assert warned((await client.hear())["result"]["structuredContent"]) == ["queued"]
        await until(lambda: quick_rig.gateway.health().queue_depth == 0)
        assert quick_rig.contents == ["third"]


async def test_what_can_never_be_applied_is_kept_aside_and_holds_nobody_up(quick_rig: Rig) -> None:
    unknown = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        await client.store("one")
        await client.call("forget_memory", memory_id=unknown)
        queued = await client.store("two")
        async with quick_rig.store():
            await until(lambda: gateway.health().queue_depth == 0)
            assert quick_rig.contents == ["one", "two"]
            assert gateway.health().queue_rejected == 1
            status = await client.call("get_memory_status")
            assert status["write_queue"] == {"depth": 0, "rejected": 1}
            assert unknown in told(status)  # the session's own, once
            status = await client.call("get_memory_status")
            assert ([each["code"] for each in status["problems"]], warned(status)) == (["queued_rejected"], [])
            found = (await client.call("recall_memories", query="two"))["memories"]
            assert [each["id"] for each in found] == [queued["memory_id"][-4:]], "as its answer named it"


async def test_a_full_store_refuses_or_lets_a_write_wait_behind_a_queued_one_and_says_so(quick_rig: Rig) -> None:
    full = Settings(database_limit_bytes=1 << 20)
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        health = gateway.health
        async with quick_rig.store():
            for number in range(12):
                await client.store(f"old {number} {'and more ' * 10_000}")
        await client.store("older")
        async with quick_rig.store(full):
            await until(lambda: any("database_limit_bytes" in why for why in health().queue_stuck.values()))
            assert "database_limit_bytes" in told(await client.store("newer"))
            assert "database_limit_bytes" in told(await client.call("recall_memories", query="harbour"))
        async with quick_rig.store():
            await until(lambda: not health().queue_depth)
            assert "warnings" not in await client.store("newest")
        async with quick_rig.store(full):
            assert (await client.store("too much"))["error"] == "storage_full"
        assert quick_rig.contents[12:] == ["older", "newer", "newest"]


EVERY = {"REMEMBRANCER_TOOLSETS": "memory,admin,graph,nodes"}


def said(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what depends on the time, and on who has been shown what."""
    own = ("warnings", "degraded", "note", "access_count", "strength", "query_time_ms", "tokens_used", "truncated")
    return {name: value for name, value in answer.items() if name not in own}


async def answers_of(client: RawClient, memory_id: str) -> dict[str, dict[str, Any]]:
    answers = {}
    for tool, asked in cases("gateway_degraded", "asked"):
        given = {name: memory_id if value == "ID" else value for name, value in asked.items()}
        answers[tool] = await client.call(tool, **given)
    return answers


@pytest.mark.usefixtures("waits_for_no_store")
async def test_when_the_store_stays_away_every_tool_gives_its_last_answer_as_it_was_and_says_so(home: Path) -> None:
    rig = Rig(home, AWAY)
    async with rig.running(), rig.session(environment=EVERY) as client:
        async with rig.store():
            entity = {"name": "harbour", "type": "place", "relationship": "is deep"}
            memory_id = (await client.store("The harbour is deep", related_entities=[entity]))["memory_id"]
            whole = (await client.call("get_memory", memory_id=memory_id))["id"]
            before = await answers_of(client, whole)
            assert not any(answer.get("degraded") for answer in before.values())
        queued = await client.call("update_memory", memory_id=whole, content="The harbour is shallow")
        assert (queued["status"], warned(queued)) == ("queued", ["queued"])
        for tool, answer in (await answers_of(client, whole)).items():
            assert answer["degraded"] is True, tool
            assert warned(answer) == ["memory_unavailable"], tool
            assert re.search(r"the answer to this question as of \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told(answer)), tool
            if tool not in ("get_memory_context", "recall_memories"):  # in which nobody has weighed them now
                assert said(answer) == said(before[tool])
            assert "deep" in json.dumps(answer), tool
            assert "shallow" not in json.dumps(answer), tool


@pytest.mark.usefixtures("waits_for_no_store")
async def test_another_question_gets_what_this_session_was_shown_last_and_no_other_session_does(home: Path) -> None:
    rig = Rig(home, AWAY)
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    async with rig.running(), rig.session(environment=EVERY) as client:
        async with rig.store():
            await client.store("The harbour is deep", scope="session")
            await client.store("The crane is high", scope="user")
            await client.call("recall_memories", query="harbour crane")
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
                for answer in (await answers_of(other, "DEEP")).values():
                    assert "harbour is deep" not in json.dumps(answer)
                    assert "crane" not in json.dumps(answer)
                    assert answer["degraded"] is True


async def test_a_slow_question_gets_what_was_found_last(quick_rig: Rig) -> None:
    async with quick_rig.over_store() as (_, client):
        await client.store("The harbour is deep")
        await client.call("recall_memories", query="harbour")
        quick_rig.answers[Recall] = DeadlineExceeded("the deadline has passed")
        answer = await client.call("recall_memories", query="lighthouse")
        refused = await client.call("recall_memories", query="lighthouse", sources=["notes"])
    assert refused["retry_possible"], "no memory is shown as a note"
    assert [each["content"] for each in answer["memories"]] == ["The harbour is deep"]
    assert (warned(answer), answer["degraded"]) == (["query_timeout"], True)


async def test_only_if_a_pair_waits_the_store_is_asked_for_it_and_its_refusal_takes_no_answer_away(
    quick_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quick_rig.over_store() as (_, client):
        exchange, refused = quick_rig.gateway.access._store.exchange, list[Any]()

        async def full(question: Request[Any], *, timeout_s: float) -> Reply[Any]:
            if isinstance(question, TakeNear):
                refused.append(question)
                raise QueueFull("not now")
            reply = await exchange(question, timeout_s=timeout_s)
            if waits and isinstance(reply.body, Applied | Recalled | ContextGathered):
                return Reply(msgspec.structs.replace(reply.body, near_waits=True), reply.notices)
            return reply

        monkeypatch.setattr(quick_rig.gateway.access._store, "exchange", full)
        for waits in (False, True):
            assert "memory_id" in await client.store("The harbour is deep")
            assert len((await client.call("recall_memories", query="harbour"))["memories"]) == 1
            assert "harbour" in (await client.call("get_memory_context"))["context_block"]
            assert len(refused) == 3 * waits


async def test_what_another_machine_erases_is_in_no_answer_that_is_kept(home: Path) -> None:
    rig = Rig(home, AWAY)
    async with rig.over_store() as (_, client):
        gone = await client.store("the lantern burns oil", scope="project")
        assert (await client.call("recall_memories", query="lantern"))["memories"]
        whole = (await client.call("get_memory", memory_id=gone["memory_id"]))["id"]
        async with rig.hanging_store():
            rig.gateway.access.others_wrote(
                [change_operation("elsewhere", EraseMemory(whole), project=project_of(home))]
            )
            answer = await client.call("recall_memories", query="lantern")
            assert (answer["memories"], answer["degraded"]) == ([], True)


def told(answer: dict[str, Any]) -> str:
    return " ".join(warning["message"] for warning in answer["warnings"])


async def test_changes_without_a_store_are_queued_by_a_short_id_and_nothing_is_invented(quick_rig: Rig) -> None:
    async with quick_rig.running() as gateway, quick_rig.session() as client:
        async with quick_rig.store():
            short = (await client.store("The harbour is deep", scope="session", tags=["sea"]))["memory_id"]
            await client.call("recall_memories", query="harbour")

        async def change(tool: str, **arguments: Any) -> None:
            answer = await client.call(tool, memory_id=short, **arguments)
            assert warned(answer) == ["queued"]
            del answer["warnings"]
            assert answer == {"memory_id": short, "status": "queued", "degraded": True}

        await change("update_memory", content="The harbour is shallow", tags={"add": ["new"]})
        await change("tag_memory", add=["x"], remove=["sea"])
        await change("promote_memory", target_scope="project")
        await change("forget_memory", reason="why")
        await change("restore_memory", undo=True)
        assert gateway.health().queue_depth == 5
        unknown = await client.call("forget_memory", memory_id="ZZZZ")
        assert (unknown["error"], unknown["field"]) == ("memory_unavailable", "memory_id")
        async with quick_rig.store():
            await until(lambda: gateway.health().queue_depth == 0)
            shown = await client.call("get_memory", memory_id=short)
            assert (shown["content"], shown["scope"], shown["version"]) == ("The harbour is shallow", "project", 6)


def operation(number: int, content: str = "x", project: str = "p_0") -> Operation:
    of = ProjectRef(project, "/")
    return store_operation(f"{number:032x}", content, memory_id=f"memory:{number}", project=of)


@asynccontextmanager
async def opened(path: Path, limit: int = 1000) -> AsyncIterator[WriteQueue]:
    queue = WriteQueue(path, limit)
    try:
        await queue.open()
        yield queue
    finally:
        await queue.aclose()


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[WriteQueue]:
    async with opened(tmp_path / "queue.db") as queue:
        yield queue


async def test_a_queue_that_another_program_has_locked_keeps_what_it_has(queue: WriteQueue, tmp_path: Path) -> None:
    await queue.append(operation(1))
    with locked(tmp_path / "queue.db"), pytest.raises(MemoryUnavailable, match="another program"):
        await queue.settle([operation(1).operation_id], {})
    assert queue.depth == 1
    await queue.settle([operation(1).operation_id], {})
    assert queue.depth == 0


async def test_reads_no_longer_wait_for_a_write_that_could_not_be_queued(queue: WriteQueue, tmp_path: Path) -> None:
    async def refused() -> None:
        with pytest.raises(MemoryUnavailable, match="another program"):
            await queue.append(operation(1))

    with locked(tmp_path / "queue.db"), anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refused)
            await until(lambda: queue.depth)
            await queue.wait_empty("p_0")


async def test_an_operation_is_queued_once_and_each_project_has_a_lane(queue: WriteQueue) -> None:
    async with anyio.create_task_group() as tasks:
        for number in (1, 1, 2, 2, 3):
            tasks.start_soon(queue.append, operation(number))
    assert (queue.depth, len(await queue.head("p_0", 10, 10_000))) == (3, 3)
    await queue.append(operation(4, project="p_1"))
    assert queue.lane_of(operation(5, project="p_1")) in queue.lanes
    assert queue.lane_of(operation(6, project="p_2")) not in queue.lanes
    await queue.append(operation(7, project="p_2"))
    assert await queue.head("p_2", 10, 10_000) == [operation(7, project="p_2")]
    assert [queue.waits(project) for project in ("p_0", "p_1", "p_3")] == [3, 1, 0]


async def test_reads_no_longer_wait_for_a_write_that_the_store_refuses_for_the_moment(queue: WriteQueue) -> None:
    await queue.append(operation(1))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queue.wait_empty, "p_0", USER_LANE)
            await anyio.wait_all_tasks_blocked()
            queue.lanes["p_0"].refusal = "the file is damaged"
            queue.announce()
    assert queue.stuck == {"p_0": "the file is damaged"}


async def test_the_head_is_bounded_in_number_and_size_but_never_empty(queue: WriteQueue) -> None:
    for number in range(5):
        await queue.append(operation(number, "y" * 1000))
    assert [len(await queue.head("p_0", *most)) for most in ((3, 10**9), (5, 3000), (5, 10))] == [3, 2, 1]


async def test_a_full_queue_refuses_what_is_new_and_takes_a_repetition(tmp_path: Path) -> None:
    async with opened(tmp_path / "queue.db", 1) as queue:
        await queue.append(operation(1))
        await queue.append(operation(1))
        with pytest.raises(QueueFull, match="1 writes"):
            await queue.append(operation(2))
        assert queue.depth == 1


class FailingStore:
    """A store that fails at every batch with the first operation."""

    def __init__(self) -> None:
        self.failures = 0

    async def wait_usable(self, _: float) -> bool:
        return True

    async def request(self, batch: SubmitBatch, _: float) -> BatchApplied:
        if operation(0) in batch.operations:
            self.failures += 1
            raise InternalError("the store failed on this batch")
        return BatchApplied(tuple(each.operation_id for each in batch.operations))


@pytest.mark.parametrize("others", [0, 1])
async def test_what_fails_the_store_goes_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int) -> None:
    monkeypatch.setattr(write_queue, "RETRY_S", 0.001)
    store: Any = FailingStore()
    applied, refused = list[Operation](), list[tuple[Operation, Failure]]()
    async with opened(tmp_path / "queue.db") as queue, anyio.create_task_group() as tasks:
        for number in range(1 + others):
            await queue.append(operation(number))
        drain = Drain(queue, store, applied.append, lambda *refusal: refused.append(refusal))
        tasks.start_soon(drain.run)
        await until(lambda: not queue.depth)
        tasks.cancel_scope.cancel()
        assert queue.rejected == 1
    assert store.failures == INTERNAL_TRIES
    assert [(each, why.code) for each, why in refused] == [(operation(0), "internal_error")]
    assert applied == [operation(number) for number in range(1, 1 + others)]


async def test_an_unreadable_queue_is_tried_again_later(queue: WriteQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = list[str]()

    async def head(lane: str, *_: int) -> list[Operation]:
        tries.append(lane)
        assert len(tries) == 1, "at once, again and again"
        raise MemoryUnavailable("another program has locked it")

    await queue.append(operation(1))
    monkeypatch.setattr(queue, "head", head)
    store: Any = FailingStore()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Drain(queue, store, lambda _: None, lambda *_: None).run)
        await until(lambda: bool(tries))
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()


async def test_what_was_erased_is_not_set_aside_when_it_is_rejected_and_what_cannot_be_read_is(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    async with opened(path) as queue:
        for number in range(3):
            await queue.append(operation(number))
        await queue.erase("memory:0")
        await queue.settle([], {operation(0).operation_id: Failure("invalid_input", "it was erased")})
        assert (queue.depth, queue.rejected) == (2, 0)
    write_rows(path, "UPDATE queued SET operation = x'c1' WHERE sequence = (SELECT min(sequence) FROM queued)")
    async with opened(path) as queue:
        assert await queue.head("p_0", 10, 10_000) == [operation(2)]
        assert (queue.depth, queue.rejected) == (1, 1)


async def test_an_applied_write_leaves_no_byte_once_its_memory_is_erased(queue: WriteQueue, tmp_path: Path) -> None:
    async def words_left() -> bool:
        return any([b"harbour" in await file.read_bytes() async for file in anyio.Path(tmp_path).glob("queue.db*")])

    await queue.append(operation(1, "The harbour is shallow"))
    await queue.settle([operation(1).operation_id], {})
    assert await words_left()
    with closing(sqlite3.connect(tmp_path / "queue.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM queued").fetchall()
        with pytest.raises(MemoryUnavailable, match="is reading"):
            await queue.erase("memory:1")
    await queue.erase("memory:1")
    assert not await words_left()


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 0)], ids=["deleted", "emptied"])
async def test_a_queue_whose_file_was_taken_away_refuses_writes_until_it_is_opened_again(
    queue: WriteQueue, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(tmp_path / "queue.db")
    with pytest.raises(MemoryUnavailable, match="removed or replaced"):
        await queue.append(operation(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Drain(queue, Mock(), lambda _: None, lambda *_: None).run)
        await until(lambda: queue.problem is None)
        tasks.cancel_scope.cancel()
    await queue.append(operation(1))
    assert await queue.head("p_0", 10, 10_000) == [operation(1)]


@pytest.mark.parametrize(
    ("writes", "damaged", "lost"),
    [
        (1, slice(-4096, None), "0"),
        (300, slice(-4096, None), "5"),
        (300, slice(40960, 45056), "5"),
        (1, slice(None), "unknown"),
    ],
)
async def test_what_can_be_read_of_a_damaged_file_is_applied_and_the_number_of_lost_writes_is_named(
    tmp_path: Path, writes: int, damaged: slice, lost: str
) -> None:
    path = tmp_path / "queue.db"
    async with opened(path) as queue:
        for number in range(writes):
            await queue.append(operation(number, "y" * 500))
    pages = bytearray(path.read_bytes())
    pages[damaged] = b"\xff" * len(pages[damaged])
    path.write_bytes(pages)
    async with opened(path) as queue:
        assert queue.damage is not None
        assert "queue.damaged-" in queue.damage
        assert queue.depth == len(await queue.head("p_0", 1000, 10**9))
        assert (f"lost: {lost};" in queue.damage, queue.depth) == (
            True,
            writes - int(lost if lost.isdigit() else writes),
        )
        await queue.append(operation(1000))
        assert queue.depth > 0
    assert bytes(pages) in [each.read_bytes() for each in tmp_path.glob("queue.damaged-*")]
    async with opened(path) as queue:
        assert queue.damage is None


async def test_the_command_shows_what_is_aside_for_a_while(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "queue.db"
    async with opened(path) as queue:
        for number in range(4):
            await queue.append(operation(number, f"content {number}"))
        write_rows(path, "UPDATE queued SET queued_at = -sequence")  # a clock that steps back changes no order
        refused = {operation(number).operation_id: Failure("not_found", "gone") for number in (0, 1)}
        await queue.settle([], refused)
        assert main(["admin", "queue", "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert [each["about"] for each in listed["queued"]] == ["StoreMemory content 2", "StoreMemory content 3"]
        assert [each["about"] for each in listed["set_aside"]] == ["StoreMemory content 0", "StoreMemory content 1"]
        assert [each["message"] for each in listed["set_aside"]] == ["gone", "gone"]
        contents = [each["operation"]["change"]["content"] for each in listed["set_aside"]]
        assert contents == ["content 0", "content 1"]
    assert main(["admin", "queue"]) == 0
    assert list(home.glob("queue.db*")) == [path], "to look leaves no log"
    write_rows(path, f"UPDATE rejected SET rejected_at = rejected_at - {REJECTED_KEPT_S} WHERE message = 'gone'")
    async with opened(path) as queue:
        assert (queue.depth, queue.rejected) == (2, 0)
