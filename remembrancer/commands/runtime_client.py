"""Connects a command to the runtime: queries the launcher, and sends requests to the store."""

import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio

from remembrancer.actors.bridge.places import Places, find_places
from remembrancer.actors.bridge.starter import Starter
from remembrancer.actors.launcher.home import read_record
from remembrancer.commands import exit_codes
from remembrancer.commands.gateway_client import pause
from remembrancer.config.home import locate
from remembrancer.protocol.control import AskStatus, RuntimeStatus, from_launcher
from remembrancer.protocol.errors import (
    ConfigurationError,
    DeadlineExceeded,
    HomeUnusable,
    MemoryUnavailable,
    PeerLost,
    PeerUnavailable,
    RemembrancerError,
)
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.problems import Problem, launcher_silent
from remembrancer.protocol.sockets import Dealer, Speaker
from remembrancer.protocol.store_client import StoreAway, StoreClient
from remembrancer.protocol.wire import Request

CONNECT_S: Final = 10.0
"""The time limit for connecting. On a busy machine, the launcher holds the lock for seconds before it listens."""
ANSWER_S: Final = 3.0
"""The time limit for an answer. A status takes 0.5 s if a process hangs."""
STORE_BUDGET_S: Final = 30.0
"""The time to wait for an unavailable store. A runtime starts in one second."""
STORE_ANSWER_S: Final = 10.0

T = TypeVar("T")

logging.getLogger("remembrancer").addHandler(logging.NullHandler())  # only the processes of a runtime write logs


def paths_here() -> RuntimePaths:
    return RuntimePaths(locate(os.environ).directory)


def is_up(paths: RuntimePaths) -> bool:
    """True if a runtime holds the lock of the home, which need not exist. Raises `HomeUnusable`."""
    try:
        return FileLock(paths.runtime_lock).is_held_elsewhere()
    except OSError as error:
        raise HomeUnusable(f"{paths.home} cannot be used ({error.strerror}); run 'remembrancer doctor'") from error


def _run(work: Callable[[], Awaitable[T]]) -> T:
    """Works even in a thread with another loop's context."""
    return Context().run(anyio.run, work)


def ask(paths: RuntimePaths, question: Request[T]) -> T:
    """The launcher's answer. Raises `PeerUnavailable`, `PeerLost`, `DeadlineExceeded`, or the launcher's own error."""

    async def asked() -> T:
        async with Dealer(paths.control_endpoint, Speaker("command", new_ulid()), from_launcher) as launcher:
            if not await launcher.wait_connected(CONNECT_S):
                log = paths.logs / "launcher.log"
                raise PeerUnavailable(f"the runtime of the home {paths.home} does not answer; look at {log}")
            return await launcher.request(question, timeout_s=ANSWER_S)

    return _run(asked)


def look(paths: RuntimePaths) -> RuntimeStatus | Problem | None:
    """The runtime's state, or the problem if it does not respond. None if nothing is running. Raises `HomeUnusable`."""
    if not is_up(paths):
        return None
    try:
        return ask(paths, AskStatus())
    except (PeerUnavailable, PeerLost, DeadlineExceeded):
        if not is_up(paths):  # the runtime has stopped in the meantime
            return None
        return launcher_silent(paths.logs / "launcher.log", read_record(paths))


def end_runtime(paths: RuntimePaths, within_s: float) -> bool:
    """Stop the runtime of a home, whatever its release. Returns False if it is still up after `within_s`."""
    give_up_at = time.monotonic() + within_s
    if is_up(paths) and (pid := _launcher(paths)) is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while still_up := is_up(paths):
        if time.monotonic() >= give_up_at:
            break
        pause(0.02)  # flock offers no event to wait for
    return not still_up


def _launcher(paths: RuntimePaths) -> int | None:
    pid = read_record(paths)
    if pid is not None and _has_open(pid, paths.runtime_lock):
        return pid
    with suppress(RemembrancerError):
        return ask(paths, AskStatus()).processes[0].pid
    return None


def _has_open(pid: int, path: Path) -> bool:
    """True if a recorded process still exists: only the launcher keeps its home's lock open."""
    import psutil  # costs 20 ms, which only `down` needs

    try:
        return any(file.path == os.path.realpath(path) for file in psutil.Process(pid).open_files())
    except (psutil.Error, ValueError, OverflowError):  # it has ended, belongs to another user, or never existed
        return False


def nothing_runs(home: Path) -> str:
    starts = "the next session or memory command starts it, and so does 'remembrancer up'"
    return f"Nothing is running for the home {home}: {'it is a file, not a directory' if home.is_file() else starts}."


def not_started(starter: Starter, places: Places) -> RemembrancerError:
    if starter.status == exit_codes.CONFIGURATION:
        from remembrancer.config.reading import load_settings

        load_settings(os.environ)  # raises the error that stopped the runtime
    errors = {exit_codes.HOME_UNUSABLE: HomeUnusable, exit_codes.CONFIGURATION: ConfigurationError}
    kind = errors.get(starter.status, MemoryUnavailable)
    return kind(starter.failure or f"the memory service does not start; look at {places.logs}")


async def request_store(
    question: Request[T],
    *,
    answer_s: float = STORE_ANSWER_S,
    environ: Mapping[str, str] = os.environ,
    slow: str = "Waiting for the memory",
) -> T:
    """Return the store's answer. Starts a runtime if none is up. `answer_s` limits the store's work. `slow` is shown at
    a terminal after a second. The request may be repeated, so it must be idempotent. Raises `MemoryUnavailable` if no
    store appears in time, or the store's own error."""
    from remembrancer.commands.terminal import notice_when_slow

    places = find_places(environ)
    starter = Starter(places, environ)

    def start() -> None:
        starter.tend(time.monotonic())
        if starter.failure is not None:
            raise not_started(starter, places)

    endpoint = RuntimePaths(Path(places.home)).store_endpoint
    async with StoreClient(endpoint, Speaker("command", new_ulid())) as client:
        try:
            with notice_when_slow(slow):
                return await client.ask(question, answer_s, away_s=STORE_BUDGET_S, on_wait=start)
        except StoreAway as error:
            raise MemoryUnavailable(
                f"{error.message}; look at {places.logs}, then run the command again: it continues where it stopped"
            ) from error
        finally:
            starter.connected()  # releases the lock under which it may be starting a runtime


def ask_store(question: Request[T], **options: Any) -> T:
    """Like `request_store`, for callers without an event loop."""
    return _run(lambda: request_store(question, **options))
