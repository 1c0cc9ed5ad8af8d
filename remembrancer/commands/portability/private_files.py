"""Files that a command makes for a person: private, whole or not at all, and never in the place of another one."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, ClassVar, Final

from remembrancer.protocol.errors import InvalidInput, RemembrancerError

PRIVATE_UMASK: Final = 0o077
_NO_HARD_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class FileUnusable(RemembrancerError):
    """A file that was named cannot be read or written, is damaged, or is not what it should be."""

    code: ClassVar[str] = "file_unusable"


def cannot(what: str, path: Path | str, error: OSError) -> FileUnusable:
    """The error for a file that the system does not let us read or write."""
    return FileUnusable(f"{path} cannot be {what}: {error.strerror or error}")


def stamp(now: float) -> str:
    """A time (seconds since the epoch) as it stands in names of files: `20260131T235959Z`, in UTC."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


def target_of(named: str | None, default_name: str, *, force: bool) -> Path:
    """The file to make: what was named, `default_name` in a directory that was named, or else in the present one.

    Raises:
        InvalidInput: it is there already, and `force` was not given.
    """
    target = Path(default_name) if named is None else Path(named).expanduser()
    if target.is_dir():
        target = target / default_name
    if not force:
        _refuse_existing(target)
    return target.absolute()


@contextlib.contextmanager
def new_file(target: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """A file of mode 0600 to write into, which gets its name, durably, at the end of the block. An error leaves none.

    Until then it is found under the file object's own `name`.

    Raises:
        InvalidInput: a file of that name is there (and not `force`).
        FileUnusable: it cannot be written.
    """
    with new_directory(target) as directory:
        fresh = directory / "new"
        try:
            with open(fresh, "xb", opener=_private) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _name(fresh, target, force=force)
            sync_directory(target.parent)
        except OSError as error:
            raise cannot("written", target, error) from error


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A private directory beside `target`, so that what is made in it can be renamed; it is gone after the block."""
    try:
        directory = tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise cannot("written", target, error) from error
    with directory as name:
        yield Path(name)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _name(fresh: Path, target: Path, *, force: bool) -> None:
    """Unlike a renaming, a link fails when somebody else has made the file meanwhile."""
    if force:
        fresh.replace(target)
        return
    try:
        os.link(fresh, target)
    except FileExistsError:
        _refuse_existing(target)
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        _refuse_existing(target)
        fresh.replace(target)


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise InvalidInput(f"{target} is there already: name another file, or replace it with --force")
