"""Numbers in a row, as a person says them. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def spans_of(versions: Iterable[int]) -> str:
    """Versions in their order, for a person: `1 to 4, 7`."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and spans[-1][1] == version - 1:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)
