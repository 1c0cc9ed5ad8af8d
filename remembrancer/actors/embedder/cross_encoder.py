"""The reranker for any cross-encoder of the sentence-transformers library, from a local directory. An extra."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from remembrancer.protocol.errors import InternalError, ModelUnusable

EXTRA: Final = "pip install 'remembrancer[sentence-transformers]'"
VARIABLE: Final = "REMEMBRANCER_RERANKER_MODEL"


class CrossEncoderReranker:
    """A model with one output for a pair of texts; its logistic is the score (Nogueira and Cho, 2019).

    The library cuts off what does not fit the model's window.
    """

    def __init__(self, name: str, model: Any, activation: Any) -> None:
        self.name = name
        self._model = model
        self._activation = activation

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        """See `Reranker`."""
        if not passages:
            return []
        pairs = [(query, passage) for passage in passages]
        scores = np.asarray(
            self._model.predict(pairs, batch_size=len(pairs), show_progress_bar=False, activation_fn=self._activation),
            dtype=np.float32,
        )
        if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
            raise InternalError("the reranker made scores that are none")
        return [float(score) for score in scores]


def load_cross_encoder(model: str, threads: int) -> CrossEncoderReranker:
    """The reranker in a directory. Nothing is fetched. Takes seconds, most of them for importing torch.

    Raises:
        ModelUnusable: see `load_reranker`.
    """
    directory = _directory_of(model)
    # Read by the libraries when they are imported: nothing is looked for on a network, and nothing reported.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        import torch
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise ModelUnusable(f"the sentence-transformers library cannot be imported ({error}): {EXTRA}") from error
    torch.set_num_threads(threads)
    try:
        loaded = CrossEncoder(str(directory), local_files_only=True)
        outputs = int(loaded.num_labels)
        if outputs == 1:
            reranker = CrossEncoderReranker(directory.name, loaded, torch.nn.Sigmoid())
            reranker.score("?", ["."])
            return reranker
    except Exception as error:  # whatever a model's files can do to the library
        raise ModelUnusable(f"sentence-transformers cannot load the cross-encoder in {directory}: {error}") from error
    raise ModelUnusable(f"{directory} holds a model with {outputs} outputs, and a reranker has one: choose another")


def _directory_of(model: str) -> Path:
    if model == "none":
        raise ModelUnusable(f"no reranker is named: set {VARIABLE} to a directory with a cross-encoder")
    directory = Path(model).expanduser()
    if not directory.is_dir():
        raise ModelUnusable(f"{model} is not a directory: set {VARIABLE} to one with a cross-encoder")
    if not (directory / "config.json").is_file():
        raise ModelUnusable(f"{directory} has no config.json: set {VARIABLE} to a directory with a cross-encoder")
    return directory.resolve()
