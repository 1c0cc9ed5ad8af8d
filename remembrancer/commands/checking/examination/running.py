"""What runs: the lock, the record of the last start, the launcher's own word, and processes that nobody has."""

from __future__ import annotations

import time
from typing import Final

import psutil

from remembrancer.actors.launcher.home import SAME_START_S, Record, read_record
from remembrancer.commands.checking.running_checks import LockFacts
from remembrancer.commands.runtime_client import ask
from remembrancer.protocol.control import AskStatus, RuntimeStatus
from remembrancer.protocol.errors import PeerUnavailable
from remembrancer.protocol.locks import FileLock
from remembrancer.protocol.paths import RuntimePaths

LEAVING_S: Final = 2.5
"""How long a process whose launcher has just died may take to leave by itself."""
LOOK_S: Final = 0.1
ACTORS: Final = "remembrancer.actors."


def lock_facts(paths: RuntimePaths) -> LockFacts:
    """See `LockFacts`."""
    try:
        held = FileLock(paths.runtime_lock).is_held_elsewhere()
    except OSError as error:
        return LockFacts(held=False, unreadable=error.strerror or str(error))
    record = read_record(paths)
    if record is None:
        return LockFacts(held)
    return LockFacts(held, record.pid, recorded_lives=psutil.pid_exists(record.pid))


def ask_status(paths: RuntimePaths) -> RuntimeStatus:
    """The launcher's answer.

    Raises:
        PeerUnavailable, PeerLost, DeadlineExceeded: there is none.
    """
    answer = ask(paths, AskStatus())
    if not isinstance(answer, RuntimeStatus):
        raise PeerUnavailable(f"it answered with {type(answer).__name__}")
    return answer


def orphans(paths: RuntimePaths, status: RuntimeStatus | None, *, held: bool) -> list[tuple[int, str]]:
    """Actors of this home that no launcher has: pid and name. One that is about to leave is waited for.

    While a launcher holds the lock, what it lists (or recorded, when it does not answer) is its own.
    """
    give_up_at = time.monotonic() + LEAVING_S
    while True:
        record = read_record(paths)
        known = _known(status, record) if held else set()
        left = [each for each in _actors(paths, record) if each[0] not in known]
        if not left or time.monotonic() > give_up_at:
            return left
        time.sleep(LOOK_S)  # they are not our children: there is nothing to wait on


def _known(status: RuntimeStatus | None, record: Record | None) -> set[int]:
    said = {process.pid for process in status.processes} if status is not None else set()
    written = {record.pid, *(child.pid for child in record.children)} if record is not None else set()
    return said | written


def _actors(paths: RuntimePaths, record: Record | None) -> list[tuple[int, str]]:
    found: dict[int, str] = {}
    for process in psutil.process_iter(["pid", "cmdline", "environ", "status"]):
        if process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        module = next((word for word in process.info["cmdline"] or () if word.startswith(ACTORS)), None)
        if module and (process.info["environ"] or {}).get("REMEMBRANCER_HOME") == str(paths.home):
            found[process.pid] = module.removeprefix(ACTORS)
    for child in record.children if record is not None else ():
        if _is_the_same(child.pid, child.created_at):
            found.setdefault(child.pid, child.name)
    return sorted(found.items())


def _is_the_same(pid: int, created_at: float) -> bool:
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created_at) <= SAME_START_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
