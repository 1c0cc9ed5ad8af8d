"""The features for ranking recall candidates, each a column of numbers. A ranking assigns a weight to each feature
(`memory/ranking.py`). docs/retrieval.md says how much each feature contributes, and on which data. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remembrancer.memory.decay import DAY_S, RECENCY_HALF_LIFE_S, has_ended
from remembrancer.protocol.kinds import Kind, Status

Column = NDArray[np.float64]

COSINE_FLOOR: Final = 0.1
"""The cosine of two unrelated texts with the default model."""
ANSWERING_COSINE: Final = 0.32
"""The cosine of a possible answer. A best candidate below it does not score the maximum of 1."""
SAME_SUBJECT_COSINE: Final = 0.5
"""Above this cosine, two facts are increasingly likely to be about the same subject."""
LAST_S: Final = 10 * DAY_S
"""The half-life of recency for queries that continue a conversation."""
COMMON: Final = 2_000
"""A word that occurs in more memories than this is weighted as if it occurred in this many."""
STANDINGS: Final[Mapping[Status, float]] = {"active": 0.0, "consolidated": 0.1, "promoted": 0.4, "archived": 0.5}
EXPIRED: Final = 1.0
"""The standing of a memory that is no longer valid or was superseded."""
RULES: Final[frozenset[Kind]] = frozenset({"convention", "preference", "procedure"})
OF_A_RULE: Final = -0.25
"""The change in standing of a valid rule that contains none of the query's words. It shrinks as more words match."""


@dataclass(frozen=True)
class Candidates:
    """One row per candidate. NaN means unknown, and is allowed only for cosines and for values from the context."""

    cosine: Column
    """The cosine between the best passage and the query."""
    opening: Column
    """The cosine between the first passage and the query, for texts with several passages."""
    bm25: Column
    """Comparable across files; 0 if none of the query's words match."""
    coverage: Column
    context_cosine: Column
    """The mean cosine of a turn and its neighbouring turns."""
    context_coverage: Column
    """The share of the query's words that occur in a turn or its neighbouring turns."""
    names_missed: Column
    """The share of the names with digits in the query that the memory lacks."""
    nearness: Column
    """How close the memory is to a time named in the query; 1 if within it."""
    happened_at: Column
    importance: Column
    standing: Column
    is_fact: Column
    """1 for a fact or decision, which is true until a later memory replaces it."""
    by_assistant: Column
    graph: Column
    likeness: Column = field(default_factory=lambda: np.zeros((0, 0)))
    """The cosines between the candidates, with shape (n, n); empty if unknown."""

    def __len__(self) -> int:
        return len(self.cosine)

    @cached_property
    def meaning(self) -> Column:
        return scaled(self.cosine, COSINE_FLOOR, ANSWERING_COSINE)


class QueryProperties(NamedTuple):
    """`asked_at` is in seconds since the epoch."""

    asked_at: float
    is_message: bool = False
    """True if the query continues a conversation."""
    of_the_user: bool = False
    """True if users are asking about themselves."""


class Feature(NamedTuple):
    name: str
    column: Callable[[Candidates, QueryProperties], Column]
    why: str


def standing(status: Status, valid_until: float | None, now: float) -> float:
    """0 for a valid memory, and up to `EXPIRED` for an invalid one."""
    return EXPIRED if has_ended(valid_until, now) else STANDINGS[status]


def rarity(frequencies: Sequence[int], memories: int) -> list[float]:
    """The weight of each word. A word found in no memory counts as the rarest, since no answer about it is stored."""
    return [math.log(1.0 + memories / min(max(each, 0.5), COMMON)) for each in frequencies]


def coverage(matched: NDArray[np.bool_], weights: Column) -> Column:
    """The weighted share, in [0, 1], of the query's words in each candidate. `matched` is (candidates, words)."""
    total = float(weights.sum())
    return np.asarray(matched @ weights / total) if total > 0.0 else np.zeros(len(matched))


def scaled(values: Column, floor: float, least: float = 0.0) -> Column:
    """Scale values linearly: `floor` (or unknown) becomes 0, and the best value (or `least`, if greater) becomes 1."""
    known = np.nan_to_num(values, nan=floor)
    best = max(least, float(known.max(initial=floor)))
    if best <= floor:
        return np.zeros(len(values))
    return np.asarray(np.maximum((known - floor) / (best - floor), 0.0))


def _opening(of: Candidates, _: QueryProperties) -> Column:
    return np.nan_to_num(of.opening - of.cosine)


def _bm25(of: Candidates, _: QueryProperties) -> Column:
    """Scaled by the best coverage: if the query is in another language, even the best match may be poor."""
    return scaled(of.bm25, 0.0) * float(of.coverage.max(initial=0.0))


def _context_meaning(of: Candidates, _: QueryProperties) -> Column:
    known = ~np.isnan(of.context_cosine)
    together = scaled(of.context_cosine, COSINE_FLOOR, ANSWERING_COSINE)
    return np.where(known, together - of.meaning, 0.0)


def _context_words(of: Candidates, _: QueryProperties) -> Column:
    return np.nan_to_num(of.context_coverage - of.coverage)


def _time(of: Candidates, _: QueryProperties) -> Column:
    """A time that contains all candidates does not distinguish between them."""
    return of.nearness * (1.0 - float(of.nearness.mean())) if len(of) else of.nearness


def _decayed(of: Candidates, query: QueryProperties, half_life_s: float) -> Column:
    return np.asarray(0.5 ** (np.maximum(query.asked_at - of.happened_at, 0.0) / half_life_s))


def _continues(of: Candidates, query: QueryProperties) -> Column:
    return _decayed(of, query, LAST_S) if query.is_message else np.zeros(len(of))


def _assistant(of: Candidates, query: QueryProperties) -> Column:
    return of.by_assistant if query.of_the_user else np.zeros(len(of))


def _outdated(of: Candidates, _: QueryProperties) -> Column:
    if not of.likeness.size:
        return np.zeros(len(of))
    facts = np.flatnonzero(of.is_fact > 0.0)
    happened = of.happened_at[facts]
    like = np.where(happened[None, :] > happened[:, None], of.likeness[np.ix_(facts, facts)], 0.0)
    outdated = np.zeros(len(of))
    outdated[facts] = np.maximum(like.max(axis=1, initial=0.0) - SAME_SUBJECT_COSINE, 0.0) / (1.0 - SAME_SUBJECT_COSINE)
    return outdated


def _joined(of: Candidates, _: QueryProperties) -> Column:
    """Reduced for memories that match the query on their own."""
    own = of.coverage + of.meaning / 2
    return np.asarray(of.graph * np.clip(1.0 - own, 0.0, 1.0))


FEATURES: Final = (
    Feature(
        "meaning",
        lambda of, _: of.meaning,
        "the cosine of its best passage, from chance (0) to the best candidate's (1)",
    ),
    Feature("opening", _opening, "the beginning of a long text says what it is about"),
    Feature("words", lambda of, _: of.coverage, "the share of the question's words that it has, weighted by rarity"),
    Feature("bm25", _bm25, "how well its words match, compared with the best candidate"),
    Feature("context_meaning", _context_meaning, "the turns around an answer are about the question, too"),
    Feature("context_words", _context_words, "the question's words occur in the turns around the answer"),
    Feature("time", _time, "it happened at a time that the question names"),
    Feature("continues", _continues, "a message usually continues the latest topic"),
    Feature("assistant", _assistant, "users who ask about themselves mean what they said, not what they were told"),
    Feature("names_missed", lambda of, _: of.names_missed, "it lacks a name from the question, such as PAY-9999"),
    Feature("outdated", _outdated, "of two facts about the same thing, the later one is more likely to be true"),
    Feature("joined", _joined, "it shares an entity with the best candidates, and nothing with the question"),
    Feature("graph", lambda of, _: of.graph, "it shares an entity with the best candidates"),
    Feature("importance", lambda of, _: of.importance, "it was marked as important"),
    Feature("recency", lambda of, query: _decayed(of, query, RECENCY_HALF_LIFE_S), "it is new"),
    Feature("standing", lambda of, _: of.standing, "it is no longer valid, or another memory represents it"),
)
NAMES: Final = tuple(each.name for each in FEATURES)


def table(of: Candidates, query: QueryProperties) -> Column:
    return np.stack([each.column(of, query) for each in FEATURES], axis=1) if len(of) else np.zeros((0, len(FEATURES)))
