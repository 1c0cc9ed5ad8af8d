"""The first candidates of a recall in the order of a reranker, which reads query and text together.

Where nothing comes of it the order stays, with a notice that says why.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from remembrancer.actors.store.records.contract import Filters, Vectors
from remembrancer.actors.store.retrieval.candidates import Source
from remembrancer.actors.store.retrieval.shortlist import Place, Range, Ranked, load_records, passages_of
from remembrancer.memory.ranking import Weights
from remembrancer.protocol.errors import EmbeddingUnavailable
from remembrancer.protocol.reads import Notice, Scores

RERANKER_SHARE: Final = 0.8
"""The reranker's share of a candidate's relevance; the rest is what the searches said."""
FULL_SPREAD: Final = 2.0
"""Logits between the worst and the best with which the reranker has its whole share: with less it hardly has a view."""
EXCERPT: Final = 400
"""Characters of a memory that the reranker reads: about one passage. What it costs grows with them."""
_LOGIT_BOUND: Final = 1e-7


@dataclass(frozen=True, slots=True)
class Reranking:
    """What it takes to rerank one recall: how many candidates are read, within how many seconds.

    `ask` has the passages of a query scored, each in [0, 1], within so many seconds, or raises `EmbeddingUnavailable`.
    """

    ask: Callable[[str, Sequence[str], float], Awaitable[Sequence[float]]]
    candidates: int
    timeout_s: float
    weights: Weights

    async def reranked(
        self, query: str, ranked: Ranked, read: Callable[[], Awaitable[list[str]]], notices: list[Notice]
    ) -> Ranked:
        """The candidates with the first ones in the reranker's order, or as they are, with the reason in `notices`.

        `read` gives the texts of the first ones (see `texts_of`).
        """
        if min(len(ranked), self.candidates) < 2:
            return ranked
        try:
            scores = await self.ask(query[:EXCERPT], await read(), self.timeout_s)
        except EmbeddingUnavailable as error:
            notices.append(Notice("not_reranked", f"The order is that of the search alone: {error.message}."))
            return ranked
        return merged(ranked, scores, self.weights)


def merged(ranked: Ranked, scores: Sequence[float], weights: Weights) -> list[tuple[Place, Scores]]:
    """The candidates by their final scores, after the reranker has scored the first `len(scores)` of them.

    A reranker's score says more of the order than of the distance: its logit is scaled between the worst and the best
    of those that were read, and that to what relevance lies between the best of the unread and the best of the read.
    It replaces `RERANKER_SHARE` of the relevance, or less where the logits hardly differ; importance, recency, scope
    and status keep their say.
    """
    read, unread = ranked[: len(scores)], ranked[len(scores) :]
    bounded = [min(1.0 - _LOGIT_BOUND, max(_LOGIT_BOUND, score)) for score in scores]
    logits = [math.log(score / (1.0 - score)) for score in bounded]
    lowest, highest = min(logits, default=0.0), max(logits, default=0.0)
    share = RERANKER_SHARE * min(1.0, (highest - lowest) / FULL_SPREAD)
    best = max((each.relevance for _, each in read), default=0.0)
    least = max((each.relevance for _, each in unread), default=0.0)
    if least >= best:
        least = 0.0
    anew: list[tuple[Place, Scores]] = []
    for (place, each), score, logit in zip(read, scores, logits, strict=True):
        verdict = least + (best - least) * (logit - lowest) / max(highest - lowest, 1e-9)
        relevance = (1.0 - share) * each.relevance + share * verdict
        # What the final score was multiplied by (scope, status) still is.
        mean = weights.final(each.relevance, each.importance, each.recency)
        factor = each.final / mean if mean > 0.0 else 1.0
        final = factor * weights.final(relevance, each.importance, each.recency)
        anew.append((place, msgspec.structs.replace(each, final=final, relevance=relevance, reranker=score)))
    return sorted([*anew, *unread], key=lambda item: (-item[1].final, item[0]))


def texts_of(
    query: str, vector: Vectors | None, sources: Sequence[Source], candidates: Ranked, filters: Filters
) -> list[str]:
    """What the reranker reads of each candidate; nothing of one that is gone. `vector` is the query's."""
    records = load_records(sources, candidates, filters)
    ranges = passages_of(query, vector, sources, records)
    read = {place: excerpt(record.content, ranges.get(place, ())) for place, record in records.items()}
    return [read.get(place, "") for place, _ in candidates]


def excerpt(content: str, ranges: Sequence[Range], most: int = EXCERPT) -> str:
    """A short text whole; of a longer one the best of its `ranges`, up to about `most` characters, as they stand in it.

    Ranges that overlap are joined. The first is there however long it is, up to `most`.
    """
    if len(content) <= most:
        return content
    chosen: list[Range] = []
    left = most
    for start, end in ranges or ((0, most),):
        if chosen and end - start > left:
            break
        chosen.append((start, min(end, start + most)))
        left -= end - start
    joined: list[Range] = []
    for start, end in sorted(chosen):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return "\n".join(content[start:end] for start, end in joined)
