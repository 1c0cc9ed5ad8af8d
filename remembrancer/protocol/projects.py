"""Messages about projects as such: one that lies elsewhere now, and by what it is recognised there."""

from __future__ import annotations

import msgspec

from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import ProjectRef


class ProjectMoved(msgspec.Struct, frozen=True, tag=True):
    """The number of memories that were moved (or would be), and of those that they were joined with."""

    memories: int
    joined: int = 0


class MoveProject(Request[ProjectMoved], frozen=True):
    """Give the memories of the project `old` to `new`, which is the same one in another place.

    What `new` has already is kept and joined with them. `directory` is its working tree. `dry_run`: change nothing.
    """

    old: ProjectRef
    new: ProjectRef
    directory: str
    dry_run: bool = False


class FormerPlace(msgspec.Struct, frozen=True):
    """A project that was somewhere, and how many memories are kept under that path."""

    path: str
    memories: int


class ProjectRecognised(msgspec.Struct, frozen=True, tag=True):
    """The places where the project may have been before, the last used first; none for one that is known for long."""

    former: tuple[FormerPlace, ...] = ()
    needs_commit: bool = False
    """True if the first commit is not known yet."""


class RecogniseProject(Request[ProjectRecognised], frozen=True):
    """Keep the first commit of a project ("": the one that is kept), and look for one that has the same and is where it
    was no more."""

    project: ProjectRef
    first_commit: str = ""
