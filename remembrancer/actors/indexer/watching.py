"""Compares the files of one tree with their index, and reads the changed ones."""

import logging
import math
import sqlite3
import time
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
import msgspec
from watchfiles import Change, awatch

from remembrancer.actors.index_file import FileState, IndexWriter, ReadNote
from remembrancer.code.reader import ReadFile
from remembrancer.protocol.errors import InternalError, RecordsUnusable, RemembrancerError
from remembrancer.protocol.files import IndexedTree, SyncDone, ToRead
from remembrancer.protocol.paths import delete_database
from remembrancer.protocol.system import IS_POLLED

UNWATCHED_LOOK_S: Final = 10.0
"""The interval between comparisons where the system cannot report changes."""
RETRY_S: Final = 5.0
FIRST_REPORT_MS: Final = 2000
"""A new watch reports that it has begun after this time without changes."""
MAX_OPEN_BATCHES: Final = 4
"""The maximum number of batches of files being read or waiting to be indexed."""
BATCH_FILES: Final = 200
DAMAGED: Final = (RecordsUnusable, InternalError, zlib.error, UnicodeDecodeError)

logger = logging.getLogger(__name__)


class Scan(NamedTuple):
    """The files to read, the paths that are gone, the number of all files, and those left out, by path or by reason."""

    changed: Sequence[Any]
    removed: Sequence[str]
    total: int
    skipped: Mapping[str, Any]


class TreeFiles(ABC):
    root: Path
    quiet_s: float
    longest_s: float
    """The maximum time before files are read, even if they keep changing."""
    look_s: float = math.inf
    """The interval between comparisons while no changes are reported."""
    batch_bytes: int
    native: tuple[str, ...] = ()
    """The places where assistants keep their own memories."""

    @abstractmethod
    def open_index(self, path: Path) -> IndexWriter: ...

    @abstractmethod
    def scan(self, known: Mapping[str, FileState], asked: ToRead | None) -> Scan | None:
        """Compare the disk with these files of the index; None if the tree is gone. Blocks."""

    @abstractmethod
    async def read(self, batch: Sequence[Any]) -> Sequence[ReadFile | ReadNote]: ...

    def left_out(self, scan: Scan, known: Mapping[str, FileState]) -> dict[str, str]:
        """The skipped files to report to a client, with the reasons."""
        return {}

    @abstractmethod
    def directories(self) -> set[Path]:
        """The existing directories to watch recursively. The root is always watched, but not recursively."""

    @abstractmethod
    def concerns(self, path: Path) -> bool:
        """True if a change to this path may affect the index."""


class Indexer:
    """Keeps the index of one tree up to date, and reports progress to the store. Run `run` as a task."""

    def __init__(self, tree: IndexedTree, files: TreeFiles, tell: Callable[[SyncDone], object]) -> None:
        self.tree = tree
        self._files = files
        self._tell = tell
        self.is_watching = tree.watch
        self._asked: dict[int, ToRead] = {}
        self._wake = anyio.Event()
        self.scope = anyio.CancelScope()
        """Cancelled to end `run`."""
        self.files = self.native_files = 0
        """The number of files in the index, and the number of those that are assistants' own memories."""
        self.error: str | None = None

    async def run(self) -> None:
        with self.scope:
            async with anyio.create_task_group() as tasks:
                if self.tree.watch:
                    tasks.start_soon(self._follow)
                while True:
                    self._wake = anyio.Event()
                    with anyio.move_on_after(await self._compare()):
                        await self._wake.wait()

    def wake(self) -> None:
        self._wake.set()

    def ask(self, sync_id: int, asked: ToRead) -> None:
        if sync_id not in self._asked:
            self._asked[sync_id] = asked
            self.wake()

    async def _compare(self) -> float:
        """Returns the number of seconds until the next comparison is due."""
        sync_id, asked = next(iter(self._asked.items()), (None, None))
        began, path = time.monotonic(), Path(self.tree.database)
        try:
            done = await self._sync(path, asked)
            self.error = None
        except (RemembrancerError, OSError, MemoryError, msgspec.DecodeError, *DAMAGED) as error:
            self.error = str(error)
            logger.warning("files were not indexed", extra={"root": self.tree.root, "reason": self.error})
            if isinstance(error, DAMAGED) and not isinstance(error.__cause__, sqlite3.OperationalError):
                with suppress(OSError):  # the next attempt reports it
                    await anyio.to_thread.run_sync(delete_database, path)
            done = SyncDone(self.tree, error=self.error)
        if sync_id is not None:
            self._asked.pop(sync_id, None)
        self._tell(msgspec.structs.replace(done, sync_id=sync_id, duration_s=time.monotonic() - began))
        if self._asked:
            return 0.0
        return self._files.look_s if self.error is None else RETRY_S

    async def _sync(self, path: Path, asked: ToRead | None) -> SyncDone:
        run, root, counts = anyio.to_thread.run_sync, self.tree.root, Counter[str]()
        with closing(await run(self._files.open_index, path)) as index:

            async def note(**about: object) -> None:
                await run(lambda: index.note(root, **about))

            known, about = await run(index.known, root), await run(index.about, root)
            scan = await run(self._files.scan, known, asked)
            if scan is None:
                if about.get("status") != "failed":
                    await note(status="failed", error="the directory does not exist")
                return SyncDone(self.tree)
            skipped = msgspec.json.encode(dict(sorted(scan.skipped.items()))).decode()
            if scan.changed or scan.removed or (about.get("status") != "ready" and (about or self.tree.kind == "code")):
                await note(status="indexing", total_files=scan.total, started_at=time.time(), error="")
                counts = await self._read(index, scan)
                await note(status="ready", completed_at=time.time(), skipped=skipped)
                known = await run(index.known, root)
            elif about and (about["skipped"], about["total_files"]) != (skipped, scan.total):
                await note(skipped=skipped, total_files=scan.total)
        added, is_forced = counts["added"], asked is not None and asked.force
        updated = counts["chunks"] - added if is_forced else counts["updated"]
        indexed = [path for path, state in known.items() if not state.skipped]
        self.files, self.native_files = len(indexed), sum(path.startswith(self._files.native) for path in indexed)
        left_out = self._files.left_out(scan, known)
        return SyncDone(self.tree, 0, scan.total, updated, added, counts["removed"], skipped=left_out)

    async def _read(self, index: IndexWriter, scan: Scan) -> Counter[str]:
        """Returns the counts of `IndexWriter.take`, and the number of `chunks` that were read."""
        run, root = anyio.to_thread.run_sync, self.tree.root
        lock, few = anyio.Lock(), anyio.Semaphore(MAX_OPEN_BATCHES)
        counts, left = Counter[str](), len(scan.changed)
        if left:
            self._tell(SyncDone(self.tree, left))

        async def take_in(batch: Sequence[Any]) -> None:
            nonlocal left
            files = await self._files.read(batch)
            async with lock:
                counts.update(await run(index.take, root, files))
            counts["chunks"] += sum(len(file.chunks or ()) for file in files)
            left -= len(batch)
            if left:
                self._tell(SyncDone(self.tree, left))
            few.release()

        try:
            async with anyio.create_task_group() as tasks:
                for batch in _batches(scan.changed, self._files.batch_bytes):
                    await few.acquire()
                    tasks.start_soon(take_in, batch)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        for start in range(0, len(scan.removed), BATCH_FILES):
            counts.update(await run(index.take, root, (), scan.removed[start : start + BATCH_FILES]))
        return counts

    async def _follow(self) -> None:
        while True:
            pause_s = 0.0
            try:
                await self._watch_these(self._files.directories())
            except* (OSError, RuntimeError) as errors:  # RuntimeError may also mean a name that is not UTF-8
                if self.is_watching:
                    logger.info(
                        "changes are not reported", extra={"root": str(self._files.root), "reason": repr(errors)}
                    )
                self.is_watching = False
                pause_s = UNWATCHED_LOOK_S
            self._wake.set()
            await anyio.sleep(pause_s)

    async def _watch_these(self, directories: set[Path]) -> None:
        """Report changes until the set of watched directories changes, or one of them is deleted."""

        async def watch(paths: set[Path], recursive: bool) -> None:
            is_due = True  # changes before the watch began were not reported
            async for reported in awatch(
                *paths,
                watch_filter=lambda _, path: self._files.concerns(Path(path)),
                debounce=max(1, int(1000 * self._files.longest_s)),
                step=max(1, int(1000 * self._files.quiet_s)),
                rust_timeout=FIRST_REPORT_MS,
                yield_on_timeout=True,
                recursive=recursive,
                force_polling=IS_POLLED or None,  # None: where the system cannot report changes
            ):
                if reported or is_due:
                    self._wake.set()
                # Polling misses a second change within one second, so the tree is compared again when changes stop.
                is_due, self.is_watching = IS_POLLED and bool(reported), True
                is_gone = any(change is Change.deleted and Path(path) in paths for change, path in reported)
                if is_gone or (reported and directories != self._files.directories()):
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for paths, recursive in (({self._files.root} - directories, False), (directories, True)):
                if paths:
                    tasks.start_soon(watch, paths, recursive)


def _batches(files: Sequence[Any], enough_bytes: int) -> Iterator[list[Any]]:
    portion: list[Any] = []
    size = 0
    for file in files:
        portion.append(file)
        size += file.size
        if size >= enough_bytes or len(portion) == BATCH_FILES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
