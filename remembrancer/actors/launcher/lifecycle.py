"""The life of one process, from its first start to its end: pure decisions, with the clock passed in."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from remembrancer.config.settings import Settings
from remembrancer.protocol.control import FromLauncher, Ping, ProcessState, Role, Stop
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.work import ModelChoice

READY_S: Final = 60.0
"""A process that is not ready after this time has failed to start."""
DELAYS_S: Final = (0.0, 0.0, 0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The pauses before successive restarts. The first ones are 0, so that a crash or two goes unnoticed."""
SLOW_S: Final = 30.0
"""The pause before further restarts. They never end, so the runtime recovers by itself once a full disk is cleared."""
FORGIVEN_S: Final = 4.0
"""Each such period of being ready cancels one earlier death."""

logger = logging.getLogger(__name__)


class Lifecycle:
    """One process of the runtime, through all of its incarnations. Each method returns the instructions to carry out.

    `alive`: a process exists now; in the state `failed` the role is unavailable, for the reason in `error`, although a
    process may be starting; `restarts` counts all starts but the first.
    """

    def __init__(self, role: Role, name: str, settings: Settings, new_incarnation: Callable[[], str]) -> None:
        self.role: Role = role
        self.name = name
        self.state: ProcessState = "stopped"
        self.incarnation = ""
        self.alive = False
        self.error: str | None = None
        self.restarts = 0
        self.started_at = 0.0
        self.threads = 1
        self.model: ModelChoice | None = None
        self._new_incarnation = new_incarnation
        self._unanswered_since: float | None = None
        """The time of the first ping without an answer."""
        self._stall_timeout_s = settings.stall_timeout_s
        self._deaths = 0.0
        """The number of deaths so far, minus one for each `FORGIVEN_S` of being ready."""
        self._ready_at: float | None = None
        self._restart_at: float | None = None
        self._kill_at: float | None = None
        self._cause: str | None = None
        self._stop_steps: list[tuple[float, Step]] | None = None
        """The next steps of a stop with their times; None if it was not asked to stop."""

    @property
    def retiring(self) -> bool:
        """True if it was asked to end and will not be started again."""
        return self._stop_steps is not None or self.state == "stopped"

    def start(self, now: float) -> list[Instruction]:
        if self.incarnation:
            self.restarts += 1
        self.incarnation = self._new_incarnation()
        self.alive = True
        self.started_at = now
        self._ready_at = self._restart_at = self._cause = self._unanswered_since = None
        self._kill_at = now + READY_S
        if self.state != "failed":  # a failed process counts as failed until it is ready
            self._enter("starting", now)
        return [Start(self.role, self.name, self.incarnation, self.threads, self.model)]

    def on_health(self, now: float) -> bool:
        """Note that the process has reported its health. Returns True for the first report: it is ready now."""
        self._unanswered_since = None
        if not self.alive or self.retiring or self._ready_at is not None or self._cause is not None:
            return False
        self.error = None
        self._ready_at, self._kill_at = now, None
        self._enter("ready", now)
        return True

    def on_exit(self, ending: int | str | Failure, now: float) -> None:
        """Note the end of the process: its exit status (negative: the signal), the reason why it could not be started,
        or its reported failure, which every further start would repeat."""
        self.alive, self._kill_at = False, None
        if self.retiring:
            self._end(now)
            return
        if isinstance(ending, Failure):
            self.error = ending.message
            self._enter("failed", now)
            return
        never_ready = self._cause is not None and self._ready_at is None
        self.error = self._cause or describe_ending(self.name, ending)
        lived_s = 0.0 if self._ready_at is None else now - self._ready_at
        self._deaths = max(0.0, min(self._deaths, len(DELAYS_S)) - lived_s / FORGIVEN_S)
        is_hopeless = never_ready or self._deaths >= len(DELAYS_S)
        delay_s = SLOW_S if is_hopeless else DELAYS_S[int(self._deaths)]
        self._restart_at = now + delay_s
        if is_hopeless:
            self.error += f"; it is retried every {SLOW_S:.0f} s"
        self._deaths = len(DELAYS_S) if is_hopeless else self._deaths + 1
        self._enter("failed" if is_hopeless else "restarting", now)

    def ask_to_stop(self, reason: str, now: float) -> list[Instruction]:
        """Begin to stop the process, which has ended at once if it is not running."""
        if self.retiring:
            return []
        if not self.alive:
            self._end(now)
            return []
        terms_at = now if self._ready_at is None else now + ASK_S
        kill_at = terms_at + (STARTING_S if self._ready_at is None else TERM_S)
        self._stop_steps = [(terms_at, "terminate"), (kill_at, "kill"), (kill_at + KILL_S, "abandon")]
        self._kill_at = None
        self._enter("stopping", now)
        return [Tell(self.name, self.incarnation, Stop(reason, GRACE_S)), *self.tick(now)]

    def beat(self, now: float) -> list[Instruction]:
        """Send a ping and check the earlier answers. Silence counts from the first unanswered ping."""
        if not self.alive or self.retiring:
            return []
        ping = Tell(self.name, self.incarnation, Ping())
        if self._ready_at is None:
            return [ping]  # its answer replaces a first report that was lost; silence does not count yet
        self._unanswered_since = now if self._unanswered_since is None else self._unanswered_since
        if self._cause is None and now - self._unanswered_since > self._stall_timeout_s:
            self._cause = f"it did not answer for {self._stall_timeout_s:g} s and was killed"
            self._enter("unresponsive", now)
            return [Signal(self.name, "KILL")]
        return [ping]

    def tick(self, now: float) -> list[Instruction]:
        if self._stop_steps is not None:
            return self._proceed(self._stop_steps, now)
        if self._restart_at is not None and self._restart_at <= now:
            return self.start(now)
        if self._kill_at is not None and self._kill_at <= now:
            self._kill_at = None
            self._cause = self._cause or f"it was not ready after {READY_S:g} s and was killed"
            return [Signal(self.name, "KILL")]
        return []

    @property
    def next_at(self) -> float | None:
        """The time at which `tick` next has something to do; None: only after an event."""
        if self._stop_steps is not None:
            return self._stop_steps[0][0] if self._stop_steps else None
        return self._kill_at if self._restart_at is None else self._restart_at

    def _proceed(self, steps: list[tuple[float, Step]], now: float) -> list[Instruction]:
        """Take the due step of a stop."""
        if not steps or steps[0][0] > now:
            return []
        _, step = steps.pop(0)
        match step:
            case "terminate":
                return [Signal(self.name, "TERM")]
            case "kill":
                return [Signal(self.name, "KILL")]
            case "abandon":
                self.error = "SIGKILL did not end it: it is stuck in the kernel"
                self.alive = False
                self._end(now)
                return []

    def _end(self, now: float) -> None:
        self._stop_steps = self._restart_at = None
        self._enter("stopped", now)

    def _enter(self, state: ProcessState, now: float) -> None:
        if state != self.state:
            self.state = state
            level = logging.WARNING if self.error else logging.INFO
            about = {"child": self.name, "after_s": round(now - self.started_at, 3), "reason": self.error}
            logger.log(level, "process %s", state, extra=about)


def describe_ending(name: str, ending: int | str) -> str:
    if isinstance(ending, str):
        return ending
    if ending < 0:
        return f"it was ended by a signal ({signal.strsignal(-ending)})"
    return f"it ended with status {ending}: see {name}.log and {name}.out in the logs of the home"


class Start(msgspec.Struct, frozen=True):
    """Start a process. `threads` is the number of threads for an embedder, `model` its model (None: that of the
    settings)."""

    role: Role
    name: str
    incarnation: str
    threads: int
    model: ModelChoice | None = None


class Tell(msgspec.Struct, frozen=True):
    """Send a message to that incarnation of a process. It is dropped if the process is not connected."""

    name: str
    incarnation: str
    message: FromLauncher


class Signal(msgspec.Struct, frozen=True):
    """Send SIGTERM to a process, or SIGKILL to it and all processes that it started."""

    name: str
    signal: Literal["TERM", "KILL"]


Instruction = Start | Tell | Signal


Step = Literal["terminate", "kill", "abandon"]

GRACE_S: Final = 1.2
"""The time that a process has after `Stop` to finish its current work: longer than any commit, and hardly
noticeable."""
ASK_S: Final = 1.6
"""From `Stop` to SIGTERM: the grace period, plus time to close files and exit."""
TERM_S: Final = 0.4
"""From SIGTERM to SIGKILL, which harms no process's data."""
KILL_S: Final = 1.0
"""From SIGKILL until the launcher stops waiting; only a process stuck in the kernel (state D) takes that long."""
STARTING_S: Final = 0.5
"""From `Stop` and SIGTERM together to SIGKILL, for a process that is still starting: it has nothing to finish."""
