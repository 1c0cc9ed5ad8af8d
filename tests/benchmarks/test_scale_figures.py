"""The texts that the benchmark of sizes is about, and what it holds against its figures."""

from __future__ import annotations

from bench.scale_figures import AtSize, Latency, Loading, rows_of, shortfalls
from bench.varied_text import varied


def measured(size: int, hybrid: tuple[float, float]) -> AtSize:
    """A measurement at one size; what the test does not name is of no matter."""
    some = Latency(1.0, 2.0)
    return AtSize(
        size=size,
        loading=Loading(size, 1000.0, 400.0, {"store_memory": some}),
        recalls={"hybrid": Latency(*hybrid), "keyword": some, "vector": some},
        calls={"get_memory_status": some},
        words_s=1.0,
        meaning_s=2.0,
        store_bytes=1,
        all_bytes=2,
        records_bytes=3,
    )


def test_there_are_as_many_texts_as_are_wanted_and_no_two_are_the_same() -> None:
    texts = varied(40_000)
    assert len(texts) == len(set(texts)) == 40_000


def test_fewer_texts_are_the_beginning_of_more() -> None:
    assert varied(12_000)[:500] == varied(500)


def test_nothing_is_missed_where_every_reach_is_kept() -> None:
    assert shortfalls([measured(1000, (50, 90)), measured(10_000, (8, 16)), measured(100_000, (16, 90))]) == []


def test_what_is_missed_is_said_with_the_figure_and_the_reach() -> None:
    missed = shortfalls([measured(10_000, (7, 17)), measured(100_000, (15, 30))])
    assert missed == [
        "hybrid recall at 10,000, p95: 17.0 ms, wanted 16 ms",
        "hybrid recall at 100,000 takes 2.1 times that at 10,000, wanted 2",
    ]


def test_a_size_has_a_row_for_every_figure() -> None:
    rows = rows_of(measured(1000, (5, 9)))
    assert rows["`recall_memories` hybrid, p50 / p95"] == "5.0 / 9.0 ms"
    assert rows["`store_memory`, p50 / p95"] == "1.0 / 2.0 ms"
