"""Recognises a moved repository by its first commit, and tells its session how to get its memories back.

Nothing is moved automatically: another clone of the same repository has the same first commit, and a missing path may
return with its disk.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from remembrancer.memory.text import counted
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.projects import ProjectRecognised, RecogniseProject
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.wire import Notice
from remembrancer.toolsets.service import Caller

GIT_S: Final = 2.0
"""The time limit for git at full speed: it walks the whole history, some hundred thousand commits a second."""
REAP_S: Final = 1.0
STORE_WAIT_S: Final = 10.0
ANSWER_S: Final = 5.0
LONGEST_HASH: Final = 64
_QUIET: Final = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
"""Options that keep git from fetching anything, whatever the repository's configuration says."""

logger = logging.getLogger(__name__)


class Recognition:
    """Finds the former places of sessions' projects. One for each gateway."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self._asked_git: set[str] = set()
        """Ids of projects whose first commit git was asked for: it is asked only once, with or without an answer."""

    async def former_place(self, caller: Caller) -> Notice | None:
        """The notice about a former place of the session's project; None if none is known."""
        project = caller.project
        if not await self._store.wait_usable(STORE_WAIT_S):
            return None
        answer = await self._ask(RecogniseProject(project))
        if answer.needs_commit:
            if project.id in self._asked_git:
                return None
            self._asked_git.add(project.id)  # noted first: the session may end before git answers
            commit = await first_commit(Path(project.path))
            if commit is None:
                return None
            answer = await self._ask(RecogniseProject(project, commit))
        if not answer.former:
            return None
        commands = [
            f"remembrancer admin projects move {shlex.quote(_tree_of(path))} {shlex.quote(caller.directory)} "
            f"({counted(memories, 'memory', 'memories')})"
            for path, memories in answer.former
        ]
        text = (
            "This repository seems to have been moved: it has the first commit of one that is not where it was, and "
            "whose memories are not found here. If it is the same, this brings them here: " + ", or ".join(commands)
        )
        return Notice("project_moved", text)

    async def _ask(self, question: RecogniseProject) -> ProjectRecognised:
        try:
            return await self._store.request(question, ANSWER_S, is_long=True)
        except RemembrancerError as error:
            logger.debug("a project was not recognised", extra={"project": question.project.id, "code": error.code})
            return ProjectRecognised()


async def first_commit(git_directory: Path) -> str | None:
    """The hash of the oldest root commit in the history of a repository.

    None: it is not a repository of this user, has no commit, git is missing, or git does not answer in time.
    """
    if not await anyio.to_thread.run_sync(_is_own_repository, git_directory, abandon_on_cancel=True):
        return None
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _QUIET
    command = ("git", f"--git-dir={git_directory}", "rev-list", "--max-parents=0", "--reverse", "HEAD")
    try:
        git = _start(command, environ)
    except OSError:
        return None
    try:
        line = await anyio.to_thread.run_sync(_first_line, git, abandon_on_cancel=True)
    finally:
        git.kill()  # the thread is then done with it
    commit = line.decode("ascii", "replace").strip()
    return commit if commit.isalnum() and len(commit) <= LONGEST_HASH else None


def _start(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start git. Not by asyncio: its child watcher warns if `kill` reaps a process that has just ended."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd="/", env=environ, stdin=quiet, stderr=quiet, stdout=subprocess.PIPE)


def _first_line(git: subprocess.Popen[bytes]) -> bytes:
    """The first line that git prints in time, or nothing. Ends the process."""
    try:
        output, _ = git.communicate(timeout=GIT_S)
    except subprocess.TimeoutExpired:
        return b""
    finally:
        git.kill()
        with suppress(subprocess.TimeoutExpired):  # not longer: a process on a hanging disk cannot be killed
            git.wait(REAP_S)
        if git.stdout is not None:
            git.stdout.close()
    return output.partition(b"\n")[0]


def _is_own_repository(directory: Path) -> bool:
    try:
        return (directory / "HEAD").is_file() and directory.stat().st_uid == os.getuid()
    except (OSError, ValueError):
        return False


def _tree_of(path: str) -> str:
    return path.removesuffix("/.git")
