"""The store as a process: of many questions at once a few are worked on."""

from __future__ import annotations

from pathlib import Path

import anyio

from remembrancer.actors.store.readers import TURNS
from remembrancer.config.settings import Settings
from tests.actors.store_process import store_rig
from tests.patience import PATIENCE_S, until


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
