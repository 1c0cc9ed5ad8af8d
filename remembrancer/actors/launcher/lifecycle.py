"""The life of one process, from its first start to its end. Only decisions: the caller passes in the time."""

import logging
import math
import signal
from typing import Final, Literal, Protocol

from remembrancer.config.settings import Settings
from remembrancer.protocol.control import PeerGone, ProcessState, Role, Stop
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.work import ModelChoice

READY_S: Final = 60.0
DELAYS_S: Final = (0.0, 0.0, 0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The pauses before successive restarts. The first ones are 0, so nobody notices a crash or two."""
SLOW_S: Final = 30.0
"""The pause before further restarts, without limit: the runtime recovers by itself once a full disk has room again."""
FORGIVEN_S: Final = 4.0
"""For each period of this length in which the process is ready, one earlier death no longer counts."""
GRACE_S: Final = 1.2
"""The time that a process has after `Stop` to finish its work: longer than any commit, and hardly noticeable."""
ASK_S: Final = 1.6
"""The time from `Stop` to SIGTERM: the grace period, plus the time to close files and exit."""
TERM_S: Final = 0.4
"""The time from SIGTERM to SIGKILL, which does not harm any process's data."""
KILL_S: Final = 1.0
"""How long the launcher waits after SIGKILL; only a process stuck in the kernel (state D) takes that long to die."""
STARTING_S: Final = 0.5
"""The time from `Stop` and SIGTERM to SIGKILL for a process that is still starting: it has no work to finish."""

Step = Literal["start", "terminate", "kill", "abandon"]
logger = logging.getLogger(__name__)


class System(Protocol):
    """Carries out decisions at once, and reports their effects later as events."""

    def start(self, process: "Lifecycle") -> str:
        """Start a process. Returns its incarnation, which is unique."""

    def ping(self, process: "Lifecycle") -> None: ...

    def tell(self, process: "Lifecycle", message: Stop | PeerGone) -> None:
        """Send a message to a process. It is dropped if the process is not connected."""

    def signal(self, process: "Lifecycle", which: Literal["TERM", "KILL"]) -> None:
        """Send SIGTERM to a process, or SIGKILL to it and all processes that it started."""


class Lifecycle:
    """One process of the runtime, through all of its incarnations. `alive`: a process exists now. In the state `failed`
    the role is unavailable, for the reason in `error`, although a process may be starting. `restarts` counts all starts
    but the first. `threads` and `model` (None: the one in the settings) are for an embedder."""

    def __init__(
        self, role: Role, name: str, system: System, settings: Settings, model: ModelChoice | None, threads: int
    ) -> None:
        self.role: Role = role
        self.name = name
        self.model = model
        self.threads = threads
        self.state: ProcessState = "stopped"
        self.incarnation = ""
        self.alive = False
        self.error: str | None = None
        self.restarts = 0
        self.started_at = 0.0
        self._system = system
        self._stall_timeout_s = settings.stall_timeout_s
        self._unanswered_since: float | None = None
        self._deaths = 0.0
        """The number of deaths, minus one for each `FORGIVEN_S` during which the process was ready."""
        self._ready_at: float | None = None
        self._cause: str | None = None
        self._steps: list[tuple[float, Step]] = []

    @property
    def is_retiring(self) -> bool:
        return self.state in ("stopping", "stopped")

    @property
    def next_at(self) -> float:
        return self._steps[0][0] if self._steps else math.inf

    def start(self, now: float) -> None:
        if self.incarnation:
            self.restarts += 1
        self.alive = True
        self.started_at = now
        self._ready_at = self._cause = self._unanswered_since = None
        self._steps = [(now + READY_S, "kill")]
        if self.state != "failed":  # a failed process counts as failed until it is ready
            self._enter("starting", now)
        self.incarnation = self._system.start(self)

    def on_health(self, now: float) -> bool:
        """Returns True for the first report, which means that the process is now ready."""
        self._unanswered_since = None
        if not self.alive or self.is_retiring or self._ready_at is not None or self._cause is not None:
            return False
        self.error = None
        self._ready_at, self._steps = now, []
        self._enter("ready", now)
        return True

    def on_exit(self, ending: int | str | Failure, now: float) -> None:
        """`ending` is the exit status (negative: the signal), the reason why the process could not be started, or the
        failure that it reported, which would recur at every further start."""
        self.alive, self._steps = False, []
        if self.is_retiring:
            self._enter("stopped", now)
            return
        if isinstance(ending, Failure):
            self.error = ending.message
            self._enter("failed", now)
            return
        never_ready = self._cause is not None and self._ready_at is None
        self.error = self._cause or describe_ending(self.name, ending)
        lived_s = 0.0 if self._ready_at is None else now - self._ready_at
        self._deaths = max(0.0, min(self._deaths, len(DELAYS_S)) - lived_s / FORGIVEN_S)
        if never_ready or self._deaths >= len(DELAYS_S):
            delay_s, self._deaths = SLOW_S, len(DELAYS_S)
            self.error += f"; it is retried every {SLOW_S:.0f} s"
            self._enter("failed", now)
        else:
            delay_s = DELAYS_S[int(self._deaths)]
            self._deaths += 1
            self._enter("restarting", now)
        self._steps = [(now + delay_s, "start")]

    def ask_to_stop(self, reason: str, now: float) -> None:
        """A process that is not running counts as stopped at once."""
        if self.is_retiring:
            return
        if not self.alive:
            self._steps = []
            self._enter("stopped", now)
            return
        terms_at = now if self._ready_at is None else now + ASK_S
        kill_at = terms_at + (STARTING_S if self._ready_at is None else TERM_S)
        self._steps = [(terms_at, "terminate"), (kill_at, "kill"), (kill_at + KILL_S, "abandon")]
        self._enter("stopping", now)
        self._system.tell(self, Stop(reason, GRACE_S))
        self.tick(now)

    def beat(self, now: float) -> None:
        """Ping the process. Kill it if too much time has passed since the first unanswered ping."""
        if not self.alive or self.is_retiring:
            return
        if self._ready_at is not None:  # while starting, an answer replaces a lost first report, and silence is allowed
            self._unanswered_since = now if self._unanswered_since is None else self._unanswered_since
            if now - self._unanswered_since > self._stall_timeout_s:
                self._cause = f"it did not answer for {self._stall_timeout_s:g} s and was killed"
                self._enter("unresponsive", now)
                self._system.signal(self, "KILL")
                return
        self._system.ping(self)

    def tick(self, now: float) -> None:
        if now < self.next_at:
            return
        match self._steps.pop(0)[1]:
            case "start":
                self.start(now)
            case "terminate":
                self._system.signal(self, "TERM")
            case "kill":
                if not self.is_retiring:
                    self._cause = f"it was not ready after {READY_S:g} s and was killed"
                self._system.signal(self, "KILL")
            case "abandon":
                self.error = "SIGKILL did not end it: it is stuck in the kernel"
                self.alive = False
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
        return f"it was killed by a signal ({signal.strsignal(-ending)})"
    return f"it exited with status {ending}; see {name}.log and {name}.out in the home's logs"
