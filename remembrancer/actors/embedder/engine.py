"""An embedding engine: one small Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.embedder.passages import TokenCounter
from remembrancer.protocol.work import ModelIdentity

Vector = NDArray[np.float32]
"""One dimension: a text's numbers."""
Vectors = NDArray[np.float32]
"""Two dimensions: a row for each text."""


class Engine(Protocol):
    """A loaded model. Passages and questions may be embedded at the same time, from two threads."""

    @property
    def identity(self) -> ModelIdentity:
        """What the vectors are made by."""

    @property
    def tokenizer(self) -> TokenCounter:
        """The model's own tokenizer."""

    @property
    def passage_budget(self) -> int:
        """The most tokens that a passage may have, without the marks (and the prompt) that go around it."""

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row of unit length for each text, in the order given. What does not fit the window is left out."""

    def embed_questions(self, texts: Sequence[str]) -> Vectors:
        """The same for questions: some models want another prompt before those."""


def unit_rows(rows: Vectors) -> Vectors:
    """The rows scaled to length 1."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = (rows / np.maximum(norms, 1e-12)).astype(np.float32, copy=False)
    return unit
