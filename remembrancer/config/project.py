"""Which project a directory belongs to: its git common directory, or else its real path.

Worktrees of one repository have one git common directory, so they share a memory.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from remembrancer.protocol.writes import ProjectRef


def project_of(directory: Path) -> ProjectRef:
    """The project of a working directory. Nothing is run and nothing is written; an unreadable `.git` is no git."""
    root = _git_common_directory(directory.resolve()) or directory.resolve()
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()
    return ProjectRef(id=f"p_{digest[:12]}", path=os.fsdecode(root))


def _git_common_directory(directory: Path) -> Path | None:
    """See gitrepository-layout(5): `.git` may be a file that names a directory, and `commondir` names the shared one."""
    for parent in (directory, *directory.parents):
        dot_git = parent / ".git"
        try:
            if dot_git.is_dir():
                git_directory = dot_git
            elif dot_git.is_file():
                named = dot_git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
                git_directory = (parent / named).resolve()
            else:
                continue
            common = git_directory / "commondir"
            if common.is_file():
                git_directory = git_directory / common.read_text(encoding="utf-8").strip()
            if (git_directory / "HEAD").is_file():
                return git_directory.resolve()
        except (OSError, UnicodeDecodeError):
            continue
    return None
