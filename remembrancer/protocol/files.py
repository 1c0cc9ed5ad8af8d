"""Messages about a project's own files, of which the indexer keeps indexes (they can be rebuilt) for the store."""

from typing import Literal

import msgspec

from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.reads import EmbeddingSummary
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import ProjectRef


class IndexedTree(msgspec.Struct, frozen=True):
    """A directory whose files the indexer keeps in the index at `database`: its notes and transcripts, or its code."""

    project_id: str
    root: str
    database: str
    kind: Literal["notes", "code"]
    watch: bool = True


class ToRead(msgspec.Struct, frozen=True):
    """A request to read a tree now, or only its files from one source. With `force`, unchanged files are also read."""

    tree: IndexedTree
    force: bool = False
    source: FileSource | None = None


class IndexerWork(msgspec.Struct, frozen=True, tag=True):
    """Store to indexer: the trees in use, and the pending requests to read a tree, by number."""

    revision: int
    trees: tuple[IndexedTree, ...] = ()
    asked: dict[int, ToRead] = {}


class AwaitIndexerWork(Request[IndexerWork], frozen=True):
    """Indexer to store: answer when the work differs from revision `seen`, or at the deadline."""

    seen: int = -1


class SyncDone(msgspec.Struct, frozen=True, tag=True):
    """Indexer to store: a tree has been compared with its index, perhaps on request (`sync_id`). Before that, it is
    sent with only `left`, the number of changed files that have yet to be read. There is no answer."""

    tree: IndexedTree
    left: int = 0
    scanned: int = 0
    updated: int = 0
    added: int = 0
    removed: int = 0
    duration_s: float = 0.0
    sync_id: int | None = None
    skipped: dict[str, str] = {}
    """The skipped notes, each with the reason."""
    error: str | None = None


class SourceCounts(msgspec.Struct, frozen=True):
    files: int = 0
    chunks: int = 0


class FilesDescription(msgspec.Struct, frozen=True, tag=True):
    """The index of a workspace. `synced_at` (seconds since the epoch) is the time of the last comparison of the files.
    `stale` files have changed but have not been read again; `pending` chunks have no vectors yet."""

    sources: dict[FileSource, SourceCounts]
    embedding: EmbeddingSummary
    synced_at: float | None
    stale: int
    pending: int
    bytes: int
    skipped: dict[str, str] = {}


class DescribeFiles(Request[FilesDescription], frozen=True):
    """Describe the index of a project's workspace: the `root` of a session's working tree."""

    project: ProjectRef
    root: str


IndexState = Literal["current", "syncing", "stale"]


class ListedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file in an index. `kind` is its source or language, and `why` the reason if it was skipped. A `stale` file has
    changed or is gone. `syncing` means that stale files are being read."""

    path: str
    kind: str
    chunks: int
    size: int
    mtime_ns: int
    why: str = ""
    state: IndexState = "current"


class Files(msgspec.Struct, frozen=True, tag=True):
    """Files in path order. `more` means that there are others."""

    files: tuple[ListedFile, ...]
    more: bool = False


class ListFiles(Request[Files], frozen=True):
    project: ProjectRef
    root: str
    after: str = ""
    limit: int = 200


class SyncFiles(Request[SyncDone], frozen=True):
    """Read a workspace's files now, with `force` also unchanged ones. Refused if no indexer can read them."""

    project: ProjectRef
    root: str
    force: bool = False
    source: FileSource | None = None
