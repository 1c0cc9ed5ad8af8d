"""Whether the index holds what the records say: counted now and then, for the status and the doctor."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Final

from remembrancer.actors.store.records.contract import Records
from remembrancer.actors.store.vectors.index_keeper import IndexKeeper
from remembrancer.actors.store.vectors.vector_index import IndexLost, VectorIndex
from remembrancer.protocol.control import IndexFigures
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.work import ModelIdentity

COUNTING_SHARE: Final = 0.05
"""The share of the time that counting may take: a large index is counted less often."""

logger = logging.getLogger(__name__)


class IndexAudit:
    """`read` runs work on a thread of the readers."""

    def __init__(
        self,
        open_index: Callable[[], VectorIndex],
        read: Callable[[Callable[[], IndexFigures]], Awaitable[IndexFigures]],
    ) -> None:
        self._open_index = open_index
        self._read = read
        self._index: VectorIndex | None = None
        self._counted: object = None
        self._not_before = 0.0
        self.figures: tuple[IndexFigures, ...] = ()
        """As counted last."""

    def open(self) -> VectorIndex:
        """Open the index, for its keeper."""
        self._index = self._open_index()
        return self._index

    async def count(
        self,
        files: Callable[[], Sequence[Records]],
        keeper: IndexKeeper,
        identity: ModelIdentity | None,
        revision: Callable[[], Hashable],
    ) -> None:
        """Compare the index with the records, if anything has changed since (`revision` differs then)."""
        index = self._index
        if index is None or identity is None or time.monotonic() < self._not_before:
            return
        settled, began = _settled(files(), keeper), time.monotonic()
        state = (settled, identity, revision())
        if state == self._counted:
            return
        figures = []
        for records in files():
            if records.name in settled:
                figures.append(await self._read(partial(_compare, records, index, identity)))
            else:
                figures.append(IndexFigures(records.name, 0, 0, ready=False))
        self._not_before = time.monotonic() + (time.monotonic() - began) / COUNTING_SHARE
        if state == (_settled(files(), keeper), identity, revision()):  # or else something came between the two counts
            self.figures, self._counted = tuple(figures), state


def _settled(files: Sequence[Records], keeper: IndexKeeper) -> frozenset[str]:
    """The files that are whole in the index."""
    found = [(records.name, keeper.searchable(records.name)) for records in files]
    return frozenset(name for name, file in found if file and file.attached and not file.has_work)


def _compare(records: Records, index: VectorIndex, identity: ModelIdentity) -> IndexFigures:
    """Count the passages of one file in the records and in its collection."""
    try:
        indexed = index.collection(f"{records.name}.{identity.key}", identity.dimensions).count()
        recorded = records.passage_count(identity.key)
    except (IndexLost, RemembrancerError) as error:
        logger.warning("the index was not counted", extra={"file": records.name, "reason": str(error)})
        return IndexFigures(records.name, 0, 0, ready=False)
    return IndexFigures(records.name, recorded, indexed, ready=True)
