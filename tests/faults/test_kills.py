"""Processes and sessions that are killed: nothing acknowledged is lost or there twice, nobody waits."""

import asyncio
import json
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from bench.client import CLOSED
from remembrancer.protocol.control import ConsolidatorHealth
from remembrancer.protocol.gateway_link import UNAVAILABLE
from remembrancer.protocol.kinds import Kind, type_of_kind
from remembrancer.protocol.session_life import EndSession, StartSession
from tests.actors.store_process import Launched, StoreRig, Worker, store_rig
from tests.conftest import processes_of
from tests.faults import soak
from tests.faults.soak import Killer
from tests.operations import SESSION, change_operation
from tests.patience import PATIENCE_S, until
from tests.runtime import ColdSession, Runtime, Session


@pytest.mark.parametrize("roles", [(*("store", "gateway", "embedder") * 2, "launcher"), ()], ids=["each", "all"])
@pytest.mark.usefixtures("home")
async def test_kills_lose_nothing_and_sessions_go_on(roles: tuple[str, ...], seed: int) -> None:
    """No bridge of three sessions has to be started again, or gives a request up. Without roles, all are killed."""

    async def kill(killer: Killer) -> None:
        for role in roles:
            await killer.acknowledged_some()
            killer.runtime.kill(role)
        await killer.acknowledged_some()
        if not roles:
            killer.runtime.kill()
            await killer.acknowledged_some()

    found = await soak.run(0, 3, seed, embedders=1, killing=kill)
    assert not found.wrong, found.wrong[:5]
    assert (found.lost, found.doubled) == (0, 0)
    assert {str(CLOSED["code"]), str(UNAVAILABLE)}.isdisjoint(found.errors), found.errors
    assert found.longest_outage_s <= PATIENCE_S


READS: list[tuple[str, dict[str, Any]]] = [
    ("recall_memories", {"query": "crane", "strategy": "keyword"}),
    ("get_memory_context", {}),
    ("list_memories", {}),
    ("get_valid", {}),
    ("search_text", {"query": "crane"}),
    ("get_memory", {"memory_id": None}),
    ("connections", {"node_id": None}),
    ("memory_search", {"query": "crane"}),
]
"""The calls that read; None stands for the id of the memory that they are to find."""


async def test_a_read_waits_for_the_store_that_restarts_and_answers_right(home: Path) -> None:
    runtime = Runtime(home)
    patient = {
        "REMEMBRANCER_CALL_BUDGET_S": "60",
        "REMEMBRANCER_STALL_TIMEOUT_S": "3",
        "REMEMBRANCER_TOOLSETS": "memory,admin,graph,nodes,files",
    }
    async with Session(home, environ=patient) as client:
        await until(runtime.is_ready)
        memory_id = (await client.store("The crane is high."))["memory_id"]
        reads = [(tool, {name: value or memory_id for name, value in given.items()}) for tool, given in READS]
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            await until(runtime.is_ready)
            runtime.process("store").send_signal(fault)
            answers = await asyncio.gather(*(client.call(tool, **given) for tool, given in reads))
            for (tool, _), answer in zip(reads, answers, strict=True):
                assert "degraded" not in answer, (fault, tool, answer)
                assert tool == "memory_search" or "The crane is high." in str(answer), (fault, tool, answer)


THINGS = ("ledger", "parser", "router", "mailer", "cipher", "runner", "linter", "packer", "tracer", "folder")
INCIDENTS = ("stopped for want", "woke us after a restart", "was slow since a change")
"""No series, which would not be summed up."""


class Ending:
    """A session with sixty memories whose end is dealt with under fire."""

    def __init__(self, rig: StoreRig, worker: Worker) -> None:
        self.rig = rig
        self.worker = worker
        self.consolidator: Launched
        self.promoted: list[str] = []
        self.merged: list[str] = []
        self.contents: dict[str, str] = {}
        self.before = 0

    async def begin(self) -> None:
        await self.submit("start", StartSession(SESSION))
        for place, thing in enumerate(THINGS):
            text = f"{thing} {thing} rule {thing}{place} keeps {thing} safe with {thing} checks in {thing} code"
            self.promoted.append(await self.note(text, "convention", 0.9))
            self.merged.append(await self.note(f"{text} always", "convention", 0.8))
            await self.note(f"scribble {thing}", "scratchpad", 1.0)
            for seen in INCIDENTS:
                await self.note(f"{thing} incident: {thing} {seen} of {thing}", "observation", 0.3)
        await self.rig.gateway.until_embedded()
        await self.submit("end", EndSession(SESSION))
        self.before = self.steps_done()

    async def note(self, text: str, kind: Kind, importance: float) -> str:
        memory_id = await self.rig.gateway.store(
            text, scope="session", kind=kind, type=type_of_kind(kind), importance=importance, confidence=0.8
        )
        self.contents[memory_id] = text
        return memory_id

    async def submit(self, name: str, change: StartSession | EndSession) -> None:
        await self.rig.gateway.submit(change_operation(name, change, requested_at=time.time()))

    async def employ(self) -> None:
        self.consolidator = self.rig.launch("consolidator")
        await self.rig.launcher.expect(ConsolidatorHealth)

    def is_closed(self) -> bool:
        return self.rig.rows("SELECT status FROM sessions") == [("completed",)]

    def steps_done(self) -> int:
        """The transactions of the end that have been committed: promotions, summaries, the closing."""
        return len(self.rig.rows("SELECT 1 FROM applied_operations WHERE operation_id NOT LIKE '%-%'"))

    async def moment(self, shot: int, dice: random.Random) -> None:
        """Wait for a moment between two steps, or in the middle of one."""
        await until(lambda: self.steps_done() >= self.before + shot // 2 or self.is_closed())
        if shot % 2:
            await anyio.sleep(dice.uniform(0.0, 0.08))

    def check(self) -> None:
        """Everything was promoted, merged and summed up exactly once, and everything is still there."""
        columns = "id, scope, status, confidence, content, promotion_chain"
        memories = {str(row[0]): row for row in self.rig.rows(f"SELECT {columns} FROM memories")}
        assert all(memories[memory_id][4] == text for memory_id, text in self.contents.items())
        assert self.rig.rows("SELECT count(*) FROM memories WHERE forgotten_at IS NOT NULL") == [(0,)]
        log = Counter(row[0] for row in self.rig.rows("SELECT memory_id FROM promotion_log"))
        assert log == Counter([*self.promoted, *self.merged])
        for kept, gone in zip(self.promoted, self.merged, strict=True):
            assert memories[kept][1:4] == ("project", "active", 0.85)
            steps = [(step.get("action", "promoted"), step["memory_id"]) for step in json.loads(str(memories[kept][5]))]
            assert steps == [("promoted", kept), ("merged", gone)]
            assert memories[gone][1:3] == ("session", "promoted")
        sources = self.rig.rows(
            """SELECT s.id, s.status, count(*) FROM memory_links AS l JOIN memories AS s ON s.number = l.target
               JOIN memories AS o ON o.number = l.source
               WHERE l.relation = 'derived_from' AND o.kind = 'fact' GROUP BY s.id"""
        )
        assert {row[1:] for row in sources} == {("consolidated", 1)}
        assert {row[0] for row in sources} == {row[0] for row in memories.values() if row[2] == "consolidated"}
        assert self.rig.rows("SELECT memories_promoted FROM sessions") == [(len(self.promoted) + len(self.merged),)]


async def test_the_end_of_a_session_bears_the_death_of_consolidator_and_store(home: Path, dice: random.Random) -> None:
    async with store_rig(home) as rig:
        ending = Ending(rig, await rig.worker())
        await ending.begin()
        await ending.employ()
        # At the fifth attempt a job rests for a minute, in case that it is what kills consolidators. Each store counts.
        for shot, role in enumerate(("consolidator", "consolidator", "store", "store") * 2):
            await ending.moment(shot, dice)
            if role == "store":
                await rig.restart()
                ending.worker.announce()
            else:
                await ending.consolidator.kill()
                await ending.employ()
        await until(ending.is_closed)
        ending.check()


async def test_many_sessions_opened_and_killed_leave_one_runtime_and_no_orphan(home: Path) -> None:
    clients = [ColdSession(home) for _ in range(24)]
    await asyncio.gather(*(client.start() for client in clients))
    await asyncio.gather(*(client.initialize() for client in clients[::2]))
    for client in clients:
        client.process.kill()
        await client.process.wait()
    runtime = Runtime(home)
    await until(runtime.is_ready)

    async def one_runtime_is_left() -> bool:
        left = {each.pid for each in await asyncio.to_thread(processes_of, home, 0.0)}
        recorded = runtime.recorded()
        roles = sorted(role for role, _ in recorded)
        return left == {pid for _, pid in recorded} and roles == ["embedder", "gateway", "launcher", "store"]

    await until(one_runtime_is_left)
