"""What the doctor makes of what runs, and of what starts it: lock, processes, clients. Pure, like `checks.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from remembrancer.commands.checking.checks import Check, few
from remembrancer.commands.status import Problem
from remembrancer.protocol.control import RuntimeStatus

SEVERE_STATES: Final = frozenset({"failed", "degraded", "unresponsive"})
"""Of a process. The others pass by themselves."""


@dataclass(frozen=True, slots=True)
class LockFacts:
    """The lock of the home. `recorded` is the launcher's pid in runtime.json, None without a readable one."""

    held: bool
    recorded: int | None = None
    recorded_lives: bool = False
    unreadable: str | None = None


def check_lock(facts: LockFacts) -> Check:
    """Whether a runtime has the home, and whether a crashed one left its record."""
    if facts.unreadable is not None:
        return Check(
            "lock", "problem", f"the lock cannot be looked at: {facts.unreadable}", "mend its owner and mode (0600)"
        )
    if facts.held:
        if facts.recorded is None:
            return Check("lock", "ok", "a runtime is starting, or going down")
        if not facts.recorded_lives:
            advice = "look for a process that holds runtime.lock (fuser, lsof) and end it"
            return Check("lock", "warning", f"held, and process {facts.recorded} of runtime.json is dead", advice)
        return Check("lock", "ok", f"held by the launcher, process {facts.recorded}")
    if facts.recorded is not None:
        found = f"free; runtime.json is left of process {facts.recorded}, which was killed"
        return Check("lock", "ok", found, details=("the next start clears that away",))
    return Check("lock", "ok", "free: nothing runs, and the first session starts everything")


def check_no_answer(pid: int | None, reason: str) -> Check:
    """A launcher that has the lock and does not answer."""
    who = "the launcher" if pid is None else f"the launcher (process {pid})"
    advice = "wait a moment if it is starting; else kill -9 that process: the others leave, and a session starts anew"
    return Check("processes", "problem", f"{who} does not answer: {reason}", advice)


def check_processes(status: RuntimeStatus, problems: Sequence[Problem]) -> Check:
    """How the processes say that they are."""
    count = len(status.processes)
    if not problems:
        return Check("processes", "ok", f"{count} processes are ready")
    severe = any(process.state in SEVERE_STATES for process in status.processes) or (
        status.store is not None and status.store.embedding.error is not None
    )
    first, *others = problems
    details = tuple(str(problem) for problem in others)
    return Check("processes", "problem" if severe else "warning", first.what, first.advice, details)


def check_orphans(found: Sequence[tuple[int, str]]) -> Check:
    """Processes of this home (pid, name) that no launcher has."""
    if not found:
        return Check("orphans", "ok", "no process of this home is without a launcher")
    pids = " ".join(str(pid) for pid, _ in found)
    details = tuple(f"{name}: process {pid}" for pid, name in found)
    advice = f"they hang, or would have left: kill -9 {pids}"
    return Check("orphans", "problem", f"{len(found)} processes have no launcher", advice, details)


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """An entry of ours in a client's file: `reachable`: its command exists; `bare`: it is a mere name."""

    name: str
    command: str
    reachable: bool
    bare: bool = False
    home: str | None = None


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """One file of a client, with our entries in it. `error` says why it cannot be read."""

    client: str
    title: str
    found: bool
    path: Path
    has_path: bool
    entries: tuple[EntryFacts, ...] = ()
    error: str | None = None


def check_clients(files: Sequence[ClientFacts], home: Path) -> Check:
    """Which clients start us, and whether what they start is there."""
    bad: list[str] = []
    doubtful: list[str] = []
    good: list[str] = []
    for facts in files:
        if facts.error is not None:
            doubtful.append(f"{facts.title}, {facts.path}: {facts.error}")
        for entry in facts.entries:
            which = f"{facts.title} ({entry.name} in {facts.path})"
            if not entry.reachable:
                bad.append(f"{which} starts {entry.command}, which does not exist")
            elif entry.bare and not facts.has_path:
                doubtful.append(f"{which} starts {entry.command} by name, and may not find it when started by an icon")
            elif entry.home is not None and Path(entry.home) != home:
                good.append(f"{which} uses the home {entry.home}")
            else:
                good.append(which)
    details = few((*bad, *doubtful, *good))
    if bad:
        return Check(
            "clients",
            "problem",
            f"{len(bad)} entries start nothing",
            "'remembrancer setup' writes a right one",
            details,
        )
    if not good and not doubtful:
        names = sorted({facts.title for facts in files if facts.found})
        found = f"no client starts it; found on this machine: {', '.join(names) or 'none that is known'}"
        return Check("clients", "warning", found, "'remembrancer setup' shows how")
    if doubtful:
        return Check(
            "clients",
            "warning",
            f"{len(doubtful)} want a look",
            "mend such a file; 'remembrancer setup' writes absolute commands",
            details,
        )
    return Check("clients", "ok", f"{len(good)} entries start it", "", details)
