"""The vocabulary is loaded once a session has begun and nobody is waiting for anything."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from remembrancer.actors.gateway.memory_toolset import early_vocabulary, tokens
from remembrancer.actors.gateway.memory_toolset.early_vocabulary import EarlyVocabulary
from tests.actors.gateway_rig import PATIENT, PlayedStore, Rig
from tests.patience import until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def unloaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(early_vocabulary, "QUIET_S", 0.05)
    tokens._load.cache_clear()
    yield
    tokens._load.cache_clear()


def is_loaded() -> bool:
    return tokens._load.cache_info().currsize == 1


async def test_it_waits_for_a_quiet_moment_and_loads_once() -> None:
    asked: list[bool] = []
    spells = iter((0.0, 0.02, 0.0, math.inf))

    def quiet_s() -> float:
        asked.append(is_loaded())
        return next(spells)

    vocabulary = EarlyVocabulary(quiet_s)
    await vocabulary.load()
    assert asked == [False] * 4
    assert is_loaded()
    await vocabulary.load()
    assert len(asked) == 4


async def test_a_vocabulary_that_is_missing_is_logged_and_hurts_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    await EarlyVocabulary(lambda: math.inf).load()
    assert "tokens cannot be counted" in caplog.text


async def test_it_is_loaded_after_the_first_session_came_and_not_before(home: Path) -> None:
    rig = Rig(home, PATIENT)
    async with PlayedStore(rig.paths).open(), rig.running():
        assert not is_loaded()
        async with rig.session() as client:
            await client.initialize()
            await until(is_loaded)
