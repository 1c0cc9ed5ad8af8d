"""The store as a process: what of a question is looked for, and whose days it means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import anyio

from remembrancer.actors.store.readers import TURNS
from remembrancer.config.settings import Settings
from tests.actors.store_process import StoreRig, store_rig
from tests.patience import PATIENCE_S, until

"""What all the memories are about, so that none is left out for being about nothing of the question."""


async def test_of_many_recalls_at_once_a_few_are_worked_on_and_the_others_wait_for_their_turn(home: Path) -> None:
    async with store_rig(home, settings=Settings(read_budget_s=2 * PATIENCE_S)) as rig:
        worker = await rig.worker()
        wanted = await rig.gateway.store("the lantern is in the harbour")
        await rig.gateway.until_embedded()
        worker.holds_questions = True
        found: list[str] = []

        async def recall(number: int) -> None:
            (first, *_) = await rig.gateway.found(f"which lantern is number {number}")
            found.append(first)

        async with anyio.create_task_group() as tasks:
            for number in range(3 * TURNS):
                tasks.start_soon(recall, number)
            await until(lambda: len(worker.questions) >= TURNS)
            for _ in range(10):  # by now all have been taken
                await rig.gateway.describe()
            assert len(worker.questions) == TURNS
            worker.answer_questions()
        assert found == [wanted] * 3 * TURNS


async def test_yesterday_is_that_of_the_zone_of_the_reference_time(rig: StoreRig) -> None:
    gateway = rig.gateway
    reference = datetime(2023, 5, 20, 1, 0, tzinfo=timezone(timedelta(hours=9)))  # the 19th, 16:00 in UTC
    here = await gateway.store("lantern oil here", occurred_at=datetime(2023, 5, 19, 12, tzinfo=UTC).timestamp())
    there = await gateway.store("lantern oil there", occurred_at=datetime(2023, 5, 18, 12, tzinfo=UTC).timestamp())
    for offset_s, first in ((9 * 3600.0, here), (None, there), (0.0, there)):
        answer = await gateway.recall(
            "lantern oil yesterday",
            strategy="keyword",
            reference_time=reference.timestamp(),
            utc_offset_s=offset_s,
        )
        assert answer.memories[0].id == first, offset_s
        assert answer.memories[0].scores.shares["time"] > 0.0
