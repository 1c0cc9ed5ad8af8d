"""The deadlines of tests that are for hangs alone, and waiting for what has no event to wait for.

Nothing but a fault reaches one of these: a test is judged by what it finds, not by how long that took. So it is with
`timeout` in pyproject.toml, which counts a test's set-up as well. A deadline that is what a
test is about stands in that test. `TEST_PATIENCE=3` makes all that stand here three times as long.
"""

import inspect
import os
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio

PATIENCE_S: Final = 90.0 * float(os.environ.get("TEST_PATIENCE", "1"))
"""For one thing to come about: longer than any stall of a busy machine. No test is slower for it."""

PAUSE_OF_CLIENT_S: Final = 0.04
"""Between two questions of a client: while they come faster than `BURST_S` of the scheduler, nothing is embedded."""

PATIENT_JOURNAL: Final = dict.fromkeys(
    (
        "remembrancer.actors.store.shared_lanes.ANSWER_S",
        "remembrancer.journal.jetstream.ANSWER_S",
        "remembrancer.journal.jetstream.CONNECT_S",
    ),
    PATIENCE_S,
)
"""Constants, by their full names, with which nobody takes a journal for away that answers late."""


T = TypeVar("T")


async def until(
    condition: Callable[[], object], is_it: Callable[[Any], object] = bool, *, timeout_s: float = PATIENCE_S
) -> Any:
    """The first result of `condition()`, which may have to be awaited, that is true, or of which `is_it` is: what is
    asked about has no event. Raises `TimeoutError` after `timeout_s`."""
    with anyio.fail_after(timeout_s):
        while True:
            began, least_s = time.monotonic(), 0.005
            result = condition()
            if inspect.isawaitable(result):
                result, least_s = await result, PAUSE_OF_CLIENT_S
            if is_it(result):
                return result
            await anyio.sleep(pause_s(began, least_s))


def wait_until(what: Callable[[], T | None]) -> T:
    """The same where no event loop runs: the first result that is true. Fails the test when there is none in time."""
    give_up_at = (began := time.monotonic()) + PATIENCE_S
    while not (result := what()):
        assert time.monotonic() < give_up_at, "what was waited for has not come about"
        time.sleep(pause_s(began, 0.02))
        began = time.monotonic()
    return result


def pause_s(asked_at: float, least_s: float) -> float:
    """The time until a question that was put at `asked_at`, and is answered now, is put again: it takes a third of the
    processor at most, which those need who bring about what is waited for."""
    return max(least_s, 2 * (time.monotonic() - asked_at))
