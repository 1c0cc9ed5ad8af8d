"""A host that left a lane goes on by itself, and comes back: what it has changed meanwhile is not lost."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from remembrancer.protocol.errors import ConfigurationError, JournalAway
from remembrancer.protocol.sharing import LaneLeft, LeaveLane, ShareProject
from remembrancer.protocol.writes import Applied, PromoteMemory, TagMemory, UpdateMemory
from tests.actors.test_shared_lanes import LANE, Host
from tests.actors.test_shared_lanes import hosts as hosts
from tests.contracts.records_factories import ids_of
from tests.operations import OTHER_PROJECT, memory_id_of, store_operation
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


@pytest.mark.parametrize("scope", ["project", "user"])
async def test_what_was_stored_while_a_lane_was_left_is_not_stored_again_when_it_is_joined(
    hosts: list[Host], scope: Literal["project", "user"]
) -> None:
    _, there = hosts
    there.is_users = scope == "user"
    await there.files.project(OTHER_PROJECT)
    storing = store_operation("lantern", "it burns oil", project=OTHER_PROJECT, scope=scope, tags=("old",))
    lantern, first = memory_id_of(storing), await there.submit(storing)
    await there.done("tag", TagMemory(lantern, ("new",), ("old",)))
    await there.ask(ShareProject(None if scope == "user" else OTHER_PROJECT, LANE))
    again = await there.submit(storing)
    assert isinstance(first, Applied)
    assert isinstance(again, Applied)
    assert (again.result, again.replayed) == (first.result, True)
    lane = there.records(scope)
    kept = lane.portable(lantern, None)
    assert lane.is_shared
    assert kept is not None
    assert ([entry.change for entry in kept.history], kept.tags) == (["stored", "tagged"], ("new",))


async def test_a_history_goes_along_and_does_not_meet_another_when_the_lane_is_left_again(hosts: list[Host]) -> None:
    here, there = hosts
    lantern = await there.store("lantern", "the lantern burns oil")
    for host in hosts:
        await host.share()
    await there.ask(LeaveLane(OTHER_PROJECT))
    await there.done("gas", UpdateMemory(lantern, content="the lantern burns gas"))
    await until(lambda: here.finds("project", "lantern"))
    await here.done("wax", UpdateMemory(lantern, content="the lantern burns wax"))
    await there.share()
    await until(lambda: there.finds("project", "wax"))
    await there.ask(LeaveLane(OTHER_PROJECT))
    own = there.records("project")
    histories = {each: there.memory("project", each).history for each in ids_of(own)}
    assert [(entry.version, entry.record.content) for entry in histories.pop(lantern)] == [
        (1, "the lantern burns oil"),
        (2, "the lantern burns wax"),
    ]
    ((_, history),) = histories.items()
    assert [entry.record.content for entry in history] == ["the lantern burns oil", "the lantern burns gas"]


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


async def test_what_was_promoted_while_the_lane_was_left_comes_back_with_the_history_of_the_lane_alone(
    hosts: list[Host],
) -> None:
    here, there = hosts
    await there.share()
    lantern = await there.store("lantern", "the lantern burns oil")
    await there.ask(LeaveLane(OTHER_PROJECT))
    await there.done("gas", UpdateMemory(lantern, content="the lantern burns gas"))
    await there.done("promote", PromoteMemory(lantern, "user"))
    await here.share()
    await until(lambda: here.finds("project", "lantern"))
    await here.done("wax", UpdateMemory(lantern, content="the lantern burns wax"))
    await there.share()
    await until(lambda: there.finds("project", "wax"))
    await there.ask(LeaveLane(OTHER_PROJECT))
    histories = {each: there.memory("project", each).history for each in ids_of(there.records("project"))}
    assert [(entry.version, entry.record.content) for entry in histories[lantern]] == [
        (1, "the lantern burns oil"),
        (2, "the lantern burns wax"),
    ]


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
