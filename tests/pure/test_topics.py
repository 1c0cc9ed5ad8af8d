"""The topics of a project come from all pages of its entity graph, and of a large one not at every session's end."""

from __future__ import annotations

from typing import Any, TypeVar

from remembrancer.actors.consolidator.communities import AGAIN_S, topics_of
from remembrancer.actors.consolidator.store_connection import StoreConnection
from remembrancer.protocol.consolidation import EntityEdges, ReadEntityEdges

T = TypeVar("T")
NOW = 1_800_000_000.0
FIRST = EntityEdges((("queue", "store", 2.0), ("lamp", "wick", 1.0)), next_after=7)
LAST = EntityEdges((("queue", "worker", 1.0),))


class Pages(StoreConnection):
    """A graph in two pages, with topics of that time."""

    def __init__(self, topics_at: float | None, *, is_large: bool = True) -> None:
        first = EntityEdges(FIRST.edges, FIRST.next_after if is_large else None, topics_at)
        self.pages = {0: first, 7: LAST}

    async def ask(self, question: Any) -> Any:
        assert isinstance(question, ReadEntityEdges)
        return self.pages[question.after]


async def test_all_pages_count() -> None:
    topics = await topics_of(Pages(None), None, NOW)
    assert topics is not None
    assert {frozenset(topic.entities) for topic in topics} == {
        frozenset(("queue", "store", "worker")),
        frozenset(("lamp", "wick")),
    }


async def test_young_topics_of_a_large_graph_stay_and_others_are_found_anew() -> None:
    assert await topics_of(Pages(NOW - AGAIN_S + 1), None, NOW) is None
    assert await topics_of(Pages(NOW - AGAIN_S), None, NOW) is not None
    assert await topics_of(Pages(NOW + 1), None, NOW) is not None, "a clock that was set back"
    assert await topics_of(Pages(NOW - 1, is_large=False), None, NOW) is not None
