"""A child process of the launcher: started, told who it is, watched and signalled. Standard library only."""

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
from remembrancer.protocol.paths import RuntimePaths, look_at, set_aside

OUTPUT_LIMIT_BYTES: Final = 1024 * 1024
"""The output of a process is kept from start to start up to this size. Its log proper rotates by itself."""
PRIVATE_FILE: Final = 0o600

Command = Callable[[str], list[str]]
"""From a role to the command that runs it."""


def actor_command(role: str) -> list[str]:
    """The command of an actor: this Python, and no module of the working directory."""
    return [sys.executable, "-P", "-m", f"remembrancer.actors.{role}"]


QUIET_NUMPY: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Our matrices are small: numpy's own threads would only take the processor from the model's."""


class Child:
    """One process in a process group of its own. The end of its standard input tells it that we are dead."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.pid = process.pid
        self.created_at: float | None = None
        """The system's time of its start (seconds since the epoch), once someone has asked."""
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
        """Start `command`; what it prints is appended to `<name>.out` in the logs. It alone is given `secrets`.

        Raises:
            OSError: the system cannot start it.
        """
        with _open_output(paths.logs / f"{name}.out") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                process_group=0,  # an interrupt at the terminal is ours; what the child starts dies with it
                cwd=paths.home,  # a session's directory may be deleted, or its disk unmounted, while we live
                env={
                    **QUIET_NUMPY,
                    **runtime_environment(environ),
                    "REMEMBRANCER_HOME": str(paths.home),
                    **(secrets or {}),
                },
            )
        return cls(name, process)

    def tell(self, first_line: bytes) -> None:
        """Send the launch specification. A child that is dead already does not mind; its exit is noticed."""
        its_input = self._process.stdin
        if its_input is not None:
            with contextlib.suppress(BrokenPipeError):
                its_input.write(first_line + b"\n")
                its_input.flush()

    def watch(self, on_exit: Callable[[int], None]) -> None:
        """Call `on_exit` with the exit status (negative: the signal), on a thread of its own, once the child is dead.

        What the child had started in its process group is killed before.
        """

        def wait() -> None:
            status = self._process.wait()
            self._kill_group()
            self._close_input()
            on_exit(status)

        threading.Thread(target=wait, name=f"wait-{self.name}", daemon=True).start()

    def send_signal(self, which: Literal["TERM", "KILL"]) -> None:
        """SIGTERM to the child, or SIGKILL to its whole group. Nothing happens when it is dead."""
        if which == "KILL":
            self._kill_group()
        else:
            self._process.terminate()

    def kill_and_wait(self) -> None:
        """The end of a child that nobody watches."""
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
    """The file for what a process prints; what is no file is set aside. Without a disk for it, it is let go."""
    if look_at(path, "file", os.W_OK).problem is not None:
        set_aside(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, PRIVATE_FILE)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    if os.fstat(descriptor).st_size > OUTPUT_LIMIT_BYTES:
        os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "ab", buffering=0)
