"""A question that names a time and nothing else: "what did we do last Saturday". What happened then answers it.

None of its words is in what happened then, and nothing is near it by meaning. So what lies in its time is looked up.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from remembrancer.actors.store.records.contract import Filters, Vectors
from remembrancer.actors.store.records.search import padded
from remembrancer.actors.store.retrieval.candidates import CANDIDATES, Found, Source
from remembrancer.actors.store.retrieval.keywords import STOP_WORDS
from remembrancer.actors.store.retrieval.ranking import Signals, best_passages
from remembrancer.actors.store.retrieval.time_meanings import COUNTS, UNITS
from remembrancer.actors.store.retrieval.when import TimeWindow, without_times
from remembrancer.protocol.reads import Recall

_PAST_TEXT: Final = """
    did happened done changed learned learnt decided discussed worked talked told said met went been
    gemacht getan passiert geschehen besprochen gelernt entschieden fait passé arrivé appris décidé hicimos hice hizo
    pasó aprendimos decidimos
"""
_PAST: Final = frozenset(_PAST_TEXT.split())
"""One of them says that the question is about what was, not about what is to be done."""
_EMPTY_TEXT: Final = """
    happen go going gone do work working talk discuss decide learn change meet say tell make made
    anything everything something thing things stuff everyone someone anyone else still around back
    was wer wen wo wir ich du ihr haben habe hast hat sind bin ist es alles etwas an am im in
    que qu quoi avons nous ai j je tu as avez vous est s il c ce qui où on a le la les en au du
    qué hemos he ha se lo el los
"""
_EMPTY: Final = frozenset(_EMPTY_TEXT.split())
"""Words of such a question that say nothing of what is looked for, beside the stop words."""
_OF_TIMES: Final = frozenset(COUNTS) | frozenset(UNITS) | frozenset(f"{unit}s" for unit in UNITS)
_KNOWN: Final = STOP_WORDS | _PAST | _EMPTY | _OF_TIMES
_WORD: Final = re.compile(r"[^\W_]+")
_NAMED: Final = re.compile(r"[^\W\d_][+#]")
"""`C++` and `C#`."""
_BEFORE_A_SUBJECT_TEXT: Final = "about around in into of on over regarding to with über mit sur avec sobre con"
_BEFORE_A_SUBJECT: Final = frozenset(_BEFORE_A_SUBJECT_TEXT.split())
"""What follows one of them is what is looked for, though it may look like an empty word: "about go"."""
LONGEST: Final = 200
"""Characters. Who writes more asks for something."""


def asks_what_happened(query: str) -> bool:
    """Whether a question that names times asks for nothing but what happened then."""
    if len(query) > LONGEST:
        return False
    rest = without_times(query).replace("'ve", " ").replace("'s", " ")
    written = _WORD.findall(rest)
    if _NAMED.search(rest) or any(word != "I" and not word.islower() for word in written[1:] if not word.isdigit()):
        return False
    words = [word.casefold() for word in written]
    after = (word for before, word in itertools.pairwise(words) if before in _BEFORE_A_SUBJECT)
    if not (STOP_WORDS | _OF_TIMES).issuperset(after):
        return False
    return not _PAST.isdisjoint(words) and _KNOWN.issuperset(words)


def what_happened(
    request: Recall, sources: Sequence[Source], vector: Vectors | None, windows: Sequence[TimeWindow], filters: Filters
) -> list[Found] | None:
    """Of each file what happened at the time that is all that the question names.

    None: it names something else, or nothing is known of that time; then it is searched for like any other.
    """
    if not windows or request.strategy != "hybrid" or not asks_what_happened(request.query):
        return None
    found = [_happened(source, vector, windows, filters) for source in sources]
    return found if any(each.facts for each in found) else None


def _happened(source: Source, vector: Vectors | None, windows: Sequence[TimeWindow], filters: Filters) -> Found:
    """What happened in the windows of what is in one file; where that is much, the most important of it."""
    records, passages = source.records, source.passages
    numbers: dict[int, None] = {}
    for within in _within(windows, filters):
        all_of_it = records.matching(within, CANDIDATES)
        numbers |= dict.fromkeys(records.top(within, "important", CANDIDATES) if all_of_it is None else all_of_it)
    facts = records.ranking_facts(padded(list(numbers)), filters) if numbers else {}
    cosines: dict[int, float] = {}
    if vector is not None and passages is not None and facts:
        known = records.memory_vectors(passages.model, padded(list(facts)))
        cosines = best_passages(known.memories, known.vectors, vector)
    signals = {number: Signals(cosines.get(number), None) for number in facts}
    return Found(vector is None or passages is not None, signals, facts, records.sizes())


def _within(windows: Sequence[TimeWindow], filters: Filters) -> Iterator[Filters]:
    """The filters, narrowed to each of the windows."""
    for window in windows:
        after = max(window.start, -math.inf if filters.after is None else filters.after)
        before = min(math.nextafter(window.end, -math.inf), math.inf if filters.before is None else filters.before)
        yield msgspec.structs.replace(filters, after=None if math.isinf(after) else after, before=before)
