"""What most tests of one actor begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.actors.gateway_rig import QUICK, Rig
from tests.actors.store_process import WITH_CHROMA, StoreRig, store_rig


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    """A home with a store. Modules about the gateway have a rig of their own."""
    async with store_rig(home) as made:
        yield made


@pytest.fixture
async def rig_with_chroma(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home, settings=WITH_CHROMA) as made:
        yield made


@pytest.fixture
def quick_rig(home: Path) -> Rig:
    """A home with a gateway, for a store that hangs or is away."""
    return Rig(home, QUICK)
