"""Compares the files of one directory with their index: at the start, on request, and after every change."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import anyio
from watchfiles import Change, awatch

UNWATCHED_LOOK_S: Final = 10.0
"""The interval between comparisons where the system cannot report changes."""
RETRY_S: Final = 5.0
"""The delay before the next attempt after a failure."""
FIRST_REPORT_MS: Final = 2000
"""The time after which a watch without changes reports that it has begun."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Indexer(ABC):
    """Keeps the index of the files of one directory up to date. Use `run` as a task."""

    quiet_s: float
    """The time without a change after which files are read."""
    longest_s: float
    """The time after which they are read at the latest, while others keep changing."""

    def __init__(self, root: Path, *, watch: bool) -> None:
        self._root = root
        self._watch = self.is_watching = watch
        self._wake = anyio.Event()
        self._scope = anyio.CancelScope()
        self.syncs = 0
        """The number of completed comparisons."""

    async def run(self) -> None:
        """Compare files and index now and after every change, until `cancel`."""
        with self._scope:
            async with anyio.create_task_group() as tasks:
                if self._watch:
                    tasks.start_soon(self._follow)
                while True:
                    self._wake = anyio.Event()
                    with anyio.move_on_after(await self._compare()):
                        await self._wake.wait()

    def cancel(self) -> None:
        """End `run`."""
        self._scope.cancel()

    @abstractmethod
    async def _compare(self) -> float | None:
        """Bring the index up to date. Returns the seconds until the next comparison is due; None: only a change is
        waited for."""

    @abstractmethod
    def _directories(self) -> set[Path]:
        """The existing directories that are watched with all below them; of the root, its direct content always is."""

    @abstractmethod
    def _concerns(self, path: Path) -> bool:
        """True if a change of this path may change the index."""

    async def _follow(self) -> None:
        """Have the files compared after each change, and from time to time while the system cannot report any."""
        while True:
            pause_s = 0.0
            try:
                await self._watch_these(self._directories())
            except* (OSError, RuntimeError) as errors:  # the latter also for a name that is not UTF-8
                if self.is_watching:
                    logger.info("changes are not reported", extra={"root": str(self._root), "reason": repr(errors)})
                self.is_watching = False
                pause_s = UNWATCHED_LOOK_S
            self._wake.set()
            await anyio.sleep(pause_s)

    async def _watch_these(self, directories: set[Path]) -> None:
        """Report changes until other directories have to be watched: one has appeared, or is gone, and a successor of
        the same name would not be noticed."""

        async def watch(paths: set[Path], recursive: bool) -> None:
            is_first = True
            async for reported in awatch(
                *paths,
                watch_filter=lambda _, path: self._concerns(Path(path)),
                debounce=max(1, int(1000 * self.longest_s)),
                step=max(1, int(1000 * self.quiet_s)),
                rust_timeout=FIRST_REPORT_MS,
                yield_on_timeout=True,
                recursive=recursive,
            ):
                if reported or is_first:  # changes before the watch began were not reported
                    self._wake.set()
                is_first, self.is_watching = False, True
                is_gone = any(change is Change.deleted and Path(path) in paths for change, path in reported)
                if is_gone or (reported and directories != self._directories()):
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for paths, recursive in (({self._root} - directories, False), (directories, True)):
                if paths:
                    tasks.start_soon(watch, paths, recursive)


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
