"""`kill -9` while the end of a session is dealt with: it is finished later, nothing is half done, nothing twice."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from remembrancer.protocol.control import Ready
from remembrancer.protocol.kinds import Kind, type_of_kind
from remembrancer.protocol.session_life import EndSession, StartSession
from tests.actors.store_process import Launched, StoreRig, Worker, store_rig
from tests.operations import SESSION, change_operation
from tests.patience import until

THINGS = ("ledger", "parser", "router", "mailer", "cipher", "runner", "linter", "packer", "tracer", "folder")
KILLS = 5


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
            for seen in range(3):
                await self.note(f"{thing} incident: {thing} stopped {thing} night{seen} alarm", "observation", 0.3)
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
        await self.rig.launcher.expect(Ready)

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

    async def finish(self) -> None:
        await until(self.is_closed)

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


async def under_fire(home: Path, shoot: Callable[[Ending, int], Awaitable[None]], kills: int = KILLS) -> None:
    async with store_rig(home) as rig:
        ending = Ending(rig, await rig.worker())
        await ending.begin()
        await ending.employ()
        for shot in range(kills):
            await shoot(ending, shot)
        await ending.finish()
        ending.check()


async def test_the_end_of_a_session_bears_the_death_of_the_consolidator(home: Path, dice: random.Random) -> None:
    async def shoot(ending: Ending, shot: int) -> None:
        await ending.moment(shot, dice)
        await ending.consolidator.kill()
        await ending.employ()

    # At the fifth attempt a job rests for a minute, in case that it is what kills consolidators.
    await under_fire(home, shoot, kills=3)


async def test_the_end_of_a_session_bears_the_death_of_the_store(home: Path, dice: random.Random) -> None:
    async def shoot(ending: Ending, shot: int) -> None:
        await ending.moment(shot, dice)
        await ending.rig.restart()
        ending.worker.announce()

    await under_fire(home, shoot)
