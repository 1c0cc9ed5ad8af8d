"""The way of a command to the runtime: a question to the launcher, and requests to the store."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from pathlib import Path
from typing import Final, Protocol, TypeVar

import anyio

from remembrancer.actors.bridge.places import find_places
from remembrancer.actors.bridge.starter import Starter
from remembrancer.config.home import find_home
from remembrancer.protocol.control import (
    from_launcher,
)
from remembrancer.protocol.errors import HomeUnusable, MemoryUnavailable, PeerUnavailable
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.home import FindMemories
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Dealer, Speaker
from remembrancer.protocol.store_client import AWAY, StoreAway, StoreClient
from remembrancer.protocol.wire import Request

CONNECT_S: Final = 10.0
"""The time to wait for the launcher's socket: it has the lock before it listens, on a busy machine for seconds."""
ANSWER_S: Final = 3.0
"""The time to wait for its answer; a status takes 0.5 s when a process hangs."""
STORE_BUDGET_S: Final = 30.0
"""The time that the store may be away before a request is given up. A runtime starts in one second."""
STORE_ANSWER_S: Final = 10.0
HOME_ANSWER_S: Final = 3600.0
"""The time that the store may take for all that a home holds. A store that hangs is killed by the launcher before."""

T = TypeVar("T")


def paths_here() -> RuntimePaths:
    """The paths of the home that the environment names."""
    return RuntimePaths(find_home(os.environ))


def directory_here(named: str | None = None) -> Path:
    """The directory whose project is meant: the one that is named, or that of the environment, or the working one."""
    return Path(named or os.environ.get("REMEMBRANCER_PROJECT") or ".").expanduser()


def is_up(paths: RuntimePaths) -> bool:
    """True if a runtime has the lock of the home. The home need not exist.

    Raises:
        HomeUnusable: that cannot be told: the lock is another user's, or on a disk that cannot be written.
    """
    try:
        return FileLock(paths.runtime_lock).is_held_elsewhere()
    except OSError as error:
        raise HomeUnusable(
            f"the home {paths.home} cannot be used: {error.strerror}: 'remembrancer doctor' looks at it"
        ) from error


def _run(work: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Run it in an event loop of its own, also in a thread that an event loop has given its context."""
    result: T = Context().run(anyio.run, work, *arguments)
    return result


def ask(paths: RuntimePaths, question: Request[T]) -> T:
    """The launcher's answer.

    Raises:
        PeerUnavailable: nothing listens.
        PeerLost: the launcher ended before it answered.
        DeadlineExceeded: it did not answer in time.
        RemembrancerError: it refuses that, and why.
    """

    async def asked() -> T:
        async with Dealer(paths.control_endpoint, Speaker("command", new_ulid()), from_launcher) as launcher:
            if not await launcher.wait_connected(CONNECT_S):
                log = paths.logs / "launcher.log"
                raise PeerUnavailable(f"a runtime has the home {paths.home}, and it does not listen: look at {log}")
            return await launcher.request(question, timeout_s=ANSWER_S)

    return _run(asked)


def wait_down(paths: RuntimePaths, within_s: float) -> bool:
    """Wait until no runtime is up any more; False when one still is after so long."""
    give_up_at = time.monotonic() + within_s
    while still_up := is_up(paths):
        if time.monotonic() >= give_up_at:
            break
        time.sleep(0.02)  # flock has no event to wait for
    return not still_up


def nothing_runs(home: Path) -> str:
    """The words for a person when there is no runtime."""
    return f"nothing is running for the home {home}: the next session or memory command starts it, or 'remembrancer up'"


class AskStore(Protocol):
    """A function that asks the store. What is asked has to bear being asked twice."""

    async def __call__(self, question: Request[T], *, answer_s: float = STORE_ANSWER_S) -> T:
        """The store's answer, which may come after it was away for a while. `answer_s`: how long its work
        may take.

        Raises:
            MemoryUnavailable: there is no store, and none came within the budget.
            RemembrancerError: the store refuses this, and says why.
        """


@asynccontextmanager
async def connected_store(environ: Mapping[str, str] = os.environ) -> AsyncIterator[AskStore]:
    """Requests to the store. A runtime is started when none is up; it goes down by itself, as a session's does."""
    places = find_places(environ)
    starter = Starter(places, environ)

    def start() -> None:
        starter.tend(time.monotonic())
        if starter.failure is not None:
            raise MemoryUnavailable(starter.failure)

    endpoint = RuntimePaths(Path(places.home)).store_endpoint
    async with StoreClient(endpoint, Speaker("command", new_ulid())) as client:

        async def asked(question: Request[T], *, answer_s: float = STORE_ANSWER_S) -> T:
            try:
                return await client.request_patiently(question, answer_s, away_s=STORE_BUDGET_S, on_wait=start)
            except StoreAway as error:
                raise MemoryUnavailable(
                    f"{error.message}: look at {places.logs}, then run the command again: it goes on where it stopped"
                ) from error
            finally:
                starter.connected()  # gives back the lock under which it may be starting one

        yield asked


def ask_store(question: Request[T], *, answer_s: float = STORE_ANSWER_S) -> T:
    """The store's answer to one question. Raises as `AskStore`."""

    async def asked() -> T:
        async with connected_store() as ask:
            return await ask(question, answer_s=answer_s)

    return _run(asked)


def ask_home(paths: RuntimePaths, request: Request[T]) -> T:
    """The store's answer about all that a home holds; where no store answers, that of its handlers in this process.

    Raises as `HomeReader.answer`.
    """
    with suppress(*AWAY, HomeUnusable):  # of a home on a disk that cannot be written nobody can say who has it
        if is_up(paths):
            return ask_running_home(paths, request)
    from remembrancer.actors.store.home_reader import HomeReader  # numpy, where no store answers

    return HomeReader(paths).answer(request)


def ask_running_home(paths: RuntimePaths, request: Request[T]) -> T:
    """As `ask_home`, of a runtime that is up. Raises one of `AWAY` where its store does not answer."""
    answer: T = _run(_ask_running_store, paths, request)
    return answer


async def _ask_running_store(paths: RuntimePaths, request: Request[T]) -> T:
    async with StoreClient(paths.store_endpoint, Speaker("command", new_ulid())) as store:
        if not await store.wait_connected(ANSWER_S):
            raise PeerUnavailable("the store does not listen")
        # One that hangs, is busy for another command, or does not know these questions yet is not waited for.
        await store.request(FindMemories(None, ()), timeout_s=ANSWER_S)
        return await store.request(request, timeout_s=HOME_ANSWER_S)
