"""The error for a file that cannot grow because its file system is full."""

from __future__ import annotations

import shutil
from pathlib import Path

from remembrancer.protocol.errors import StorageFull


def disk_full(message: str, path: Path) -> StorageFull:
    """The error with both sizes: the limit is the file's size and what the file system has free for this user."""
    try:
        current_bytes = path.stat().st_size
        free_bytes = shutil.disk_usage(path.parent).free
    except OSError:  # the file or its directory is gone, which is another error's to tell
        return StorageFull(message)
    return StorageFull.at_limit(message, current_bytes=current_bytes, limit_bytes=current_bytes + free_bytes)
