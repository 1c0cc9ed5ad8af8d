"""What the launcher and a new process agree on: the first line of its standard input, and its exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from remembrancer.config.settings import Settings
from remembrancer.protocol.control import Role
from remembrancer.protocol.paths import RuntimePaths

EXIT_STOPPED: Final = 0
EXIT_START_FAILED: Final = 2
"""The actor said why in a `StartFailed`; starting it again would end the same way."""
EXIT_CRASHED: Final = 70
EXIT_ORPHANED: Final = 71
"""The launcher died first."""
ORPHANED: Final = "the launcher is gone"
"""The reason of that stop: no ordered one, so whoever depends on the runtime should have it back."""


class LaunchSpec(msgspec.Struct, frozen=True):
    """The first line, as JSON: who the process is, where its home is, and how it is set up.

    `name` is unique in the runtime (`embedder-2`).
    """

    role: Role
    name: str
    incarnation: str
    home: str
    settings: Settings
    threads: int = 1

    @property
    def paths(self) -> RuntimePaths:
        """The paths of the home."""
        return RuntimePaths(Path(self.home))
