"""What the launcher started, on disk, so that the next one can clear away what a crash left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from remembrancer.protocol.paths import RuntimePaths

if TYPE_CHECKING:
    import psutil

SAME_START_S: Final = 1.0
"""A process id that is used again belongs to a process that started at another time; clocks are stepped by less."""
DEATH_WAIT_S: Final = 3.0
LOOK_S: Final = 0.01


class RecordedProcess(NamedTuple):
    """A child: `created_at` (seconds since the epoch, as the system says) tells it from a later owner of its pid."""

    name: str
    pid: int
    created_at: float


class Record(NamedTuple):
    """A launcher and its children."""

    pid: int
    children: tuple[RecordedProcess, ...] = ()


def read_record(paths: RuntimePaths) -> Record | None:
    """The record of the home; None when there is none that can be read."""
    try:
        content = json.loads(paths.runtime_record.read_bytes())
        children = tuple(
            RecordedProcess(str(child["name"]), int(child["pid"]), float(child["created_at"]))
            for child in content["children"]
        )
        return Record(int(content["pid"]), children)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_record(paths: RuntimePaths, record: Record) -> None:
    """Replace the record, whole or not at all."""
    content = {"pid": record.pid, "children": [child._asdict() for child in record.children]}
    fresh = paths.runtime_record.with_suffix(".new")
    fresh.write_text(json.dumps(content), encoding="utf-8")
    fresh.replace(paths.runtime_record)


def remove_record(paths: RuntimePaths) -> None:
    """The runtime has gone in order: there is nothing to clear away."""
    paths.runtime_record.unlink(missing_ok=True)


def creation_time(pid: int) -> float | None:
    """When that process started (seconds since the epoch); None when it has gone."""
    import psutil  # after the first processes were started: it costs 15 ms, which clients would wait for

    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def clear_leftovers(paths: RuntimePaths) -> tuple[RecordedProcess, ...]:
    """Kill what a crashed launcher left; returns those that were still there. Only with the lock of the home.

    SIGKILL, because they may be stopped and would not hear anything else; every process survives it.
    """
    record = read_record(paths)
    if record is None or not record.children:
        return ()
    import psutil

    left: list[psutil.Process] = []
    named: list[RecordedProcess] = []
    for child in record.children:
        try:
            process = psutil.Process(child.pid)
            if abs(process.create_time() - child.created_at) > SAME_START_S:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        except psutil.Error:
            continue
        left.append(process)
        named.append(child)
    give_up_at = time.monotonic() + DEATH_WAIT_S
    while any(_is_alive(process) for process in left) and time.monotonic() < give_up_at:
        time.sleep(LOOK_S)  # they are not our children: there is nothing to wait on
    return tuple(named)


def _is_alive(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE  # whose locks are free already
    except psutil.Error:
        return False
