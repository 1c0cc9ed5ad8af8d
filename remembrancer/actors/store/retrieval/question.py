"""Parses a person's question: its search phrases, its times and names, and its subject. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.memory.features import QueryProperties
from remembrancer.memory.ranking import asks_about_user, is_message
from remembrancer.memory.stop_words import ENGLISH, language_of, stop_words_of
from remembrancer.memory.subword_tokens import bare, joined_names, name_parts, pairs_of, runs_of, words_of
from remembrancer.memory.times.phrases import WEEKDAYS
from remembrancer.memory.times.windows import TimeWindow, kinds_of_period, read_query, time_windows
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import Recall

MAX_TERMS: Final = 40
READ: Final = 16_384
"""The number of characters read from a question. Anything longer is a document."""
SHORTEST_STEM: Final = 4
MAX_PHRASE_WORDS: Final = 16
QUOTED_WEIGHT: Final = 3
"""The weight of quoted phrases: memories that contain them rank above all others."""
MAX_QUOTED: Final = 5
WORDS_OF_A_PHRASE: Final = range(3, 9)
"""A question of this many words is also a phrase, since it may be copied from a memory."""

_HASH: Final = re.compile(r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{7,39}")
"""A commit hash or something similar, which may be abbreviated."""
_HIRAGANA: Final = re.compile("[\u3041-\u309f]")
_PIECE = re.compile(r"\S+")
_CONTRACTION = re.compile(r"(?<=\w)'(?:s|t|d|m|re|ve|ll)\b", re.IGNORECASE)
_QUOTED = re.compile(
    '"([^"]+)"|\u201c([^\u201c\u201d]+)\u201d|\u00ab([^\u00ab\u00bb]+)\u00bb|\u300c([^\u300c\u300d]+)\u300d|`([^`]+)`'
)


@dataclass(frozen=True, slots=True)
class Question:
    request: Recall
    now: float
    filters: Filters
    phrases: Sequence[Phrase]
    units: Sequence[Sequence[Phrase]]
    """The words and names of the question, each in all of its spellings."""
    numbered: Sequence[int]
    """The positions of the units that are names with a number."""
    windows: Sequence[TimeWindow]
    asked: QueryProperties
    kinds: frozenset[Kind] | None
    """The kinds named in a question about everything from the named times; None for other questions."""


def read_question(request: Recall, now: float) -> Question:
    asked_at = now if request.reference_time is None else request.reference_time
    filters: Filters = request
    if request.valid_only:
        filters = msgspec.structs.replace(filters, valid_at=asked_at)
    phrases, units = phrases_and_units(request.query)
    zone = None if request.reference_time is None else UTC
    windows = time_windows(request.query, asked_at, zone)
    kinds = kinds_of_period(request.query) if windows else None
    if kinds is not None:
        today = WEEKDAYS[datetime.fromtimestamp(asked_at, zone).weekday()]
        if re.search(rf"\bon {today}\b", read_query(request.query), re.IGNORECASE):  # today, or the same day a week ago
            windows = (*windows, *time_windows("today", asked_at, zone))
    return Question(
        request,
        now,
        filters,
        phrases,
        units,
        [place for place, each in enumerate(units) if any(map(str.isdigit, each[0].words))],
        windows,
        QueryProperties(asked_at, is_message(request.query), asks_about_user(request.query)),
        kinds,
    )


def phrases_of(query: str) -> tuple[Phrase, ...]:
    """Return the phrases that match any of the query's words. A phrase with a higher weight is repeated. A piece with
    punctuation inside (`src/app.py`, `ECONNRESET-104`) or with parts (`poolSize`) becomes a phrase, and also yields its
    parts and other spellings. Stop words are omitted unless there is nothing else. A long question yields `MAX_TERMS`
    (see `_worthiest`)."""
    return _phrases(*_groups(query))


def _phrases(groups: Sequence[Sequence[Phrase]], quoted: Sequence[Phrase]) -> tuple[Phrase, ...]:
    chosen = list(dict.fromkeys(term for group in groups for term in group))[:MAX_TERMS]
    return tuple(term for term in chosen for _ in range(QUOTED_WEIGHT if term in quoted else 1))


def phrases_and_units(query: str) -> tuple[tuple[Phrase, ...], list[tuple[Phrase, ...]]]:
    """Return a question's phrases (see `phrases_of`; a short question is itself a phrase) and its units. A unit is a
    word in any of its forms, a whole name in any of its spellings, or a pair of letters in scripts without spaces (in
    Japanese, except kana pairs that are function words). The index knows only English endings, so in other languages
    the last two letters of a word may differ, or more letters may follow."""
    groups, quoted = _groups(query)
    words = [] if quoted else [word.lower() for word in words_of(bare(query[:READ].replace("\x00", " ")))]
    whole = (_phrase(words),) if len(words) in WORDS_OF_A_PHRASE else ()
    return (*_phrases(groups, quoted), *whole), _units(query, groups)


def _units(query: str, groups: Sequence[Sequence[Phrase]]) -> list[tuple[Phrase, ...]]:
    is_english = language_of(query) in (ENGLISH, None)
    units: dict[tuple[Phrase, ...], None] = {}
    for group in groups:
        pairs = [each for each in group if " " not in each.words and runs_of(each.words)]
        if pairs:
            telling = [each for each in pairs if not _HIRAGANA.search(each.words)]
            units |= dict.fromkeys((each,) for each in telling or pairs)
        elif not is_english and len(group) == 1 and len(group[0].words) > SHORTEST_STEM and group[0].words.isalpha():
            units[(Phrase(group[0].words[: max(SHORTEST_STEM, len(group[0].words) - 2)], begins=True),)] = None
        else:
            whole = "".join(group[0].words.split())
            units[tuple(each for each in group if each.begins or len("".join(each.words.split())) >= len(whole))] = None
    return list(units)[:MAX_TERMS]


class _Piece(NamedTuple):
    """A part of a question between spaces. It is a name if it contains digits, punctuation or several parts."""

    terms: tuple[Phrase, ...]
    length: int
    is_name: bool


def _groups(query: str) -> tuple[list[tuple[Phrase, ...]], list[Phrase]]:
    """Return a question's terms, grouped by piece, and its quoted phrases: in text order if all fit, or by value."""
    text = bare(query[:READ].replace("\x00", " ").replace("\u2019", "'"))
    quoted = list(dict.fromkeys(_quoted(text)))[:MAX_QUOTED]
    pieces: dict[tuple[Phrase, ...], _Piece] = {}
    stop: list[tuple[Phrase, ...]] = []
    ignored = stop_words_of(text)
    for written in dict.fromkeys(_PIECE.findall(text)):
        piece, words = _piece(written, ignored)
        stop.extend((_phrase([word]),) for word in words)
        if piece is not None:
            pieces.setdefault(piece.terms, piece)
    groups = [*((phrase,) for phrase in quoted), *pieces]
    if len({term for group in groups for term in group}) > MAX_TERMS:
        groups = _worthiest(quoted, list(pieces.values()))
    return groups or stop[:MAX_TERMS], quoted


def _piece(written: str, ignored: frozenset[str]) -> tuple[_Piece | None, list[str]]:
    """Return a piece of a question (None if it has only ignored words), and its ignored words."""
    bare_word = written.strip("'\"?!.,;:()[]{}")
    lowered = bare_word.lower()
    if bare_word.isascii() and bare_word.isalpha() and bare_word[1:].islower():  # fast path for most words
        if lowered in ignored:
            return None, [lowered]
        return _Piece((Phrase(lowered),), len(lowered), is_name=False), []
    plain = _CONTRACTION.sub(" ", written)
    words = [word.lower() for word in words_of(plain)]
    if lowered in ignored:
        return None, words
    terms = [_phrase(words)] if len(words) > 1 else []
    terms += [_phrase([word]) for word in words if word not in ignored]
    terms += _spellings(plain, ignored)
    if _HASH.fullmatch(lowered):
        terms.append(Phrase(lowered, begins=True))
    stop = [word for word in words if word in ignored]
    if not terms:
        return None, stop
    is_name = len(words) > 1 or len(name_parts(words_of(plain))) > 1 or any(word.isdigit() for word in words)
    return _Piece(tuple(dict.fromkeys(terms))[:MAX_TERMS], len(bare_word), is_name), stop


def _worthiest(quoted: Sequence[Phrase], pieces: Sequence[_Piece]) -> list[tuple[Phrase, ...]]:
    """Return the groups of a long question that fit into `MAX_TERMS`: quoted phrases, then names, from both ends of the
    text, since the question comes before or after pasted text. If there are many names, each gets fewer spellings, so
    that other words get up to half of the places, longest first, since long words are rare."""
    names = [piece for piece in pieces if piece.is_name]
    last = len(names) - 1
    order = sorted(range(len(names)), key=lambda place: min(2 * (last - place), 2 * place + 1))
    words = sorted((piece for piece in pieces if not piece.is_name), key=lambda piece: -piece.length)
    room = MAX_TERMS - len(quoted)
    spellings = max(1, (room - min(len(words), room // 2)) // max(1, len(names)))
    chosen: list[tuple[Phrase, ...]] = [(phrase,) for phrase in quoted]
    seen = set(quoted)
    for piece in (*(names[place] for place in order), *words):
        if len(seen) >= MAX_TERMS:
            break
        terms = piece.terms
        if piece.is_name and len(terms) > spellings:  # the whole name, then its longest spellings
            terms = (terms[0], *sorted(terms[1:], key=lambda term: -len(term.words))[: spellings - 1])
        chosen.append(terms)
        seen.update(terms)
    return chosen


def _spellings(piece: str, ignored: frozenset[str]) -> Iterator[Phrase]:
    """Yield other terms for a piece of a question, which match the `subword_tokens` of stored texts."""
    words = words_of(piece)
    parts = [part.lower() for part in name_parts(words)]
    if len(parts) > len(words):
        yield _phrase(parts)
        yield from (_phrase([part]) for part in parts if part not in ignored)
    yield from (_phrase([joined.lower()]) for joined in joined_names(piece))
    for run in runs_of(piece):
        pairs = pairs_of(run)
        if len(run) == 1:
            yield Phrase(pairs[0], begins=True)  # matches all pairs that begin with it
            continue
        yield _phrase(pairs)
        yield from (_phrase([pair]) for pair in pairs)


def _quoted(text: str) -> Iterator[Phrase]:
    for found in _QUOTED.finditer(text):
        inside = next(group for group in found.groups() if group is not None)
        words = [word.lower() for word in words_of(inside)]
        runs = [run for run in runs_of(inside) if len(run) > 1]
        yield from (_phrase(pairs_of(run)) for run in runs)
        if words:
            yield _phrase(words)


def _phrase(words: Sequence[str]) -> Phrase:
    return Phrase(" ".join(words[:MAX_PHRASE_WORDS]))
