"""Processes that change records or notes until they are killed, or kill themselves before a certain step."""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store import note_files
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Outcome
from remembrancer.commands.backup import put_back
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.writes import Applied, Operation, WriteNote
from tests.contracts.records_rig import apply
from tests.operations import PROJECT, REQUESTED_AT, change_operation, store_operation

NOTE = "memory/log.md"


def write_for_ever(path: Path, first: int) -> None:
    """Store memories, numbered from `first` on, in groups. The id of each acknowledged operation is printed at once."""
    records = Records(SqliteFile(path, MEMORY), PROJECT.id, time.time)
    for start in range(first, first + 1_000_000, 4):
        operations = [
            store_operation(f"op{n}", f"lantern number {n} " + "x" * (n % 500)) for n in range(start, start + 4)
        ]
        for operation, outcome in zip(operations, apply(records, operations), strict=True):
            assert isinstance(outcome, Applied)
            print(operation.operation_id, flush=True)


def note_operation(name: str, root: Path, content: str, **fields: Any) -> Operation:
    places = Settings().notes_paths
    return change_operation(name, WriteNote(str(root), fields.pop("path", NOTE), content, places=places, **fields))


def write_note(records: Records, operation: Operation) -> Outcome:
    """Write a note as the store does, and return the outcome; a refusal is one."""

    async def run(_: str, work: Callable[[], Outcome]) -> Outcome:
        return work()

    try:
        return asyncio.run(note_files.write_note(records, run, operation))
    except RemembrancerError as refusal:
        return refusal


def write_note_and_die(database: Path, root: Path, content: str, step: int) -> None:
    """Write a note. The process is killed before that call to the disk or to the records, if there are so many."""
    records, wrap = Records(SqliteFile(database, MEMORY), PROJECT.id, lambda: REQUESTED_AT), mortal(step)
    for each in ("open", "rename", "fsync", "write", "unlink", "mkdir", "close"):
        setattr(os, each, wrap(getattr(os, each)))
    records.complete = wrap(records.complete)  # type: ignore[method-assign]
    write_note(records, note_operation("a", root, content))


def restore_and_die(changes: int, archive: str) -> None:
    """Restore, and be killed after so many changes of names in the file system."""
    counted = mortal(changes)
    os.link = counted(os.link)
    for name in ("replace", "rename", "unlink"):
        setattr(Path, name, counted(getattr(Path, name)))
    assert not put_back.main([archive, "--yes"], standalone_mode=False)


def mortal(calls: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wraps functions that are called so many times in all: at the next call this process is killed."""
    left = calls

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return call

    return wrap


def kill_after(connection: sqlite3.Connection, statements: int) -> None:
    connection.set_trace_callback(mortal(statements - 1)(lambda _: None))


def dies_of(work: Callable[[], object]) -> bool:
    """True if a fork of this process is killed while it does some work, which does not fail."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL
