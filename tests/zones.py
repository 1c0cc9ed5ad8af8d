"""Time zones of the machine."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    """The machine is in this time zone until the block ends."""
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("TZ", name)
            time.tzset()
            yield
    finally:
        time.tzset()
