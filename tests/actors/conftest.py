"""What most tests of one actor begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.actors.store_process import StoreRig, store_rig


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    """A home with a store. Modules about the gateway have a rig of their own."""
    async with store_rig(home) as made:
        yield made
