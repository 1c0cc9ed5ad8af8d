"""Whether a runtime is well: what is wrong with it, and what to do. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.protocol.control import ProcessStatus, RuntimeStatus

ADVICE: Final = {
    "starting": "it starts; ask again in a moment",
    "degraded": "mend what it says; it tries again by itself",
    "unresponsive": "it hangs and is being replaced",
    "restarting": "it is being started again",
    "stopping": "it is being stopped",
    "stopped": "start the runtime again",
    "failed": "mend what it says, then run 'remembrancer down'; the next session starts everything again",
}
"""By the state of a process."""


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as it should be, and what a person does about it."""

    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what} ({self.advice})"


def find_problems(status: RuntimeStatus) -> tuple[Problem, ...]:
    """Everything that makes the runtime degraded, the most important first; empty when all is well."""
    problems = [_of_process(process) for process in status.processes if process.state != "ready"]
    problems += _of_files(status)
    problems += _of_gateway(status)
    problems += _of_embedding(status)
    return tuple(problems)


def exit_code(problems: tuple[Problem, ...]) -> int:
    """The exit status that says the same."""
    return exit_codes.DEGRADED if problems else exit_codes.OK


def _of_process(process: ProcessStatus) -> Problem:
    reason = f": {process.error}" if process.error else ""
    return Problem(f"{process.name or process.role} is {process.state}{reason}", ADVICE[process.state])


def _of_files(status: RuntimeStatus) -> list[Problem]:
    advice = "until that is mended, what it has is missing from answers; 'remembrancer doctor' looks at all files"
    return [Problem(reason, advice) for reason in (status.store.unusable if status.store is not None else ())]


def _of_gateway(status: RuntimeStatus) -> list[Problem]:
    if status.gateway is None:
        return [] if _not_ready(status, "gateway") else [Problem("the gateway has not reported", "ask again")]
    found = []
    if status.gateway.store != "connected":
        found.append(
            Problem(
                f"the gateway sees the store as {status.gateway.store} after {status.gateway.store_attempts} attempts: "
                "writes are queued, reads come from the cache",
                f"it is tried again in {status.gateway.store_next_attempt_s or 0:.0f} s, and then the queue drains",
            )
        )
    if status.gateway.queue_depth:
        found.append(
            Problem(f"{status.gateway.queue_depth} writes are queued", "they are applied by themselves, in order")
        )
    return found


def _of_embedding(status: RuntimeStatus) -> list[Problem]:
    if status.store is None:
        return [] if _not_ready(status, "store") else [Problem("the store has not reported", "ask again")]
    embedding = status.store.embedding
    if embedding.error:
        return [Problem(f"no vectors are made: {embedding.error}", "mend that; until then search is by keyword only")]
    embedders = [process for process in status.processes if process.role == "embedder"]
    if embedders and not embedding.workers:
        return [
            Problem("no embedder works for the store", "ask again in a moment; until then search is by keyword only")
        ]
    return []


def _not_ready(status: RuntimeStatus, role: str) -> bool:
    return any(process.role == role and process.state != "ready" for process in status.processes)
