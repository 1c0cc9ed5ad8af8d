import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest


def zone_at_noon() -> str:
    """A zone in which it is between noon and one o'clock: while a test runs there no day ends, and no clock is
    changed."""
    return f"Etc/GMT{datetime.now(UTC).hour - 12:+}"


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("TZ", name)
            time.tzset()
            yield
    finally:
        time.tzset()
