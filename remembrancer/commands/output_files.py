"""Writes files for a user. They are durable and private, and never replace another user's file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from remembrancer.protocol.errors import FileUnusable, InvalidInput
from remembrancer.protocol.paths import move_into_place

PRIVATE_UMASK: Final = 0o077


def cannot(what: str, path: Path | str, error: OSError) -> FileUnusable:
    return FileUnusable(f"{path} cannot be {what}: {error.strerror or error}")


def stamp(now: float) -> str:
    """A time for file names: `20260131T235959Z`, in UTC."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


def target_of(named: str | None, default_name: str, *, force: bool) -> Path:
    """The file to write. Its default directory is the working directory, or the user's home if that is in a repository,
    which should not contain memories by accident. Raises `InvalidInput` if the file exists, unless `force`."""
    target = Path.cwd() if named is None else Path(named).expanduser()
    if named is None and any((parent / ".git").exists() for parent in (target, *target.parents)):
        target = Path.home()
    if target.is_dir():
        target = target / default_name
    if not force:
        _refuse_existing(target)
    return target.parent.resolve() / target.name


@contextmanager
def new_file(target: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """A private file that is durably renamed to `target` at the end of the block, unless there was an error. Until then
    it is called `NAME.part`, and a killed process leaves it behind. Raises `InvalidInput` or `FileUnusable`."""
    fresh = target.with_name(f"{target.name}.part")
    try:
        with open(fresh, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            try:
                yield file
                file.flush()
                if not force:
                    _refuse_existing(target)
                move_into_place(fresh, target)
            finally:
                fresh.unlink(missing_ok=True)
    except OSError as error:
        what = fresh if isinstance(error, FileExistsError) else target
        raise cannot("written", what, error) from error


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise InvalidInput(f"{target} already exists; choose another file, or replace it with --force")
