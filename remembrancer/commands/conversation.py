"""One question of a command to the launcher, and its answer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import anyio

from remembrancer.config.home import find_home
from remembrancer.protocol.control import AskDown, AskScale, AskStatus, AskTraces, CommandRefused, ToCommand
from remembrancer.protocol.errors import HomeUnusable, PeerUnavailable
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Dealer, Speaker
from remembrancer.protocol.wire import to_command

Question = AskStatus | AskTraces | AskScale | AskDown
CONNECT_S: Final = 3.0
"""How long to wait for the launcher's socket: it has the lock for a moment before it listens."""
ANSWER_S: Final = 3.0
"""How long to wait for an answer; a status takes 0.5 s when a process hangs."""


def paths_here() -> RuntimePaths:
    """The paths of the home that the environment names."""
    return RuntimePaths(find_home(os.environ))


def is_up(paths: RuntimePaths) -> bool:
    """Whether a runtime has the lock of the home. The home need not exist.

    Raises:
        HomeUnusable: that cannot be told: the lock is another user's, or on a disk that cannot be written.
    """
    try:
        return FileLock(paths.runtime_lock).is_held_elsewhere()
    except OSError as error:
        raise HomeUnusable(
            f"the home {paths.home} cannot be used: {error.strerror}: 'remembrancer doctor' looks at it"
        ) from error


def ask(paths: RuntimePaths, question: Question) -> ToCommand:
    """The launcher's answer.

    Raises:
        PeerUnavailable: nothing listens.
        PeerLost: the launcher ended before it answered.
        DeadlineExceeded: it did not answer in time.
    """
    return anyio.run(_ask, paths, question)


async def _ask(paths: RuntimePaths, question: Question) -> ToCommand:
    async with Dealer(paths.control_endpoint, Speaker("command", new_ulid()), to_command) as launcher:
        if not await launcher.wait_connected(CONNECT_S):
            raise PeerUnavailable(
                f"a runtime has the home {paths.home}, and it does not listen: look at {paths.logs / 'launcher.log'}"
            )
        answer: ToCommand = await launcher.request(question, timeout_s=ANSWER_S)
        return answer


def refusal(answer: ToCommand) -> str:
    """What to tell a person about an answer that is not the one hoped for."""
    return answer.message if isinstance(answer, CommandRefused) else f"unexpected answer {type(answer).__name__}"


def nothing_runs(home: Path) -> str:
    """What to tell a person when there is no runtime."""
    return f"no runtime of the home {home} is up: a session starts one by itself, or run 'remembrancer up'"
