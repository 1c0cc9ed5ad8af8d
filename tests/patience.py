"""Waiting for what has no event to wait for: ask again until it is so, and fail the test when patience ends."""

from __future__ import annotations

from collections.abc import Callable

import anyio

PATIENCE_S = 40.0
"""Longer than any stall of a busy machine: reached by nothing but a fault. No test is slower for it."""


async def until(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Return when `condition()` is true. Raises `TimeoutError` after `timeout_s`."""
    with anyio.fail_after(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is asked about has no event
            await anyio.sleep(0.005)
