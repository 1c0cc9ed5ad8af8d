"""A process that carries out a run and kills itself before a certain statement.

Arguments: the file, and how many statements it lives for. It prints `applied` when it lived long enough.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.protocol.writes import Applied
from tests.contracts.runs_rig import consolidating, run_operation
from tests.operations import PROJECT


def main() -> None:
    left = int(sys.argv[2])
    records = SqliteRecords(Path(sys.argv[1]), PROJECT.id, time.time)

    def count(statement: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    records._file.writer.set_trace_callback(count)
    reply = records.apply([run_operation("op", *consolidating())])[0].reply
    records._file.writer.set_trace_callback(None)
    print("applied" if isinstance(reply, Applied) else reply)


if __name__ == "__main__":
    main()
