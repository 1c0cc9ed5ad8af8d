"""Handles clients' requests about notes, and the indexer's reports. Opens the index of a project's notes.

A workspace is in use while a session is in it. The indexer knows whether the index is complete: it is told which
workspaces to read, and reports when it has done so.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec

from remembrancer.actors.store.committer import INDEX
from remembrancer.actors.store.dispatcher import Handler, Handlers, RequestContext, StoreParts, by_request
from remembrancer.actors.store.file_index import FileFilter, FileIndex, FileMemories, IndexedChunk
from remembrancer.actors.store.indexer_work import IndexerPoll, compared
from remembrancer.actors.store.records.sqlite_file import unusable
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.config.project import workspace_root
from remembrancer.protocol.consolidation import NotePresence
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    MemoryUnavailable,
    RecordsUnusable,
    RemembrancerError,
    SchemaTooNew,
    SchemaTooOld,
)
from remembrancer.protocol.files import (
    DescribeFiles,
    Files,
    FilesDescription,
    FilesFound,
    FoundChunk,
    IndexedTree,
    ListFiles,
    SearchFiles,
    SearchMode,
    SyncDone,
    SyncFiles,
    Workspace,
)
from remembrancer.protocol.ids import PROJECT_ID, check_project_id
from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.paths import delete_database
from remembrancer.protocol.reads import Recall
from remembrancer.protocol.sockets import Peer
from remembrancer.protocol.wire import Notice
from remembrancer.toolsets.files.workspace_files import has_files

IN_USE_S: Final = 120.0
"""The time for which a workspace is watched after the last sign of a session in it."""
PRESENT_S: Final = 12.0
"""The time for which a report of connected sessions is valid; reports come twice as often."""
ABSENT_S: Final = 60.0
"""The embedders may be at rest after this time without a session."""

logger = logging.getLogger(__name__)


class FileHandlers(Handlers):
    def __init__(self, parts: StoreParts, indexer: IndexerPoll) -> None:
        super().__init__(parts)
        self._indexer = indexer
        self._opening = asyncio.Lock()
        self._used_at: dict[IndexedTree, float] = {}
        self._present_at = -math.inf
        self._connected: set[str] = set()
        """The projects in which a client is connected. Sessions known only by their hooks may be idle."""
        self._looking: asyncio.Future[bool] | None = None
        self.has_files = False
        """True if a workspace in use has files to read or in its index, or a client has asked for them."""

    def handlers(self) -> dict[type, Handler]:
        return by_request(self._search, self._describe, self._list, self._sync)

    def note_presence(self, note: NotePresence) -> None:
        """Record the connected sessions: their workspaces are in use."""
        now = time.monotonic()
        self._connected = {project.id for project, _ in note.directories}
        if not note.sessions:
            return
        if self._settings.embedders and now - self._present_at > ABSENT_S:
            self._scheduler.expect_workers()  # they rest while no session is connected
        self._present_at = now
        for project, directory in note.directories:
            if directory and PROJECT_ID.fullmatch(project.id):
                workspace = Workspace(project, workspace_root(directory, self._settings))
                self._used_at[self._tree_of(workspace)] = now
        self._used_at = {each: at for each, at in self._used_at.items() if now - at < IN_USE_S}
        self._indexer.use("notes", self._used_at)

    def has_client(self, project_id: str) -> bool:
        """True if a client is connected in the project, by the gateway's last report."""
        return time.monotonic() - self._present_at < PRESENT_S and project_id in self._connected

    async def discard_index(self, project_id: str) -> None:
        """Delete the index of a project's notes. Raises `RecordsUnusable` if that is not possible."""
        index, path = self._files.indexes.pop(project_id, None), self._path_of(project_id)
        if index is not None:
            await self._committer.run(index.name, index.close)
        try:
            await self._committer.run(project_id + INDEX, partial(delete_database, path))
        except OSError as error:
            raise unusable(path, error) from error

    async def keep_house(self) -> None:
        """Check regularly whether there are files to read, and whether an index was deleted."""
        roots = [Path(tree.root) for tree in self._used_at]
        if roots and not self.has_files and (self._looking is None or self._looking.done()):
            # Not awaited, and on a thread of its own: the disk of a workspace may hang.
            look = asyncio.get_running_loop().run_in_executor
            self._looking = look(None, lambda: any(has_files(root, self._settings) for root in roots))
            self._looking.add_done_callback(self._note_look)
        for tree in list(self._used_at):
            index = await self._index_of(tree.project_id)  # which the indexer may have made
            if index is not None and not self.has_files:  # indexed files may be gone, or no longer wanted
                self.has_files = bool(await self._readers.in_background(partial(index.listed, tree.root, "", 1)))
        for index in list(self._files.indexes.values()):
            if index.file.damage or index.file.is_replaced:
                await self._make_anew(index)

    def _note_look(self, looking: asyncio.Future[bool]) -> None:
        if not looking.cancelled() and looking.exception() is None:
            self.has_files = self.has_files or looking.result()

    def close(self) -> None:
        """Close the indexes. May be called twice."""
        for index in self._files.indexes.values():
            index.close()
        self._files.indexes.clear()

    # --- The indexer

    def hear(self, _: Peer, done: SyncDone) -> None:
        """Take the indexer's report that a tree has been read, or is being read."""
        self._indexer.note(done)
        self._scheduler.wake()

    def _tree_of(self, workspace: Workspace) -> IndexedTree:
        project_id = check_project_id(workspace.project.id)
        database = str(self._path_of(project_id))
        return IndexedTree(project_id, workspace.root, database, "notes", self._settings.watch)

    def _path_of(self, project_id: str) -> Path:
        return self._paths.project_database(project_id).with_name(self._settings.index_file)

    # --- Clients

    async def _search(self, request: SearchFiles, context: RequestContext) -> FilesFound:
        index = await self._index_of(request.workspace.project.id)
        if index is None:
            return FilesFound((), "keyword", await self._synced_at(request.workspace, None))
        model = self._scheduler.answering.key
        workspace = request.workspace
        is_inside = not workspace.project.sees_user
        memories = FileMemories(index, FileFilter(workspace.root, request.sources, request.path, is_inside))
        notes = Source(memories, self._vectors.searchable(index.name, model))
        view = View((), notes, self._files.database)
        asked = Recall(
            project=request.workspace.project, session_id="", query=request.query, limit=request.limit, is_task=True
        )
        embed = self.embed_within(context, model)
        try:
            answer, seen = await recall(asked, view, embed, self._readers.threads, time.time())
            scored = zip(seen, answer.memories, strict=True)
            scores = {record.number: each.scores.relevance**SCALE for record, each in scored}
            scores = {number: score for number, score in scores.items() if score >= request.min_score}
            chunks = await self._readers.read(lambda: memories.chunks(list(scores)))
        except RecordsUnusable as error:
            raise MemoryUnavailable(f"the file index is damaged, and will be rebuilt: {error.message}") from error
        found = found_chunks(scores, chunks, request)
        context.notices += view.notices
        if request.path and not found and not await self._readers.read(memories.files):
            text = f"No indexed file is at or below {request.path[:200]}."
            context.notices.append(Notice("unknown_path", text))
        mode: SearchMode = "keyword" if answer.strategy_used == "keyword" else "hybrid"
        return FilesFound(found, mode, await self._synced_at(request.workspace, index))

    async def source_of(self, request: Recall, model: str | None) -> Source | None:
        """The notes that a recall searches with that model; None if there are none."""
        if not request.searches_notes:
            return None
        index = await self._index_of(request.project.id)
        if index is None:
            return None
        sources: tuple[FileSource, ...] = tuple(each for each in request.sources if each != "memory")
        passages = self._vectors.searchable(index.name, model)
        wanted = FileFilter(request.root, sources or ("notes",), is_inside=not request.project.sees_user)
        return Source(FileMemories(index, wanted), passages)

    async def _describe(self, request: DescribeFiles, context: RequestContext) -> FilesDescription:
        workspace = request.workspace
        index, tree = await self._index_of(workspace.project.id), self._tree_of(workspace)
        done, _ = self._indexer.done.get(tree, (None, 0.0))
        if done is not None and done.error is not None:
            context.notices.append(Notice("partial_results", f"Not all files were read: {done.error}."))
        stale = self._indexer.left.get(tree, 0)
        if done is None and tree not in self._indexer.left:
            context.notices.append(Notice("partial_results", "The files have not been compared with the index yet."))
        if index is None:
            sources, pending, size = {}, 0, 0
        else:
            sources = await self._readers.read(partial(index.counts, workspace.root))
            pending = await self._readers.read(partial(index.missing, self._scheduler.answering.key))
            size = index.file.size_bytes()
        return FilesDescription(
            sources=sources,
            embedding=self._scheduler.summary(),
            synced_at=await self._synced_at(workspace, index),
            stale=stale,
            pending=pending,
            bytes=size,
            skipped=_skipped(done, workspace) if done is not None else {},
        )

    async def _list(self, request: ListFiles, context: RequestContext) -> Files:
        workspace = request.workspace
        index = await self._index_of(workspace.project.id)
        if index is None:
            return Files(())
        is_inside = not workspace.project.sees_user
        listed = partial(index.listed, workspace.root, request.after, request.limit + 1, is_inside=is_inside)
        found = await self._readers.read(listed)
        tree = self._tree_of(workspace)
        is_read = self._indexer.left.get(tree, 0) or self._indexer.is_asked(tree)
        within_s = context.remaining_s()
        return await compared(workspace.root, found, request.limit, "syncing" if is_read else "stale", within_s)

    async def _sync(self, request: SyncFiles, context: RequestContext) -> SyncDone:
        """Read the files now, and wait for that until the deadline, after which the indexer continues."""
        self.has_files = True  # the caller needs an indexer
        tree = self._tree_of(request.workspace)
        self._used_at.setdefault(tree, time.monotonic())
        try:
            with anyio.fail_after(context.remaining_s()):
                done = await self._indexer.ask(tree, force=request.force, source=request.source)
        except TimeoutError as error:
            raise DeadlineExceeded("the files are still being read: memory_status says when that is done") from error
        if done.error is not None:
            raise MemoryUnavailable(f"the files could not be read: {done.error}")
        return msgspec.structs.replace(done, skipped=_skipped(done, request.workspace))

    async def _synced_at(self, workspace: Workspace, index: FileIndex | None) -> float | None:
        """The time of the last comparison of the files, or of the last one that changed the index."""
        if (tree := self._tree_of(workspace)) in self._indexer.done:
            return self._indexer.done[tree][1]
        about = {} if index is None else await self._readers.read(partial(index.about, workspace.root))
        return about.get("completed_at")

    # --- The indexes

    async def open_all(self) -> None:
        """Open every existing index, including those of projects not used since the start."""
        for project in self._files.catalog.projects():
            try:
                await self._index_of(project.id)
            except RemembrancerError as error:
                logger.warning("an index stays closed", extra={"project": project.id, "reason": error.message})

    async def _index_of(self, project_id: str) -> FileIndex | None:
        """The open index of a project's notes; None if there is none that can be opened. Raises `InvalidInput` if the
        id is not valid."""
        index = self._files.indexes.get(check_project_id(project_id))
        if index is not None and index.file.is_replaced:
            await self._make_anew(index)
        async with self._opening:
            path, name = self._path_of(project_id), project_id + INDEX
            if project_id not in self._files.indexes and path.exists():
                try:
                    self._files.indexes[project_id] = await self._committer.run(name, partial(FileIndex, path, name))
                except (RecordsUnusable, SchemaTooNew, SchemaTooOld):
                    self._read_again(project_id)  # the indexer deletes it first
                    return None
                self._vectors.note_kept(name)
                self._scheduler.texts_opened()
            return self._files.indexes.get(project_id)

    async def _make_anew(self, index: FileIndex) -> None:
        """Drop a lost or damaged index, and have all files read again."""
        project_id = index.name.partition(".")[0]
        if self._files.indexes.get(project_id) is not index:
            return
        logger.warning("a file index is lost or damaged, and will be rebuilt", extra={"file": index.name})
        if index.file.is_replaced:  # perhaps by the indexer
            del self._files.indexes[project_id]
            await self._committer.run(index.name, index.close)
        else:
            await self.discard_index(project_id)
        self._read_again(project_id)

    def _read_again(self, project_id: str) -> None:
        for tree in self._used_at:
            if tree.project_id == project_id and not self._indexer.is_asked(tree):
                self._indexer.ask(tree)


def _skipped(done: SyncDone, workspace: Workspace) -> dict[str, str]:
    """The skipped files whose names a caller may see: those outside the working tree are the user's."""
    sees_user = workspace.project.sees_user
    return {path: why for path, why in done.skipped.items() if sees_user or not path.startswith("/")}


SCALE: Final = 0.4
"""The exponent that turns a probability into a chunk's score. One in sixty relevant chunks and half of the others then
score below 0.3."""
SNIPPET: Final = 700
"""The number of characters shown of a chunk."""

_SENTENCE: Final = re.compile(r"[^\s].*?(?:[.!?](?=\s)|(?=\n)|\Z)", re.DOTALL)


def found_chunks(
    scores: dict[int, float], chunks: Sequence[IndexedChunk], request: SearchFiles
) -> tuple[FoundChunk, ...]:
    """Return the chunks of these texts, best score first: one for each file that contains a text, but only one from
    transcripts, since a resumed session may repeat an earlier one."""
    of_text: dict[int, list[IndexedChunk]] = {text: [] for text in scores}
    for chunk in chunks:
        if not (of_text[chunk.text] and chunk.source == "sessions"):
            of_text[chunk.text].append(chunk)
    ordered = [chunk for same in of_text.values() for chunk in same]
    return tuple(_shown(chunk, scores[chunk.text], request.query) for chunk in ordered[: request.limit])


def _shown(chunk: IndexedChunk, score: float, query: str) -> FoundChunk:
    snippet = snippet_of(chunk.content[chunk.body :], query)
    return FoundChunk(chunk.path, chunk.source, chunk.start_line, chunk.end_line, min(1.0, score), snippet)


def snippet_of(text: str, query: str) -> str:
    """Return the text to show. A long one begins at, or just before, the sentence with the most words of the query."""
    text = text.strip()
    if len(text) <= SNIPPET:
        return text
    asked = set(re.findall(r"\w+", query.casefold()))
    start, most = 0, 0
    for sentence in _SENTENCE.finditer(text):
        found = len(asked & set(re.findall(r"\w+", sentence.group().casefold())))
        if found > most:
            start, most = sentence.start(), found
    start = min(start, len(text) - SNIPPET)
    while start and not text[start - 1].isspace():
        start -= 1
    shown = text[start : start + SNIPPET]
    return f"{'… ' if start else ''}{shown.strip()}{' …' if start + SNIPPET < len(text) else ''}"
