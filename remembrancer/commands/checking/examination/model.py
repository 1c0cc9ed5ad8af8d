"""The model that the settings ask for, loaded as an embedder would."""

from __future__ import annotations

from remembrancer.commands.checking.data_checks import ModelFacts
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import ModelUnusable


def model_facts(settings: Settings, last_key: str | None) -> ModelFacts:
    """See `ModelFacts`. Loading holds the weights to their pinned checksum, where there is one, and runs them once."""
    from remembrancer.actors.embedder.workers import load_engine

    try:
        identity = load_engine(settings, 1).identity
    except ModelUnusable as error:
        return ModelFacts(settings.model, last_key=last_key, error=error.message)
    return ModelFacts(f"{identity.model} by {identity.engine}", identity.dimensions, identity.key, last_key)
