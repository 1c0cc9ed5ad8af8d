"""Messages about all that a home holds: what commands ask of the store, and of its handlers while no store runs."""

from __future__ import annotations

from typing import Literal

import msgspec

from remembrancer.protocol.errors import Failure
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.wire import Request


class KnownProject(msgspec.Struct, frozen=True):
    """A project. Times are seconds since the epoch, None where the catalogue does not know them.

    `path` is what its id was made from (its git common directory, or else its directory), `directory` the working tree
    in which a session began last. `memories` leaves out the forgotten ones. `lane` is what it shares with other
    machines, whose memories are counted too.
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
    """The projects, the last used first; and the reason for each file that could not be read, whose counts are 0.

    `has_user`: there is a file of the user's memories.
    """

    projects: tuple[KnownProject, ...]
    unreadable: tuple[Failure, ...] = ()
    has_user: bool = False


class DescribeProjects(Request[ProjectsDescribed], frozen=True):
    """List the projects that have a file of memories."""


class MemoriesFound(msgspec.Struct, frozen=True, tag=True):
    """The first words of those that are there, by their ids."""

    words: dict[str, str]


class FindMemories(Request[MemoriesFound], frozen=True):
    """Look which of these memories are in the file of a project, or (None) of the user."""

    project_id: str | None
    memory_ids: tuple[str, ...]


FileCondition = Literal[
    "whole", "older", "newer", "too_old", "damaged", "dangling", "unreadable", "no_room", "locked", "too_large"
]


class ExaminedFile(msgspec.Struct, frozen=True):
    """A file of records. `reason` is SQLite's, which names pages and rows and never what is in them;
    of one of another release, that.

    `languages` counts the memories whose language is known. `release` is named of what could be read and is not empty.
    """

    path: str
    state: FileCondition
    size_bytes: int = 0
    reason: str = ""
    languages: dict[str, int] = {}
    release: str = ""


class FilesExamined(msgspec.Struct, frozen=True, tag=True):
    """The files, and what the records hold about the models."""

    files: tuple[ExaminedFile, ...]
    models: bytes | None = None


class ExamineFiles(Request[FilesExamined], frozen=True):
    """Read every file of records whole, and say what is wrong with it."""


class ReleasesDescribed(msgspec.Struct, frozen=True, tag=True):
    """The release of each database that is no index, by its name in the home, without those that cannot be read."""

    releases: dict[str, str]


class DescribeReleases(Request[ReleasesDescribed], frozen=True):
    """Say which release each file of records has the form of."""


class CopiedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a backup. `counts` says what is in it: memories, queued operations, projects.

    `schema_version` is 0 for one that is no database.
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
    """The number of files that were read, and of what was written: `forgotten` are among the memories."""

    files: int
    projects: int = 0
    memories: int = 0
    forgotten: int = 0
    sessions: int = 0


class WriteExport(Request[ExportWritten], frozen=True):
    """Write the lines of an export into a file, which is there; all as of one moment.

    `projects` None: all, and the user's memories; else those with these ids, and of the user's those of `scopes` alone.
    """

    path: str
    projects: tuple[str, ...] | None = None
    scopes: tuple[Scope, ...] = ()
    forgotten: bool = True

    @property
    def in_projects(self) -> frozenset[Scope]:
        """The scopes that are wanted of a project's file."""
        return frozenset[Scope](self.scopes or ("session", "project")) - {"user"}

    @property
    def of_user(self) -> bool:
        """True if the user's memories are wanted: not with named projects, unless they are asked for."""
        return "user" in self.scopes if self.scopes else self.projects is None


HomeRequest = DescribeProjects | FindMemories | ExamineFiles | DescribeReleases | CopyRecords | WriteExport
