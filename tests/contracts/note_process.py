"""A process that writes a note, and dies by `kill -9` before one of its steps: a call to the disk, or to the records.

Arguments: the file of records, the workspace, the name of the operation, the text, and the number of the step.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remembrancer.actors.store.note_files import NoteFiles
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.protocol.writes import Operation, WriteNote
from tests.operations import PROJECT, REQUESTED_AT, change_operation

CALLS = ("open", "rename", "fsync", "write", "unlink", "mkdir", "close")
SURVIVED = 17
PATH = "memory/log.md"


def note_operation(name: str, root: Path, content: str, **fields: Any) -> Operation:
    """The operation that the process applies."""
    return change_operation(name, WriteNote(str(root), fields.pop("path", PATH), content, **fields))


def main() -> None:
    database, root, name, content, step = sys.argv[1:]
    left = int(step)

    def mortal(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return run

    records = SqliteRecords(Path(database), PROJECT.id, lambda: REQUESTED_AT)
    for each in CALLS:
        setattr(os, each, mortal(getattr(os, each)))
    for each in ("begin_note", "end_note", "forget_note"):
        setattr(records, each, mortal(getattr(records, each)))
    NoteFiles(records).apply([note_operation(name, Path(root), content, ignore=("memory/",))])
    os._exit(SURVIVED)


if __name__ == "__main__":
    main()
