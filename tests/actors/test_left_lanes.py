"""A host that left a lane goes on by itself, and comes back: what it has changed meanwhile is not lost."""

from __future__ import annotations

import asyncio

from remembrancer.protocol.errors import ConfigurationError, JournalAway
from remembrancer.protocol.sharing import LaneLeft, LeaveLane
from remembrancer.protocol.writes import Applied, UpdateMemory
from tests.actors.test_shared_lanes import Host
from tests.actors.test_shared_lanes import hosts as hosts
from tests.contracts.records_factories import ids_of
from tests.operations import OTHER_PROJECT
from tests.patience import until


async def test_who_left_and_joins_again_has_what_both_have_done_meanwhile(hosts: list[Host]) -> None:
    here, there = hosts
    await here.share()
    await there.share()
    lantern = await here.store("lantern", "the lantern burns oil")
    candle = await here.store("candle", "the candle burns wax")
    await until(lambda: there.finds("project", "candle"))
    await there.ask(LeaveLane(OTHER_PROJECT))
    await there.done("own", UpdateMemory(lantern, content="the lantern burns gas"))
    await there.store("torch", "the torch burns pitch")
    await here.done("theirs", UpdateMemory(candle, content="the candle burns tallow"))
    for _ in range(2):
        await there.share()
        await until(lambda: here.finds("project", "torch"))
        await until(lambda: here.finds("project", "gas"))
        for host in hosts:
            lane = host.records("project")
            contents = {found.content for each in ids_of(lane) if (found := lane.portable(each, None))}
            assert contents == {
                "the lantern burns oil",
                "the lantern burns gas",
                "the candle burns tallow",
                "the torch burns pitch",
            }
            assert lane.counts(None).total == 4, "and nothing is there twice"
            kept = lane.portable(lantern, None)
            assert kept is not None
            assert kept.content == "the lantern burns oil", "what the others have is as they left it"
        await there.ask(LeaveLane(OTHER_PROJECT))


async def test_what_the_lane_has_applied_is_answered_after_leaving_and_not_applied_again(hosts: list[Host]) -> None:
    _, there = hosts
    await there.share()
    lantern = await there.store("lantern", "the lantern burns oil")
    change = UpdateMemory(lantern, content="the lantern burns gas")
    first = await there.change("gas", change)
    await there.ask(LeaveLane(OTHER_PROJECT))
    again = await there.change("gas", change)
    assert isinstance(first, Applied)
    assert isinstance(again, Applied)
    assert (again.result, again.replayed) == (first.result, True)
    kept = there.memory("project", lantern)
    assert [entry.version for entry in kept.history] == [1, 2]


async def test_what_is_changed_while_a_lane_is_left_is_not_lost(hosts: list[Host]) -> None:
    _, there = hosts
    await there.share()
    stored = [await there.store(f"lantern {number}", f"lantern {number} burns oil") for number in range(120)]
    leaving = asyncio.create_task(there.ask(LeaveLane(OTHER_PROJECT)))
    made: list[str] = []
    while not leaving.done():
        name = f"change {len(made)}"
        answer = await there.change(name, UpdateMemory(stored[len(made) % len(stored)], content=f"{name} was made"))
        if isinstance(answer, Applied):
            made.append(name)
        else:
            assert isinstance(answer, JournalAway), answer
            assert answer.retry_possible
            await asyncio.sleep(0)
    assert isinstance(await leaving, LaneLeft)
    assert made, "or it was left before anything was asked"
    own = there.records("project")
    histories = [memory.history for each in stored if (memory := own.portable(each, None)) is not None]
    assert {entry.record.content for history in histories for entry in history} >= {f"{each} was made" for each in made}


async def test_a_host_that_cannot_reach_the_journal_any_more_leaves_and_keeps_what_it_has(hosts: list[Host]) -> None:
    _, there = hosts
    await there.share()
    await there.store("lantern", "the lantern burns oil")
    await there.aclose()
    there.refusal = ConfigurationError("this release does not share by that")
    there.start()
    await there.files.project(OTHER_PROJECT)
    assert there.finds("project", "oil")
    left = await there.ask(LeaveLane(OTHER_PROJECT))
    assert isinstance(left, LaneLeft)
    assert left.memories == 1
    await there.files.project(OTHER_PROJECT)
    assert there.finds("project", "oil")
