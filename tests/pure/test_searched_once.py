"""Several recalls with one vector share what each of them has searched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from remembrancer.actors.store.records.contract import PassageVectors, Vectors
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.retrieval.candidates import Passages, Source, searched_once
from remembrancer.actors.store.vectors.passage_index import IndexLost, PassageHit
from remembrancer.protocol.work import CALIBRATED

QUERY: Vectors = np.ones(3, dtype=np.float32)


class Counted:
    """A thousand passages, and how deep each search went. It is lost while `lost` says so."""

    model = "m"
    scale = CALIBRATED
    is_exact = True

    def __init__(self) -> None:
        self.limits: list[int] = []
        self.lost = False

    def search(self, query: Vectors, limit: int) -> list[PassageHit]:
        if self.lost:
            raise IndexLost("gone")
        self.limits.append(limit)
        return [PassageHit(place, place, 0, 1.0 - place / 1000) for place in range(min(limit, 1000))]

    def of_memories(self, memories: Sequence[int]) -> PassageVectors:
        raise AssertionError("only searches are shared")


def passages_before(counted: Counted, directory: Path) -> Passages:
    records = SqliteRecords(directory / "memory.db", "m", lambda: 0.0)
    records.close()
    passages = searched_once(Source(records, counted)).passages
    assert passages is not None
    return passages


def test_a_search_that_was_made_serves_every_shallower_one(tmp_path: Path) -> None:
    counted = Counted()
    passages = passages_before(counted, tmp_path)
    assert passages.model == "m"
    for limit in (50, 50, 400, 100, 400, 50):
        assert passages.search(QUERY, limit) == Counted().search(QUERY, limit)
    assert counted.limits == [50, 400]


def test_a_search_that_failed_is_made_again(tmp_path: Path) -> None:
    counted = Counted()
    passages = passages_before(counted, tmp_path)
    counted.lost = True
    with pytest.raises(IndexLost):
        passages.search(QUERY, 50)
    counted.lost = False
    assert len(passages.search(QUERY, 50)) == 50
