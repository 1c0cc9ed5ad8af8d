"""Messages about memories that move: to another path of their project, or to and from lanes that machines share."""

import msgspec

from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import Operation, ProjectRef


class MemoriesMoved(msgspec.Struct, frozen=True, tag=True):
    """The numbers of memories that are moved, merged (`joined`), or not moved (`left`, for a `reason`)."""

    memories: int
    joined: int = 0
    left: int = 0
    reason: str | None = None


class MoveProject(Request[MemoriesMoved], frozen=True):
    """Merge the memories of `old` into `new`, the same project elsewhere. `directory` is the working tree of `new`."""

    old: ProjectRef
    new: ProjectRef
    directory: str
    dry_run: bool = False


class ShareProject(Request[MemoriesMoved], frozen=True):
    """Move a project's memories (None: the user's) to a lane that this home is a member of."""

    project: ProjectRef | None
    lane: str
    dry_run: bool = False


class LeaveLane(Request[tuple[str, int]], frozen=True):
    """Stop sharing a project's memories (None: the user's), and keep them. The answer is the lane, and their number."""

    project: ProjectRef | None
    dry_run: bool = False


class LaneState(msgspec.Struct, frozen=True):
    """A lane on this host, applied up to `position`. `project` is the path of the project that shares the
    lane ("": the user shares it). `problem` says why nothing is exchanged; `code` is the error's code."""

    lane: str
    project: str
    position: int = 0
    problem: str | None = None
    code: str | None = None


class DescribeLanes(Request[tuple[LaneState, ...]], frozen=True):
    """Describe the shared lanes of this home."""


class RejoinLane(Request[tuple[LaneState, ...]], frozen=True):
    """Reload the membership of a lane that this home has joined, or for which it has a new key for all members."""

    lane: str
    has_new_key: bool = False


class OthersWrote(msgspec.Struct, frozen=True, tag=True):
    """Store to gateway: other machines made these changes, in this order, to shared memories of a project."""

    operations: tuple[Operation, ...]
