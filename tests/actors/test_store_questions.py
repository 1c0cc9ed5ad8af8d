"""The store as a process: what of a question is looked for, and whose days it means."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.store.readers import TURNS
from remembrancer.config.settings import Settings
from tests.actors.store_process import StoreRig, store_rig
from tests.patience import PATIENCE_S, until

DAY_S = 86_400.0
SUBJECTS = ("kettle", "ladder", "mirror", "needle", "orchard", "pebble", "quilt", "ribbon", "saddle", "thimble")
"""What all the memories are about, so that none is left out for being about nothing of the question."""


@pytest.mark.parametrize("name", ["ECONNRESET-104", "connectionPoolSize", "src/net/retry_policy.py", "v2.4.1"])
async def test_a_name_at_the_end_of_a_long_question_finds_its_memory_first(rig: StoreRig, name: str) -> None:
    await rig.worker()
    gateway = rig.gateway
    matter = " ".join(SUBJECTS)
    others = [await gateway.store(f"{matter} shelf{number}") for number in range(8)]
    wanted = await gateway.store(f"{matter} and somewhere below them at night {name}")
    await gateway.until_embedded()
    words = [f"{subject}{ending}" for ending in ("like", "wise", "ward", "ling", "hood") for subject in SUBJECTS]
    question = " ".join([*words, *SUBJECTS, name])
    assert question.split().index(name) == 60
    answer = await gateway.recall(question, strategy="keyword", limit=20)
    assert answer.memories[0].id == wanted
    assert {memory.id for memory in answer.memories[1:]} <= set(others)


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


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
async def test_without_a_reference_time_yesterday_is_that_of_the_machines_zone(
    home: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        today = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        async with store_rig(home) as rig:
            begins = await rig.gateway.store("lantern oil early", occurred_at=today.timestamp() - DAY_S + 1800)
            ends = await rig.gateway.store("lantern oil late", occurred_at=today.timestamp() - 1800)
            answer = await rig.gateway.recall("lantern oil yesterday", strategy="keyword")
            assert {memory.id for memory in answer.memories} == {begins, ends}
            assert not any("time" in memory.scores.shares for memory in answer.memories), "both are of yesterday"
    finally:
        monkeypatch.undo()
        time.tzset()
