"""The measurements of `bench.scale` at each size, compared with the project's goals."""

from __future__ import annotations

from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

STRATEGIES: Final = ("hybrid", "keyword", "vector")
REACHES: Final = {10_000: (8.0, 16.0), 100_000: (16.0, 0.0)}
"""The goals for a hybrid recall at a size in milliseconds: p50 and p95; 0 is none."""
GROWTH: Final = 2.0
"""The goal for the median hybrid recall at 100,000 memories, as a multiple of that at 10,000."""


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p95: float


class Loading(msgspec.Struct, frozen=True):
    """The steps to a home's size: the memories added to the next smaller one, and the changes measured after that."""

    added: int
    acknowledged_per_s: float
    embedded_per_s: float
    changes: dict[str, Latency]


class AtSize(msgspec.Struct, frozen=True):
    """Everything measured at one size."""

    size: int
    loading: Loading
    recalls: dict[str, Latency]
    calls: dict[str, Latency]
    words_s: float
    meaning_s: float
    store_bytes: int
    all_bytes: int
    records_bytes: int


def rows_of(measured: AtSize) -> dict[str, str]:
    """Return the rows of a table for one size."""
    loading = measured.loading
    latencies_of = {
        **{f"`recall_memories` {strategy}": measured.recalls[strategy] for strategy in STRATEGIES},
        **{f"`{tool}`": measured.calls[tool] for tool in measured.calls},
        **{f"`{tool}`": loading.changes[tool] for tool in loading.changes},
    }
    return {
        **{f"{name}, p50 / p95": f"{each.p50:.1f} / {each.p95:.1f} ms" for name, each in latencies_of.items()},
        "stores acknowledged, 8 in flight": f"{loading.acknowledged_per_s:,.0f} /s",
        "memories embedded": f"{loading.embedded_per_s:,.0f} /s",
        "start until words are searched": f"{measured.words_s:.1f} s",
        "start until vectors are searched": f"{measured.meaning_s:.1f} s",
        "memory (PSS), store / all": f"{measured.store_bytes / 1e6:,.0f} / {measured.all_bytes / 1e6:,.0f} MB",
        "disk": f"{measured.records_bytes / 1e6:,.0f} MB",
    }


def shortfalls(measured: list[AtSize]) -> list[str]:
    """Return the missed goals, in words."""
    missed = []
    hybrid = {each.size: each.recalls["hybrid"] for each in measured}
    for size, (p50, p95) in REACHES.items():
        for name, reach in (("p50", p50), ("p95", p95)):
            value = getattr(hybrid[size], name) if size in hybrid and reach else 0.0
            if value > reach:
                missed.append(f"hybrid recall at {size:,}, {name}: {value:.1f} ms, wanted {reach:g} ms")
    if {10_000, 100_000} <= hybrid.keys() and hybrid[100_000].p50 > GROWTH * hybrid[10_000].p50:
        times = hybrid[100_000].p50 / hybrid[10_000].p50
        missed.append(f"hybrid recall at 100,000 takes {times:.1f} times that at 10,000, wanted {GROWTH:g}")
    return missed


def print_sizes(measured: list[AtSize]) -> None:
    """Print a table for a person, and the missed goals."""
    table = Table("", *(f"{each.size:,} memories" for each in measured))
    columns = [rows_of(each) for each in measured]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    Console().print(table)
    for each in shortfalls(measured):
        Console().print(f"[red]missed:[/red] {each}")
