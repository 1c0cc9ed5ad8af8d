"""A short soak: all tools from six sessions while everything is killed. `python -m bench.soak` is the long one."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from bench.harness import Runtime
from bench.soak import Expected, Session, Soak, State, compare, run
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.protocol.writes import ForgetMemory, TagMemory
from tests.operations import change_operation, memory_id_of, store_operation

KILLS = 20
PACE_S = 0.5


@pytest.mark.anyio
@pytest.mark.hurried
@pytest.mark.usefixtures("home")
async def test_what_six_sessions_were_acknowledged_bears_twenty_kills() -> None:
    seed = int(os.environ.get("FAULT_SEED", random.SystemRandom().randrange(10**6)))
    print(f"FAULT_SEED={seed}")
    soak = await run(KILLS, 6, seed, PACE_S, embedders=1)
    assert not soak.wrong, soak.wrong[:5]
    assert (soak.lost, soak.doubled) == (0, 0)
    assert sum(soak.kills.values()) == KILLS
    assert soak.acknowledged > KILLS


def test_the_soak_notices_what_is_lost_doubled_or_back_again(home: Path) -> None:
    records = SqliteRecords(home / "user" / "memory.db", "user", lambda: 1.0)
    names = ("kept", "changed", "tagged twice", "forgotten", "twice")
    texts = {name: f"the memory that is {name}" for name in names}
    stored = {name: store_operation(name, text, scope="user", importance=0.5) for name, text in texts.items()}
    again = store_operation("again", texts["twice"], scope="project")
    ids = {name: memory_id_of(operation) for name, operation in stored.items()}
    tagged = [
        change_operation(f"tag {number}", TagMemory(ids["tagged twice"], (f"tag-{number}",), ())) for number in (1, 2)
    ]
    forgotten = change_operation("forget", ForgetMemory(ids["forgotten"]))
    records.apply([*stored.values(), again, *tagged, forgotten])
    records.close()
    soak = Soak(0)
    session = Session(0, Runtime.__new__(Runtime), soak, iter(()), random.Random(0), home)

    def compared() -> tuple[int, int, int]:
        soak.lost = soak.doubled = 0
        soak.wrong.clear()
        compare([session], home, soak)
        return soak.lost, soak.doubled, len(soak.wrong)

    def expect(name: str, state: State, **changes: int) -> None:
        session.expected = {ids[name]: Expected(state)}
        session.expected[ids[name]].changes.update(changes)

    state = State(texts["kept"], "user", 0.5)
    expect("kept", state)
    assert compared() == (0, 0, 0)
    expect("kept", state._replace(content="what was acknowledged"))
    assert compared() == (1, 0, 1)
    expect("kept", state, updated=1)
    assert compared() == (1, 0, 1), "an acknowledged change that is not in the history"
    expect("tagged twice", state._replace(content=texts["tagged twice"], tags=frozenset({"tag-1", "tag-2"})), tagged=1)
    assert compared() == (0, 1, 1), "one change that was applied twice"
    expect("forgotten", state._replace(content=texts["forgotten"]), forgotten=0)
    assert compared()[0] == 1
    expect("twice", state._replace(content=texts["twice"]))
    assert compared() == (0, 1, 1)
    session.expected = {"mem_0": Expected(state)}
    assert compared() == (1, 0, 1), "a memory that is not there"
