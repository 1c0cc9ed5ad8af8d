"""A process that writes to a file of records until it is told to stop, or killed.

Arguments: the file, what to do, and numbers. It prints a line for each acknowledged operation, at once.
"""

from __future__ import annotations

import resource
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


def fill_the_disk(records: Records, limit_bytes: int) -> None:
    """Write until the system gives no more room, read meanwhile, get room, write on."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    number = 0
    while True:
        reply = records.apply([store_operation(f"op{number}", f"lantern number {number} " + "x" * 5000)])[0].reply
        if not isinstance(reply, Applied):
            print("refused", reply.code, reply.retry_possible, flush=True)
            break
        number += 1
    print("counted", records.counts(None).total == number, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    reply = records.apply([store_operation(f"op{number}", "there is room again")])[0].reply
    print("applied", isinstance(reply, Applied), records.counts(None).total == number + 1, flush=True)


def main() -> None:
    path, what, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    records = Records(SqliteFile(path), PROJECT.id, time.time)
    if what == "write":
        write_for_ever(records, number)
    else:
        fill_the_disk(records, number)


if __name__ == "__main__":
    main()
