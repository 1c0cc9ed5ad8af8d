"""Processes that change records until they are killed, or kill themselves before a certain statement."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import USER
from remembrancer.protocol.writes import Applied, Operation
from tests.contracts.records_rig import writer_of
from tests.contracts.runs_rig import consolidating, run_operation
from tests.operations import PROJECT, REQUESTED_AT, store_operation

APPLIED = 17


def write_for_ever(path: Path, first: int) -> None:
    """Store memories, numbered from `first` on, in groups. The id of each acknowledged operation is printed at once."""
    records = Records(SqliteFile(path), PROJECT.id, time.time)
    for start in range(first, first + 1_000_000, 4):
        operations = [
            store_operation(f"op{n}", f"lantern number {n} " + "x" * (n % 500)) for n in range(start, start + 4)
        ]
        for operation, outcome in zip(operations, records.apply(operations), strict=True):
            assert isinstance(outcome.reply, Applied)
            print(operation.operation_id, flush=True)
        if start % 40 == 0:
            records._file.file.checkpoint()


def carry_out_and_die(path: Path, statements: int) -> None:
    """Carry out a run. The process lives for so many statements, and ends with `APPLIED` where that was enough."""
    records = Records(SqliteFile(path), PROJECT.id, time.time)
    kill_after(records._file.file.writer, statements)
    reply = records.apply([run_operation("op", *consolidating())])[0].reply
    os._exit(APPLIED if isinstance(reply, Applied) else 1)


def move_and_die(path: Path, promotion: Operation, statements: int) -> None:
    """Move a memory from a project to the user, in the same way."""
    database = SqliteFile(path)
    project, user = (Records(database, each, lambda: REQUESTED_AT) for each in (PROJECT.id, USER))
    kill_after(database.writer, statements)
    writer_of(project, user).apply([promotion])
    os._exit(APPLIED)


def kill_after(connection: sqlite3.Connection, statements: int) -> None:
    left = statements

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    connection.set_trace_callback(count)


def dies_of(work: Callable[[], object]) -> bool:
    """True if a fork of this process is killed while it does some work."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
