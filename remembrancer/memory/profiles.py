"""The weights of the scopes in the six recall profiles. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import ProfileName


@dataclass(frozen=True, slots=True)
class ScopeWeights:
    """The factors for memories by scope; they add up to 1."""

    session: float
    project: float
    user: float

    def of(self, scope: Scope) -> float:
        """The weight of one scope."""
        return {"session": self.session, "project": self.project, "user": self.user}[scope]


PROFILES: Final[Mapping[ProfileName, ScopeWeights]] = {
    "default": ScopeWeights(0.50, 0.35, 0.15),
    "codebase": ScopeWeights(0.20, 0.60, 0.20),
    "preferences": ScopeWeights(0.10, 0.20, 0.70),
    "debugging": ScopeWeights(0.40, 0.40, 0.20),
    "new_project": ScopeWeights(0.30, 0.10, 0.60),
    "architecture": ScopeWeights(0.15, 0.65, 0.20),
}


SCOPE_TEMPER: Final = 0.4
"""The share of the logarithm of a scope's weight in the score: a profile decides between memories that match about
equally, and the query between all others."""


def scope_shares(weights: ScopeWeights, scopes: Collection[Scope]) -> dict[Scope, float]:
    """The contribution of each scope to the score: 0 for the one with the highest weight, less for the others."""
    heaviest = max((weights.of(scope) for scope in scopes), default=1.0)
    return {scope: SCOPE_TEMPER * math.log(weights.of(scope) / heaviest) for scope in scopes}
