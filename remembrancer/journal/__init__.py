"""The journal of shared lanes: an ordered log of operations that several machines apply to their own files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from remembrancer.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from remembrancer.journal.sharing import Sharing


def sharing_of(home: Path) -> Sharing:
    """Raises `ConfigurationError` if the `sharing` extra is not installed."""
    try:
        from remembrancer.journal.sharing import Sharing
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "sharing needs two more packages; install them with pipx install --force '/path/to/clone[sharing]'"
        ) from error
    return Sharing(home)
