"""The weights of the scopes in the six recall profiles. Pure."""

import math
from collections.abc import Collection, Mapping
from typing import Final

from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import ProfileName

PROFILES: Final[Mapping[ProfileName, Mapping[Scope, float]]] = {
    "default": {"session": 0.50, "project": 0.35, "user": 0.15},
    "codebase": {"session": 0.20, "project": 0.60, "user": 0.20},
    "preferences": {"session": 0.10, "project": 0.20, "user": 0.70},
    "debugging": {"session": 0.40, "project": 0.40, "user": 0.20},
    "new_project": {"session": 0.30, "project": 0.10, "user": 0.60},
    "architecture": {"session": 0.15, "project": 0.65, "user": 0.20},
}
"""The factors for memories by scope; those of a profile add up to 1."""
SCOPE_TEMPER: Final = 0.4
"""The share of the logarithm of a scope's weight in the score: a profile decides between memories that match about
equally, and the query between all others."""


def scope_shares(weights: Mapping[Scope, float], scopes: Collection[Scope]) -> dict[Scope, float]:
    """The contribution of each scope to the score: 0 for the one with the highest weight, less for the others."""
    heaviest = max((weights[scope] for scope in scopes), default=1.0)
    return {scope: SCOPE_TEMPER * math.log(weights[scope] / heaviest) for scope in scopes}
