"""A process that moves a memory from a project to the user, and dies by `kill -9` before one of its statements.

Arguments: the database, the memory, the operation, and the number of the statement.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import USER
from remembrancer.protocol.writes import Operation, PromoteMemory
from tests.contracts.records_factories import Move
from tests.operations import PROJECT, REQUESTED_AT, change_operation


def promotion(memory_id: str, name: str) -> Operation:
    """The operation that the process applies."""
    return change_operation(name, PromoteMemory(memory_id, "user", "of use everywhere"))


def main() -> None:
    path, memory_id, name, statements = sys.argv[1:]
    left = int(statements)

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    database = SqliteFile(Path(path))
    project, user = (Records(database, each, lambda: REQUESTED_AT) for each in (PROJECT.id, USER))
    database.writer.set_trace_callback(count)
    Move(project, user).apply([promotion(memory_id, name)])
    os._exit(0)  # it has lived long enough


if __name__ == "__main__":
    main()
