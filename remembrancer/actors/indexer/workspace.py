"""One workspace: its files are compared with the index; changed ones are read, cut into chunks and sent.

Decisions rest on the disk and on what the store says it has, so a kill costs nothing but the time to compare again.
"""

import logging
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from remembrancer.actors.indexer.file_reading import OTHER_PROJECT, FileReader
from remembrancer.actors.indexer.watching import RETRY_S, Indexer, portions
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.files import (
    FileState,
    FileUpdate,
    IndexFiles,
    ReadIndexed,
    SyncDone,
    SyncFiles,
    Workspace,
)
from remembrancer.protocol.store_client import StoreClient
from remembrancer.toolsets.files.workspace_files import FoundFile, native_places, note_paths, scan

BATCH_CHUNKS: Final = 100
"""Chunks in one message, which take a transaction of a few milliseconds."""
BATCH_FILES: Final = 200
LONGEST_S: Final = 4.0
"""The longest wait after a quiet interval should have begun, while other files keep changing."""
TRANSCRIPTS_LOOK_S: Final = 30.0
"""The interval between looks at transcripts, which grow all the time and are read in larger pieces."""

Read = tuple[FoundFile, FileUpdate | str | None]
"""A file, and the outcome of `FileReader.read`."""
logger = logging.getLogger(__name__)


class WorkspaceIndexer(Indexer):
    """Keeps the index of one workspace up to date."""

    def __init__(self, workspace: Workspace, store: StoreClient, settings: Settings) -> None:
        super().__init__(Path(workspace.root), watch=settings.watch)
        self.workspace = workspace
        self.quiet_s, self.longest_s = settings.watch_quiet_s, settings.watch_quiet_s + LONGEST_S
        self._places = note_paths(self._root, settings)
        self._store = store
        self._settings = settings
        self._reader = FileReader(self._root, settings)
        self._asked: dict[int, SyncFiles] = {}
        self._known: dict[str, FileState] | None = None
        """The files in the index; None while that is not known for certain."""
        self._epoch = 0
        """Incremented whenever the store is lost."""
        self._unreadable: dict[FoundFile, str] = {}
        """The files that could not be read, as they were found, with the reason."""
        self.error: str | None = None

    @property
    def files(self) -> int:
        """The number of the workspace's files in the index."""
        return len(self._known or ())

    @property
    def native_files(self) -> int:
        """The number of those that belong to the assistants' own memory."""
        places = [str(Path(place).expanduser()) for place in native_places(self._root)]
        return sum(path.startswith(tuple(places)) for path in self._known or ())

    def ask(self, sync_id: int, asked: SyncFiles) -> None:
        """Read the files now: a client waits for it."""
        if sync_id not in self._asked:
            self._asked[sync_id] = asked
            self._wake.set()

    def forget(self) -> None:
        """Forget what is in the index: the store is a new one."""
        self._known = None
        self._epoch += 1
        self._wake.set()

    def _directories(self) -> set[Path]:
        return {path for path in self._places if path.is_dir() and not path.is_symlink()}  # a link could lead anywhere

    def _concerns(self, path: Path) -> bool:
        return path == self._root or any(path.is_relative_to(place) for place in self._places)

    async def _compare(self) -> float | None:
        sync_id, asked = next(iter(self._asked.items()), (None, None))
        began = time.monotonic()
        try:
            done = await self._sync(asked, began)
            self.error = None
            self.syncs += 1
        except (RemembrancerError, OSError) as error:
            self._known = None
            self.error = str(error)
            logger.warning("files were not read", extra={"root": self.workspace.root, "reason": str(error)})
            done = SyncDone(self.workspace, 0, 0, 0, 0, time.monotonic() - began, error=self.error)
        if sync_id is not None:
            self._asked.pop(sync_id, None)
        self._store.tell(msgspec.structs.replace(done, sync_id=sync_id))
        if self._asked:
            return 0.0
        if self.error is not None:
            return RETRY_S
        transcripts_s = TRANSCRIPTS_LOOK_S if self._settings.transcripts and self._watch else math.inf
        return min(self._settings.sync_interval_s or math.inf, transcripts_s)

    async def _sync(self, asked: SyncFiles | None, began: float) -> SyncDone:
        if asked is not None:
            self._known = None
        epoch = self._epoch
        known = self._known
        if known is None:
            known = {state.path: state for state in await self._store.ask(ReadIndexed(self.workspace))}
        found, skipped = await anyio.to_thread.run_sync(scan, self._root, self._settings)
        source = None if asked is None else asked.source
        present = set(found)
        self._unreadable = {file: reason for file, reason in self._unreadable.items() if file in present}
        force = asked is not None and asked.force
        changed = [file for file in found if self._is_due(file, known.get(file.shown), asked)]
        counts, read_chunks = [0, 0, 0], 0
        unread = len(changed)
        if unread:
            await self._store.ask(IndexFiles(self.workspace, left=unread))
        batches = portions(self._read(changed, known, force), _chunks, BATCH_CHUNKS, BATCH_FILES)
        while read := await anyio.to_thread.run_sync(next, batches, None):
            self._unreadable |= {file: reason for file, reason in read if isinstance(reason, str)}
            unread -= len(read)
            updates = tuple(update for _, update in read if isinstance(update, FileUpdate))
            read_chunks += sum(map(_chunks, read))
            done = await self._store.ask(IndexFiles(self.workspace, updates, left=unread))
            counts = [a + b for a, b in zip(counts, (done.updated, done.added, done.removed), strict=True)]
            known |= {update.state.path: update.state for update in updates}
        there = {file.shown for file in found if file not in self._unreadable}
        removed = [path for path, state in known.items() if path not in there and source in (None, state.source)]
        for start in range(0, len(removed), BATCH_FILES):
            gone = tuple(removed[start : start + BATCH_FILES])
            indexed = await self._store.ask(IndexFiles(self.workspace, removed=gone))
            counts[2] += indexed.removed
            for path in gone:
                known.pop(path, None)
        self._known = known if epoch == self._epoch else None
        unreadable = ((file, reason) for file, reason in self._unreadable.items() if reason != OTHER_PROJECT)
        skipped |= {file.shown: reason for file, reason in unreadable}
        duration_s = time.monotonic() - began
        updated, added, gone_chunks = counts
        return SyncDone(
            self.workspace,
            sum(source in (None, file.source) for file in found),
            read_chunks - added if force else updated,
            added,
            gone_chunks,
            duration_s,
            skipped=skipped,
        )

    def _is_due(self, file: FoundFile, known: FileState | None, asked: SyncFiles | None) -> bool:
        """True if a file is to be read now: it is new or has changed, or a client has it read all the same."""
        is_known = known is not None and (known.mtime_ns, known.size) == (file.mtime_ns, file.size)
        if (is_known or file in self._unreadable) and not (asked is not None and asked.force):
            return False
        if asked is not None:
            return asked.source in (None, file.source)
        return known is None or self._reader.is_due(file, known)

    def _read(self, files: Sequence[FoundFile], known: dict[str, FileState], force: bool) -> Iterator[Read]:
        """The files as they are read. Blocks."""
        for file in files:
            yield file, self._reader.read(file, known.get(file.shown), force=force)


def _chunks(read: Read) -> int:
    return len(read[1].chunks or ()) if isinstance(read[1], FileUpdate) else 0
