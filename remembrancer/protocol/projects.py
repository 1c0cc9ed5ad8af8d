"""Messages about projects: moving one to another path, and recognising one that has moved."""

from __future__ import annotations

import msgspec

from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import ProjectRef


class MemoriesMoved(msgspec.Struct, frozen=True, tag=True):
    """The number of memories that were moved (or would be), the number of those merged with existing ones, and the
    number that stay, with the reason for the first of them."""

    memories: int
    joined: int = 0
    left: int = 0
    reason: str | None = None


class MoveProject(Request[MemoriesMoved], frozen=True):
    """Move the memories of the project `old` to `new`, the same project in another place.

    Memories that `new` already has are kept and merged with them. `directory` is its working tree. `dry_run`: change
    nothing.
    """

    old: ProjectRef
    new: ProjectRef
    directory: str
    dry_run: bool = False


class ProjectRecognised(msgspec.Struct, frozen=True, tag=True):
    """Paths at which the project may have been before, each with the number of memories that are kept for it, the last
    used first; none for a project that is already known."""

    former: tuple[tuple[str, int], ...] = ()
    needs_commit: bool = False
    """True if the first commit is not known yet."""


class RecogniseProject(Request[ProjectRecognised], frozen=True):
    """Store the first commit of a project ("": use the stored one), and look for projects with the same first commit
    whose directory is gone."""

    project: ProjectRef
    first_commit: str = ""
