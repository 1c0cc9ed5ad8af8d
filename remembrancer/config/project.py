"""Which project a directory belongs to: its git common directory, or else its real path.

Worktrees of one repository have one git common directory, so they share a memory.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from remembrancer.protocol.writes import ProjectRef


def project_of(directory: Path) -> ProjectRef:
    """The project of a working directory. Nothing is run and nothing is written; an unreadable `.git` is no git.

    Bytes of the path that are not UTF-8 count in the id, and are shown as U+FFFD: a message can only carry text.
    """
    real = Path(os.path.realpath(directory))  # unlike Path.resolve, it puts up with a loop of symbolic links
    root = os.fsencode(_git_common_directory(real) or real)
    return ProjectRef(id=f"p_{hashlib.sha256(root).hexdigest()[:12]}", path=root.decode("utf-8", "replace"))


def _git_common_directory(directory: Path) -> Path | None:
    """See gitrepository-layout(5): `.git` may be a file that names the directory; `commondir` names the shared one."""
    for parent in (directory, *directory.parents):
        dot_git = parent / ".git"
        try:
            if dot_git.is_dir():
                git_directory = dot_git
            elif dot_git.is_file():
                mark, _, named = os.fsdecode(dot_git.read_bytes()).partition(":")
                if mark != "gitdir":
                    continue
                git_directory = (parent / named.strip()).resolve()
            else:
                continue
            common = git_directory / "commondir"
            if common.is_file():
                git_directory = git_directory / os.fsdecode(common.read_bytes()).strip()
            if (git_directory / "HEAD").is_file():
                return git_directory.resolve()
        except (OSError, ValueError, RuntimeError):  # unreadable, a NUL in a path, a loop of symbolic links
            continue
    return None
