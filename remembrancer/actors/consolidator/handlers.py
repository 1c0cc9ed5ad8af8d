"""What carries out a duty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from remembrancer.actors.consolidator.store_access import StoreAccess
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Maintained, Reflected

Clock = Callable[[], float]
"""Seconds since the epoch."""


class Handler(Protocol):
    """Carries out one duty of its type, and may be cancelled at any await: what it writes has to bear a repetition.

    It works in slices and awaits something after each, at the latest after half a second, since this process answers
    its heartbeats in between; what computes for longer goes to a thread. Any exception is a failure of the duty.
    """

    async def __call__(
        self, duty: Any, store: StoreAccess, settings: Settings, clock: Clock
    ) -> Reflected | Maintained | None:
        """What is answered to somebody who waits for it; None for a duty that nobody waits for."""


Handlers = Mapping[type[Any], Handler]
"""By the type of the duty."""
