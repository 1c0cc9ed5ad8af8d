"""The request that moves a project to another path."""

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
