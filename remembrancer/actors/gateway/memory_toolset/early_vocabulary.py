"""The vocabulary that tokens are counted with, loaded before anybody needs it.

Loading takes a thread some 0.15 s, and for half of that nothing else of the process runs: it waits for a quiet moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from remembrancer.actors.gateway.memory_toolset.tokens import load_vocabulary
from remembrancer.protocol.errors import ModelUnusable

QUIET_S: Final = 1.5
"""After a session has begun, its client asks for this and that in a row."""

logger = logging.getLogger(__name__)


class EarlyVocabulary:
    """`quiet_s` gives the seconds since anybody asked for anything or was answered; 0 while somebody waits."""

    def __init__(self, quiet_s: Callable[[], float]) -> None:
        self._quiet_s = quiet_s
        self._begun = False

    async def load(self) -> None:
        """Load it in the next quiet moment. Only the first call does anything."""
        if self._begun:
            return
        self._begun = True
        await anyio.sleep(QUIET_S)
        while (quiet_s := self._quiet_s()) < QUIET_S:  # noqa: ASYNC110 - it is awaited that nothing happens
            await anyio.sleep(QUIET_S - quiet_s)
        try:
            await anyio.to_thread.run_sync(load_vocabulary)
        except ModelUnusable as error:
            logger.warning("tokens cannot be counted", extra={"reason": error.message})
