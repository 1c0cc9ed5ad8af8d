"""Handles clients' requests about notes and moved projects, and the indexer's reports; opens the indexes of notes.

A workspace is in use while it has a session. Only the indexer's reports tell whether its index is complete.
"""

import asyncio
import logging
import math
import shlex
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec

from remembrancer.actors.sqlite_file import unusable
from remembrancer.actors.store.committer import INDEX
from remembrancer.actors.store.dispatcher import Handler, Handlers, RequestContext, StoreParts, by_request
from remembrancer.actors.store.file_index import FileFilter, FileIndex, FileMemories
from remembrancer.actors.store.indexer_work import IndexerPoll, compared
from remembrancer.actors.store.records.types import USER
from remembrancer.actors.store.retrieval.view import Source
from remembrancer.config.project import workspace_root
from remembrancer.protocol.consolidation import NotePresence
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    InvalidInput,
    MemoryUnavailable,
    NotFound,
    RecordsUnusable,
    RemembrancerError,
    SchemaTooNew,
    SchemaTooOld,
    size_on_disk,
)
from remembrancer.protocol.files import (
    DescribeFiles,
    Files,
    FilesDescription,
    IndexedTree,
    ListFiles,
    SyncDone,
    SyncFiles,
)
from remembrancer.protocol.ids import PROJECT_ID, check_project_id
from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.paths import delete_database
from remembrancer.protocol.reads import Recall
from remembrancer.protocol.sharing import MemoriesMoved, MoveProject
from remembrancer.protocol.sockets import Peer
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.files.workspace_files import has_files

IN_USE_S: Final = 120.0
"""A workspace is watched for this long after the last sign of a session in it."""
PRESENT_S: Final = 12.0
"""A report of connected sessions is valid for this long. Reports arrive twice as often."""

logger = logging.getLogger(__name__)


class FileHandlers(Handlers):
    """`drop_code` deletes the indexes of a project's code, which must be indexed again after a move."""

    def __init__(self, parts: StoreParts, indexer: IndexerPoll, drop_code: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(parts)
        self._indexer = indexer
        self._drop_code = drop_code
        self._moving = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._used_at: dict[IndexedTree, float] = {}
        self._present_at = -math.inf
        self._connected: set[str] = set()
        """The projects in which a client is connected. A session known only from hooks may be idle."""
        self._looking: asyncio.Future[bool] | None = None
        self.has_files = False
        """True if a workspace in use has files to read or already indexed, or if a client has requested any."""

    def handlers(self) -> dict[type, Handler]:
        return by_request(self._describe, self._list, self._sync, self._move)

    def note_presence(self, note: NotePresence) -> None:
        now = time.monotonic()
        self._connected = {project.id for project, _ in note.directories}
        if not note.sessions:
            return
        self._present_at = now
        for project, directory in note.directories:
            if directory and PROJECT_ID.fullmatch(project.id):
                self._used_at[self._tree_of(project.id, workspace_root(directory, self._settings))] = now
        self._used_at = {each: at for each, at in self._used_at.items() if now - at < IN_USE_S}
        self._indexer.use("notes", self._used_at)

    async def _discard_index(self, project_id: str) -> None:
        """Delete the index of a project's notes. Raises `RecordsUnusable` if it cannot be deleted."""
        index, path = self._files.indexes.pop(project_id, None), self._path_of(project_id)
        if index is not None:
            await self._committer.run(index.name, index.close)
        try:
            await self._committer.run(project_id + INDEX, partial(delete_database, path))
        except OSError as error:
            raise unusable(path, error) from error

    async def keep_house(self) -> None:
        roots = [Path(tree.root) for tree in self._used_at]
        if roots and not self.has_files and (self._looking is None or self._looking.done()):
            # Not awaited, and on its own thread, since the disk may hang.
            look = asyncio.get_running_loop().run_in_executor
            self._looking = look(None, lambda: any(has_files(root, self._settings) for root in roots))
            self._looking.add_done_callback(self._note_look)
        for tree in list(self._used_at):
            index = await self._index_of(tree.project_id)  # the indexer may have created it
            if index is not None and not self.has_files:  # indexed files may be gone, or no longer included
                self.has_files = bool(await self._readers.in_background(partial(index.listed, tree.root, "", 1)))
        for project_id in list(self._files.indexes):
            await self._index_of(project_id)

    def _note_look(self, looking: asyncio.Future[bool]) -> None:
        if not looking.cancelled() and looking.exception() is None:
            self.has_files = self.has_files or looking.result()

    def close(self) -> None:
        for index in self._files.indexes.values():
            index.close()
        self._files.indexes.clear()

    # --- The indexer

    def hear(self, _: Peer, done: SyncDone) -> None:
        self._indexer.note(done)
        self._scheduler.wake()

    def _tree_of(self, project_id: str, root: str) -> IndexedTree:
        database = str(self._path_of(check_project_id(project_id)))
        return IndexedTree(project_id, root, database, "notes", self._settings.watch)

    def _path_of(self, project_id: str) -> Path:
        return self._paths.project_database(project_id).with_name(self._settings.index_file)

    # --- Clients

    async def source_of(self, request: Recall, model: str | None) -> Source | None:
        """The notes that a recall searches with this model; None if the project has none."""
        index = await self._index_of(request.project.id) if request.searches_notes else None
        if index is None:
            return None
        sources: tuple[FileSource, ...] = tuple(each for each in request.sources if each != "memory")
        passages = self._vectors.searchable(index.name, model)
        wanted = FileFilter(request.root, sources or ("notes",), request.path, not request.project.sees_user)
        return Source(FileMemories(index, wanted), passages)

    async def _describe(self, request: DescribeFiles, context: RequestContext) -> FilesDescription:
        tree = self._tree_of(request.project.id, request.root)
        index = await self._index_of(tree.project_id)
        done, synced_at = self._indexer.done.get(tree, (None, None))
        if done is not None and done.error is not None:
            context.notices.append(Notice("partial_results", f"Not all files were read: {done.error}."))
        stale = self._indexer.left.get(tree, 0)
        if done is None and tree not in self._indexer.left:
            context.notices.append(Notice("partial_results", "The files have not been compared with the index yet."))
        if index is None:
            sources, pending, size = {}, 0, 0
        else:
            sources = await self._readers.read(partial(index.counts, tree.root))
            pending = await self._readers.read(partial(index.missing, self._scheduler.answering.key))
            size = size_on_disk(index.file.path)
            if synced_at is None:  # not since this store started, but perhaps before
                synced_at = (await self._readers.read(partial(index.about, tree.root))).get("completed_at")
        skipped = {} if done is None else _skipped(done, request.project)
        return FilesDescription(sources, self._scheduler.summary(), synced_at, stale, pending, size, skipped)

    async def _list(self, request: ListFiles, context: RequestContext) -> Files:
        tree = self._tree_of(request.project.id, request.root)
        index = await self._index_of(tree.project_id)
        if index is None:
            return Files(())
        is_inside = not request.project.sees_user
        listed = partial(index.listed, tree.root, request.after, request.limit + 1, is_inside=is_inside)
        found = await self._readers.read(listed)
        is_read = self._indexer.left.get(tree, 0) or self._indexer.is_asked(tree)
        within_s = context.remaining_s()
        return await compared(tree.root, found, request.limit, "syncing" if is_read else "stale", within_s)

    async def _sync(self, request: SyncFiles, context: RequestContext) -> SyncDone:
        self.has_files = True  # the request needs an indexer
        tree = self._tree_of(request.project.id, request.root)
        self._used_at.setdefault(tree, time.monotonic())
        try:
            with anyio.fail_after(context.remaining_s()):
                done = await self._indexer.ask(tree, force=request.force, source=request.source)
        except TimeoutError as error:
            raise DeadlineExceeded("the files are still being read: memory_status shows when this is done") from error
        if done.error is not None:
            raise MemoryUnavailable(f"the files could not be read: {done.error}")
        return msgspec.structs.replace(done, skipped=_skipped(done, request.project))

    async def _move(self, request: MoveProject, _context: RequestContext) -> MemoriesMoved:
        """Rename the space of a project whose directory was moved, and merge any memories already stored at the new
        path into it, in one transaction: after a crash, the request can be repeated."""
        async with self._moving:
            old, new, files, committer = request.old, request.new, self._files, self._committer
            if not PROJECT_ID.fullmatch(new.id) or new.id == old.id:
                raise InvalidInput(f"{new.path} is the same place as {old.path}")
            if (source := files.open_project(old)) is None:
                raise NotFound(f"there are no memories of {old.path}")
            for place in (old, new):
                if place.id in files.shared:
                    leave = f"REMEMBRANCER_PROJECT={shlex.quote(place.path)} remembrancer share leave"
                    again = "'remembrancer share join --here' after the move"
                    raise InvalidInput(f"a shared project cannot be moved; run '{leave}' first, and {again}")
            if time.monotonic() - self._present_at < PRESENT_S and old.id in self._connected:
                raise InvalidInput(
                    f"an assistant is still connected in {old.path}; close it there, then run this again"
                )
            memories = (await committer.run(old.id, partial(source.counts, None))).total
            target = files.open_project(new)
            joined = 0 if target is None else (await committer.run(new.id, partial(target.counts, None))).total
            if request.dry_run:
                return MemoriesMoved(memories, joined)
            if (lane := files.shared.get(USER)) is not None:
                await committer.run(lane.name, partial(lane.rename_project, old.id, new.id))
            await self._discard_index(old.id)
            await files.move(old.id, new, request.directory)
            await self._drop_code(old.id)
            logger.info("a project was moved", extra={"project": old.id, "to": new.id, "memories": memories})
            return MemoriesMoved(memories, joined)

    # --- The indexes

    async def open_all(self) -> None:
        for project in self._files.catalog.projects():
            try:
                await self._index_of(project.id)
            except RemembrancerError as error:
                logger.warning("an index stays closed", extra={"project": project.id, "reason": error.message})

    async def _index_of(self, project_id: str) -> FileIndex | None:
        """The index of a project's notes, rebuilt if lost or damaged. Raises `InvalidInput` if the id is invalid."""
        index = self._files.indexes.get(check_project_id(project_id))
        if index is not None and (index.file.damage or index.file.is_replaced):
            await self._make_anew(index)
        async with self._opening:
            path, name = self._path_of(project_id), project_id + INDEX
            if project_id not in self._files.indexes and path.exists():
                try:
                    self._files.indexes[project_id] = await self._committer.run(name, partial(FileIndex, path, name))
                except (RecordsUnusable, SchemaTooNew, SchemaTooOld):
                    self._read_again(project_id)  # the indexer deletes the index first
                    return None
                self._vectors.note_kept(name)
                self._scheduler.wake()
            return self._files.indexes.get(project_id)

    async def _make_anew(self, index: FileIndex) -> None:
        project_id = index.name.partition(".")[0]
        if self._files.indexes.get(project_id) is not index:
            return
        logger.warning("a file index is lost or damaged, and will be rebuilt", extra={"file": index.name})
        if index.file.is_replaced:  # perhaps by the indexer
            del self._files.indexes[project_id]
            await self._committer.run(index.name, index.close)
        else:
            await self._discard_index(project_id)
        self._read_again(project_id)

    def _read_again(self, project_id: str) -> None:
        for tree in self._used_at:
            if tree.project_id == project_id and not self._indexer.is_asked(tree):
                self._indexer.ask(tree)


def _skipped(done: SyncDone, project: ProjectRef) -> dict[str, str]:
    return {path: why for path, why in done.skipped.items() if project.sees_user or not path.startswith("/")}
