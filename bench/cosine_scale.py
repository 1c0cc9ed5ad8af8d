"""The effect of another scale of cosines: `python -m bench.cosine_scale --kept DIRECTORY`.

The default model, and the same with a component added that all texts share, so that nothing tells less apart and every
cosine is larger: what is found must stay what it was. Asked are the memories of `bench.everyday` and the notes of
`bench.abstention`, in one process, with the scale that a worker measures and as if it were the default model's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.in_process import Sets, arguments
from remembrancer.actors.embedder.engine import Engine, Vectors, scale_of, unit_rows
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.protocol.work import CALIBRATED, CosineScale

SHARED: Final = (0.0, 1.0, 3.0)
"""The square of what all texts share, beside 1 for what tells them apart."""


class Alike:
    """An engine whose texts are all alike to some part."""

    batch_tokens = None

    def __init__(self, engine: Engine, shared: float) -> None:
        self._engine, self._shared = engine, shared
        name = f"alike-{shared:g}" if shared else engine.identity.model
        dimensions = engine.identity.dimensions + 1
        self.identity = msgspec.structs.replace(engine.identity, model=name, dimensions=dimensions)
        self.tokenizer, self.passage_budget = engine.tokenizer, engine.passage_budget
        self.passage_tokens = engine.passage_tokens

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._with_shared(self._engine.embed_passages(texts))

    def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return self._with_shared(self._engine.embed_questions(texts))

    def _with_shared(self, vectors: Vectors) -> Vectors:
        column = np.full((len(vectors), 1), self._shared**0.5, dtype=np.float32)
        return unit_rows(np.hstack([vectors, column]))


def measure(kept: Path, engine: Engine, scale: CosineScale) -> Iterator[tuple[str, list[float]]]:
    """Of each set the per cent of questions answered first, of those without an answer that got none, and of results
    that have nothing to do with the question."""
    sets = Sets([], kept, own=True, engine=engine, scale=scale)
    for name in sets:
        first, nothing, irrelevant = list[bool](), list[bool](), list[bool]()
        for asking in sets.of(name):
            for question in asking.haystack.questions:
                found = asyncio.run(asking.ranking(question))
                if question.wanted:
                    first.append(bool(found) and found[0] in question.wanted)
                    irrelevant += [each not in question.wanted for each in found]
                else:
                    nothing.append(not found)
        yield name, [100 * sum(each) / len(each) for each in (first, nothing, irrelevant)]


def main() -> None:
    """Measure, and print a table."""
    given = arguments(__doc__).parse_args()
    own = load_engine(Settings(), 2)
    columns = ("unrelated texts have", "read on its scale", "set", "answered first, %", "nothing for nothing, %")
    table = Table(*columns, "irrelevant, %")
    for shared in SHARED:
        engine = Alike(own, shared)
        scales = {"yes": scale_of(engine), "no": CALIBRATED}
        for label, scale in scales.items() if shared else [("yes", CALIBRATED)]:
            for name, figures in measure(given.kept, engine, scale):
                table.add_row(f"{scales['yes'].unrelated:.2f}", label, name, *(f"{each:.0f}" for each in figures))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
