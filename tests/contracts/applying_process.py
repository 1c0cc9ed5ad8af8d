"""A process that writes to a file of records until it is killed.

Arguments: the file, and the number of the first operation. It prints a line for each acknowledged operation, at once.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.writes import Applied
from tests.operations import PROJECT, store_operation


def write_for_ever(records: Records, first: int) -> None:
    """Groups of operations, each acknowledged by its id."""
    for start in range(first, first + 1_000_000, 4):
        operations = [
            store_operation(f"op{n}", f"lantern number {n} " + "x" * (n % 500)) for n in range(start, start + 4)
        ]
        for operation, outcome in zip(operations, records.apply(operations), strict=True):
            assert isinstance(outcome.reply, Applied)
            print(operation.operation_id, flush=True)
        if start % 40 == 0:
            records._file.file.checkpoint()


def main() -> None:
    path, first = sys.argv[1:]
    write_for_ever(Records(SqliteFile(Path(path)), PROJECT.id, time.time), int(first))


if __name__ == "__main__":
    main()
