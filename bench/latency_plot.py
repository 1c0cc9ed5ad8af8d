"""Plots the latency of recalls against the number of memories, as an SVG that is the same for the same figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot, ticker

COLOURS: Final = {"hybrid": "#0b6e99", "keyword": "#b35900", "vector": "#4d7c2a"}
INK: Final = "#767676"
"""Readable on white and on dark pages."""
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "remembrancer",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def draw(figures: Mapping[int, Mapping[str, tuple[float, float]]], file: Path) -> None:
    """Draw the plot. `figures` has the median and the 95th percentile in milliseconds, by number of memories and by
    strategy."""
    sizes = sorted(figures)
    with pyplot.rc_context(STYLE):
        drawing, axes = pyplot.subplots(figsize=(7.2, 4.0), layout="constrained")
        for strategy, colour in COLOURS.items():
            for line, (name, style) in enumerate((("p50", "-"), ("p95", ":"))):
                values = [figures[size][strategy][line] for size in sizes]
                axes.plot(sizes, values, style, marker="o", markersize=4, color=colour, label=f"{strategy}, {name}")
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("memories in the project")
        axes.set_ylabel("milliseconds a recall")
        axes.grid(axis="y", color=INK, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, ncols=3)
        drawing.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        pyplot.close(drawing)
