"""The cost of asking for facts in time: `python -m bench.facts [--json] [--facts N]`, on a file of records.

The facts become true at random times of ten years, half of them for some months; a fifth was changed or
invalidated later. Asked is for a page of 20 at random times, by what is known now and by what was known at another
random time.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.graph import GROUP, Row, measured
from examples.real_text import memories
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.retrieval.candidates import Source
from remembrancer.actors.store.retrieval.view import View
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.reads import ListMemories
from remembrancer.protocol.writes import InvalidateMemory, Operation, ProjectRef, StoreMemory, UpdateMemory

PROJECT: Final = ProjectRef("p_0123456789ab", "/bench")
SESSION: Final = "session:bench"
FACTS: Final = 100_000
SAMPLES: Final = 200
DAY: Final = 86_400.0
BEGAN: Final = 1_400_000_000.0
ENDED: Final = BEGAN + 3650 * DAY
REACH_MS: Final = 10.0
PAGES: Final = (0, 1_000)
"""Offsets."""


def operations(facts: int, seed: int = 1) -> Iterator[Operation]:
    """Facts in the order in which they were recorded, and what was done to some of them later."""
    chance = random.Random(seed)
    step_s = (ENDED - BEGAN) / facts
    known: list[str] = []
    for number, text in enumerate(memories(facts)):
        at = BEGAN + number * step_s
        memory_id = derive_memory_id(f"op-{number}", at)
        known.append(memory_id)
        start = at + chance.uniform(-300, 30) * DAY
        change = StoreMemory(
            memory_id=memory_id,
            content=f"{text} ({number})",
            type="semantic",
            scope="project",
            session_id=SESSION,
            valid_from=start,
            valid_until=start + chance.uniform(10, 400) * DAY if chance.random() < 0.5 else None,
        )
        yield Operation(f"op-{number}", PROJECT, SESSION, at, change)
        if chance.random() < 0.2:
            older = chance.choice(known)
            update = UpdateMemory(older, importance=chance.random())
            later = InvalidateMemory(older, "it is over") if chance.random() < 0.5 else update
            yield Operation(f"later-{number}", PROJECT, SESSION, at, later)


def measure(facts: int, directory: Path, samples: int) -> list[Row]:
    """Every question, in a file with so many facts."""
    now = BEGAN
    records = SqliteRecords(directory / "memory.db", PROJECT.id, lambda: now)
    user = SqliteRecords(directory / "user.db", "user", lambda: now)
    waiting = operations(facts)
    began = time.perf_counter()
    while group := list(islice(waiting, GROUP)):
        now = group[-1].requested_at
        records.apply(group)
    stored_s = time.perf_counter() - began
    records.checkpoint()
    chance = random.Random(2)
    times = [(chance.uniform(BEGAN, ENDED), chance.uniform(BEGAN, ENDED)) for _ in range(samples)]
    rows = [Row(facts, "storing, a fact", *[round(stored_s * 1000 / facts, 3)] * 3)]
    for offset in PAGES:
        for question, known in (("true at a time", False), ("true at a time, as known at another", True)):

            def ask(number: int, offset: int = offset, known: bool = known) -> None:
                at, as_of = times[number]
                asked = ListMemories(
                    SESSION,
                    project=PROJECT,
                    order="valid",
                    valid_at=at,
                    as_of=as_of if known else None,
                    limit=20,
                    offset=offset,
                )
                list(View([Source(records), Source(user)]).listed(asked))

            rows.append(measured(facts, f"{question}, from {offset:,}", ask, samples, None if offset else REACH_MS))
    records.close()
    user.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--facts", type=int, default=FACTS)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmb-bench-") as directory:
        rows = measure(given.facts, Path(directory), given.samples)
    if given.json:
        print(json.dumps(msgspec.to_builtins(rows), indent=1))
        return
    table = Table("facts", "question", "p50 ms", "p95 ms", "worst ms", "goal ms")
    for row in rows:
        goal = "" if row.reach_ms is None else f"{row.reach_ms:g}"
        table.add_row(f"{row.edges:,}", row.question, f"{row.p50_ms}", f"{row.p95_ms}", f"{row.worst_ms}", goal)
    Console().print(table)


if __name__ == "__main__":
    main()
