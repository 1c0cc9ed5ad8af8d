"""The store as a process: what of a question is looked for, whose days it means, and how it is reranked."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from remembrancer.protocol.reads import Recalled
from tests.actors.store_process import StoreRig, store_rig, the
from tests.actors.test_store_reranking import join, until_ready

pytestmark = pytest.mark.anyio

DAY_S = 86_400.0
SUBJECTS = ("kettle", "ladder", "mirror", "needle", "orchard", "pebble", "quilt", "ribbon", "saddle", "thimble")
"""What all the memories are about, so that none is left out for being about nothing of the question."""


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home) as made:
        yield made


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
    for strategy in ("keyword", "hybrid"):
        answer = await gateway.recall(question, strategy=strategy, limit=20)
        assert answer.memories[0].id == wanted, strategy
        assert {memory.id for memory in answer.memories[1:]} <= set(others)


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
        assert answer.memories[0].scores.time == 1.0


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
            assert {memory.id: memory.scores.time for memory in answer.memories} == {begins: 1.0, ends: 1.0}
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_a_reranker_that_finds_all_alike_leaves_each_final_score_as_it_was(home: Path) -> None:
    """Of the new ones and of the old ones: it weighs what a score is made of as the ranking does."""
    finals: list[dict[str, float]] = []
    for reranker in ("off", "cross-encoder"):
        place = home / reranker
        place.mkdir(mode=0o700)
        async with store_rig(place, started=False) as rig:
            rig.settings = msgspec.structs.replace(rig.settings, reranker=reranker, reranker_budget_s=5.0)
            await rig.start()
            worker = await join(rig)
            worker.scoring = lambda passages: [0.5 for _ in passages]
            told = {"new": time.time(), "old": time.time() - 3650 * DAY_S}
            ids = {age: await rig.gateway.store(f"lantern {age} oil", requested_at=told[age]) for age in told}
            await rig.gateway.until_embedded()
            if reranker != "off":
                await until_ready(rig, worker)
            answer: Recalled = await rig.gateway.recall("lantern oil")
            scores = {age: the(answer.memories, ids[age]).scores for age in ids}
            assert scores["new"].recency > 0.99
            assert scores["old"].recency < 0.01
            assert {each.reranker for each in scores.values()} == ({0.5} if reranker != "off" else {None})
            finals.append({age: each.final for age, each in scores.items()})
    assert finals[1] == pytest.approx(finals[0], abs=1e-4)
