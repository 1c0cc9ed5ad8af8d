"""Messages about code. Only the project for which a tree was indexed can see it."""

from typing import Literal

import msgspec

from remembrancer.protocol.files import Files
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import ProjectRef

CodeStatus = Literal["queued", "indexing", "ready", "failed"]


class CodeChunk(msgspec.Struct, frozen=True):
    """A chunk that may answer the query, and the best one of its file. Its path is relative to the tree's root."""

    tree_id: str
    file_path: str
    start_line: int
    end_line: int
    language: str
    chunk_type: str
    name: str
    text: str
    score: float


class SearchCode(Request[tuple[CodeChunk, ...]], frozen=True):
    """Find chunks in all trees of a project, or in one of them, best first. `directory` is the root of the session's
    working tree: if its code is indexed, the repository's other working trees are left out."""

    project: ProjectRef
    query: str
    tree_id: str | None = None
    limit: int = 10
    directory: str = ""


class StaleMemory(msgspec.Struct, frozen=True):
    """A memory that names a file (`code`) that is gone from the indexed code."""

    memory_id: str
    content: str
    code: str


class ListStale(Request[tuple[StaleMemory, ...]], frozen=True):
    project: ProjectRef


class TreeDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A project's list of trees has only the first three fields. `skipped` counts the files left out, by reason."""

    id: str
    root: str
    watch: bool = True
    status: CodeStatus = "queued"
    total_files: int = 0
    indexed_files: int = 0
    total_chunks: int = 0
    started_at: float | None = None
    completed_at: float | None = None
    skipped: dict[str, int] = {}
    error: str = ""


class DeleteCode(Request[tuple[TreeDescription, ...]], frozen=True):
    project: ProjectRef
    tree_id: str


class DescribeCode(Request[tuple[TreeDescription, ...]], frozen=True):
    """Describe one of a project's trees, or all of them in path order."""

    project: ProjectRef
    tree_id: str | None = None


class IndexCode(Request[tuple[TreeDescription, ...]], frozen=True):
    """Index the tree at this absolute path in the background. The answer describes only that tree."""

    project: ProjectRef
    path: str
    watch: bool = True


class ListCodeFiles(Request[Files], frozen=True):
    project: ProjectRef
    tree_id: str
    after: str = ""
    limit: int = 200
