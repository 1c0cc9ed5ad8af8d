"""Two whole runtimes that share a project while all their processes are killed: `python -m bench.soak --journal
--runtimes [--kills N] [--seed N]`.

Sessions of both call the tools for memories at random, each through a bridge of its own, while bridges, gateways,
stores, launchers and the NATS server are killed with SIGKILL. At the end nothing is queued, both have the same lane to
the last byte, and each memory is as its last acknowledged change left it, with each of its changes in the history once.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench.client import StdioClient
from bench.harness import Runtime, wait_until
from bench.soak import SETTLE_S, Killer, Session, Soak, compare
from bench.varied_text import varied
from remembrancer.journal.sharing import Membership, Sharing
from remembrancer.protocol.errors import JournalAway
from remembrancer.protocol.paths import RuntimePaths
from tests.conftest import DISK
from tests.lane_dump import dump_of
from tests.nats_servers import NatsServers
from tests.patience import PATIENCE_S

MACHINES: Final = 2
SERVER_EVERY: Final = 8
"""For so many kills of processes of ours the server is killed once."""
DEEDS: Final = {
    **{Session.store: 28, Session.update: 14, Session.tag: 10, Session.forget: 7, Session.restore: 5},
    **{Session.promote: 8, Session.get: 7, Session.recall: 12, Session.look_around: 4},
}
"""The actions of a session, and how many of a hundred each is, or nearly so."""


class SharingSession(Session):
    """A session in a shared project."""

    async def work(self, is_over: Callable[[], bool]) -> None:
        self._good_at = time.monotonic()
        while not is_over():
            (deed,) = self._dice.choices(list(DEEDS), list(DEEDS.values()))
            await deed(self)
            await asyncio.sleep(self._dice.uniform(0, 0.3))


class Machine:
    """A runtime, a project in a directory, and its sessions."""

    def __init__(self, number: int, soak: Soak, sessions: int, seed: int) -> None:
        self.runtime = Runtime(embedders="0", consolidator="0", toolsets="memory")
        self.workspace = Path(tempfile.mkdtemp(prefix="rmb-soak-", dir=DISK))
        texts = iter(varied(5000))
        self.crew: list[Session] = [
            SharingSession(each, self.runtime, soak, texts, random.Random(f"{seed} {number} {each}"), self.workspace)
            for each in range(100 * number + 1, 100 * number + 1 + sessions)
        ]

    async def command(self, *arguments: str) -> dict[str, Any]:
        """The output of `remembrancer` in the project's directory."""
        _, said = await self.runtime.command(*arguments, "--json", directory=self.workspace)
        told: dict[str, Any] = json.loads(said)
        return told

    async def is_drained(self) -> bool:
        """Everything is up, and nothing is queued."""
        status = await self.runtime.status()
        return {each["state"] for each in status["processes"]} == {"ready"} and not status["write_queue"]["depth"]

    async def position(self) -> int:
        """The position up to which it has applied what is shared; -1 if that is not all it knows of."""
        (lane,) = (await self.command("share", "status"))["lanes"]
        return -1 if "problem" in lane or "stopped" in lane or lane["position"] < lane["head"] else lane["position"]


async def _begun(servers: NatsServers, machines: list[Machine]) -> Membership:
    """The first of the memberships that the machines have."""
    sharing = Sharing(machines[0].runtime.home)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await sharing.start(servers.urls)
                first = await sharing.new_lane("soak", "m0")
                break
            except JournalAway:
                await asyncio.sleep(0.05)
    for number, machine in enumerate(machines[1:], start=1):
        Sharing(machine.runtime.home).join(await sharing.invite(first.lane, f"m{number}"))
    return first


async def run(kills: int, sessions: int, seed: int, pace_s: float) -> Soak:
    """One soak in homes of its own; half of the sessions at each machine."""
    soak, began = Soak(seed, sessions), time.monotonic()
    machines = [Machine(number, soak, max(1, sessions // MACHINES), seed) for number in range(MACHINES)]
    crew = [session for machine in machines for session in machine.crew]
    ended = False
    try:
        with NatsServers(root=DISK) as servers:
            lane = (await _begun(servers, machines)).lane
            for machine in machines:
                await machine.crew[0].connect()  # which starts the runtime
                await wait_until(machine.is_drained, SETTLE_S, interval_s=0.2)
                await machine.command("share", "project", "--yes")
            await asyncio.gather(*(session.connect() for machine in machines for session in machine.crew[1:]))
            working = [asyncio.create_task(session.work(lambda: ended)) for session in crew]

            async def kill_server() -> None:
                dice = random.Random(f"{seed} server")
                while True:
                    await asyncio.sleep(dice.uniform(0, 2 * pace_s * SERVER_EVERY))
                    await asyncio.to_thread(servers.servers[0].end)
                    soak.kills["server"] = soak.kills.get("server", 0) + 1
                    await asyncio.sleep(dice.uniform(0, 5.0))
                    await asyncio.to_thread(servers.servers[0].start)

            server = asyncio.create_task(kill_server())
            killers = [
                Killer(each.runtime, each.crew, soak, random.Random(f"{seed} {number}")).kill(kills, 2 * pace_s)
                for number, each in enumerate(machines)
            ]
            killing = asyncio.gather(*killers)
            under_way: set[asyncio.Future[Any]] = {killing, server, *working}
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            ended = True
            for task in (killing, server):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await killing
            with suppress(asyncio.CancelledError):
                await server
            if servers.servers[0].process is None:
                await asyncio.to_thread(servers.servers[0].start)
            await asyncio.gather(*working)
            for session in crew:
                await session.client.aclose()
                if isinstance(session.client, StdioClient) and session.client.strays:
                    soak.fault(f"lines that are no JSON-RPC: {session.client.strays[:3]}")

            async def is_alike() -> bool:
                drained = [await machine.is_drained() for machine in machines]
                positions = {await machine.position() for machine in machines}
                return all(drained) and len(positions) == 1 and -1 not in positions

            try:
                await wait_until(is_alike, SETTLE_S, interval_s=0.5)
            except TimeoutError:
                soak.fault(f"not the same after {SETTLE_S:g} s: {[await each.runtime.status() for each in machines]}")
            for machine in machines:
                if not await machine.runtime.stop():
                    soak.fault("'remembrancer down' does not stop it")
    except BaseException:
        for machine in machines:
            await machine.runtime.stop()
        raise
    ours, theirs = (dump_of(RuntimePaths(machine.runtime.home).database) for machine in machines)
    if differing := [pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]] or len(ours) != len(
        theirs
    ):
        soak.fault(f"the machines differ: {differing}")
    soak.memories = sum(len(session.expected) for session in crew)
    for machine in machines:
        compare(machine.crew, machine.runtime.home, soak)
        if soak.wrong:
            soak.kept = str(machine.runtime.home)
        else:
            shutil.rmtree(machine.runtime.home)
        shutil.rmtree(machine.workspace)
    soak.took_s = time.monotonic() - began
    return soak
