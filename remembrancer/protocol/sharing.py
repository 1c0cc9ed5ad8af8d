"""Messages about what a project shares with other machines."""

from __future__ import annotations

import msgspec

from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import Operation, ProjectRef


class ProjectShared(msgspec.Struct, frozen=True, tag=True):
    """The number of memories that were moved into the lane (or would be), and of those that stay with why the first."""

    memories: int
    left: int = 0
    reason: str | None = None


class ShareProject(Request[ProjectShared], frozen=True):
    """Have a project share its memories in a lane that this home is a member of, and move there what it has. None: have
    the user share his, the scope `user`.

    `dry_run`: only say what would be moved.
    """

    project: ProjectRef | None
    lane: str
    dry_run: bool = False


class LaneLeft(msgspec.Struct, frozen=True, tag=True):
    """The lane that was left, and the number of memories that stay as the project's or the user's own."""

    lane: str
    memories: int


class LeaveLane(Request[LaneLeft], frozen=True):
    """Have a project (None: the user) share no more: what the lane has by now stays as its own memories."""

    project: ProjectRef | None
    dry_run: bool = False


class LaneState(msgspec.Struct, frozen=True):
    """A lane on this host: the position up to which it is applied, and how many entries are known of beyond that.

    `problem` says why nothing is exchanged now, or any more (`code` is that of the error). `project` is the path of the
    project that shares it; "" if it is the user's. `erasings` are the positions at which memories were erased.
    """

    lane: str
    project: str
    position: int = 0
    behind: int = 0
    problem: str | None = None
    code: str | None = None
    erasings: tuple[int, ...] = ()
    damaged: tuple[str, ...] = ()
    """The files with entries that could be applied nowhere, and were set aside: each name says whose it is."""


class DescribeLanes(Request[tuple[LaneState, ...]], frozen=True):
    """Say how the shared lanes of this home are."""


class RejoinLane(Request[tuple[LaneState, ...]], frozen=True):
    """Take the membership of a lane as it is now: this home has joined it (again), or has a new key for it, which the
    others are to take too."""

    lane: str
    has_new_key: bool = False


class OthersWrote(msgspec.Struct, frozen=True, tag=True):
    """Store to gateway: other machines have done this, in this order, to what a project of this home shares."""

    operations: tuple[Operation, ...]
