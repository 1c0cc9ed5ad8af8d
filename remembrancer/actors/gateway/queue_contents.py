"""Reads and copies the write queue from outside the gateway, whether it runs or not."""

from pathlib import Path
from typing import NamedTuple

from remembrancer.actors.gateway.write_queue import SCHEMA
from remembrancer.actors.snapshots import copy_snapshot, snapshot_of


class QueuedWrite(NamedTuple):
    """A write that waits, or was refused with this `code` and `message`. `operation` is encoded."""

    operation_id: str
    lane: str
    memory_id: str
    operation: bytes
    queued_at: float
    code: str | None = None
    message: str | None = None


class QueueContents(NamedTuple):
    """The whole content of a queue, the oldest write first."""

    queued: list[QueuedWrite]
    refused: list[QueuedWrite]


def read_queue(path: Path) -> QueueContents:
    """Read the waiting and the refused writes.

    Raises:
        SchemaTooNew, SchemaTooOld, RecordsUnusable, FileLocked, StorageFull: it cannot be read.
    """
    columns = "SELECT operation_id, lane, memory_id, operation, queued_at"
    with snapshot_of(path, SCHEMA, leaves_no_log=True) as file:
        if file is None:
            return QueueContents([], [])
        queued = file.rows(f"{columns} FROM queued ORDER BY sequence")
        refused = file.rows(f"{columns}, code, message FROM rejected ORDER BY rowid")
    return QueueContents([QueuedWrite(*row) for row in queued], [QueuedWrite(*row) for row in refused])


def copy_queue(path: Path, target: Path) -> None:
    """Copy the queue and check the copy, if there is something to copy."""
    with snapshot_of(path, SCHEMA) as file:
        if file is not None:
            copy_snapshot(file, target)
