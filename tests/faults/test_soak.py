"""A short soak: all tools from six sessions while everything is killed. `python -m tests.faults.soak` is a long one."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

import tests.runtime
from bench import harness
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.writes import ForgetMemory, TagMemory
from tests.faults import soak
from tests.faults.soak import Expected, Session, Soak, State, compare, run
from tests.operations import change_operation, memory_id_of, store_operation

KILLS = 20
PACE_S = 0.5


class ForkedRuntime(harness.Runtime):
    """As its base, but that commands are forked."""

    async def command(self, *arguments: str, directory: Path | None = None) -> tuple[int, str]:
        done = await asyncio.to_thread(
            tests.runtime.command, *arguments, home=self.home, directory=directory, variables=self.environ
        )
        return done.returncode, done.stdout


@pytest.mark.anyio
@pytest.mark.hurried
@pytest.mark.usefixtures("home")
async def test_what_six_sessions_were_acknowledged_bears_twenty_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "Runtime", ForkedRuntime)
    monkeypatch.setattr(soak, "StdioClient", tests.runtime.Session)
    seed = int(os.environ.get("FAULT_SEED", random.SystemRandom().randrange(10**6)))
    print(f"FAULT_SEED={seed}")
    found = await run(KILLS, 6, seed, PACE_S, embedders=1)
    assert not found.wrong, found.wrong[:5]
    assert (found.lost, found.doubled) == (0, 0)
    assert sum(found.kills.values()) == KILLS
    assert found.acknowledged > KILLS


def test_the_soak_notices_what_is_lost_doubled_or_back_again(home: Path) -> None:
    records = Records(SqliteFile(home / "memory.db"), "user", lambda: 1.0)
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
    empty = Soak(0)
    session = Session(0, ForkedRuntime.__new__(ForkedRuntime), empty, iter(()), random.Random(0), home)

    def compared() -> tuple[int, int, int]:
        empty.lost = empty.doubled = 0
        empty.wrong.clear()
        compare([session], home, empty)
        return empty.lost, empty.doubled, len(empty.wrong)

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
