"""The error for a file that cannot grow because its file system is full."""

from __future__ import annotations

import shutil
from pathlib import Path

from remembrancer.protocol.errors import StorageFull, size_in_words


def size_on_disk(path: Path) -> int:
    """Bytes of a SQLite file with its write-ahead log."""
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def disk_full(message: str, path: Path) -> StorageFull:
    """The error with both sizes: the limit is the file's size and what the file system has free for this user."""
    try:
        current_bytes = size_on_disk(path)
        free_bytes = shutil.disk_usage(path.parent).free
    except OSError:  # the file or its directory is gone, which is another error's to tell
        return StorageFull(message)
    said = f"{message} ({size_in_words(free_bytes)} are free on the disk of {path})"
    return StorageFull.at_limit(said, current_bytes=current_bytes, limit_bytes=current_bytes + free_bytes)
