"""Reports changes of files, and divides work into portions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import anyio
from watchfiles import Change, awatch

LONGEST_S: Final = 4.0
"""The longest wait after a quiet interval should have begun, while other files keep changing."""
UNWATCHED_LOOK_S: Final = 10.0
"""The interval between comparisons where the system cannot report changes."""
RETRY_S: Final = 5.0
"""The delay before the next attempt after a failure."""

T = TypeVar("T")


def portions(
    items: Iterable[T], size_of: Callable[[T], int], enough: int, most: int | None = None
) -> Iterator[list[T]]:
    """The items in portions of about `enough` size and at most `most` items. The last one may be smaller; an item is
    never divided."""
    portion: list[T] = []
    size = 0
    for item in items:
        portion.append(item)
        size += size_of(item)
        if size >= enough or len(portion) == most:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _is_directory(path: Path) -> bool:
    """True if a path is a directory and not a link, which could lead anywhere."""
    return path.is_dir() and not path.is_symlink()


async def changes(
    root: Path, inside: Collection[Path], is_wanted: Callable[[Path], bool], quiet_s: float
) -> AsyncIterator[None]:
    """Yields `quiet_s` after changes: of the wanted paths directly in the workspace's root, and of all in certain
    directories.

    Ends when one of these directories appears or disappears, since others have to be watched then. Raises the system's
    error where watching is impossible.
    """
    there = set(filter(_is_directory, inside))
    quiet_ms, longest_ms = max(1, int(1000 * quiet_s)), int(1000 * (quiet_s + LONGEST_S))
    send, receive = anyio.create_memory_object_stream[None](100)

    async def watch(path: Path, recursive: bool) -> None:
        def passes(_: Change, changed: str) -> bool:
            return recursive or is_wanted(Path(changed))

        watched = awatch(path, watch_filter=passes, debounce=longest_ms, step=quiet_ms, recursive=recursive)
        async for _ in watched:
            await send.send(None)

    async with send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(watch, root, False)
        for path in there:
            tasks.start_soon(watch, path, True)
        async for _ in receive:
            yield
            if there != set(filter(_is_directory, inside)):
                tasks.cancel_scope.cancel()
