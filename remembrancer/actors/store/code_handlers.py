"""Answers clients' requests about trees of code, and lists each project's trees. The indexer writes their indexes."""

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import msgspec

from remembrancer.actors.store.dispatcher import Handler, Handlers, RequestContext, StoreParts, by_request
from remembrancer.actors.store.file_index import CodeIndex
from remembrancer.actors.store.indexer_work import IndexerPoll, compared
from remembrancer.actors.store.records.types import NO_LIMIT
from remembrancer.config.project import project_of, working_tree_of
from remembrancer.memory.found_names import found_names
from remembrancer.memory.text import quote
from remembrancer.protocol.code import (
    CodeChunk,
    DeleteCode,
    DescribeCode,
    IndexCode,
    ListCodeFiles,
    ListStale,
    SearchCode,
    StaleMemory,
    TreeDescription,
)
from remembrancer.protocol.errors import (
    InvalidInput,
    MemoryUnavailable,
    NotFound,
    RecordsUnusable,
    RemembrancerError,
    SchemaTooNew,
    SchemaTooOld,
)
from remembrancer.protocol.files import Files, IndexedTree, ListedFile
from remembrancer.protocol.ids import check_project_id
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.paths import RuntimePaths, delete_database, write_whole
from remembrancer.protocol.reads import Filters, Recalled
from remembrancer.protocol.system import real_path
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ProjectRef

IN_USE_S: Final = 120.0
"""A tree's index is kept up to date for this long after a request, even if no session is in its project."""
READ_BATCH: Final = 200

T = TypeVar("T")
logger = logging.getLogger(__name__)


_decode_trees: Final = msgspec.json.Decoder(tuple[TreeDescription, ...]).decode


class CodeHandlers(Handlers):
    def __init__(self, parts: StoreParts, indexer: IndexerPoll) -> None:
        super().__init__(parts)
        self._indexer = indexer
        self._listing = anyio.Lock()
        self._trees: dict[str, dict[str, TreeDescription]] = {}
        """The trees by project id and tree id, for the projects requested so far."""
        self._open: dict[str, CodeIndex] = {}
        self._opening = threading.Lock()
        self._asked_at: dict[str, float] = {}

    def handlers(self) -> dict[type, Handler]:
        trees = by_request(self._index, self._describe, self._delete, self._list_files)
        return trees | by_request(self._search, self._list_stale)

    def keep_house(self) -> None:
        """Request the indexing of every tree of the projects in use, including trees whose index was lost."""
        now = time.monotonic()
        self._asked_at = {project: at for project, at in self._asked_at.items() if now - at < IN_USE_S}
        in_use = {tree.project_id for tree in self._indexer.work.trees if tree.kind == "notes"} | self._asked_at.keys()
        trees = [self._indexed(project, tree) for project in in_use for tree in self._trees_of(project).values()]
        self._indexer.use("code", trees)
        for tree in trees:
            if not os.path.exists(tree.database) and not self._indexer.is_asked(tree):  # noqa: PTH110 - never raises
                self._indexer.ask(tree)

    async def with_gone_files(self, project: ProjectRef, answer: Recalled) -> Recalled:
        """Mark memories that name a file deleted from the indexed code, and move them to the end of the answer."""
        roots = [tree.root for tree in self._readable(project).values()]

        def look() -> Recalled:
            memories = [
                msgspec.structs.replace(memory, code=f"gone: {gone}")
                if memory.origin is None and (gone := _gone_file(memory.content, memory.source.file, roots))
                else memory
                for memory in answer.memories
            ]
            memories.sort(key=lambda memory: bool(memory.code))
            return msgspec.structs.replace(answer, memories=tuple(memories))

        return await self._readers.read(look) if roots else answer

    async def _list_stale(self, request: ListStale, _context: RequestContext) -> tuple[StaleMemory, ...]:
        if (records := self._files.open_project(request.project)) is None:
            return ()
        self._trees_of(request.project.id)
        roots = [tree.root for tree in self._readable(request.project).values()]

        def look() -> Iterator[StaleMemory]:
            of_nobody = Filters("")  # no session
            numbers = (records.matching(of_nobody, NO_LIMIT) or []) if roots else []
            for start in range(0, len(numbers), READ_BATCH):
                for each in records.load(numbers[start : start + READ_BATCH], of_nobody).values():
                    is_past = each.kind == SESSION_RECORD or each.superseded_by
                    if not is_past and (gone := _gone_file(each.content, each.source.file, roots)):
                        yield StaleMemory(each.id, each.content, f"gone: {gone}")

        return await self._readers.read(lambda: tuple(look()))

    def close(self) -> None:
        for index in self._open.values():
            index.close()

    # --- The list of trees

    def _folder(self, project_id: str) -> Path:
        return self._paths.project_database(check_project_id(project_id)).with_name("code")

    def _trees_of(self, project_id: str) -> dict[str, TreeDescription]:
        """The trees of a project; if the list cannot be read, it is empty until the trees are indexed again."""
        if project_id not in self._trees:
            folder = self._folder(project_id)
            listed = folder / "trees.json"
            try:
                trees = _decode_trees(listed.read_bytes()) if listed.exists() else ()
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                logger.warning("the list of trees cannot be read", extra={"file": str(listed), "reason": str(error)})
                return self._trees.setdefault(project_id, {})  # the indexes are kept
            self._trees[project_id] = {tree.id: tree for tree in trees}
            for path in folder.glob("*.db"):  # from earlier releases, or created while the tree was being deleted
                if path.stem not in self._trees[project_id]:
                    with suppress(OSError):  # tried again at the next start
                        delete_database(path)
        return self._trees[project_id]

    def _save_trees(self, project_id: str, trees: dict[str, TreeDescription]) -> None:
        folder = self._folder(project_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / "trees.json", msgspec.json.encode(tuple(trees.values())))
        self._trees[project_id] = trees

    def _readable(self, project: ProjectRef) -> dict[str, TreeDescription]:
        trees = self._trees.get(project.id, {})
        return {each: tree for each, tree in trees.items() if _is_readable(tree.root, project)}

    def _chosen(self, project: ProjectRef, tree_id: str | None) -> list[TreeDescription]:
        """All trees, or the one with this id. Raises `NotFound` if the project has no such tree."""
        self._trees_of(project.id)
        trees = self._readable(project)
        if tree_id is None:
            return sorted(trees.values(), key=lambda tree: tree.root)
        if tree_id not in trees:
            raise NotFound(f"no code is indexed under the id {quote(tree_id)}; call list_projects to see the known ids")
        return [trees[tree_id]]

    # --- Clients

    async def _index(self, request: IndexCode, _context: RequestContext) -> tuple[TreeDescription, ...]:
        root = await asyncio.to_thread(_checked_root, request, self._paths)
        project_id = request.project.id
        async with self._listing:
            tree = await asyncio.to_thread(self._add_tree, project_id, root, watch=request.watch)
        self._asked_at[project_id] = time.monotonic()
        self._indexer.ask(self._indexed(project_id, tree))
        self.keep_house()
        return (await self._describe_one(project_id, tree),)

    def _add_tree(self, project_id: str, root: str, *, watch: bool) -> TreeDescription:
        trees = self._trees_of(project_id)
        named = f"code_{hashlib.sha256(root.encode()).hexdigest()[:12]}"
        tree = TreeDescription(next((each.id for each in trees.values() if each.root == root), named), root, watch)
        self._save_trees(project_id, {**trees, tree.id: tree})
        return tree

    def _indexed(self, project_id: str, tree: TreeDescription) -> IndexedTree:
        database = str(self._folder(project_id) / f"{tree.id}.db")
        return IndexedTree(project_id, tree.root, database, "code", tree.watch)

    async def _query(self, project_id: str, tree: TreeDescription, question: Callable[[CodeIndex], T]) -> T:
        """Query the index of a tree. A damaged index is deleted, and the error raised; a missing index is rebuilt."""
        database = self._indexed(project_id, tree).database
        if not await asyncio.to_thread(os.path.exists, database):
            self._asked_at[project_id] = time.monotonic()
            self.keep_house()
        try:
            return await self._readers.read(lambda: question(self._open_index(database)))
        except (RecordsUnusable, SchemaTooNew, SchemaTooOld):
            with suppress(OSError):  # the original error is more useful
                await self._readers.read(partial(self._delete_index, database))
            self._asked_at[project_id] = time.monotonic()  # so that it is rebuilt
            raise

    async def _search(self, request: SearchCode, context: RequestContext) -> tuple[CodeChunk, ...]:
        trees, notices = self._chosen(request.project, request.tree_id), context.notices
        if len(trees) > 1 and request.directory:
            trees = await asyncio.to_thread(_without_other_working_trees, trees, request)
        found: list[CodeChunk] = []
        for tree in trees:
            try:
                chunks, about = await self._query(request.project.id, tree, partial(_search_index, request, tree))
                found += chunks
                if about.get("status") == "failed":
                    unread = f"The code in {quote(tree.root)} could not be read again"
                    text = f"{unread}; an earlier state was searched: {about.get('error')}."
                    notices.append(Notice("partial_results", text))
                elif "completed_at" not in about:
                    text = f"The code in {quote(tree.root)} is still being indexed; try again in a moment."
                    notices.append(Notice("partial_results", text))
            except RemembrancerError as error:
                text = f"The code in {quote(tree.root)} could not be searched: {error}."
                notices.append(Notice("partial_results", text))
        if not trees:
            notices.append(Notice("no_code", "No code is indexed in this project; call index_project."))
        elif not (found or notices):
            described = [await self._describe_one(request.project.id, tree) for tree in trees]
            if any(each.total_chunks for each in described):
                text = "The code contains none of the query's words; use words or names that it is likely to contain."
                notices.append(Notice("no_word", text))
        found.sort(key=lambda chunk: -chunk.score)
        roots = {tree.id: tree.root for tree in trees}
        once: dict[str, CodeChunk] = {}
        for chunk in found:  # trees may be nested
            once.setdefault(f"{roots[chunk.tree_id]}/{chunk.file_path}", chunk)
        return tuple(once.values())[: request.limit]

    async def _describe(self, request: DescribeCode, _context: RequestContext) -> tuple[TreeDescription, ...]:
        trees = self._chosen(request.project, request.tree_id)
        return tuple([await self._describe_one(request.project.id, tree) for tree in trees])

    async def _describe_one(self, project_id: str, tree: TreeDescription) -> TreeDescription:
        try:
            is_asked = self._indexer.is_asked(self._indexed(project_id, tree))
            return await self._query(project_id, tree, partial(_describe_index, tree, is_asked))
        except RemembrancerError as error:
            reason = f"its index cannot be read: {error}"
            return msgspec.structs.replace(tree, status="failed", error=reason)

    async def _list_files(self, request: ListCodeFiles, context: RequestContext) -> Files:
        (tree,) = self._chosen(request.project, request.tree_id)

        def read(index: CodeIndex) -> tuple[list[ListedFile], bool]:
            found = index.listed(tree.root, request.after, request.limit + 1)
            return found, index.about(tree.root).get("status") == "ready"

        try:
            found, is_ready = await self._query(request.project.id, tree, read)
        except RemembrancerError as error:
            raise MemoryUnavailable(f"the index of {quote(tree.root)} cannot be read: {error}") from error
        within_s = context.remaining_s()
        return await compared(tree.root, found, request.limit, "stale" if is_ready else "syncing", within_s)

    async def _delete(self, request: DeleteCode, _context: RequestContext) -> tuple[TreeDescription, ...]:
        (tree,) = self._chosen(request.project, request.tree_id)
        described = await self._describe_one(request.project.id, tree)
        await self.drop(request.project.id, (tree.id,))
        return (described,)

    async def drop(self, project_id: str, tree_ids: Collection[str] | None = None) -> None:
        """Remove trees (None: all) from a project's list and delete their indexes."""
        async with self._listing:
            trees = self._trees_of(project_id)
            gone = [tree for tree in trees.values() if tree_ids is None or tree.id in tree_ids]
            if not gone:
                return
            left = {each: tree for each, tree in trees.items() if tree not in gone}
            await asyncio.to_thread(self._save_trees, project_id, left)
            self.keep_house()
            for tree in gone:
                await self._readers.read(partial(self._delete_index, self._indexed(project_id, tree).database))

    def _delete_index(self, database: str) -> None:
        with self._opening:
            opened = self._open.pop(database, None)
        if opened is not None:
            opened.close()
        delete_database(Path(database))

    def _open_index(self, database: str) -> CodeIndex:
        with self._opening:
            index = self._open.get(database)
            if index is None or index.file.is_replaced:
                index = self._open[database] = CodeIndex(Path(database))
            return index


def _search_index(
    request: SearchCode, tree: TreeDescription, index: CodeIndex
) -> tuple[list[CodeChunk], dict[str, object]]:
    return index.search(request.query, request.limit, tree.id), index.about(tree.root)


def _describe_index(tree: TreeDescription, is_asked: bool, index: CodeIndex) -> TreeDescription:
    about, counts = index.about(tree.root), index.counts(tree.root).values()
    skipped = Counter(index.skipped(tree.root)) + Counter(msgspec.json.decode(str(about.pop("skipped", "{}"))))
    if is_asked and about.get("status") == "ready":
        about["status"] = "queued"  # requested again, but not read since
    files, chunks = sum(each.files for each in counts), sum(each.chunks for each in counts)
    counted = {"indexed_files": files, "total_chunks": chunks, "skipped": dict(skipped)}
    return msgspec.structs.replace(tree, **counted, **about)


def _without_other_working_trees(trees: list[TreeDescription], request: SearchCode) -> list[TreeDescription]:
    """If the session's own working tree is included, drop the repository's others, which have the same files."""
    if request.directory not in {tree.root for tree in trees}:
        return trees

    def is_own(root: Path) -> bool:
        return str(working_tree_of(root)) == request.directory or project_of(root).id != request.project.id

    return [tree for tree in trees if is_own(Path(tree.root))]


def _is_readable(root: str, project: ProjectRef) -> bool:
    return project.code_within is None or any(Path(root).is_relative_to(each) for each in project.code_within)


def _checked_root(request: IndexCode, paths: RuntimePaths) -> str:
    """Raises `InvalidInput` if the directory may not be indexed."""
    path = request.path
    root = real_path(Path(path).expanduser())
    if not _is_readable(root, request.project):  # before revealing whether the directory exists
        raise InvalidInput(f"{quote(path)} is not in this project; give a directory in it", field="path")
    if not Path(root).is_absolute() or not Path(root).is_dir():
        raise InvalidInput(f"{quote(path)} is not a directory; give the path of a repository", field="path")
    if not os.access(root, os.R_OK | os.X_OK):
        raise InvalidInput(f"{quote(path)} cannot be read by the user that Remembrancer runs as", field="path")
    user, home = (Path(real_path(each)) for each in (Path.home(), paths.home))
    if user.is_relative_to(root) or home.is_relative_to(root):
        raise InvalidInput(f"{quote(path)} contains a home directory; give one of its subdirectories", field="path")
    if Path(root).is_relative_to(home):
        raise InvalidInput(f"{quote(path)} is in {home}, which is not part of a repository", field="path")
    return root


def _gone_file(content: str, source: str | None, roots: Sequence[str]) -> str:
    """The first missing file named in a memory, spelled as it is there; empty if no file is missing.

    A file in the text counts as missing only if its directory exists, since the path may begin anywhere.
    """
    named = [each.name for each in found_names(content, is_entity=False) if each.type == "file" and "/" in each.name]
    for file in (*([source] if source else ()), *named):
        path = file.partition(":")[0].removeprefix("./")
        places = [(root, os.path.normpath(os.path.join(root, path))) for root in roots]  # noqa: PTH118 - pathlib takes 20 times as long
        judged = [
            place
            for root, place in places
            if place.startswith(f"{root}{os.sep}") and os.path.isdir(os.path.dirname(place))  # noqa: PTH112, PTH120
        ]
        if judged and not any(map(os.path.lexists, judged)):
            return str(file)
    return ""
