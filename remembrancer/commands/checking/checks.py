"""What the doctor makes of what was found: each check is a pure function from facts to a finding and advice.

Here are the checks of the place; those of the data and of what runs have modules of their own. Nothing
of a memory's content is in the facts, so that none can be in a finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

Status = Literal["ok", "warning", "problem"]
GIB: Final = 1024**3
MIB: Final = 1024**2
LEAST_FREE_BYTES: Final = GIB
NEARLY_FULL_BYTES: Final = 32 * MIB
"""Below this the next writes fail: SQLite's log and the index want some room each."""
LISTED: Final = 10
"""Details that are named one by one; the rest is counted."""
MIN_PYTHON: Final = (3, 11)
NETWORK: Final = frozenset(
    ["afpfs", "afs", "ceph", "cifs", "davfs", "glusterfs", "lustre", "nfs", "nfs4", "smb2", "smb3", "smbfs", "webdav"]
)
HOST_SHARED: Final = frozenset(["9p", "drvfs", "prl_fs", "vboxsf", "virtiofs", "vmhgfs"])
REMOTE_FUSE: Final = ("fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs")
REMOTE_FILE_SYSTEMS: Final = NETWORK | HOST_SHARED | frozenset(REMOTE_FUSE)
"""Where locks and the memory-mapped log of SQLite cannot be relied on."""
PASSING_FILE_SYSTEMS: Final = {
    "overlay": "a container's own layer, which goes when the container goes",
    "tmpfs": "memory, which is empty after the next start of the machine",
    "ramfs": "memory, which is empty after the next start of the machine",
}
ORDER: Final[Mapping[Status, int]] = {"ok": 0, "warning": 1, "problem": 2}
"""From the best to the worst."""


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
    if facts.kind == "other":
        return Check("home", "problem", f"{where} is not a directory", f"move it away, or {move}")
    if facts.kind == "unreachable":
        return Check(
            "home", "problem", f"{where} cannot be looked at", f"mend the owner and mode of its parents, or {move}"
        )
    if not facts.owned:
        return Check("home", "problem", f"{where} belongs to another user", move)
    if facts.open_to_all:
        return Check("home", "problem", f"everyone may write in {where}", f"chmod 700 it, or {move}")
    if not facts.writable:
        return Check("home", "problem", f"{where} cannot be written", f"mend its owner and mode (0700), or {move}")
    if facts.half_restored:
        found = f"a restore of {where} was interrupted while it replaced files"
        return Check("home", "problem", found, "run 'remembrancer restore' with the same backup again")
    if facts.file_system in REMOTE_FILE_SYSTEMS:
        found = f"{where} is on a file system of a network or another machine ({facts.file_system})"
        return Check("home", "warning", found, f"SQLite's locks may fail there: {move} on a local disk")
    if facts.file_system in PASSING_FILE_SYSTEMS and not facts.meant_to_pass:
        found = f"{where} is in {PASSING_FILE_SYSTEMS[facts.file_system]} ({facts.file_system})"
        return Check("home", "warning", found, f"to keep what is remembered, {move} on a lasting disk or volume")
    notes = [] if facts.sockets is None else [f"its path is too long for sockets, which lie in {facts.sockets}"]
    found = where if facts.kind == "directory" else f"{where} is not there yet: the first session makes it"
    return Check("home", "ok", found, details=tuple(notes))


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
    advice = "give what belongs to another user to yours (chown)" if foreign else ""
    if foreign < len(wide):
        advice = "; ".join([*([advice] if advice else []), "'remembrancer doctor --fix' narrows the modes"])
    status: Status = "problem" if foreign else "warning"
    return Check(
        "permissions", status, f"{len(wide)} of {looked_at} are open to others", advice, few(details + narrowed)
    )


def check_disk(free_bytes: int, database_bytes: int) -> Check:
    """Whether there is room: at least 1 GiB, and twice what is stored."""
    found = f"{size(free_bytes)} free; {size(database_bytes)} are used here"
    if free_bytes < NEARLY_FULL_BYTES:
        return Check("disk", "problem", found, "make room now: the next writes fail")
    if free_bytes < max(LEAST_FREE_BYTES, 2 * database_bytes):
        return Check("disk", "warning", found, "make room: backups and a new index need about as much as is used")
    return Check("disk", "ok", found)


def check_versions(python: tuple[int, int, int], sqlite: str, *, has_fts5: bool) -> Check:
    """Whether Python and SQLite can do what is asked of them."""
    found = f"Python {'.'.join(map(str, python))}, SQLite {sqlite}{' with FTS5' if has_fts5 else ' without FTS5'}"
    if python[:2] < MIN_PYTHON:
        return Check("versions", "problem", found, f"Python {'.'.join(map(str, MIN_PYTHON))} or newer is needed")
    if not has_fts5:
        return Check(
            "versions", "problem", found, "use a Python whose SQLite has FTS5: memories cannot be stored without"
        )
    return Check("versions", "ok", found)


def check_configuration(error: str | None) -> Check:
    """Whether the settings can be read."""
    if error is not None:
        return Check("configuration", "problem", error, "mend that setting: no runtime starts with it")
    return Check("configuration", "ok", "every setting is known and allowed")


def check_failed(name: str, error: Exception) -> Check:
    """A check that could not be made."""
    return Check(
        name, "problem", f"this could not be looked at: {error}", "see the message; mend that and run this again"
    )


def size(number: int) -> str:
    """A size as a person says it."""
    if number >= GIB:
        return f"{number / GIB:.1f} GiB"
    return f"{number / MIB:.1f} MiB"


def few(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    return lines if len(lines) <= LISTED else (*lines[:LISTED], f"and {len(lines) - LISTED} more")
