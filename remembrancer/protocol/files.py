"""Messages about a project's own files: between the indexer and the store, and the requests of clients.

The files are the source of truth: the indexer reads them, and the store keeps an index that can be rebuilt.
"""

from typing import Literal

import msgspec

from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.reads import EmbeddingSummary
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import ProjectRef

SearchMode = Literal["hybrid", "keyword"]


class Workspace(msgspec.Struct, frozen=True):
    """A directory whose files are indexed for a project: a session's working tree."""

    project: ProjectRef
    root: str


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was read. `path` is relative to its workspace, or absolute if the file is outside it."""

    path: str
    source: FileSource
    mtime_ns: int
    size: int
    digest: bytes
    """The SHA-256 of its bytes."""


class FileChunk(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a file, with its lines (from 1, inclusive) and the headings above it."""

    start_line: int
    end_line: int
    heading: str
    text: str


class FileUpdate(msgspec.Struct, frozen=True, array_like=True):
    """A changed file with its chunks. None: only its time has changed, not its content."""

    state: FileState
    chunks: tuple[FileChunk, ...] | None = None


class ReadIndexed(Request[tuple[FileState, ...]], frozen=True):
    """Indexer to store: list the files of a workspace that the index has."""

    workspace: Workspace


class FilesIndexed(msgspec.Struct, frozen=True, tag=True):
    """The outcome for chunks. An updated chunk needs a new vector, as an added one does."""

    updated: int = 0
    added: int = 0
    removed: int = 0


class IndexFiles(Request[FilesIndexed], frozen=True):
    """Indexer to store: these files have changed, and these are gone. Answered when the change is stored."""

    workspace: Workspace
    updates: tuple[FileUpdate, ...] = ()
    removed: tuple[str, ...] = ()
    left: int = 0
    """The number of changed files that are still to be read."""


class SyncDone(msgspec.Struct, frozen=True, tag=True):
    """Indexer to store: a workspace has been read, on request (`sync_id`) or not. No answer."""

    workspace: Workspace
    scanned: int
    updated: int
    added: int
    removed: int
    duration_s: float
    sync_id: int | None = None
    skipped: dict[str, str] = {}
    """The skipped files, each with the reason."""
    error: str | None = None


class FoundChunk(msgspec.Struct, frozen=True, rename="camel"):
    """A matching chunk, with its file and lines. `snippet` is its text, shortened if long."""

    path: str
    source: FileSource
    start_line: int
    end_line: int
    score: float
    snippet: str


class FilesFound(msgspec.Struct, frozen=True, tag=True):
    """The best chunks first. `synced_at` (seconds since the epoch) is the time of the last comparison of the files."""

    chunks: tuple[FoundChunk, ...]
    mode: SearchMode
    synced_at: float | None = None


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
    skipped: dict[str, str] = {}


class DescribeFiles(Request[FilesDescription], frozen=True):
    """Describe the index of a project's workspace."""

    workspace: Workspace


IndexState = Literal["current", "syncing", "stale"]


class ListedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of an index. `kind` is its source or its language; `why` is the reason if it was skipped.

    `stale`: it has changed or is gone since. `syncing`: such files are being read at the moment.
    """

    path: str
    kind: str
    chunks: int
    size: int
    mtime_ns: int
    why: str = ""
    state: IndexState = "current"


class Files(msgspec.Struct, frozen=True, tag=True):
    """Files in the order of their paths. `more`: there are further files."""

    files: tuple[ListedFile, ...]
    more: bool = False


class ListFiles(Request[Files], frozen=True):
    """List the indexed files of a workspace after this path, in the order of their paths."""

    workspace: Workspace
    after: str = ""
    limit: int = 200


class SyncFiles(Request[SyncDone], frozen=True):
    """Read a workspace's files now (`force`: unchanged ones as well). Answered when that is done; refused if no indexer
    can do it."""

    workspace: Workspace
    force: bool = False
    source: FileSource | None = None
