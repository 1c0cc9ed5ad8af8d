"""Code: between the indexer and the store, and what clients ask about it.

A tree of code belongs to the project in which somebody asked for it, and is seen there alone.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from remembrancer.protocol.files import FilesListed
from remembrancer.protocol.reads import Notice
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import ProjectRef

CodeStatus = Literal["queued", "indexing", "ready", "failed"]


class CodeTree(msgspec.Struct, frozen=True):
    """A tree that is indexed. `database` is its file; `asked` counts how often somebody has asked for it."""

    id: str
    root: str
    database: str
    watch: bool = True
    asked: int = 0


class CodeWork(msgspec.Struct, frozen=True, tag=True):
    """Store to indexer: the trees of the projects in use."""

    revision: int
    trees: tuple[CodeTree, ...] = ()


class AwaitCodeWork(Request[CodeWork], frozen=True):
    """Indexer to store: tell me when the trees are others than in revision `seen`, or when my deadline comes."""

    seen: int = -1


class AboutCode(msgspec.Struct, frozen=True):
    """A memory about a place in the code."""

    id: str
    content: str


class CodeChunk(msgspec.Struct, frozen=True):
    """A chunk that may answer: the best of its file. Its path is relative to the tree's root."""

    tree_id: str
    file_path: str
    start_line: int
    end_line: int
    language: str
    chunk_type: str
    name: str
    signature: str
    text: str
    score: float
    memories: tuple[AboutCode, ...] = ()
    """About it, or about another place in its file."""


class CodeFound(msgspec.Struct, frozen=True, tag=True):
    """The best chunks first."""

    chunks: tuple[CodeChunk, ...]
    notices: tuple[Notice, ...] = ()


class SearchCode(Request[CodeFound], frozen=True):
    """Find chunks in the trees of a project, or in one of them.

    First come those that the memories of the ids `beside` are about.
    """

    project: ProjectRef
    query: str
    tree_id: str | None = None
    limit: int = 10
    session_id: str = ""
    beside: tuple[str, ...] = ()


class StaleMemory(msgspec.Struct, frozen=True):
    """A memory, and in some words what has become of the code that it is about."""

    memory_id: str
    content: str
    verdict: str
    code: str


class ListStale(Request[tuple[StaleMemory, ...]], frozen=True):
    """Which memories of a project are about code that is not as it was? Those of which the code is gone come first.

    With `anew` false by what was seen last, in the background: nothing is compared while somebody waits.
    """

    project: ProjectRef
    anew: bool = True


class TreeDescription(msgspec.Struct, frozen=True):
    """A tree and its index. Times are seconds since the epoch; `skipped` counts files left out, by the reason."""

    id: str
    root: str
    watch: bool
    status: CodeStatus
    total_files: int = 0
    indexed_files: int = 0
    total_chunks: int = 0
    started_at: float | None = None
    completed_at: float | None = None
    skipped: dict[str, int] = {}
    error: str = ""


class DeleteCode(Request[tuple[TreeDescription, ...]], frozen=True):
    """Forget a tree, with its index. The answer says what it was."""

    project: ProjectRef
    tree_id: str


class DescribeCode(Request[tuple[TreeDescription, ...]], frozen=True):
    """Ask for the state of a project's trees, in the order of their paths, or of one of them."""

    project: ProjectRef
    tree_id: str | None = None


class IndexCode(Request[tuple[TreeDescription, ...]], frozen=True):
    """Index the tree at that absolute path, in the background. The answer is that tree alone."""

    project: ProjectRef
    path: str
    watch: bool = True


class ListCodeFiles(Request[FilesListed], frozen=True):
    """The files of a tree after that path, in the order of their paths."""

    project: ProjectRef
    tree_id: str
    after: str = ""
    limit: int = 200
