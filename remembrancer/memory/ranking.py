"""Ranks candidates with weights for the features in `memory/features.py`, and computes the probability that a candidate
answers the query. `weights.json` holds each model's weights, fitted by `python -m bench.fit`. Pure."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec
import numpy as np

from remembrancer.memory.features import NAMES, Candidates, Column, QueryProperties, table
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import ProfileName
from remembrancer.protocol.work import CALIBRATED, CosineScale

LEAST_SPAN: Final = 0.05
"""Some models hardly separate the cosines of related and unrelated texts."""
NEAR_DUPLICATE_COSINE: Final = 0.95
DEFAULT_MODEL: Final = "default"
"""The key of the weights for models that have none of their own."""

By = Literal["meaning", "words"]

NOTHING: Final = 6.0
"""The score of "the answer is not stored", so that a lone candidate does not win automatically."""


def competing(scores: Column, likeness: Column | None = None) -> float:
    """The log-sum-exp of the scores and `NOTHING`. With `likeness` (cosines), near-duplicates count only once."""
    if likeness is not None:
        best_first = np.argsort(-scores)
        alike = likeness[np.ix_(best_first, best_first)] >= NEAR_DUPLICATE_COSINE
        scores = scores[best_first][~np.tril(alike, -1).any(axis=1)]
    return float(np.logaddexp.reduce(np.append(scores, NOTHING)))


class Fitted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The features' weights, and the calibration of the score. The logit of the probability is `slope` times the score,
    plus `competition` times the `competing` value of all scores, plus `intercept`. Candidates below `least_probability`
    are not shown."""

    weights: dict[str, float]
    slope: float
    competition: float
    intercept: float
    least_probability: float = 0.0

    def probabilities(self, scores: Column, likeness: Column | None = None) -> Column:
        """The probability that each candidate answers the query, given the scores (`likeness`: see `competing`)."""
        if not len(scores):
            return np.zeros(0)
        together = competing(scores, likeness)
        logits = self.slope * scores + self.competition * together + self.intercept
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logits, -60.0, 60.0))))

    def __post_init__(self) -> None:
        if unknown := set(self.weights).difference(NAMES):
            raise ValueError(f"weights of unknown features: {', '.join(sorted(unknown))}")


WeightsFile = dict[str, dict[By, Fitted]]
_decode_weights: Final = msgspec.json.Decoder(WeightsFile).decode


@cache
def weights_file() -> WeightsFile:
    return _decode_weights((files(__package__) / "weights.json").read_bytes())


def fitted_for(model: str | None) -> Fitted:
    """The weights for a model's cosines, or for words alone if `model` is None."""
    models = weights_file()
    if model is None:
        return models[DEFAULT_MODEL]["words"]
    return models.get(model, models[DEFAULT_MODEL])["meaning"]


COMPOSITE: Final = {"meaning": 0.30, "bm25": 0.30, "importance": 0.20, "recency": 0.20}
PAGERANK: Final = {"meaning": 0.40, "bm25": 0.15, "graph": 0.45}
CONNECTED: Final = {"graph": 0.5, "meaning": 0.25, "bm25": 0.25}


def composite_score(relevance: float, importance: float, recent: float) -> float:
    return 0.6 * relevance + 0.2 * importance + 0.2 * recent


def column_of(weights: Mapping[str, float]) -> Column:
    return np.array([weights.get(name, 0.0) for name in NAMES])


JOINED: Final = NAMES.index("joined")
LIFTED_TO: Final = 0.8
"""Links raise a score to at most this share of the best direct score, so that direct matches come first."""


def scored(rows: Column, weights: Column) -> tuple[Column, Column]:
    shares = rows * weights
    if len(shares):
        own = shares.sum(axis=1) - shares[:, JOINED]
        most = min(LIFTED_TO * own.max(), own.max())
        shares[:, JOINED] = np.minimum(shares[:, JOINED], np.clip(most - own, 0.0, None))
    return shares, shares.sum(axis=1)


@dataclass(frozen=True, slots=True)
class Weighed:
    """`shares` (candidates, features) holds each feature times its weight, and `scores` the sum for each candidate."""

    shares: Column
    scores: Column
    probabilities: Column
    """The probability that each candidate answers the query."""
    least_probability: float


def weigh(
    of: Candidates,
    asked: QueryProperties,
    fitted: Fitted,
    formula: Mapping[str, float] | None = None,
    shift: Column | None = None,
    likeness: Column | None = None,
) -> Weighed:
    """Compute the scores and probabilities of candidates. With a `formula`, the scores come from a named ranking, whose
    other weights are scaled up to a sum of 1 for candidates without PageRank. `shift` is added to each score.
    `likeness` holds the cosines between the candidates (n, n), if known."""
    rows, added = table(of, asked), 0.0 if shift is None else shift
    shares, scores = scored(rows, column_of(fitted.weights))
    probabilities = fitted.probabilities(scores + added, likeness)
    if formula is None:
        return Weighed(shares, scores + added, probabilities, fitted.least_probability)
    reached = of.graph[:, None] > 0.0
    rows = np.where(reached, rows, rows / (1.0 - formula.get("graph", 0.0)))  # or the others would come last
    shares, scores = scored(rows, column_of(formula))
    return Weighed(shares, scores + added, probabilities, 0.0)


def on_the_scale(cosine: float, scale: CosineScale) -> float:
    """Convert a model's cosine to the default model's scale. Some models give unrelated texts a cosine of 0.75."""
    share = (cosine - scale.unrelated) / max(LEAST_SPAN, scale.answering - scale.unrelated)
    return min(1.0, CALIBRATED.unrelated + share * (CALIBRATED.answering - CALIBRATED.unrelated))


_PARTS: Final = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_LONGEST_MESSAGE: Final = 4000
_ASSISTANT: Final = re.compile(r"\s*(?:assistant|ai|bot|model)\s*:", re.IGNORECASE)
_USER: Final = re.compile(r"^\s*(?:user|human)\s*:", re.IGNORECASE | re.MULTILINE)
_OF_THE_USER: Final = re.compile(
    r"\b(?:i|me|my|mine|we|us|our|ich|mich|mir|mein\w{0,2}|wir|uns|unser\w{0,2}|je|j|moi|mon|ma|mes|nous|notre|nos|yo|mi|mis)\b",
    re.IGNORECASE,
)
_OF_THE_ASSISTANT: Final = re.compile(
    r"\b(?:(?:did|have|had) you"
    r"|you(?:'ve| have| had)? (?:said|told|gave|recommended|suggested|mentioned|explained|wrote|listed|showed|proposed)"
    r"|your (?:suggestions?|recommendations?|advice|answer|explanation)"
    r"|(?:hast|hattest) du|haben sie|as-tu|avez-vous|dijiste|recomendaste|sugeriste)\b",
    re.IGNORECASE,
)


def is_message(query: str) -> bool:
    """True if a query continues a conversation: it has several sentences, and the first is not a question."""
    parts = [each.strip() for each in _PARTS.split(query[:_LONGEST_MESSAGE]) if each.strip()]
    return len(parts) > 1 and not parts[0].endswith(("?", "？"))


def is_assistants(content: str) -> bool:
    return bool(_ASSISTANT.match(content)) and not _USER.search(content)


def asks_about_user(query: str) -> bool:
    return bool(_OF_THE_USER.search(query)) and not _OF_THE_ASSISTANT.search(query)


PROFILES: Final[Mapping[ProfileName, Mapping[Scope, float]]] = {
    "default": {"session": 0.50, "project": 0.35, "user": 0.15},
    "codebase": {"session": 0.20, "project": 0.60, "user": 0.20},
    "preferences": {"session": 0.10, "project": 0.20, "user": 0.70},
    "debugging": {"session": 0.40, "project": 0.40, "user": 0.20},
    "new_project": {"session": 0.30, "project": 0.10, "user": 0.60},
    "architecture": {"session": 0.15, "project": 0.65, "user": 0.20},
}
SCOPE_TEMPER: Final = 0.4
"""Small, so that a profile only decides between memories that match about equally."""


def scope_shares(weights: Mapping[Scope, float], scopes: Collection[Scope]) -> dict[Scope, float]:
    """What each scope adds to the score: 0 for the scope with the highest weight, and less for the others."""
    heaviest = max((weights[scope] for scope in scopes), default=1.0)
    return {scope: SCOPE_TEMPER * math.log(weights[scope] / heaviest) for scope in scopes}
