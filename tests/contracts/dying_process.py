"""A process that carries out a run and kills itself before a certain statement."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.writes import Applied
from tests.contracts.runs_rig import consolidating, run_operation
from tests.operations import PROJECT

APPLIED = 17


def carry_out_and_die(path: Path, statements: int) -> None:
    """Run the process: it lives for so many statements, and ends with `APPLIED` where that was enough."""
    left = statements
    records = Records(SqliteFile(path), PROJECT.id, time.time)

    def count(statement: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    records._file.file.writer.set_trace_callback(count)
    reply = records.apply([run_operation("op", *consolidating())])[0].reply
    records._file.file.writer.set_trace_callback(None)
    os._exit(APPLIED if isinstance(reply, Applied) else 1)
