"""Real processes that start in milliseconds: forked from a server, one for each process that runs tests, which has
imported everything once. For what is not about the start of a process: imports cost more than most tests do."""

from __future__ import annotations

import importlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from remembrancer.protocol.control import Role

PRELOADED = (
    *(f"remembrancer.actors.{role}.actor" for role in ("store", "gateway", "consolidator", "embedder")),
    *("remembrancer.commands.status", "remembrancer.commands.doctor"),
    *("remembrancer.commands.shell", "remembrancer.commands.backup", "remembrancer.commands.export"),
)

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(list(PRELOADED))


class ForkedProcess:
    """A child that runs `target(*arguments)` with this process's environment and directory as they are now.

    As `subprocess.Popen` in what it has. `/proc` shows the environment that the server began with, which names no home.
    """

    def __init__(self, target: Callable[..., None], *arguments: object, environ: dict[str, str] | None = None) -> None:
        with mock.patch.dict(os.environ):
            os.environ.pop("REMEMBRANCER_HOME", None)  # the server outlives the test that is the first to need it
            multiprocessing.forkserver.ensure_running()
        source, sink = os.pipe()
        with os.fdopen(source, "rb", buffering=0) as reader:
            self.stdin = os.fdopen(sink, "wb", buffering=0)
            passed = multiprocessing.connection.Connection(os.dup(reader.fileno()), writable=False)
            self._process = _server.Process(
                target=_become,
                args=(passed, environ or dict(os.environ), str(Path.cwd()), target, arguments),
                daemon=True,
            )
            self._process.start()
            passed.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

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
        """`kill -9`."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it is gone."""
        if self.poll() is None:
            os.kill(self.pid, number)


def run_command(
    *arguments: str, environ: dict[str, str], stdin: bytes = b"", timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run the command `remembrancer` to its end: what it printed, and its exit status."""
    with tempfile.TemporaryDirectory(prefix="rmb-command-") as directory:
        given, printed, complained = (Path(directory) / name for name in ("in", "out", "err"))
        given.write_bytes(stdin)
        process = ForkedProcess(_command, arguments, given, printed, complained, environ=environ)
        process.stdin.close()
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, code, printed.read_bytes(), complained.read_bytes())


def run_actor(role: Role) -> None:
    """What `python -m remembrancer.actors.<role>` runs."""
    module = importlib.import_module(f"remembrancer.actors.{role}.actor")
    shell = importlib.import_module("remembrancer.actors.shell")
    shell.run_actor(getattr(module, f"{role.capitalize()}Actor"))


def _become(
    given: multiprocessing.connection.Connection,
    environ: dict[str, str],
    directory: str,
    target: Callable[..., None],
    arguments: tuple[object, ...],
) -> None:
    """In the child: what a process that was started anew would have, then its work."""
    os.dup2(given.fileno(), 0)
    given.close()
    sys.stdin = os.fdopen(0, "r", closefd=False)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(directory)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    target(*arguments)


def _command(arguments: tuple[str, ...], given: Path, printed: Path, complained: Path) -> None:
    from remembrancer.launcher import main

    for number, path, flags in ((0, given, os.O_RDONLY), (1, printed, os.O_WRONLY), (2, complained, os.O_WRONLY)):
        opened = os.open(path, flags | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    sys.argv = ["remembrancer", *arguments]
    raise SystemExit(main(list(arguments)))
