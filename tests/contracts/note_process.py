"""A process that writes a note, and dies by `kill -9` before one of its steps: a call to the disk or to the records."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remembrancer.actors.store.note_files import NoteFiles
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Outcome
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.writes import Operation, WriteNote
from tests.operations import PROJECT, REQUESTED_AT, change_operation

CALLS = ("open", "rename", "fsync", "write", "unlink", "mkdir", "close")
SURVIVED = 17
PATH = "memory/log.md"


def note_operation(name: str, root: Path, content: str, **fields: Any) -> Operation:
    places = Settings().notes_paths
    return change_operation(name, WriteNote(str(root), fields.pop("path", PATH), content, places=places, **fields))


def write_note(records: Records, operation: Operation) -> Outcome:
    """Write a note as the store does, and return the outcome; a refusal is one."""

    async def run(_: str, work: Callable[[], Outcome]) -> Outcome:
        return work()

    notes = NoteFiles(records, run)
    try:
        return asyncio.run(notes.write(operation))
    except RemembrancerError as refusal:
        return Outcome(refusal)
    finally:
        notes.close()


def write_and_die(database: Path, root: Path, name: str, content: str, step: int) -> None:
    """Run the process: it is killed before that step, or ends with `SURVIVED` where it has fewer."""
    left = step

    def mortal(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return run

    records = Records(SqliteFile(database), PROJECT.id, lambda: REQUESTED_AT)
    for each in CALLS:
        setattr(os, each, mortal(getattr(os, each)))
    records.complete = mortal(records.complete)  # type: ignore[method-assign]
    write_note(records, note_operation(name, root, content, ignore=("memory/",)))
    os._exit(SURVIVED)
