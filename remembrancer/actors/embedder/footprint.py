"""What the process costs others: its memory when idle, its share of the processor when busy."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from typing import Final

NICENESS: Final = 10
"""For the thread that embeds passages: they can wait, and the store and the gateway should not wait for them."""

logger = logging.getLogger(__name__)


def yield_to_others() -> None:
    """Lower the priority of the calling thread, and of the threads that it starts. On Linux; nothing elsewhere.

    Linux knows a niceness for each thread (sched(7)); questions are answered by another thread, which keeps its own.
    """
    if sys.platform == "linux":
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        except OSError as error:
            logger.debug("priority not lowered", extra={"reason": str(error)})


def give_back_memory() -> None:
    """Return freed memory to the system, where the C library can (glibc). Loading a model frees about 80 MB."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
