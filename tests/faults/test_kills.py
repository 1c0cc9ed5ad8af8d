"""Processes and sessions that are killed: nothing acknowledged is lost or there twice, nobody waits."""

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from bench.client import CLOSED
from remembrancer.actors.consolidator import store_requests
from remembrancer.actors.consolidator.actor import Outcome, carry_out
from remembrancer.actors.consolidator.store_requests import Clock
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Job
from remembrancer.protocol.gateway_link import UNAVAILABLE
from remembrancer.protocol.session_life import EndSession
from remembrancer.protocol.store_client import StoreClient
from tests.actors.store_process import store_rig
from tests.actors.test_consolidation import LOOKS_OFTEN, Died, Dying, Workplace, consolidating
from tests.cases import cases
from tests.conftest import processes_of
from tests.faults import soak
from tests.faults.soak import Killer
from tests.operations import SESSION
from tests.patience import PATIENCE_S, until
from tests.runtime import ColdSession, Runtime, Session


@pytest.mark.usefixtures("home")
async def test_kills_of_each_process_and_of_all_at_once_lose_nothing_and_sessions_go_on(seed: int) -> None:
    """No bridge of three sessions has to be started again, or gives a request up."""

    async def kill(killer: Killer) -> None:
        for role in (*("store", "gateway", "embedder") * 2, "launcher", None):
            await killer.acknowledged_some()
            killer.runtime.kill(role)
        await killer.acknowledged_some()

    found = await soak.run(0, 3, seed, embedders=1, killing=kill)
    assert not found.wrong, found.wrong[:5]
    assert (found.lost, found.doubled) == (0, 0)
    assert {str(CLOSED["code"]), str(UNAVAILABLE)}.isdisjoint(found.errors), found.errors
    assert found.longest_outage_s <= PATIENCE_S


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
        found = {"ID": memory_id}
        reads = [
            (tool, {name: found.get(value, value) for name, value in given.items()})
            for tool, given in cases("kills", "reads")
        ]
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            await until(runtime.is_ready)
            runtime.process("store").send_signal(fault)
            answers = await asyncio.gather(*(client.call(tool, **given) for tool, given in reads))
            for (tool, _), answer in zip(reads, answers, strict=True):
                assert "degraded" not in answer, (fault, tool, answer)
                assert tool == "memory_search" or "The crane is high." in str(answer), (fault, tool, answer)


async def test_the_end_of_a_session_bears_the_death_of_consolidator_and_store(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its steps is the last one of a consolidator, whose store dies as well."""
    monkeypatch.setattr(store_requests, "PART_EDITS", 1)
    deaths, works = 0, False
    async with store_rig(home, constants=LOOKS_OFTEN) as rig, Dying(home, 0) as link, Workplace(home, link) as place:
        worker = await rig.worker()

        async def work(job: Job, _: StoreClient, settings: Settings, clock: Clock) -> Outcome:
            nonlocal deaths, works
            works = True
            while True:
                is_over = rig.rows("SELECT status FROM sessions") == [("completed",)]
                async with Dying(home, 0 if is_over else 1) as dying:
                    try:
                        outcome = await carry_out(job, dying, settings, clock)
                        works = False
                        return outcome
                    except Died:
                        deaths += 1
                await rig.restart()
                worker.announce()

        await place.start()
        contents, kept, merged = {}, [], []
        for number, thing in enumerate(("ledger", "parser")):
            text = f"{thing} {thing} rule {thing}{number} keeps {thing} safe with {thing} checks in {thing} code"
            kept.append(await place.note(text, importance=0.9, confidence=0.8))
            merged.append(await place.note(f"{text} always", importance=0.8, confidence=0.8))
            for seen in ("stopped for want", "woke us after a restart", "was slow since a change"):  # it is no series
                text = f"{thing} incident: {thing} {seen} of {thing}"
                contents[await place.note(text, kind="observation", importance=0.3)] = text
        await place.until_embedded()
        async with consolidating(rig, work):
            await place.now(EndSession(SESSION))
            await until(lambda: not works and rig.rows("SELECT status FROM sessions") == [("completed",)])
        assert deaths >= 6
        columns = "id, scope, status, confidence, content, promotion_chain"
        memories = {str(row[0]): row for row in rig.rows(f"SELECT {columns} FROM memories WHERE forgotten_at IS NULL")}
        assert {each: memories[each][4] for each in contents} == contents
        assert Counter(row[0] for row in rig.rows("SELECT memory_id FROM promotion_log")) == Counter(kept + merged)
        for one, other in zip(kept, merged, strict=True):
            assert memories[one][1:4] == ("project", "active", 0.85)
            steps = [(step.get("action", "promoted"), step["memory_id"]) for step in json.loads(str(memories[one][5]))]
            assert steps == [("promoted", one), ("merged", other)]
            assert memories[other][1:3] == ("session", "promoted")
        sources = """SELECT s.id, s.status FROM memory_links AS l JOIN memories AS s ON s.number = l.target
                     JOIN memories AS o ON o.number = l.source WHERE l.relation = 'derived_from' AND o.kind = 'fact'"""
        assert sorted(rig.rows(sources)) == sorted((each, "consolidated") for each in contents), "each once"
        assert rig.rows("SELECT memories_promoted FROM sessions") == [(len(kept + merged),)]


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
