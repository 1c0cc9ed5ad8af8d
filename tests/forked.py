"""Real processes that start in milliseconds: forked from a server, one for each process that runs tests, which has
imported everything once. For what is not about the start of a process: imports cost more than most tests do."""

import asyncio
import contextvars
import fcntl
import gc
import importlib
import inspect
import logging
import math
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import termios
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from remembrancer.actors.bridge.places import find_places
from remembrancer.actors.bridge.starter import Starter
from remembrancer.commands.runtime_client import is_up
from remembrancer.config.home import locate
from remembrancer.protocol.control import Role
from remembrancer.protocol.paths import RuntimePaths
from tests.patience import PATIENCE_S

AGAIN_S = 3.0
"""The time for another start after one that has failed: the first pause, and the start."""
BEFORE_TESTS = {name: value for name, value in os.environ.items() if name != "REMEMBRANCER_HOME"}
"""The environment that the tests were started with: no test's home is in it, of memories or of a user."""

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tests.preloaded"])


class ForkedProcess:
    """A child that runs `target(*arguments)`; with this process's umask, and by default with its environment and
    directory as they are now. What it prints goes where this process's output goes, or into the pipe `stdout`.

    As `subprocess.Popen` in what it has. `/proc` shows the environment that the server began with, which names no home.
    """

    def __init__(
        self,
        target: Callable[..., None],
        *arguments: object,
        environ: Mapping[str, str] | None = None,
        directory: Path | None = None,
        stdout: int | None = None,
    ) -> None:
        with mock.patch.dict(os.environ, BEFORE_TESTS, clear=True):  # the server outlives the test that starts it
            multiprocessing.forkserver.ensure_running()
        source, sink = os.pipe()
        self.stdin = os.fdopen(sink, "wb", buffering=0)
        passed = [multiprocessing.connection.Connection(source, writable=False)]
        if stdout is not None:
            passed.append(multiprocessing.connection.Connection(os.dup(stdout), readable=False))
        os.umask(umask := os.umask(0o077))
        self._process = _server.Process(
            target=_become,
            args=(passed, umask, dict(environ or os.environ), str(directory or Path.cwd()), target, arguments),
            daemon=True,
        )
        self._process.start()
        for each in passed:
            each.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def sentinel(self) -> int:
        """A descriptor that can be read once it is gone."""
        return self._process.sentinel

    def poll(self) -> int | None:
        """Its exit status (negative: the signal); None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it is gone. Raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self._process.name), timeout or 0.0)
        return code

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def is_killed(after_s: float, target: Callable[..., None], *arguments: object) -> bool:
    """Run `target` in a fork of this process that is killed after some time. False: it had ended by then."""
    child = os.fork()
    if not child:
        target(*arguments)
        os._exit(0)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def start_command(*arguments: str, environ: Mapping[str, str], printed: Path) -> ForkedProcess:
    """Start the command `remembrancer`. What it prints is added to a file."""
    process = ForkedProcess(_command, arguments, printed, printed, Path(os.devnull), environ=environ)
    process.stdin.close()
    return process


async def start_bridge(
    *arguments: str, environ: Mapping[str, str], directory: Path, limit_bytes: int
) -> "ForkedBridge":
    """Start `remembrancer mcp`, whose runtimes are forked as well. A line of its output has so many bytes at most."""
    loop = asyncio.get_running_loop()
    source, sink = os.pipe()
    process = await asyncio.to_thread(
        ForkedProcess, run_bridge, *arguments, environ=environ, directory=directory, stdout=sink
    )
    os.close(sink)
    reader = asyncio.StreamReader(limit_bytes)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", buffering=0))
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
    return ForkedBridge(process, asyncio.StreamWriter(transport, protocol, None, loop), reader)


class ForkedBridge:
    """As `asyncio.subprocess.Process` in what it has."""

    def __init__(self, process: ForkedProcess, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self._process = process
        self.stdin = stdin
        self.stdout = stdout
        self.pid = process.pid
        self.kill = process.kill
        self.send_signal = process.send_signal

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._process.sentinel, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        return self._process.wait()


def run_command(
    *arguments: str, environ: Mapping[str, str], stdin: bytes = b"", timeout_s: float, directory: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command `remembrancer` to its end: what it printed, and its exit status."""
    with tempfile.TemporaryDirectory(prefix="rmb-command-") as scratch:
        given, printed, complained = (Path(scratch) / name for name in ("in", "out", "err"))
        given.write_bytes(stdin)
        process = ForkedProcess(_command, arguments, printed, complained, given, environ=environ, directory=directory)
        process.stdin.close()
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, code, printed.read_bytes(), complained.read_bytes())


def run_at_terminal(*arguments: str, environ: Mapping[str, str], directory: Path, says: str = "") -> tuple[int, str]:
    """Run the command `remembrancer` at a terminal at which somebody types what he `says`: its exit status, and all
    that the terminal shows."""
    terminal, line = os.openpty()
    process = ForkedProcess(_command_at_terminal, arguments, environ=environ, directory=directory, stdout=line)
    process.stdin.close()
    os.close(line)
    os.write(terminal, says.encode())
    shown = b""
    with suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as screen:  # an error: nobody has it open any more
        while data := screen.read(65536):
            shown += data
    return process.wait(PATIENCE_S), shown.decode()


def start_runtime(environ: Mapping[str, str] = os.environ) -> None:
    """Start the runtime of a home as a session does, unless one is up: for tests that are not about that start.

    The launcher and its processes are what production has, but that each begins as a fork instead of an interpreter.
    """
    if not is_up(RuntimePaths(locate(environ).directory)):
        starting = ForkedProcess(_start, environ=environ)
        starting.stdin.close()
        starting.wait(PATIENCE_S)


def _start() -> None:
    """Try again once where that may help: on a busy machine a start may fail of its deadlines."""
    starter = Starter(find_places(os.environ), os.environ)
    paths, give_up_at = RuntimePaths(locate(os.environ).directory), math.inf
    with forking():
        while not is_up(paths) and not starter.is_lasting and time.monotonic() < give_up_at:
            starter.tend(time.monotonic())
            if starter.failure is not None:
                give_up_at = min(give_up_at, time.monotonic() + AGAIN_S)
            time.sleep(0.01)


class _Forking(subprocess.Popen[bytes]):
    """As its base, but that what is started of Remembrancer is forked: of a command its runtime, of that the actors.

    They work in the home, so that a test can tell whose they are.
    """

    _given = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]

    def _execute_child(self, *given: Any) -> None:
        bound = self._given.bind(self, *given).arguments
        command = list(bound["args"])
        if command[:3] != [sys.executable, "-P", "-m"]:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            if bound["process_group"] == 0:
                os.setpgid(self.pid, self.pid)
            names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(bound[name] for name in names))  # type: ignore[attr-defined]
            return
        try:
            gc.freeze()
            kept = (sys.stdin, logging.getLogger().handlers[:])  # whose ends would close what is opened
            if bound["start_new_session"]:
                os.setsid()
            elif bound["process_group"] == 0:
                os.setpgid(0, 0)
            for number, name in enumerate(("p2cread", "c2pwrite", "errwrite")):
                os.dup2(bound[name], number)
            for below, above in pairwise([2, *sorted(bound["pass_fds"]), os.sysconf("SC_OPEN_MAX")]):
                os.closerange(below + 1, above)
            signal.set_wakeup_fd(-1)
            module, *arguments = command[3:]
            _live(bound["env"], bound["env"]["REMEMBRANCER_HOME"], _run_module, module, *arguments)
            del kept
        except SystemExit as end:
            os._exit(int(end.code or 0))
        except BaseException:  # noqa: BLE001 - a process ends here
            traceback.print_exc()
        finally:
            os._exit(1)


def forking() -> AbstractContextManager[object]:
    """Fork the processes of Remembrancer that this process and its children start meanwhile."""
    return mock.patch.object(subprocess, "Popen", _Forking)


def _run_module(module: str, *arguments: str) -> None:
    """As `python -P -m`, with what the path customizes in every interpreter."""
    sys.orig_argv = [sys.executable, "-P", "-m", module, *arguments]
    for directory in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if (customized := Path(directory) / "sitecustomize.py").exists():
            runpy.run_path(str(customized))
    if module == "remembrancer":
        _main(*arguments)
    elif module == "remembrancer.actors":
        run_actor(*arguments)  # type: ignore[arg-type]
    else:
        importlib.import_module(module).main(list(arguments))


def run_actor(role: Role, constants: Mapping[str, object] | None = None, ahead_s: float = 0.0) -> None:
    """Run the same as `python -m remembrancer.actors <role>`, with other values of `constants`, by their full names,
    and by a clock that is ahead."""
    if ahead_s:
        now = time.time
        time.time = lambda: now() + ahead_s
    for name, value in (constants or {}).items():
        owner, _, constant = name.rpartition(".")
        assert hasattr(importlib.import_module(owner), constant), name
        setattr(importlib.import_module(owner), constant, value)
    module = importlib.import_module(f"remembrancer.actors.{role}.actor")
    process = importlib.import_module("remembrancer.actors.actor_process")
    process.run_actor(getattr(module, f"{role.capitalize()}Actor"))


def _become(
    given: list[multiprocessing.connection.Connection],
    umask: int,
    environ: dict[str, str],
    directory: str,
    target: Callable[..., None],
    arguments: tuple[object, ...],
) -> None:
    """In the child: what a process that was started anew would have, then its work."""
    for number, each in enumerate(given):
        os.dup2(each.fileno(), number)
        each.close()
    os.umask(umask)
    _live(environ, directory, target, *arguments)


def _live(environ: Mapping[str, str], directory: str, target: Callable[..., None], *arguments: object) -> None:
    sys.stdin = os.fdopen(0, "r", closefd=False)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(directory)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    contextvars.Context().run(target, *arguments)


def _command(arguments: tuple[str, ...], printed: Path, complained: Path, given: Path) -> None:
    redirect(printed, complained, given)
    _main(*arguments)


def _command_at_terminal(arguments: tuple[str, ...]) -> None:
    os.setsid()
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    for number in (0, 2):
        os.dup2(1, number)
    _reopen()
    _main(*arguments)


def redirect(printed: Path, complained: Path, given: Path = Path(os.devnull)) -> None:
    written = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    for number, path, flags in ((0, given, os.O_RDONLY), (1, printed, written), (2, complained, written)):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    _reopen()


def _reopen() -> None:
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )


def run_bridge(*arguments: str) -> None:
    sys.stdout = os.fdopen(1, "w", closefd=False)
    _main("mcp", *arguments)


def _main(*arguments: str) -> None:
    from remembrancer.command_line import main

    sys.argv = ["remembrancer", *arguments]
    with forking():
        raise SystemExit(main(list(arguments)))
