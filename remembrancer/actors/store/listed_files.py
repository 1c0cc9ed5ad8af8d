"""Compares the files of an index with the disk, for a person who wants to know whether the index is up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec

from remembrancer.protocol.errors import DeadlineExceeded
from remembrancer.protocol.files import Files, IndexState, ListedFile


async def compared(
    root: str, files: Sequence[ListedFile], limit: int, changed: IndexState, within_s: float
) -> Files[ListedFile]:
    """The first of these files with their states; those that differ from the disk are `changed`.

    Raises:
        DeadlineExceeded: the disk does not answer in time.
    """
    look = partial(_compared, Path(root), files[:limit], changed)
    # On a thread of its own: the disk of a workspace may hang.
    looking = asyncio.get_running_loop().run_in_executor(None, look)
    try:
        with anyio.fail_after(within_s):
            found = await asyncio.shield(looking)
    except TimeoutError as error:
        raise DeadlineExceeded(f"the disk with {root} does not answer") from error
    return Files(found, len(files) > limit)


def _compared(root: Path, files: Sequence[ListedFile], changed: IndexState) -> tuple[ListedFile, ...]:
    return tuple(
        each if _is_current(root / each.path, each) else msgspec.structs.replace(each, state=changed) for each in files
    )


def _is_current(path: Path, file: ListedFile) -> bool:
    try:
        about = path.stat()
    except OSError:
        return False
    return (about.st_mtime_ns, about.st_size) == (file.mtime_ns, file.size)
