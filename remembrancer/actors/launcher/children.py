"""A child process of the launcher: start, launch specification, exit watch and signals. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final, Literal

from remembrancer.protocol.environment import runtime_environment
from remembrancer.protocol.paths import RuntimePaths

OUTPUT_LIMIT_BYTES: Final = 1024 * 1024
"""A process's output file is kept across starts up to this size. Its actual log rotates by itself."""
PRIVATE_FILE: Final = 0o600

Command = Callable[[str], list[str]]
"""Maps a role to the command that runs it."""


def actor_command(role: str) -> list[str]:
    """The command of an actor: this Python, without modules of the working directory."""
    return [sys.executable, "-P", "-m", f"remembrancer.actors.{role}"]


SMALL: Final = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
"""The matrices outside the model are small: numpy's own threads would only take processor time from the model. Threads
that take turns need no heaps of their own, which keep 30 MB more than one."""


class Child:
    """One process in a process group of its own. The end of its standard input tells it that the launcher is dead."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process

    @classmethod
    def start(
        cls,
        name: str,
        command: list[str],
        paths: RuntimePaths,
        environ: Mapping[str, str],
        secrets: Mapping[str, str] | None = None,
    ) -> Child:
        """Start `command`, with its output appended to `<name>.out` in the logs. Only this child gets `secrets`.

        Raises:
            OSError: the system cannot start it.
        """
        with _open_output(paths.logs / f"{name}.out") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                process_group=0,  # interrupts go to the launcher; the whole group can be killed
                cwd=paths.home,  # a session's directory may be deleted, or its disk unmounted, while the runtime lives
                env={**SMALL, **runtime_environment(environ), "REMEMBRANCER_HOME": str(paths.home), **(secrets or {})},
            )
        return cls(name, process)

    def tell(self, first_line: bytes) -> None:
        """Send the launch specification. Ignores a dead child, whose exit is reported separately."""
        its_input = self._process.stdin
        if its_input is not None:
            with contextlib.suppress(BrokenPipeError):
                its_input.write(first_line + b"\n")
                its_input.flush()

    def watch(self, on_exit: Callable[[int], None]) -> None:
        """Call `on_exit` with the exit status (negative: the signal), in a thread of its own, once the child is dead.

        The other processes in its group are killed first.
        """

        def wait() -> None:
            status = self._process.wait()
            self._kill_group()
            self._close_input()
            on_exit(status)

        threading.Thread(target=wait, name=f"wait-{self.name}", daemon=True).start()

    def send_signal(self, which: Literal["TERM", "KILL"]) -> None:
        """Send SIGTERM to the child, or SIGKILL to its whole group. Does nothing if it is dead."""
        if which == "KILL":
            self._kill_group()
        else:
            self._process.terminate()

    def kill_and_wait(self) -> None:
        """Kill a child that nobody watches, and wait for its end."""
        self._process.kill()
        self._process.wait()
        self._close_input()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def _open_output(path: Path) -> BinaryIO:
    """Open the file for a process's output. If that fails, output is discarded."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, PRIVATE_FILE)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    if os.fstat(descriptor).st_size > OUTPUT_LIMIT_BYTES:
        os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "ab", buffering=0)
