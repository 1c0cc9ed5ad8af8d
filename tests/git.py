import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")


def git(*arguments: str, at: Path) -> None:
    subprocess.run(["git", *IDENTITY, *arguments], cwd=at, check=True, capture_output=True)


def make_repository(directory: Path) -> Path:
    """A repository with a first commit that no other has."""
    directory.mkdir(parents=True)
    git("init", at=directory)
    git("commit", "--allow-empty", "-m", f"first of {directory.name}", at=directory)
    return directory


def make_worktree(repository: Path, at: Path) -> None:
    for arguments in (("init",), ("commit", "--allow-empty", "-m", "one"), ("worktree", "add", str(at))):
        git(*arguments, at=repository)
