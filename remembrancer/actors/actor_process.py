"""The code common to all actors' processes: startup, logs, control socket and exit. The launcher holds the other end of
the actor's standard input, so end of file means that the launcher is dead, and the actor exits too."""

import abc
import asyncio
import contextlib
import logging
import math
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import BinaryIO, Final

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from pythonjsonlogger.json import JsonFormatter

from remembrancer.config.settings import Settings
from remembrancer.protocol.control import FromLauncher, PeerGone, Ping, ProcessHealth, Role, Stop, from_launcher
from remembrancer.protocol.errors import HomeUnusable, RemembrancerError
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Dealer, Speaker, let_messages_leave
from remembrancer.protocol.system import end_with_parent

EXIT_STOPPED: Final = 0
EXIT_START_FAILED: Final = 2
"""The last line of standard error gives the reason, as a `Failure` in JSON; a restart would fail in the same way."""
EXIT_CRASHED: Final = 70
EXIT_ORPHANED: Final = 71
"""The launcher died. Unfinished work is abandoned, because a new runtime may be waiting for this process's locks."""
TERM_GRACE_S: Final = 1.0
MANY_FILES: Final = 10_240
"""The limit on open files, if the system allows it (macOS allows no more). Each index needs several files."""
LOCK_WAIT_S: Final = 10.0
"""The maximum time a new actor waits for the lock of a dying predecessor."""
MAX_LOG_BYTES: Final = 4 * 1024 * 1024
KEPT_LOGS: Final = 3

logger = logging.getLogger(__name__)


class LaunchSpec(msgspec.Struct, frozen=True):
    """The first line of standard input, as JSON. `name` is unique, for example `embedder-2`."""

    role: Role
    name: str
    incarnation: str
    home: str
    settings: Settings
    threads: int = 1
    no_token: bool = False
    """True if HTTP clients on this machine need no token. This is an option for starting the runtime, not a setting."""

    @property
    def paths(self) -> RuntimePaths:
        return RuntimePaths(Path(self.home))


def configure_logs(directory: Path, actor: str, level: str) -> None:
    """Write the log of this process to `<directory>/<actor>.log`, one JSON object per line. The content of memories is
    logged only at debug level. If the file cannot be written (for example on a full disk), nothing is logged."""
    path = directory / f"{actor}.log"
    handler: logging.Handler = logging.NullHandler()
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = RotatingFileHandler(path, maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOGS, encoding="utf-8")
    handler.setFormatter(
        JsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "message": "event"},
            static_fields={"actor": actor, "pid": os.getpid()},
            datefmt="%Y-%m-%dT%H:%M:%S%z",
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("chromadb", "httpx", "httpcore", "sentence_transformers", "mcp", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


class Actor(abc.ABC):
    """The work of one process. The shell calls these methods on the actor's event loop, which they must not block."""

    control: Dealer[FromLauncher]

    def __init__(self, spec: LaunchSpec) -> None:
        self.spec = spec
        self.speaker = Speaker(spec.name, spec.incarnation)

    @abc.abstractmethod
    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Start, call `task_status.started()`, and run until cancelled. An earlier `RemembrancerError` is reported."""

    @abc.abstractmethod
    def health(self) -> ProcessHealth:
        """Called for each heartbeat, so it must be cheap."""

    async def drain(self, reason: str) -> None:
        """Called once before the process ends: finish the current work, refuse the rest."""

    def on_peer_gone(self, peer: PeerGone) -> None:
        """Called when another process of the runtime has died or cannot be started."""


_decode_spec: Final = msgspec.json.Decoder(LaunchSpec).decode


def run_actor(factory: Callable[[LaunchSpec], Actor]) -> None:
    os.umask(0o077)
    allow_many_files()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher handles interrupts at the terminal
    launch_input = sys.stdin.buffer
    spec = _decode_spec(launch_input.readline())
    _start_parent_watchdog(launch_input)
    configure_logs(spec.paths.logs, spec.name, spec.settings.log_level)
    try:
        code = anyio.run(_live, factory, spec)
    except Exception:
        logger.exception("crashed while starting")
        code = EXIT_CRASHED
    let_messages_leave()
    logging.shutdown()
    os._exit(code)  # native threads of a model or an index must not delay the exit


def allow_many_files() -> None:
    present, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if most == resource.RLIM_INFINITY else min(most, MANY_FILES)
    if resource.RLIM_INFINITY != present < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


class _Life:
    def __init__(self) -> None:
        self.starting = anyio.CancelScope()
        self.stop = anyio.Event()
        self.reason = ""
        self.grace_s = TERM_GRACE_S
        self.code = EXIT_STOPPED
        self.is_ready = False

    def end(self, reason: str, grace_s: float, code: int = EXIT_STOPPED) -> None:
        if not self.stop.is_set():
            self.reason, self.grace_s, self.code = reason, grace_s, code
            self.stop.set()
            self.starting.cancel()  # no effect once the start is over


async def _live(factory: Callable[[LaunchSpec], Actor], spec: LaunchSpec) -> int:
    life = _Life()
    logger.info("starting", extra={"incarnation": spec.incarnation})
    actor = factory(spec)

    def hear(message: FromLauncher) -> None:
        match message:
            case Ping():
                control.send(actor.health() if life.is_ready else None, in_reply_to=control.heard.message_id)
            case Stop(reason=reason, grace_s=grace_s):
                life.end(reason, grace_s)
            case PeerGone() if life.is_ready:  # earlier deaths are reported once this actor is ready
                actor.on_peer_gone(message)

    def refused(reason: bool | str) -> None:
        """The launcher is from a different release, since it was started before this one was installed."""
        logger.error("start failed", extra={"reason": reason})
        life.end("the launcher is from a different release", 0.0, EXIT_START_FAILED)

    control = actor.control = Dealer(
        spec.paths.control_endpoint, actor.speaker, from_launcher, on_message=hear, on_refused=refused
    )
    async with control, anyio.create_task_group() as tasks:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, life.end, "SIGTERM", TERM_GRACE_S)
        try:
            with life.starting:
                await tasks.start(_run_until_cancelled, actor, life)
        except RemembrancerError as error:
            logger.error("start failed", extra={"code": error.code, "reason": error.message})
            tasks.cancel_scope.cancel()
            if error.retry_possible:
                return EXIT_CRASHED
            with contextlib.suppress(OSError):  # for example, the disk is full
                os.write(2, msgspec.json.encode(error.to_failure()) + b"\n")
            return EXIT_START_FAILED
        if life.starting.cancelled_caught:
            logger.info("stopped while starting", extra={"reason": life.reason, "code": life.code})
            tasks.cancel_scope.cancel()
            return life.code
        life.is_ready = True
        logger.info("ready")
        tasks.start_soon(_say_ready, control, actor)
        await life.stop.wait()
        logger.info("stopping", extra={"reason": life.reason})
        with anyio.move_on_after(life.grace_s, shield=True):
            await actor.drain(life.reason)
        tasks.cancel_scope.cancel()
    logger.info("stopped", extra={"reason": life.reason, "code": life.code})
    return life.code


async def _run_until_cancelled(
    actor: Actor, life: _Life, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    try:
        await actor.run(task_status=task_status)
    except Exception:
        if not life.is_ready:
            raise
        logger.exception("crashed")
        life.end("crashed", 0.5, EXIT_CRASHED)
    else:
        life.end("the actor stopped working unexpectedly", 0.5, EXIT_CRASHED)


async def _say_ready(control: Dealer[FromLauncher], actor: Actor) -> None:
    """Send the first health report, which announces readiness, as soon as the launcher is listening."""
    await control.wait_connected(math.inf)
    control.send(actor.health())


def _start_parent_watchdog(launch_input: BinaryIO) -> None:
    end_with_parent()

    def watch() -> None:
        while launch_input.read(1):
            pass
        os._exit(EXIT_ORPHANED)

    threading.Thread(target=watch, name="parent-watchdog", daemon=True).start()


async def acquire(lock: FileLock, owner: str) -> None:
    """Acquire a lock that an exiting predecessor may still hold. Raises `HomeUnusable`."""
    try:
        if await anyio.to_thread.run_sync(lock.acquire, LOCK_WAIT_S, abandon_on_cancel=True):
            return
    except OSError as error:
        raise HomeUnusable(f"{lock.path} cannot be locked ({error.strerror or error}); move it elsewhere") from error
    raise HomeUnusable(f"another {owner} still holds {lock.path}; run 'remembrancer status' to see it")
