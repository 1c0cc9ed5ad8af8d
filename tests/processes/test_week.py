"""The scripted week, played against a real runtime by real sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.week.playing import Week
from examples.week.predictions import outcomes
from examples.week.story import WEEK

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(240)
async def test_a_week_of_ten_sessions_ends_as_the_model_predicts(home: Path) -> None:
    told: list[str] = []
    played = await Week(home, told.append).play()
    assert played.journal.trouble == []
    assert {each.rule: each.happened for each in outcomes(played)} == {
        each.rule: each.predicted for each in outcomes(played)
    }
    assert sum(line.startswith("[bold]day") for line in told) == len({session.day for session in WEEK})
