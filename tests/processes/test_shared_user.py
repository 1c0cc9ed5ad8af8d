"""Two machines share their user's own scope by a real server, and both are killed while they move what they have."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

from remembrancer.journal.sharing import Sharing
from remembrancer.protocol.errors import FileLocked, JournalAway
from remembrancer.protocol.projects import MemoriesMoved
from remembrancer.protocol.reads import GetMemory
from remembrancer.protocol.sharing import ShareProject
from remembrancer.protocol.writes import ProjectRef, PromoteMemory
from tests.actors.store_process import StoreRig, store_rig
from tests.lane_dump import dump_of
from tests.nats_servers import Started
from tests.operations import OTHER_PROJECT, PROJECT, SESSION, change_operation, memory_id_of, store_operation
from tests.patience import PATIENT_JOURNAL, until
from tests.processes.test_shared_projects import done
from tests.processes.test_shared_projects import other as other
from tests.processes.test_shared_projects import server as server
from tests.spaces import connect_space

EACH = 120
"""Memories of a machine: the store moves 50 at once."""
TWINS = 20
"""Of those, the other machine has the text of so many."""
TAKEN_BACK = 16
AGAIN_S = 0.1
"""Between two tries of what the store cannot do yet."""
READ = "SELECT content FROM memories WHERE scope = ? AND forgotten_at IS NULL"


def said(rig: StoreRig, *spaces: str, scope: str = "user") -> list[str]:
    """All that spaces have of the user (or of another scope), in order."""
    found = []
    for space in spaces:
        with closing(connect_space(rig.paths, space)) as connection:
            found += [content for (content,) in connection.execute(READ, (scope,))]
    return sorted(found)


async def killed_while_it_shares(rig: StoreRig, lane: str, its: set[str]) -> None:
    """Kill a store when some of what is its own is in the lane."""
    asking = asyncio.create_task(rig.gateway.ask(ShareProject(None, lane)))
    await until(lambda: its.intersection(said(rig, lane)))
    await rig.store.kill()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await rig.start()


async def test_a_user_has_each_memory_once_on_both_machines_though_both_were_killed(
    server: Started, home: Path, other: Path
) -> None:
    desk = Sharing(home)
    await desk.start()
    lane = (await desk.new_lane("user", "desk", is_users=True)).lane
    texts = {home: [f"I like lantern {n}" for n in range(EACH)]}
    texts[other] = [f"I like lantern {n}" for n in range(EACH - TWINS, 2 * EACH - TWINS)]
    async with store_rig(home, constants=PATIENT_JOURNAL) as here, store_rig(other, constants=PATIENT_JOURNAL) as there:
        for rig, project in ((here, PROJECT), (there, OTHER_PROJECT)):
            await rig.gateway.submit_batch(
                *(store_operation(text, text, scope="user", project=project) for text in texts[rig.home])
            )
        await killed_while_it_shares(here, lane, set(texts[home]))
        assert set(said(here, "user", lane)) == set(texts[home])
        assert await here.gateway.found("lantern 7", strategy="keyword"), "what is left is found as well"
        shared = await done("share", "user", "--yes", "--invite", "laptop", home=home)
        assert (shared["lane"], shared["left"]) == (lane, 0)
        assert said(here, "user") == []

        await Sharing(other).join_first(shared["invitation"])
        await killed_while_it_shares(there, lane, set(texts[other]) - set(texts[home]))
        joined = await done("share", "join", "--yes", shared["invitation"], home=other)
        assert (joined["lane"], joined["member"], joined["left"]) == (lane, "laptop", 0)
        everything = sorted({*texts[home], *texts[other]})
        await until(lambda: said(here, lane) == everything)
        assert said(there, lane) == everything
        assert said(there, "user") == []
        await here.gateway.store("I like candles", scope="user")
        await until(lambda: "I like candles" in said(there, lane))
        await until(lambda: dump_of(here.paths.database) == dump_of(there.paths.database))

        assert await there.gateway.found("candles", strategy="keyword", project=OTHER_PROJECT)
        without_user = ProjectRef(OTHER_PROJECT.id, OTHER_PROJECT.path, sees_user=False)
        assert not await there.gateway.found("candles", strategy="keyword", project=without_user)
        status = await done("share", "status", home=home)
        assert (status["lanes"][0]["user"], status["lanes"][0]["members"]) == (True, ["desk", "laptop"])
        left = await done("share", "leave", "--user", "--yes", home=other)
        assert left == {"left": lane, "memories": len(everything) + 1}
        assert said(there, "user") == sorted([*everything, "I like candles"])


async def test_what_a_project_takes_back_is_in_one_place_though_its_machine_was_killed(
    server: Started, home: Path, other: Path
) -> None:
    desk = Sharing(home)
    await desk.start()
    lane = (await desk.new_lane("user", "desk", is_users=True)).lane
    texts = [f"we light lantern {n}" for n in range(TAKEN_BACK)]
    stored = [store_operation(text, text) for text in texts]
    given = [change_operation(f"give {n}", PromoteMemory(memory_id_of(each), "user")) for n, each in enumerate(stored)]
    back = [
        change_operation(f"take {n}", PromoteMemory(memory_id_of(each), "project")) for n, each in enumerate(stored)
    ]
    constants = {**PATIENT_JOURNAL, "remembrancer.journal.jetstream.HINT_S": 0.5}  # what is scrubbed late is soon
    async with store_rig(home, constants=constants) as here, store_rig(other, constants=constants) as there:
        await asyncio.to_thread(Sharing(other).join, await desk.invite(lane, "laptop"))
        for rig in (here, there):
            assert await rig.gateway.ask(ShareProject(None, lane)) == MemoriesMoved(0)
        lanes = [rig.paths.database for rig in (here, there)]
        await here.gateway.submit_batch(*stored, *given)
        await until(lambda: said(there, lane) == sorted(texts))
        assert said(here, PROJECT.id, scope="project") == []

        async def take_back() -> None:
            """As the gateway does: what has to wait is sent again."""
            for operation in back:
                while True:
                    try:
                        await here.gateway.submit(operation)
                    except (JournalAway, FileLocked):
                        await asyncio.sleep(AGAIN_S)
                    else:
                        break

        for taken in (1, TAKEN_BACK // 2):
            asking = asyncio.create_task(take_back())
            await until(lambda: len(said(here, PROJECT.id, scope="project")) >= taken)  # noqa: B023 - awaited
            await here.store.kill()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert set(said(here, PROJECT.id, scope="project")).union(said(here, lane)) == set(texts), "none is lost"
            await here.start()
        await take_back()
        assert said(here, PROJECT.id, scope="project") == sorted(texts)
        await until(lambda: said(here, lane) == said(there, lane) == [])
        await until(lambda: dump_of(lanes[0]) == dump_of(lanes[1]))
        for operation in stored:
            shown = await here.gateway.ask(GetMemory(PROJECT, SESSION, memory_id_of(operation)))
            assert [entry.change for entry in shown.memory.history] == ["stored", "promoted", "taken back"]
