"""The problems of a runtime and their remedies, in the wording that `status`, `doctor`, the tool `get_memory_status`
and the page *Health* share."""

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from remembrancer.protocol.control import ProcessState, RemoteEmbedders, RuntimeStatus, StoreHealth
from remembrancer.protocol.errors import JournalAway, size_in_words
from remembrancer.protocol.reads import EmbeddingSummary
from remembrancer.protocol.writes import ProjectRef

MIB: Final = 1024 * 1024
NEARLY_FULL_BYTES: Final = 32 * MIB
"""With less free space, the next writes fail: SQLite's log and the index each need part of it."""
Severity = Literal["warning", "problem"]


class Problem(msgspec.Struct, frozen=True):
    """A fault of the runtime. A `warning` may pass by itself; a `problem` needs a person to act."""

    code: str
    severity: Severity
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what} ({self.advice})"


ADVICE: Final[Mapping[ProcessState, str]] = {
    "starting": "nothing to do: it will be ready in a moment",
    "degraded": "fix the cause given; it is retried automatically",
    "unresponsive": "it hangs and is being replaced",
    "restarting": "it is being started again",
    "stopping": "it is being stopped",
    "stopped": "start the runtime again",
    "failed": "fix the cause given, then run 'remembrancer down'; the next session starts everything again",
}
"""The advice for each state of a process."""
SEVERE: Final = frozenset({"failed", "degraded", "unresponsive"})
"""States of a process that do not pass by themselves."""


OPENING: Final = "the memories of an older release are being upgraded, which may take a minute"


def find_problems(status: RuntimeStatus, seen_by: ProjectRef | None = None) -> tuple[Problem, ...]:
    """Everything that makes the runtime degraded, the most important first; empty when all is well. `seen_by` leaves
    out the problems of all other projects."""
    away = {process.role for process in status.processes if process.state != "ready"}
    return (
        *_of_release(status),
        *_of_disk(Path(status.home)),
        *_of_processes(status),
        *_of_gateway(status, away, seen_by),
        *_of_store(status, away, seen_by),
    )


def launcher_silent(log: Path, pid: int | None = None) -> Problem:
    """The problem of a launcher that does not answer, so that no others are known."""
    who = "the launcher" if pid is None else f"the launcher (process {pid})"
    advice = "wait if it is just starting; otherwise kill -9 that process: the next session restarts it"
    return Problem("peer_unavailable", "problem", f"{who} does not answer: look at {log}", advice)


OLDER: Final = "the running memory was started before this release was installed"
ANEW: Final = "run 'remembrancer down': the next session or command starts this release"


def is_older(started_at: float) -> bool:
    """True if a process started at that time (seconds since the epoch) runs an older release than the installed one."""
    return started_at < Path(__file__).stat().st_mtime


def _of_release(status: RuntimeStatus) -> Iterator[Problem]:
    uptimes_s = [process.uptime_s for process in status.processes if process.role == "launcher"]
    if uptimes_s and is_older(time.time() - uptimes_s[0]):
        yield Problem("older_release", "warning", OLDER, ANEW)


def _of_disk(home: Path) -> Iterator[Problem]:
    free_bytes = shutil.disk_usage(home).free if home.exists() else 0
    if free_bytes < NEARLY_FULL_BYTES:
        what = f"the disk of {home} has {free_bytes / MIB:.1f} MiB free: writes fail, or soon will"
        advice = "free disk space; the memories are intact, and nothing has to be restored"
        yield Problem("disk_full", "problem", what, advice)


def _of_processes(status: RuntimeStatus) -> Iterator[Problem]:
    for process in status.processes:
        if process.state != "ready":
            severity: Severity = "problem" if process.state in SEVERE else "warning"
            what = f"{process.name or process.role} is {process.state}" + (
                f": {process.error}" if process.error else ""
            )
            yield Problem(f"process_{process.state}", severity, what, ADVICE[process.state])


def _not_reported(role: str, away: set[str]) -> Iterator[Problem]:
    if role not in away:
        yield Problem("not_reported", "warning", f"the {role} has not reported", "try again")


def _of_gateway(status: RuntimeStatus, away: set[str], seen_by: ProjectRef | None) -> Iterator[Problem]:
    gateway = status.gateway
    if gateway is None:
        yield from _not_reported("gateway", away)
        return
    if gateway.store != "connected":
        what = f"the gateway cannot reach the store ({gateway.store}): writes are queued, reads come from the cache"
        yield Problem("store_away", "warning", what, "it is retried automatically, and then the queue is applied")
    for lane, why in gateway.queue_stuck.items():
        if seen_by is None or lane in ("user", seen_by.id):
            what = f"queued writes to {_whose(lane, gateway.queue_stuck_at)} have to wait: {why}"
            yield Problem("queued", "warning", what, "they are retried automatically")
    if gateway.http_error is not None:
        advice = "fix that, and run 'remembrancer down'; sessions work meanwhile"
        yield Problem("http_unusable", "warning", gateway.http_error, advice)
    if gateway.queue_problem is not None:
        advice = "fix that; until then a write that the store cannot take at once is refused"
        yield Problem("queue_unusable", "warning", gateway.queue_problem, advice)
    if gateway.queue_damage is not None:
        advice = "delete the file that was set aside when you no longer need it"
        yield Problem("queue_damaged", "warning", gateway.queue_damage, advice)
    if gateway.queue_rejected:
        refused = (
            "1 queued write was" if gateway.queue_rejected == 1 else f"{gateway.queue_rejected} queued writes were"
        )
        what = f"{refused} refused and set aside"
        advice = "`remembrancer admin queue` lists, exports and drops them"
        yield Problem("queued_rejected", "warning", what, advice)
    if gateway.queue_depth:
        what = "1 write is" if gateway.queue_depth == 1 else f"{gateway.queue_depth} writes are"
        what += " in the queue"
        yield Problem("queued", "warning", what, "they are applied automatically, in order")


def _whose(lane: str, paths: Mapping[str, str]) -> str:
    path = paths.get(lane, lane).removesuffix("/.git")
    return "the user's memory" if lane == "user" else f"the project {path}"


def _of_store(status: RuntimeStatus, away: set[str], seen_by: ProjectRef | None) -> Iterator[Problem]:
    store = status.store
    if store is None:
        yield from _not_reported("store", away)
        return
    if store.opening:
        yield Problem("memories_opening", "warning", OPENING, "nothing to do: until then, writes wait in the queue")
    if store.limit_reached_bytes is not None:
        what = f"the memories have reached the limit of {size_in_words(store.limit_reached_bytes)}: no more are stored"
        yield Problem("database_full", "problem", what, "raise database_limit_bytes, and run 'remembrancer down'")
    for reason in store.unusable:
        advice = "until that is fixed, requests for its memories fail; 'remembrancer doctor' checks all files"
        yield Problem("file_unusable", "warning", reason, advice)
    for lane in store.cut_off:
        if seen_by is not None and lane.project not in ("", seen_by.path):
            continue
        whose = f"the project {lane.project.removesuffix('/.git')}" if lane.project else "your own memories"
        what = f"nothing of {whose} is exchanged with the other machines: "
        passes = lane.code == JournalAway.code
        advice = "it is retried automatically" if passes else "'remembrancer share status' shows more"
        yield Problem("lane_cut_off", "warning" if passes else "problem", what + str(lane.problem), advice)
    if not status.is_resting:
        yield from _of_embedding(store.embedding)
    if not (store.embedding.error or store.embedding.workers) and any(
        process.role == "embedder" for process in status.processes
    ):
        advice = "try again in a moment; until then, search is by words only"
        yield Problem("embedding_starting", "warning", "no embedder is ready yet", advice)
    yield from _of_models(store)
    if store.remote is not None:
        yield from _of_other_hosts(store.remote, has_own=any(each.role == "embedder" for each in status.processes))


def _of_embedding(embedding: EmbeddingSummary) -> Iterator[Problem]:
    """The problems of the vectors, as reported by the store."""
    if embedding.error:
        advice = "fix that; until then, search is by words only"
        yield Problem("embedding_failed", "problem", f"no vectors are made: {embedding.error}", advice)
    if embedding.dead_letters:
        texts = "1 text has" if embedding.dead_letters == 1 else f"{embedding.dead_letters} texts have"
        what = f"{texts} no vectors, because embedders crashed on them or refused them: {embedding.dead_letter_error}"
        yield Problem("text_unembedded", "warning", what, "they are found by their words; store.log names the memories")


def _of_models(store: StoreHealth) -> Iterator[Problem]:
    models = store.embedding.models
    answering = next((model.choice.model for model in models if model.answers), None)
    for model in models:
        if model.error is not None and answering not in (None, model.choice.model):
            what = f"{model.choice.model} by {model.choice.engine} cannot be used: {model.error}"
            advice = f"fix that; until then {answering} answers questions"
            yield Problem("model_unusable", "warning", what, advice)


def _of_other_hosts(remote: RemoteEmbedders, *, has_own: bool) -> Iterator[Problem]:
    if remote.error is not None:
        what = f"embedders on other hosts cannot connect: {remote.error}"
        yield Problem("embedder_listen", "warning", what, "fix embedder_listen; it is retried automatically")
    elif not has_own and not any(worker.state == "ready" for worker in remote.workers):
        advice = "start 'remembrancer admin embedder --connect' there, or set REMEMBRANCER_EMBEDDERS=1 here"
        yield Problem(
            "embedders_away", "problem", "no embedder is connected from another host, and none runs here", advice
        )
    for worker in remote.workers:
        if worker.state == "refused":
            what = f"the embedder {worker.name} on another host is refused: {worker.error}"
            advice = "fix that there, and restart it; others do its work meanwhile"
            yield Problem("worker_refused", "warning", what, advice)
