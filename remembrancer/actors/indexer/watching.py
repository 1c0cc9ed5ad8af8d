"""Decides when changed files are read, by how long they have been still, and how many at once."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import anyio
from watchfiles import Change, awatch

STILL_S: Final = 1.5
"""A file that changed more recently may still be being written; it is left for the next time."""
LONGEST_S: Final = 4.0
"""The longest wait after the first change while other files keep changing."""
GROUPED_MS: Final = 200
"""Changes within this many milliseconds are reported together."""
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


class Quiet:
    """Waits until nothing has changed for `quiet_s`. Pure; times are seconds of any monotonic clock."""

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._changed_at: dict[str, float] = {}
        self._first_at = math.inf
        self._last_at = math.inf

    @property
    def due_at(self) -> float:
        """The time at which the files should be read; infinite if nothing has changed since the last reading."""
        return min(self._last_at + self._quiet_s, self._first_at + self._quiet_s + LONGEST_S)

    def note(self, path: str, now: float) -> None:
        """Record a change of a file."""
        self._changed_at[path] = self._last_at = now
        self._first_at = min(self._first_at, now)

    def take(self, now: float) -> None:
        """Forget the changes that have been still for long enough: the files are about to be read."""
        self._changed_at = {path: at for path, at in self._changed_at.items() if now - at < STILL_S}
        self._first_at = self._last_at = math.inf

    def is_still(self, path: str, now: float) -> bool:
        """True if a file has not changed for long enough."""
        return now - self._changed_at.get(path, -math.inf) >= STILL_S


def _is_directory(path: Path) -> bool:
    """True if a path is a directory and not a link, which could lead anywhere."""
    return path.is_dir() and not path.is_symlink()


async def changes(root: Path, inside: Collection[Path], is_wanted: Callable[[Path], bool]) -> AsyncIterator[set[str]]:
    """The paths that change: the wanted ones directly in the workspace's root, and all in certain directories.

    Ends when one of these directories appears or disappears, since others have to be watched then. Raises the system's
    error where watching is impossible.
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
