"""The home directory: what it is, who can get at it, how much room it has."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from remembrancer.commands.checking.checks import HomeFacts, Wide
from remembrancer.protocol.paths import RuntimePaths

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
IN_MEMORY: Final = "remembrancer-memory-"
"""How the name of a home begins that is meant to be kept in memory."""
OURS: Final = (
    "logs",
    "run",
    "user",
    "projects",
    "vectors",
    "keys",
    "hooks",
    "*.lock",
    "*.db",
    "*.db-*",
    "queue.damaged-*",
    "runtime.*",
    "config.*",
    "restore.*",
    "before-restore-*",
)
"""What lies in a home. Anything else there is a person's, and is not ours to judge or to narrow."""


def home_facts(paths: RuntimePaths) -> HomeFacts:
    """See `HomeFacts`. A home that is missing is judged by the nearest directory that is there."""
    home = paths.home
    sockets = None if paths.run.parent == home else paths.run
    try:
        about = home.stat()
    except FileNotFoundError:
        nearest = nearest_directory(home)
        return HomeFacts(
            home, "missing", _is_writable(nearest), file_system=file_system(nearest), sockets=sockets,
            meant_to_pass=home.name.startswith(IN_MEMORY),
        )  # fmt: skip
    except OSError:
        return HomeFacts(home, "other" if _has_a_file_on_the_way(home) else "unreachable", writable=False)
    if not stat.S_ISDIR(about.st_mode):
        return HomeFacts(home, "other", writable=False)
    return HomeFacts(
        home,
        "directory",
        writable=_is_writable(home),
        owned=about.st_uid == os.getuid(),
        open_to_all=bool(about.st_mode & stat.S_IWOTH),
        file_system=file_system(home),
        sockets=sockets,
        meant_to_pass=home.name.startswith(IN_MEMORY),
        half_restored=paths.restore_mark.exists(),
    )


def nearest_directory(path: Path) -> Path:
    """The path, or the nearest of its parents, that is there."""
    return next((each for each in (path, *path.parents) if each.exists()), Path("/"))


def file_system(path: Path) -> str | None:
    """The type of the file system that holds a path, as the system names it."""
    real = Path(os.path.realpath(path))
    holding = [each for each in psutil.disk_partitions(all=True) if real.is_relative_to(each.mountpoint)]
    # Of two mounts at one place the later one is what is seen.
    best = max(enumerate(holding), key=lambda each: (len(Path(each[1].mountpoint).parts), each[0]), default=None)
    return best[1].fstype if best is not None else None


def free_bytes(path: Path) -> int:
    """What a user's program may still write where the path lies, or will lie."""
    return shutil.disk_usage(nearest_directory(path)).free


def used_bytes(home: Path) -> int:
    """What the home's files hold."""
    return sum(about.st_size for path, about in everything(home) if stat.S_ISREG(about.st_mode) and path != home)


def everything(home: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The home and all of ours in it, with what the system says of each. Symbolic links are not followed."""
    if not home.is_dir():
        return
    yield home, home.stat()
    for top in sorted({path for pattern in OURS for path in home.glob(pattern)}):
        yield from _below(top)


def wide_places(paths: RuntimePaths) -> tuple[list[Wide], int]:
    """What others can get at, or what is another user's; and how much was looked at."""
    places = list(everything(paths.home))
    if paths.run.parent != paths.home and paths.run.is_dir():
        places += _below(paths.run)
    found = []
    for path, about in places:
        mode = stat.S_IMODE(about.st_mode)
        owned = about.st_uid == os.getuid()
        if stat.S_ISLNK(about.st_mode) or (owned and not mode & 0o077):
            continue
        found.append(Wide(path, mode, mode & PRIVATE_DIRECTORY, owned))
    return found, len(places)


def narrow(wide: list[Wide]) -> list[Wide]:
    """Take from others what they may do with each; returns those with which that was done."""
    done = []
    for each in wide:
        if each.owned and not each.path.is_symlink():
            try:
                each.path.chmod(each.wanted)
            except OSError:
                continue  # it is still wide when it is looked at again
            done.append(each)
    return done


def _below(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        about = top.lstat()
    except OSError:
        return  # gone meanwhile
    yield top, about
    if stat.S_ISDIR(about.st_mode):
        try:
            children = sorted(top.iterdir())
        except OSError:
            return
        for child in children:
            yield from _below(child)


def _is_writable(directory: Path) -> bool:
    read_only = bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    return not read_only and os.access(directory, os.R_OK | os.W_OK | os.X_OK)


def _has_a_file_on_the_way(path: Path) -> bool:
    return any(parent.is_file() for parent in path.parents)
