"""A directory's project: its git common directory, which all worktrees share, or else its real path."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from remembrancer.protocol.paths import read_file
from remembrancer.protocol.system import real_path
from remembrancer.protocol.writes import ProjectRef

if TYPE_CHECKING:
    from remembrancer.config.settings import Settings


def project_of(directory: Path) -> ProjectRef:
    """Runs and writes nothing. The id depends on all bytes of the path, although `path` shows only valid UTF-8."""
    real = Path(real_path(directory))
    root = os.fsencode(_git_common_directory(real) or real)
    return ProjectRef(id=f"p_{hashlib.sha256(root).hexdigest()[:12]}", path=root.decode("utf-8", "replace"))


def working_tree_of(directory: Path) -> Path:
    """The root of the working tree that contains a directory, or else the directory itself. Links are resolved."""
    real = Path(real_path(directory))
    return next((parent for parent in (real, *real.parents) if os.path.lexists(parent / ".git")), real)


def directory_of(path: str) -> str:
    """A submodule's git directory is in the outer repository, and its configuration names the working tree."""
    if f"{os.sep}.git{os.sep}modules{os.sep}" in path:
        with contextlib.suppress(OSError, ValueError):
            return str(_configured_tree(Path(path)) or path)
    return path.removesuffix("/.git")


def directory_here(named: str | None = None) -> Path:
    """The given directory, or else the one named by the environment, or else the working directory."""
    return expanded(named or os.environ.get("REMEMBRANCER_PROJECT") or ".")


def expanded(path: str) -> Path:
    """The path with the home directory for a leading `~` or `~user`, unless there is no such user."""
    with contextlib.suppress(RuntimeError):
        return Path(path).expanduser()
    return Path(path)


def workspace_root(directory: str, settings: Settings) -> str:
    """The directory that contains a session's notes."""
    return directory if settings.workspace is None else str(Path(settings.workspace).expanduser())


def is_gone(project: ProjectRef) -> bool:
    """True if a project was moved or deleted, or became (part of) another project by `git init`. Reads the disk."""
    path = Path(project.path)
    if path.name == ".git" or os.path.lexists(path / "HEAD"):
        return not os.path.lexists(path)
    return project_of(path).id != project.id or not os.path.lexists(path)


def _git_common_directory(directory: Path) -> Path | None:
    """None outside a working tree. See gitrepository-layout(5): `.git` may be a file that names the directory, and its
    `commondir` may name the shared directory. A file or a link may have arrived with somebody else's files, so it is
    followed only if its target points back (git checks this for worktrees) or is next to it, as `.bare` often is.
    Otherwise, the directory counts as a separate repository."""
    for parent in (directory, *directory.parents):
        dot_git = parent / ".git"
        try:
            if dot_git.is_symlink():
                return dot_git
            if dot_git.is_dir():
                if (dot_git / "HEAD").is_file():
                    return dot_git
            elif dot_git.is_file():
                mark, _, named = os.fsdecode(read_file(dot_git)).partition(":")
                if mark != "gitdir":
                    continue
                target = Path(real_path(parent / named.strip()))
                if not (target / "HEAD").is_file():
                    continue
                beside = target if target.parent == parent else None
                return _shared_by(target, dot_git) or beside or dot_git
        except (OSError, ValueError):  # unreadable, or a NUL in a path
            continue
    return None


def _shared_by(target: Path, dot_git: Path) -> Path | None:
    """The directory that worktrees share; None if it belongs to another tree. A worktree's git directory contains
    `gitdir`, the path of its `.git` file; a submodule's configuration names its working tree."""
    back = target / "gitdir"
    if back.is_file():
        if real_path(target / os.fsdecode(read_file(back)).strip()) != str(dot_git):
            return None
        common = Path(real_path(target / os.fsdecode(read_file(target / "commondir")).strip()))
        return common if target.parent == common / "worktrees" and (common / "HEAD").is_file() else None
    return target if _configured_tree(target) == dot_git.parent else None


def _configured_tree(repository: Path) -> Path | None:
    """Raises `OSError` or `ValueError`."""
    for line in os.fsdecode(read_file(repository / "config")).splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "worktree":
            return Path(real_path(repository / value.strip().strip('"')))
    return None
