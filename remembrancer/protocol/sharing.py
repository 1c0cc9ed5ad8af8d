"""Messages about memories that a project shares with other machines."""

import msgspec

from remembrancer.protocol.projects import MemoriesMoved
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import Operation, ProjectRef


class ShareProject(Request[MemoriesMoved], frozen=True):
    """Share a project's memories in a lane that this home is a member of, and move its existing ones there. None: share
    the user's memories of scope `user`.

    `dry_run`: only report the memories that would be moved.
    """

    project: ProjectRef | None
    lane: str
    dry_run: bool = False


class LaneLeft(msgspec.Struct, frozen=True, tag=True):
    """The lane that was left, and the number of memories that stay as the project's or the user's own."""

    lane: str
    memories: int


class LeaveLane(Request[LaneLeft], frozen=True):
    """Stop sharing for a project (None: the user): the present memories of the lane stay as its own."""

    project: ProjectRef | None
    dry_run: bool = False


class LaneState(msgspec.Struct, frozen=True):
    """A lane on this host: the position up to which it is applied, and the number of known entries beyond that.

    `problem` says why nothing is exchanged at the moment, or any more (`code` is that of the error). `project` is the
    path of the project that shares it; "" if it is the user's.
    """

    lane: str
    project: str
    position: int = 0
    behind: int = 0
    problem: str | None = None
    code: str | None = None


class DescribeLanes(Request[tuple[LaneState, ...]], frozen=True):
    """Describe the shared lanes of this home."""


class RejoinLane(Request[tuple[LaneState, ...]], frozen=True):
    """Reload the membership of a lane: this home has joined it (again), or has a new key for it that the other members
    are to use too."""

    lane: str
    has_new_key: bool = False


class OthersWrote(msgspec.Struct, frozen=True, tag=True):
    """Store to gateway: other machines made these changes, in this order, to the memories that a project of this home
    shares."""

    operations: tuple[Operation, ...]
