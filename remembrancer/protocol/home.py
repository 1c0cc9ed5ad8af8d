"""Messages about a whole home: requests of commands to the store, or to its handlers while no store runs."""

from __future__ import annotations

from typing import Literal

import msgspec

from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.wire import Request


class KnownProject(msgspec.Struct, frozen=True):
    """A project. Times are seconds since the epoch, None where the catalogue does not know them.

    `path` is the one that its id was made from (its git common directory, or else its directory), `directory` the
    working tree of its latest session. `memories` leaves out forgotten ones. `lane` is the lane that it shares with
    other machines, whose memories are counted too.
    """

    id: str
    path: str | None
    directory: str | None
    created_at: float | None
    last_used_at: float | None
    memories: int
    forgotten: int
    sessions: int
    lane: str | None = None


class ProjectsDescribed(msgspec.Struct, frozen=True, tag=True):
    """The projects, the last used first. `has_user`: the user has memories."""

    projects: tuple[KnownProject, ...]
    has_user: bool = False


class DescribeProjects(Request[ProjectsDescribed], frozen=True):
    """List the projects that have memories."""


class MemoriesFound(msgspec.Struct, frozen=True, tag=True):
    """The first words of the memories found, by their ids, and the reasons of those that are forgotten (or "")."""

    words: dict[str, str]
    forgotten: dict[str, str] = {}


class FindMemories(Request[MemoriesFound], frozen=True):
    """Check which of these memories are those of a project, or (None) of the user."""

    project_id: str | None
    memory_ids: tuple[str, ...]


FileCondition = Literal[
    "whole", "older", "newer", "too_old", "damaged", "dangling", "unreadable", "no_room", "locked", "too_large"
]


class ExaminedFile(msgspec.Struct, frozen=True):
    """A file of records. `reason` is SQLite's message, which names pages and rows but never their content, or says that
    the file belongs to another release."""

    path: str
    state: FileCondition
    size_bytes: int = 0
    reason: str = ""


class FilesExamined(msgspec.Struct, frozen=True, tag=True):
    """The files, and the information about models in the records."""

    files: tuple[ExaminedFile, ...]
    models: bytes | None = None


class ExamineFiles(Request[FilesExamined], frozen=True):
    """Read every file of records completely, and report damage."""


class CopiedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a backup. `counts` describes its content: memories, queued operations, projects.

    `schema_version` is 0 for a file that is not a database.
    """

    name: str
    sha256: str
    size_bytes: int
    schema_version: int
    counts: dict[str, int]


class CopyRecords(Request[tuple[CopiedFile, ...]], frozen=True):
    """Copy the records into a directory, as of one moment."""

    directory: str


class ExportWritten(msgspec.Struct, frozen=True, tag=True):
    """The number of files read, and the numbers of records written; `forgotten` memories are included in the
    memories."""

    files: int
    projects: int = 0
    memories: int = 0
    forgotten: int = 0


class WriteExport(Request[ExportWritten], frozen=True):
    """Write the lines of an export into an existing file, all as of one moment.

    `projects` None: all projects and the user's memories; otherwise the projects with these ids, and of the user's
    memories only those of `scopes`.
    """

    path: str
    projects: tuple[str, ...] | None = None
    scopes: tuple[Scope, ...] = ()
    forgotten: bool = True

    @property
    def in_projects(self) -> frozenset[Scope]:
        """The scopes to export from a project's file."""
        return frozenset[Scope](self.scopes or ("session", "project")) - {"user"}

    @property
    def of_user(self) -> bool:
        """True if the user's memories are to be exported: not with named projects, unless requested."""
        return "user" in self.scopes if self.scopes else self.projects is None


HomeRequest = DescribeProjects | FindMemories | ExamineFiles | CopyRecords | WriteExport
