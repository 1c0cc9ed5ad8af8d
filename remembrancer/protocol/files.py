"""The contents of a project's own files: between the indexer and the store, and for the questions of clients.

The files are the truth: the indexer reads them, and the store keeps what it was told in an index that may be deleted.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.reads import EmbeddingSummary, Notice
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import ProjectRef

SearchMode = Literal["hybrid", "vector", "keyword"]


class Workspace(msgspec.Struct, frozen=True):
    """A directory whose files are indexed for a project: the working tree that a session is in."""

    project: ProjectRef
    root: str


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was read. `path` is relative to its workspace, or absolute where it lies outside of it."""

    path: str
    source: FileSource
    mtime_ns: int
    size: int
    digest: bytes
    """The SHA-256 of its bytes."""


class FileChunk(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a file, with its lines (from 1, both ends counted) and the headings above it."""

    start_line: int
    end_line: int
    heading: str
    text: str


class FileUpdate(msgspec.Struct, frozen=True, array_like=True):
    """A file that has changed, with its chunks; None: its content is what the index has, and its time another.

    Its first `kept` chunks stay as they are, and those that are told follow them. With `more` others are still to come.
    """

    state: FileState
    chunks: tuple[FileChunk, ...] | None = None
    kept: int = 0
    more: bool = False


class SkippedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that was passed over, and why."""

    path: str
    reason: str


class AskedSync(msgspec.Struct, frozen=True):
    """Somebody waits for a workspace to be read at once. `force`: also what looks unchanged."""

    sync_id: int
    workspace: Workspace
    force: bool = False
    source: FileSource | None = None


class FileWork(msgspec.Struct, frozen=True, tag=True):
    """Store to indexer: the workspaces in use, and what was asked for and is not done."""

    revision: int
    workspaces: tuple[Workspace, ...] = ()
    asked: tuple[AskedSync, ...] = ()
    lost: tuple[str, ...] = ()
    """Ids of projects whose index was lost: their files are to be read again."""


class AwaitFileWork(Request[FileWork], frozen=True):
    """Indexer to store: tell me when there is anything else than in revision `seen`, or when my deadline comes."""

    seen: int = -1


class Indexed(msgspec.Struct, frozen=True, tag=True):
    """The files after that path, in the order of their paths. With `more` there are others behind them."""

    files: tuple[FileState, ...]
    more: bool = False


class ReadIndexed(Request[Indexed], frozen=True):
    """Indexer to store: which files of a workspace does the index have? The answer is a page."""

    workspace: Workspace
    after: str = ""


class FilesIndexed(msgspec.Struct, frozen=True, tag=True):
    """The outcome for chunks: an edited one is updated, and needs a new vector as an added one does."""

    updated: int = 0
    added: int = 0
    removed: int = 0


class IndexFiles(Request[FilesIndexed], frozen=True):
    """Indexer to store: these files have changed, and these are gone. Answered when it is kept."""

    workspace: Workspace
    updates: tuple[FileUpdate, ...] = ()
    removed: tuple[str, ...] = ()
    left: int = 0
    """Files that have changed and are still to be read after these."""


class SyncDone(msgspec.Struct, frozen=True, tag=True):
    """Indexer to store: a workspace has been read, whether somebody had asked for it (`sync_id`) or not. No answer.

    `waiting` counts files that were being written at that moment, and are read soon.
    """

    workspace: Workspace
    scanned: int
    updated: int
    added: int
    removed: int
    duration_s: float
    sync_id: int | None = None
    waiting: int = 0
    skipped: tuple[SkippedFile, ...] = ()
    error: str | None = None


class FoundChunk(msgspec.Struct, frozen=True):
    """A chunk that matches, by its file and its lines. `snippet` is its text, cut where that is long."""

    path: str
    source: FileSource
    start_line: int
    end_line: int
    heading: str
    score: float
    snippet: str


class FilesFound(msgspec.Struct, frozen=True, tag=True):
    """The best chunks first. `synced_at` (seconds since the epoch) is when the files were last compared."""

    chunks: tuple[FoundChunk, ...]
    mode: SearchMode
    synced_at: float | None = None
    notices: tuple[Notice, ...] = ()


class SearchFiles(Request[FilesFound], frozen=True):
    """Find chunks of files of a project's workspace.

    `path` is a file or a directory, relative to the workspace; empty for all.
    """

    workspace: Workspace
    query: str
    limit: int = 8
    min_score: float = 0.0
    sources: tuple[FileSource, ...] = ()
    path: str = ""


class SourceCounts(msgspec.Struct, frozen=True):
    """The number of files and chunks of a source."""

    files: int = 0
    chunks: int = 0


class FilesDescription(msgspec.Struct, frozen=True, tag=True):
    """The index of a workspace. `stale` files have changed and are not read yet; `pending` chunks have no vectors."""

    sources: dict[FileSource, SourceCounts]
    embedding: EmbeddingSummary
    synced_at: float | None
    stale: int
    pending: int
    bytes: int
    skipped: tuple[SkippedFile, ...] = ()
    notices: tuple[Notice, ...] = ()


class DescribeFiles(Request[FilesDescription], frozen=True):
    """Asks for what is indexed of a project's workspace."""

    workspace: Workspace


IndexState = Literal["current", "syncing", "stale"]


class ListedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file as an index has it. `kind` is its source, or its language; `why` it was passed over, if it was.

    It is `stale` if it is another now, or gone, and `syncing` if such files are being read at the moment.
    """

    path: str
    kind: str
    chunks: int
    size: int
    mtime_ns: int
    why: str = ""
    state: IndexState = "current"


class FilesListed(msgspec.Struct, frozen=True, tag=True):
    """In the order of their paths. With `more` there are others behind them."""

    files: tuple[ListedFile, ...]
    more: bool = False


class ListFiles(Request[FilesListed], frozen=True):
    """The files of a workspace that are indexed, after that path, in the order of their paths."""

    workspace: Workspace
    after: str = ""
    limit: int = 200


class SyncFiles(Request[SyncDone], frozen=True):
    """Read a workspace's files now. Answered when that is done, or refused when nobody can."""

    workspace: Workspace
    force: bool = False
    source: FileSource | None = None
