"""Short soaks: of all tools from six sessions while everything is killed, and of a shared lane while everything breaks.

`python -m tests.faults.soak`, with `--journal` for the lane, are long ones.
"""

from pathlib import Path

import pytest

from remembrancer.protocol.runs import AddLink, AddMemory, NewMemory, UndoRun
from tests.contracts.records_rig import RecordsRig
from tests.contracts.runs_rig import carry_out
from tests.faults import shared_soak, soak
from tests.faults.shared_soak import FAULTS, Weather
from tests.operations import SESSION, change_of, memory_id_of, store_operation

KILLS = 20
PACE_S = 0.5
OPERATIONS = 44
"""Of each host of the lane."""
WEATHER = Weather(0.04, 0.2, 0.8, many=len(FAULTS))
"""Each fault once."""


def test_a_copy_that_consolidation_made_counts_as_none_even_when_its_run_was_undone(tmp_path: Path) -> None:
    source = store_operation("one", "Run the tests, then tag the commit")
    content, found = change_of(source).content, soak.Soak(seed=0)
    with RecordsRig(tmp_path / "memory.db", "user") as rig:
        rig.records.apply([source])
        copy = AddMemory(NewMemory("memory:copy", content, "procedure", "project", SESSION))
        carry_out(rig.records, copy, AddLink("memory:copy", memory_id_of(source), "derived_from"))
        assert rig.do(UndoRun("run", "project")).memories
        rig.records.apply([store_operation("two", "Another text")])
    rows, _ = soak.read_files(tmp_path, found)
    assert [row.state.content for each in rows.values() for row in each if not row.derived] == [content, "Another text"]
    assert found.wrong == []


@pytest.mark.hurried
@pytest.mark.usefixtures("home")
async def test_what_six_sessions_were_acknowledged_bears_twenty_kills(seed: int) -> None:
    found = await soak.run(KILLS, 6, seed, PACE_S, embedders=1)
    assert not found.wrong, found.wrong[:5]
    assert (found.lost, found.doubled) == (0, 0)
    assert sum(found.kills.values()) == KILLS
    assert found.acknowledged > KILLS


@pytest.mark.usefixtures("home")
async def test_four_hosts_have_the_same_lane_whatever_broke_while_they_changed_it(seed: int) -> None:
    found = await shared_soak.run(seed, OPERATIONS, 2, WEATHER, look_s=0.12)
    assert not found.wrong, found.wrong[:5]
    assert found.operations == OPERATIONS * found.hosts
    assert found.acknowledged > OPERATIONS
    assert len(found.faults) >= len(FAULTS) // 2
