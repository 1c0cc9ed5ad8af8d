"""A runtime's problems and their remedies, in the words of `status`, `doctor`, `get_memory_status` and *Health*."""

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from remembrancer.protocol.control import GatewayHealth, ProcessState, RemoteEmbedders, RuntimeStatus, StoreHealth
from remembrancer.protocol.errors import JournalAway, size_in_words
from remembrancer.protocol.writes import ProjectRef

MIB: Final = 1024 * 1024
NEARLY_FULL_BYTES: Final = 32 * MIB
"""With less free space, the next writes fail: SQLite's log and the index each need part of it."""
Severity = Literal["warning", "problem"]


class Problem(msgspec.Struct, frozen=True):
    """A fault in the runtime. A `warning` may resolve itself; a `problem` needs a person to act."""

    code: str
    what: str
    advice: str
    severity: Severity = "warning"

    def __str__(self) -> str:
        return f"{self.what} ({self.advice})"


ADVICE: Final[Mapping[ProcessState, str]] = {
    "starting": "nothing to do: it will be ready in a moment",
    "degraded": "fix the reported cause; it is retried automatically",
    "unresponsive": "it hangs and is being replaced",
    "restarting": "it is being started again",
    "stopping": "it is being stopped",
    "stopped": "start the runtime again",
    "failed": "fix the reported cause, then run 'remembrancer down'; the next session starts everything again",
}
SEVERE: Final = frozenset({"failed", "degraded", "unresponsive"})
OPENING: Final = "the memories of an older release are being upgraded, which may take a minute"


def find_problems(status: RuntimeStatus, seen_by: ProjectRef | None = None) -> tuple[Problem, ...]:
    """All problems, the most important first. With `seen_by`, the problems of all other projects are left out."""
    away = {process.role for process in status.processes if process.state != "ready"}
    reports = {"gateway": status.gateway, "store": status.store}
    silent = [role for role, report in reports.items() if report is None and role not in away]
    return (
        *_of_host(status),
        *(Problem("not_reported", f"the {role} has not reported", "try again") for role in silent),
        *(() if status.gateway is None else _of_gateway(status.gateway, seen_by)),
        *(() if status.store is None else _of_store(status, status.store, seen_by)),
    )


def launcher_silent(log: Path, pid: int | None = None) -> Problem:
    who = "the launcher" if pid is None else f"the launcher (process {pid})"
    advice = "wait if it is just starting; otherwise kill -9 that process: the next session restarts it"
    return Problem("peer_unavailable", f"{who} does not answer; look at {log}", advice, "problem")


def _of_host(status: RuntimeStatus) -> Iterator[Problem]:
    home = Path(status.home)
    free_bytes = shutil.disk_usage(home).free if home.exists() else 0
    started_at = min((time.time() - each.uptime_s for each in status.processes if each.role == "launcher"), default=0.0)
    if 0.0 < started_at < Path(__file__).stat().st_mtime:
        what = "the running server was started before this release was installed"
        yield Problem("older_release", what, "run 'remembrancer down': the next session or command starts this release")
    if free_bytes < NEARLY_FULL_BYTES:
        what = f"the disk of {home} has {free_bytes / MIB:.1f} MiB free: writes fail, or soon will"
        advice = "free disk space; the memories are intact, and nothing has to be restored"
        yield Problem("disk_full", what, advice, "problem")
    for process in status.processes:
        if process.state != "ready":
            severity: Severity = "problem" if process.state in SEVERE else "warning"
            error = f": {process.error}" if process.error else ""
            what = f"{process.name or process.role} is {process.state}{error}"
            yield Problem(f"process_{process.state}", what, ADVICE[process.state], severity)


def _of_gateway(gateway: GatewayHealth, seen_by: ProjectRef | None) -> Iterator[Problem]:
    if gateway.store != "connected":
        what = f"the gateway cannot reach the store ({gateway.store}): writes are queued, reads come from the cache"
        yield Problem("store_away", what, "the gateway keeps trying, and then applies the queue")
    for lane, why in gateway.queue_stuck.items():
        if seen_by is None or lane in ("user", seen_by.id):
            path = gateway.queue_stuck_at.get(lane, lane).removesuffix("/.git")
            whose = "the user's memory" if lane == "user" else f"the project {path}"
            yield Problem("queued", f"queued writes to {whose} have to wait: {why}", "they are retried automatically")
    for code, fault, advice in (
        ("http_unusable", gateway.http_error, "fix that, and run 'remembrancer down'; sessions work meanwhile"),
        ("queue_unusable", gateway.queue_problem, "fix that; until then, writes are refused while the store is down"),
        ("queue_damaged", gateway.queue_damage, "delete the file that was set aside when you no longer need it"),
    ):
        if fault is not None:
            yield Problem(code, fault, advice)
    if number := gateway.queue_rejected:
        what = f"{number} queued {'write was' if number == 1 else 'writes were'} refused and set aside"
        yield Problem(
            "queued_rejected",
            what,
            "run `remembrancer admin queue` to list them (for 90 days; --json shows them in full)",
        )
    if number := gateway.queue_depth:
        what = f"{number} {'write is' if number == 1 else 'writes are'} in the queue"
        yield Problem("queued", what, "they are applied automatically, in order")


def _of_store(status: RuntimeStatus, store: StoreHealth, seen_by: ProjectRef | None) -> Iterator[Problem]:
    has_embedders = any(process.role == "embedder" for process in status.processes)
    if store.opening:
        yield Problem("memories_opening", OPENING, "nothing to do: until then, writes wait in the queue")
    if store.limit_reached_bytes is not None:
        what = f"the memories have reached the limit of {size_in_words(store.limit_reached_bytes)}: no more are stored"
        yield Problem("database_full", what, "raise database_limit_bytes, and run 'remembrancer down'", "problem")
    for reason in store.unusable:
        advice = "until that is fixed, requests for these memories fail; run 'remembrancer doctor' to check all files"
        yield Problem("file_unusable", reason, advice)
    for lane in store.cut_off:
        if seen_by is None or lane.project in ("", seen_by.path):
            whose = f"the project {lane.project.removesuffix('/.git')}" if lane.project else "your own memories"
            what = f"changes to {whose} are not exchanged with the other machines: {lane.problem}"
            passes = lane.code == JournalAway.code
            advice = "it is retried automatically" if passes else "run 'remembrancer share status' for details"
            yield Problem("lane_cut_off", what, advice, "warning" if passes else "problem")
    if store.embedding.error and not status.is_resting:
        advice = "fix that; until then, only words are searched"
        yield Problem("embedding_failed", f"no vectors are made: {store.embedding.error}", advice, "problem")
    if (number := store.embedding.dead_letters) and not status.is_resting:
        texts = "1 text has" if number == 1 else f"{number} texts have"
        error = store.embedding.dead_letter_error
        what = f"{texts} no vectors, because embedders crashed on them or refused them: {error}"
        yield Problem("text_unembedded", what, "they can be found by their words; store.log names the memories")
    if has_embedders and not (store.embedding.error or store.embedding.workers):
        advice = "try again in a moment; until then, only words are searched"
        yield Problem("embedding_starting", "no embedder is ready yet", advice)
    answering = next((model.choice.model for model in store.embedding.models if model.answers), None)
    for model in store.embedding.models:
        if model.error is not None and answering not in (None, model.choice.model):
            what = f"{model.choice.model} with {model.choice.engine} cannot be used: {model.error}"
            yield Problem("model_unusable", what, f"fix that; until then {answering} answers questions")
    if store.remote is not None:
        yield from _of_other_hosts(store.remote, has_own=has_embedders)


def _of_other_hosts(remote: RemoteEmbedders, *, has_own: bool) -> Iterator[Problem]:
    if remote.error is not None:
        what = f"embedders on other hosts cannot connect: {remote.error}"
        yield Problem("embedder_listen", what, "fix embedder_listen; it is retried automatically")
    elif not has_own and not any(worker.state == "ready" for worker in remote.workers):
        advice = "start 'remembrancer admin embedder --connect' there, or set REMEMBRANCER_EMBEDDERS=1 here"
        what = "no embedder is connected from another host, and none is running here"
        yield Problem("embedders_away", what, advice, "problem")
    for worker in remote.workers:
        if worker.state == "refused":
            what = f"the embedder {worker.name} on another host is refused: {worker.error}"
            advice = "fix that there, and restart it; meanwhile, other embedders do its work"
            yield Problem("worker_refused", what, advice)
