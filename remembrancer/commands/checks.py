"""What the doctor makes of what it found: each check is a pure function from facts to a finding and advice.

Nothing of a memory's content is in the facts, so that none can be in a finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from remembrancer.commands.status import Problem
from remembrancer.protocol.control import IndexFigures, RuntimeStatus
from remembrancer.protocol.reads import EmbeddingSummary

Status = Literal["ok", "warning", "problem"]
ORDER: Final[Mapping[Status, int]] = {"ok": 0, "warning": 1, "problem": 2}
"""From the best to the worst."""
GIB: Final = 1024**3
MIB: Final = 1024**2
NEARLY_FULL_BYTES: Final = 32 * MIB
"""Below this the next writes fail: SQLite's log and the index want some of it each."""
LISTED: Final = 10
"""Details that are named one by one; the rest is counted."""
MIN_PYTHON: Final = (3, 11)
REMOTE_FILE_SYSTEMS: Final = frozenset(
    [
        *("afpfs", "afs", "ceph", "cifs", "davfs", "glusterfs", "lustre", "nfs", "nfs4", "smb2", "smb3", "smbfs"),
        *("webdav", "9p", "drvfs", "prl_fs", "vboxsf", "virtiofs", "vmhgfs"),
        *("fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    ]
)
"""Where locks and the memory-mapped log of SQLite cannot be relied on."""
PASSING_FILE_SYSTEMS: Final = {
    "overlay": "a container's own layer, which goes when the container goes",
    "tmpfs": "memory, which is empty after the next start of the machine",
    "ramfs": "memory, which is empty after the next start of the machine",
}
LONG_QUEUED_S: Final = 60.0
"""A queue of a running system is empty within seconds of the store's return."""
SEVERE_STATES: Final = frozenset({"failed", "degraded", "unresponsive"})
"""Of a process. The others pass by themselves."""


class Check(msgspec.Struct, frozen=True):
    """One finding. `details` are lines of their own; `advice` is what a person does about it."""

    name: str
    status: Status
    found: str
    advice: str = ""
    details: tuple[str, ...] = ()


def worst(checks: Sequence[Check]) -> Status:
    """The worst status of all; `ok` of none."""
    return max((check.status for check in checks), key=ORDER.__getitem__, default="ok")


@dataclass(frozen=True, slots=True)
class HomeFacts:
    """The home directory. `file_system` is None when it cannot be told; `sockets` is where they lie."""

    path: Path
    kind: Literal["missing", "directory", "other", "unreachable"]
    writable: bool
    owned: bool = True
    open_to_all: bool = False
    file_system: str | None = None
    sockets: Path | None = None
    meant_to_pass: bool = False
    half_restored: bool = False


def check_home(facts: HomeFacts) -> Check:
    """Whether the home can be used, and lies where data is safe."""
    move = "set REMEMBRANCER_HOME to a directory of your own"
    where = str(facts.path)
    problem = None
    if facts.kind == "other":
        problem = f"{where} is not a directory", f"move it away, or {move}"
    elif facts.kind == "unreachable":
        problem = f"{where} cannot be looked at", f"mend the owner and mode of its parents, or {move}"
    elif not facts.owned:
        problem = f"{where} belongs to another user", move
    elif facts.open_to_all:
        problem = f"everyone may write in {where}", f"chmod 700 it, or {move}"
    elif not facts.writable:
        problem = f"{where} cannot be written", f"mend its owner and mode (0700), or {move}"
    elif facts.half_restored:
        found = f"a restore of {where} was interrupted while it replaced files"
        problem = found, "run 'remembrancer restore' with the same backup again"
    if problem is not None:
        return Check("home", "problem", *problem)
    if facts.file_system in REMOTE_FILE_SYSTEMS:
        found = f"{where} is on a file system of a network or another machine ({facts.file_system})"
        return Check("home", "warning", found, f"SQLite's locks may fail there: {move} on a local disk")
    if facts.file_system in PASSING_FILE_SYSTEMS and not facts.meant_to_pass:
        found = f"{where} is in {PASSING_FILE_SYSTEMS[facts.file_system]} ({facts.file_system})"
        return Check("home", "warning", found, f"to keep what is remembered, {move} on a lasting disk or volume")
    details = () if facts.sockets is None else (f"its path is too long for sockets, which lie in {facts.sockets}",)
    found = where if facts.kind == "directory" else f"{where} is not there yet: the first session makes it"
    return Check("home", "ok", found, details=details)


@dataclass(frozen=True, slots=True)
class Wide:
    """Something that others can get at, or that is not ours: its mode, and the mode that it should have."""

    path: Path
    mode: int
    wanted: int
    owned: bool = True


def check_permissions(wide: Sequence[Wide], fixed: Sequence[Wide], looked_at: int) -> Check:
    """Whether anything under the home is open to others. `fixed` was, and is no more."""
    narrowed = tuple(f"{each.path}: {each.mode:04o} is now {each.wanted:04o}" for each in fixed)
    if not wide:
        found = f"{looked_at} files and directories are this user's alone"
        return Check("permissions", "ok", found + (f"; {len(fixed)} were narrowed" if fixed else ""), "", few(narrowed))
    details = tuple(
        f"{each.path}: mode {each.mode:04o}, should be {each.wanted:04o}"
        if each.owned
        else f"{each.path}: belongs to another user"
        for each in wide
    )
    foreign = sum(not each.owned for each in wide)
    advice = ["give what belongs to another user to yours (chown)"] if foreign else []
    advice += ["'remembrancer doctor --fix' narrows the modes"] if foreign < len(wide) else []
    found = f"{len(wide)} of {looked_at} are open to others"
    return Check("permissions", "problem" if foreign else "warning", found, "; ".join(advice), few(details + narrowed))


def check_disk(free_bytes: int, database_bytes: int) -> Check:
    """Whether enough is free: at least 1 GiB, and twice what is stored."""
    found = f"{size(free_bytes)} free; {size(database_bytes)} are used here"
    if free_bytes < NEARLY_FULL_BYTES:
        return Check("disk", "problem", found, "make room now: the next writes fail")
    if free_bytes < max(GIB, 2 * database_bytes):
        return Check("disk", "warning", found, "make room: backups and a new index need about as much as is used")
    return Check("disk", "ok", found)


def check_versions(python: tuple[int, int, int], sqlite: str, *, has_fts5: bool) -> Check:
    """Whether Python and SQLite can do what is asked of them."""
    found = f"Python {'.'.join(map(str, python))}, SQLite {sqlite}{' with FTS5' if has_fts5 else ' without FTS5'}"
    if python[:2] < MIN_PYTHON:
        return Check("versions", "problem", found, f"Python {'.'.join(map(str, MIN_PYTHON))} or newer is needed")
    if not has_fts5:
        advice = "use a Python whose SQLite has FTS5: memories cannot be stored without"
        return Check("versions", "problem", found, advice)
    return Check("versions", "ok", found)


def check_configuration(error: str | None) -> Check:
    """Whether the settings can be read."""
    if error is not None:
        return Check("configuration", "problem", error, "mend that setting: no runtime starts with it")
    return Check("configuration", "ok", "every setting is known and allowed")


def check_failed(name: str, error: Exception) -> Check:
    """A check that could not be made."""
    found = f"this could not be looked at: {error}"
    return Check(name, "problem", found, "see the message; mend that and run this again")


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
        found = f"the lock cannot be looked at: {facts.unreadable}"
        return Check("lock", "problem", found, "mend its owner and mode (0600)")
    if facts.held and facts.recorded is None:
        return Check("lock", "ok", "a runtime is starting, or going down")
    if facts.held and not facts.recorded_lives:
        advice = "look for a process that holds runtime.lock (fuser, lsof) and end it"
        return Check("lock", "warning", f"held, and process {facts.recorded} of runtime.json is dead", advice)
    if facts.held:
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
    if not problems:
        return Check("processes", "ok", f"{len(status.processes)} processes are ready")
    severe = any(process.state in SEVERE_STATES for process in status.processes) or (
        status.store is not None and status.store.embedding.error is not None
    )
    first, *others = problems
    details = tuple(map(str, others))
    return Check("processes", "problem" if severe else "warning", first.what, first.advice, details)


def check_orphans(found: Sequence[tuple[int, str]]) -> Check:
    """Processes of this home (pid, name) that no launcher has."""
    if not found:
        return Check("orphans", "ok", "no process of this home is without a launcher")
    advice = f"they hang, or would have left: kill -9 {' '.join(str(pid) for pid, _ in found)}"
    details = tuple(f"{name}: process {pid}" for pid, name in found)
    return Check("orphans", "problem", f"{len(found)} processes have no launcher", advice, details)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model that the settings ask for, loaded here (`error` says why it cannot be), and the one used last."""

    name: str
    dimensions: int | None = None
    key: str | None = None
    last_key: str | None = None
    error: str | None = None


def check_model(facts: ModelFacts) -> Check:
    """Whether the weights are there and are the pinned ones, and whether the vectors are this model's."""
    if facts.error is not None:
        return Check("model", "problem", facts.error, "until it is mended, search is by keyword only")
    found = f"{facts.name}, {facts.dimensions} dimensions: the weights are there, whole, and can be loaded"
    if facts.last_key is not None and facts.last_key != facts.key:
        advice = "nothing to do: everything is embedded again in the background"
        return Check("model", "warning", f"{found}; the present vectors are of {facts.last_key}", advice)
    return Check("model", "ok", found)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One SQLite file. `known` is the newest schema version of this release; `faults` are what SQLite found wrong."""

    path: Path
    size_bytes: int = 0
    version: int = 0
    known: int = 0
    faults: tuple[str, ...] = ()
    broken_references: int = 0
    error: str | None = None
    unfinished: bool = False


def check_records(files: Sequence[FileFacts]) -> Check:
    """Whether every file of records is whole and of a version that is understood."""
    if not files:
        return Check("records", "ok", "nothing is stored yet")
    judged = [(facts, *_of_file(facts)) for facts in files]
    details = [f"{facts.path}: {said}" for facts, said, _, status in judged if status != "ok"]
    found = f"{len(files) - len(details)} of {len(files)} files are whole, {size(sum(f.size_bytes for f in files))}"
    older = sum(0 < facts.version < facts.known for facts in files)
    if older:
        details.append(f"{older} are of an older release: the next start migrates them")
    advice = dict.fromkeys(advice for _, _, advice, _ in judged if advice)
    status = max((status for *_, status in judged), key=ORDER.__getitem__)
    return Check("records", status, found, "; ".join(advice), few(tuple(details)))


def _of_file(facts: FileFacts) -> tuple[str, str, Status]:
    restore = "put back a backup of it, or move it away to begin anew"
    if facts.error is not None:
        return facts.error, restore, "problem"
    if facts.faults:
        return f"damaged: {facts.faults[0]} (and {len(facts.faults) - 1} more)", restore, "problem"
    if facts.version > facts.known:
        newer = f"of a newer release (version {facts.version}, this one knows {facts.known})"
        return newer, "install the newer release that wrote it", "problem"
    if facts.broken_references:
        return f"{facts.broken_references} rows refer to rows that are gone", restore, "problem"
    if facts.unfinished:
        return "too large to be checked whole in this time", "check it with sqlite3 and PRAGMA quick_check", "warning"
    return "", "", "ok"


def check_index(figures: Sequence[IndexFigures], embedding: EmbeddingSummary | None) -> Check:
    """Whether the vector index holds what the records have, by the word of a running store (else: no `embedding`)."""
    if embedding is None:
        return Check("index", "ok", "compared with the records at the next start")
    if embedding.pending:
        found = f"{embedding.pending} memories wait for their vectors"
        return Check("index", "ok", found, "nothing to do: words are searched meanwhile")
    differing = [each for each in figures if each.ready and each.indexed != each.recorded]
    if differing:
        found = f"{len(differing)} of {len(figures)} files differ from the records"
        advice = "run 'remembrancer down'; the next session compares the index with the records and mends it"
        details = tuple(f"{each.name}: {each.recorded} passages recorded, {each.indexed} indexed" for each in differing)
        return Check("index", "problem", found, advice, details)
    if embedding.dead_letters:
        found = f"memories that cannot be embedded: {embedding.dead_letters} ({embedding.dead_letter_error})"
        return Check("index", "warning", found, "they are found by their words; store.log says which they are")
    if unready := sum(not each.ready for each in figures):
        return Check("index", "ok", f"{unready} of {len(figures)} files are being brought up to date")
    if not figures:
        return Check("index", "ok", "nothing to compare yet")
    return Check("index", "ok", f"holds the {sum(each.recorded for each in figures)} passages of {len(figures)} files")


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The write queue's file. `rejected` counts by code and message; `damaged` are files that were set aside."""

    depth: int = 0
    oldest_age_s: float = 0.0
    rejected: tuple[tuple[str, str, int], ...] = ()
    damaged: tuple[Path, ...] = ()
    error: str | None = None


def check_queue(facts: QueueFacts, *, running: bool) -> Check:
    """Whether acknowledged writes wait for the store, or could not be applied."""
    if facts.error is not None:
        advice = "keep that file: it may hold writes that the store has not; the next start begins a new one beside it"
        return Check("write queue", "problem", facts.error, advice)
    rejected = sum(count for _, _, count in facts.rejected)
    details = tuple(f"{count} rejected as {code}: {message}" for code, message, count in facts.rejected)
    details += tuple(f"a damaged queue was set aside: {path}" for path in facts.damaged)
    waiting = f"{facts.depth} writes wait, the oldest for {facts.oldest_age_s:.0f} s" if facts.depth else ""
    if details:
        found = "; ".join(filter(None, (waiting, f"{rejected} were rejected" if rejected else ""))) or "empty"
        to_do = ["`remembrancer queue` lists, retries, exports and drops what was rejected"] * bool(rejected)
        if facts.damaged:
            to_do.append("a damaged queue may hold writes that the store has not; delete it when you do not need it")
        return Check("write queue", "warning", found, "; ".join(to_do), few(details))
    if not facts.depth:
        return Check("write queue", "ok", "empty")
    if not running:
        return Check("write queue", "ok", waiting, "nothing to do: the next start applies them, in order")
    status: Status = "warning" if facts.oldest_age_s > LONG_QUEUED_S else "ok"
    return Check("write queue", status, waiting, "they are applied by themselves when the store answers")


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

    title: str
    found: bool
    path: Path
    has_path: bool
    entries: tuple[EntryFacts, ...] = ()
    error: str | None = None


def check_clients(files: Sequence[ClientFacts], home: Path) -> Check:
    """Which clients start us, and whether what they start is there."""
    bad: list[str] = []
    doubtful = [f"{facts.title}, {facts.path}: {facts.error}" for facts in files if facts.error is not None]
    good: list[str] = []
    for facts, entry in ((file, entry) for file in files for entry in file.entries):
        which = f"{facts.title} ({entry.name} in {facts.path})"
        if not entry.reachable:
            bad.append(f"{which} starts {entry.command}, which does not exist")
        elif entry.bare and not facts.has_path:
            doubtful.append(f"{which} starts {entry.command} by name, and may not find it when started by an icon")
        else:
            is_elsewhere = entry.home is not None and Path(entry.home) != home
            good.append(f"{which} uses the home {entry.home}" if is_elsewhere else which)
    details = few((*bad, *doubtful, *good))
    if bad:
        advice = "'remembrancer setup' writes a right one"
        return Check("clients", "problem", f"{len(bad)} entries start nothing", advice, details)
    if doubtful:
        advice = "mend such a file; 'remembrancer setup' writes absolute commands"
        return Check("clients", "warning", f"{len(doubtful)} want a look", advice, details)
    if not good:
        names = sorted({facts.title for facts in files if facts.found})
        found = f"no client starts it; found on this machine: {', '.join(names) or 'none that is known'}"
        return Check("clients", "warning", found, "'remembrancer setup' shows how")
    return Check("clients", "ok", f"{len(good)} entries start it", "", details)


def size(number: int) -> str:
    """A size as a person says it."""
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / MIB:.1f} MiB"


def few(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    return lines if len(lines) <= LISTED else (*lines[:LISTED], f"and {len(lines) - LISTED} more")
