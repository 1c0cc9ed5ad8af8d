"""A reranker: one small Protocol, and the choice between those that keep it.

It reads query and passage together, which no vector does, and so costs a run of a model for each candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import ModelUnusable


class Reranker(Protocol):
    """A loaded model."""

    @property
    def name(self) -> str:
        """The model's name, for the status."""

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        """How well each passage answers the query: in [0, 1], in the order given. What does not fit is cut off."""


def load_reranker(settings: Settings, threads: int) -> Reranker:
    """The reranker that the settings ask for, computing with `threads` threads. Takes seconds.

    Raises:
        ModelUnusable: its library or its directory is missing, or holds something else; the message says what to do.
    """
    if settings.reranker != "cross-encoder":
        raise ModelUnusable(f"no process of ours runs the reranker {settings.reranker}")
    # Imported here: a process that does not rerank does not pay for it.
    from remembrancer.actors.embedder.cross_encoder import load_cross_encoder

    return load_cross_encoder(settings.reranker_model, threads)
