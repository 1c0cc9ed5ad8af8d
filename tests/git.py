"""Repositories that tests make."""

import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")


def git(*arguments: str, at: Path) -> None:
    subprocess.run(["git", *IDENTITY, *arguments], cwd=at, check=True, capture_output=True)


def make_worktree(repository: Path, at: Path) -> None:
    """Make a repository of a directory, with a commit, and a worktree of it."""
    for arguments in (("init",), ("commit", "--allow-empty", "-m", "one"), ("worktree", "add", str(at))):
        git(*arguments, at=repository)
