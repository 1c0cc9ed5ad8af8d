"""Messages about memories that move: to another path of their project, or to and from lanes that are shared with other
machines."""

import msgspec

from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import Operation, ProjectRef


class MemoriesMoved(msgspec.Struct, frozen=True, tag=True):
    """How many memories were (or would be) moved, were merged with existing memories, or stay where they are, with the
    reason why the first of these stays."""

    memories: int
    joined: int = 0
    left: int = 0
    reason: str | None = None


class MoveProject(Request[MemoriesMoved], frozen=True):
    """Move the memories of the project `old` to `new`, the same project in a different place.

    Memories that `new` already has are kept and merged with them. `directory` is its working tree. `dry_run`: change
    nothing.
    """

    old: ProjectRef
    new: ProjectRef
    directory: str
    dry_run: bool = False


class ShareProject(Request[MemoriesMoved], frozen=True):
    """Share a project's memories in a lane that this home is a member of, moving its existing memories there. None:
    share the user's memories of scope `user`.

    `dry_run`: only report how many memories would be moved.
    """

    project: ProjectRef | None
    lane: str
    dry_run: bool = False


class LeaveLane(Request[tuple[str, int]], frozen=True):
    """Stop sharing for a project (None: the user), which keeps the lane's current memories as its own. The answer is
    the lane, and the number of these memories."""

    project: ProjectRef | None
    dry_run: bool = False


class LaneState(msgspec.Struct, frozen=True):
    """A lane on this host, and the position up to which it is applied.

    `problem` says why nothing is exchanged, at the moment or for good (`code` is the error's code). `project` is the
    path of the project that shares it; "" if it is the user's.
    """

    lane: str
    project: str
    position: int = 0
    problem: str | None = None
    code: str | None = None


class DescribeLanes(Request[tuple[LaneState, ...]], frozen=True):
    """Describe the shared lanes of this home."""


class RejoinLane(Request[tuple[LaneState, ...]], frozen=True):
    """Reload the membership of a lane: this home has joined it (again), or has a new key for it that the other members
    should use too."""

    lane: str
    has_new_key: bool = False


class OthersWrote(msgspec.Struct, frozen=True, tag=True):
    """Store to gateway: other machines made these changes, in this order, to the memories that a project of this home
    shares."""

    operations: tuple[Operation, ...]
