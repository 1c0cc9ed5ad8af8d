"""The model that the settings ask for, loaded as an embedder would."""

from __future__ import annotations

from remembrancer.commands.checking.data_checks import ModelFacts
from remembrancer.commands.checking.reranker_check import RerankerFacts
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import RerankerFigures
from remembrancer.protocol.errors import ModelUnusable


def model_facts(settings: Settings, last_key: str | None) -> ModelFacts:
    """See `ModelFacts`. Loading holds the weights to their pinned checksum, where there is one, and runs them once."""
    from remembrancer.actors.embedder.workers import load_engine

    try:
        identity = load_engine(settings, 1).identity
    except ModelUnusable as error:
        return ModelFacts(settings.model, last_key=last_key, error=error.message)
    return ModelFacts(f"{identity.model} by {identity.engine}", identity.dimensions, identity.key, last_key)


def reranker_facts(settings: Settings, figures: RerankerFigures | None) -> RerankerFacts:
    """See `RerankerFacts`. The model is not loaded: that takes seconds, and a runtime that is up says how it went."""
    error = None
    if settings.reranker == "cross-encoder":
        from remembrancer.actors.embedder.cross_encoder import find_fault  # numpy, as above

        error = find_fault(settings.reranker_model)
    return RerankerFacts(settings.reranker, settings.reranker_model, settings.sampling, error, figures)
