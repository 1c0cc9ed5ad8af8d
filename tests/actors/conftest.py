from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.gateway import store_access, write_queue
from tests.actors.gateway_rig import PATIENT, QUICK, RawClient, Rig
from tests.actors.spaces_rig import Spaces
from tests.actors.store_process import StoreRig, Worker, store_rig


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    """A home with a store. Modules about the gateway have a rig of their own."""
    async with store_rig(home) as made:
        yield made


@pytest.fixture
def waits_for_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a store that does not come: each of many questions would, for the least budget of a request."""
    monkeypatch.setattr(store_access, "MIN_BUDGET_S", 0.02)


@pytest.fixture
def quick_rig(home: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A home with a gateway, for a store that hangs or is away, and is soon asked again."""
    monkeypatch.setattr(write_queue, "RETRY_S", 0.1)
    return Rig(home, QUICK)


@pytest.fixture
def patient_rig(home: Path) -> Rig:
    """A home with a gateway, for a store that answers."""
    return Rig(home, PATIENT)


@pytest.fixture
async def served(patient_rig: Rig) -> AsyncIterator[Rig]:
    async with patient_rig.store(), patient_rig.running():
        yield patient_rig


@pytest.fixture
async def client(served: Rig) -> AsyncIterator[RawClient]:
    async with served.session() as client:
        yield client


@pytest.fixture
async def worker(served: Rig) -> Worker:
    return await served.peer.worker()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Spaces]:
    """The spaces of a project and of its user in this process."""
    with closing(Spaces(tmp_path)) as spaces:
        yield spaces
