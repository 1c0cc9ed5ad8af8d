"""Short soaks: of all tools from six sessions while everything is killed, and of a shared lane while everything breaks.

`python -m tests.faults.soak`, with `--journal` for the lane, are long ones.
"""

import pytest

from tests.faults import shared_soak, soak
from tests.faults.shared_soak import FAULTS, Weather

KILLS = 12
OPERATIONS = 44
"""Of each host of the lane."""


@pytest.mark.hurried
@pytest.mark.usefixtures("home")
async def test_what_six_sessions_were_acknowledged_bears_a_dozen_kills(seed: int) -> None:
    found = await soak.run(KILLS, 6, seed, 0.5, embedders=1)
    assert not found.wrong, found.wrong[:5]
    assert (found.lost, found.doubled) == (0, 0)
    assert sum(found.kills.values()) == KILLS
    assert found.acknowledged > KILLS


@pytest.mark.usefixtures("home")
async def test_four_hosts_have_the_same_lane_whatever_broke_while_they_changed_it(seed: int) -> None:
    each_fault_once = Weather(0.04, 0.2, 0.8, many=len(FAULTS))
    found = await shared_soak.run(seed, OPERATIONS, 2, each_fault_once, look_s=0.12)
    assert not found.wrong, found.wrong[:5]
    assert found.operations == OPERATIONS * found.hosts
    assert found.acknowledged > OPERATIONS
    assert set(found.faults) == set(FAULTS)
