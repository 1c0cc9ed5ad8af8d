"""A child process of the launcher: start, launch specification, exit watch and signals."""

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

import msgspec

from remembrancer.actors.shell import EXIT_START_FAILED, LaunchSpec
from remembrancer.protocol.environment import runtime_environment
from remembrancer.protocol.errors import Failure

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


_decode_failure: Final = msgspec.json.Decoder(Failure).decode


class Child:
    """One process in a process group of its own. The end of its standard input tells it that the launcher is dead."""

    def __init__(
        self,
        spec: LaunchSpec,
        command: list[str],
        environ: Mapping[str, str],
        secrets: Mapping[str, str],
        on_exit: Callable[[Child, int | Failure], None],
    ) -> None:
        """Start `command`, with its output appended to `<name>.out` in the logs. Only this child gets `secrets`.

        `on_exit` is called with the exit status (negative: the signal) or the failure to start, in a thread of its own,
        once the child is dead and the other processes in its group are killed.

        Raises:
            OSError: the system cannot start it.
        """
        self.name, paths = spec.name, spec.paths
        self._output = paths.logs / f"{self.name}.out"
        with _open_output(self._output) as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                process_group=0,  # interrupts go to the launcher; the whole group can be killed
                cwd=paths.home,  # a session's directory may be deleted, or its disk unmounted, while the runtime lives
                env={**SMALL, **runtime_environment(environ), "REMEMBRANCER_HOME": str(paths.home), **secrets},
            )
        self.pid = self._process.pid
        its_input = self._process.stdin
        assert its_input is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already
            its_input.write(msgspec.json.encode(spec) + b"\n")
            its_input.flush()

        def wait() -> None:
            status = self._process.wait()
            self._kill_group()
            with contextlib.suppress(OSError):
                its_input.close()
            on_exit(self, self._failure() if status == EXIT_START_FAILED else status)

        threading.Thread(target=wait, name=f"wait-{self.name}", daemon=True).start()

    def _failure(self) -> Failure:
        """The reason why the child cannot start, as it gave it last."""
        with contextlib.suppress(OSError, IndexError, msgspec.MsgspecError):
            return _decode_failure(self._output.read_bytes().splitlines()[-1])
        return Failure("start_failed", f"it cannot start: see {self.name}.log in the logs of the home")

    def send_signal(self, which: Literal["TERM", "KILL"]) -> None:
        """Send SIGTERM to the child, or SIGKILL to its whole group. Does nothing if it is dead."""
        if which == "KILL":
            self._kill_group()
        else:
            self._process.terminate()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


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
