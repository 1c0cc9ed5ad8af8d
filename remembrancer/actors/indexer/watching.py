"""The times at which files are read again, by what the system tells of them and by how long they were still; and how
many of them at once."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import anyio
from watchfiles import Change, awatch

STILL_S: Final = 1.5
"""A file that changed a shorter time ago is perhaps being written: it is left for the next time."""
LONGEST_S: Final = 4.0
"""So much longer after the first change they are read although others still change."""
GROUPED_MS: Final = 200
"""Changes that come together within so many milliseconds are told together."""
UNWATCHED_LOOK_S: Final = 10.0
"""So often files are compared where the system cannot tell of changes,"""
RETRY_S: Final = 5.0
"""and so soon where that has failed."""

T = TypeVar("T")


def portions(
    items: Iterable[T], size_of: Callable[[T], int], enough: int, most: int | None = None
) -> Iterator[list[T]]:
    """Items in portions of a size together that is `enough`, and no more than `most` of them: the last one may be
    smaller, one item is never divided."""
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


class Quiet:
    """Waits until nothing has changed for `quiet_s`. Pure; times are seconds of any clock that only goes forward."""

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._changed_at: dict[str, float] = {}
        self._first_at = math.inf
        self._last_at = math.inf

    @property
    def due_at(self) -> float:
        """The time at which the files are to be read; never, if nothing has changed since they were."""
        return min(self._last_at + self._quiet_s, self._first_at + self._quiet_s + LONGEST_S)

    def note(self, path: str, now: float) -> None:
        """A file has changed."""
        self._changed_at[path] = self._last_at = now
        self._first_at = min(self._first_at, now)

    def take(self, now: float) -> None:
        """The files are about to be read: what has been still for long enough is forgotten."""
        self._changed_at = {path: at for path, at in self._changed_at.items() if now - at < STILL_S}
        self._first_at = self._last_at = math.inf

    def is_still(self, path: str, now: float) -> bool:
        """True if nothing was heard of a file for long enough."""
        return now - self._changed_at.get(path, -math.inf) >= STILL_S


def _is_directory(path: Path) -> bool:
    """True if a path is a directory itself: a link may lead to the whole disk."""
    return path.is_dir() and not path.is_symlink()


async def changes(root: Path, inside: Collection[Path], is_wanted: Callable[[Path], bool]) -> AsyncIterator[set[str]]:
    """The paths that change: those of a workspace's root itself that are wanted, and all in some directories.

    Ends when one of these directories comes or goes: then other ones have to be watched. Raises what the system does
    where it cannot watch.
    """
    there = set(filter(_is_directory, inside))
    send, receive = anyio.create_memory_object_stream[set[str]](100)

    async def watch(path: Path, recursive: bool) -> None:
        def passes(_: Change, changed: str) -> bool:
            return recursive or is_wanted(Path(changed))

        watched = awatch(path, watch_filter=passes, debounce=GROUPED_MS, step=50, recursive=recursive)
        async for told in watched:
            await send.send({changed for _, changed in told})

    async with send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(watch, root, False)
        for path in there:
            tasks.start_soon(watch, path, True)
        async for told in receive:
            yield told
            if there != set(filter(_is_directory, inside)):
                tasks.cancel_scope.cancel()
