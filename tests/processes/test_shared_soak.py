"""A short soak of a shared lane, while everything breaks. `python -m tests.faults.soak --journal` is the long one."""

from __future__ import annotations

import os
import random

import pytest

from tests.faults.shared_soak import FAULTS, Weather, run

OPERATIONS = 44
"""Of each host."""
WEATHER = Weather(0.04, 0.2, 0.8, many=len(FAULTS))
"""Each fault once."""


@pytest.mark.anyio
@pytest.mark.usefixtures("home")
async def test_four_hosts_have_the_same_lane_whatever_broke_while_they_changed_it() -> None:
    seed = int(os.environ.get("FAULT_SEED", random.SystemRandom().randrange(10**6)))
    print(f"FAULT_SEED={seed}")
    soak = await run(seed, OPERATIONS, 2, WEATHER, every=60)
    assert not soak.wrong, soak.wrong[:5]
    assert soak.operations == OPERATIONS * soak.hosts
    assert soak.acknowledged > OPERATIONS
    assert len(soak.faults) >= len(FAULTS) // 2
