"""Whether a newer memory contradicts an older one: a rule that can be followed, for proposals that a person can judge.

Two memories that are near and about the same thing contradict each other when two of their sentences have the same
frame, and differ in a value within it: in a denial, a number, or the names that stand in one place. A detail that one
of them adds contradicts nothing, nor does another word for the same thing. What happens at its own time (the outcome of
a tool, what somebody did) contradicts nothing either. In doubt nothing is proposed.

Whether two memories may be merged is the opposite question, and there the doubt counts: see `differs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, Final, Literal

from remembrancer.actors.consolidator.claims import (
    CHOICES,
    CIRCUMSTANCES,
    CONTRARIES,
    NEGATING,
    OTHER_CASES,
    PREPOSITIONS,
    SINGLE,
    Claim,
    Token,
    read_claim,
)
from remembrancer.actors.consolidator.summaries import cut_at_word, split_sentences
from remembrancer.memory.wording import normalised, same_in_words, stem
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import SESSION_KINDS

Difference = Literal["negation", "number", "value"]

CONTRADICTION_COSINE: Final = 0.6
"""How near two memories must be that name the same entity. A short sentence with another value in it is not as near as
one might think: with 0.75, a third of the contradictions is not found."""
COSINE_WITHOUT_ENTITIES: Final = 0.75
FRAME: Final = 0.5
"""The share of the longer sentence's words that both must have."""
ORDER: Final = 0.6
"""The share of both sentences' words that must stand in the same order."""
_CERTAINTY: Final[dict[Difference, float]] = {"negation": 0.95, "number": 0.9, "value": 0.8}
_LONGEST_VALUE: Final = 4
_MOST_SENTENCES: Final = 12
_LONGEST_SENTENCE: Final = 400
"""Characters that are compared: the time that it takes grows with the square."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Ids of two memories, and what differs, for a person. `strength` in [0, 1] is how sure it is."""

    older: str
    newer: str
    difference: Difference
    reason: str
    strength: float


@dataclass(frozen=True, slots=True)
class _Change:
    """A place in two sentences where each has words of its own, and the word before it.

    `leads`: nothing of meaning stands before it. `closes`: no word of meaning follows at once. `single`: both sentences
    say something there that takes one value at a time.
    """

    was: tuple[Token, ...]
    now: tuple[Token, ...]
    before: str
    leads: bool
    closes: bool
    single: bool


def still_holds(memory: Material, now: float) -> bool:
    """Whether a memory has not been superseded."""
    return memory.valid_until is None or memory.valid_until > now


def says_the_same(
    memory: Material,
    near: Sequence[tuple[Material, float]],
    now: float,
    min_cosine: float,
) -> tuple[Material, float] | None:
    """The nearest of these that a memory may be merged into, the nearest being given first.

    What says something else is as near as what says the same: merging into that would hide what is new. So would
    merging into what was made of others, which may be made of this one.
    """
    for other, cosine in near:
        if cosine <= min_cosine or other.is_derived or not still_holds(other, now) or _is_made_of(memory, other):
            continue
        if same_in_words(memory.content, other.content, cosine) and not differs(memory.content, other.content):
            return other, cosine
    return None


def alike(
    memory: Material, near: Sequence[tuple[Material, float]], now: float, min_cosine: float
) -> list[tuple[Material, float]]:
    """Those of these that are so near a memory that a person may want to see both."""
    return [
        (other, cosine)
        for other, cosine in near
        if cosine > min_cosine and still_holds(other, now) and not _is_made_of(memory, other)
    ]


def contradictions_with(memory: Material, near: Sequence[tuple[Material, float]], now: float) -> list[Contradiction]:
    """What a memory contradicts among these, and what contradicts it. The older one of each pair still holds."""
    found = []
    for other, cosine in near:
        verdict = contradiction(memory, other, cosine)
        if verdict is not None and still_holds(other if verdict.older == other.id else memory, now):
            found.append(verdict)
    return found


def other_words(memory: Material, into: Material) -> str | None:
    """What a memory says, if that is more than other blanks, case or marks at the end; None when nothing gets lost."""
    return memory.content if normalised(memory.content) != normalised(into.content) else None


def _is_made_of(one: Material, other: Material) -> bool:
    """Whether one of two memories was derived from the other."""
    return one.id in other.derived_from or other.id in one.derived_from


def contradiction(one: Material, other: Material, cosine: float) -> Contradiction | None:
    """Whether the newer of two memories contradicts the older, in whatever order they are given."""
    older, newer = sorted((one, other), key=lambda each: (each.happened_at, each.id))
    if cosine < CONTRADICTION_COSINE or older.kind in SESSION_KINDS or newer.kind in SESSION_KINDS:
        return None
    shared = _entities(older) & _entities(newer)
    if not shared and (cosine < COSINE_WITHOUT_ENTITIES or (older.entities and newer.entities)):
        return None
    if normalised(older.content) == normalised(newer.content):
        return None
    subject = older.entities[0].name.casefold() if older.entities else ""
    if not newer.entities or newer.entities[0].name.casefold() != subject:
        subject = ""
    for was, now in _comparable(older.content, newer.content):
        found = _difference(was, now, subject, 2 if shared else 1)
        if found is not None:
            difference, reason = found
            strength = _CERTAINTY[difference] * min(1.0, cosine)
            return Contradiction(older.id, newer.id, difference, reason, strength)
    return None


def differs(one: str, other: str) -> bool:
    """Whether two texts that are near each other may say different things, so that none can stand for the other.

    More differs than contradicts: another thing that is named by a number, another person, any other word in one place.
    """
    for was, now in _comparable(one, other):
        if _disjoint(was.labels, now.labels) or _disjoint(was.persons, now.persons):
            return True
        if (was.denied ^ now.denied) & was.keys & now.keys or any(_changes(was, now)):
            return True
    return False


def _comparable(older: str, newer: str) -> Iterator[tuple[Claim, Claim]]:
    """For each sentence of the newer text the one of the older that has most words in common with it."""
    before = _claims(older)
    for now in _claims(newer):
        was = max(before, key=lambda each: len(each.keys & now.keys) / max(1, len(each.keys | now.keys)), default=None)
        if was is not None:
            yield was, now


@lru_cache(maxsize=1024)
def _claims(text: str) -> tuple[Claim, ...]:
    """What the first sentences of a text claim; questions claim nothing. Kept, as each text is compared with many."""
    statements = [each for each in split_sentences(text) if not each.endswith(("?", "？", "؟"))]
    return tuple(read_claim(cut_at_word(each, _LONGEST_SENTENCE)) for each in statements[:_MOST_SENTENCES])


def _difference(was: Claim, now: Claim, subject: str, most: int) -> tuple[Difference, str] | None:
    if _disjoint(was.labels, now.labels) or _disjoint(was.persons, now.persons):
        return None
    shared = was.keys & now.keys
    if not shared or len(shared) < FRAME * max(len(was.meaningful | shared), len(now.meaningful | shared)):
        return None
    own = was.meaningful - shared, now.meaningful - shared
    flipped = (was.denied ^ now.denied) & shared
    if (flipped & was.given_up and own[1]) or (flipped & now.given_up and own[0]):
        return None  # to drop a thing may be what the other one calls by another verb
    if flipped and not (own[0] and own[1]):
        words = [each.written for each in now.tokens if each.key in flipped]
        return "negation", f"one affirms what the other denies: {_unique(words)}"
    changes = list(_changes(was, now))
    named = bool(subject) and all(stem(word) in shared for word in subject.split())
    if not changes or len(changes) > most or not all(_is_value(each, named) for each in changes):
        return None
    differing = {token.key for each in changes for token in (*each.was, *each.now)}
    if (was.denied ^ now.denied) & (shared | differing):
        return None
    numeric = all(_has_number(each.was) and _has_number(each.now) for each in changes)
    if was.happened and now.happened:
        return None  # at two times
    told = "; ".join(f"{_shown(each.was)} before, {_shown(each.now)} now" for each in changes)
    return ("number" if numeric else "value"), told


def _changes(was: Claim, now: Claim) -> Iterator[_Change]:
    """The places where both sentences have meaningful words that the other has nowhere; none where frames differ."""
    before, after = [each.key for each in was.tokens], [each.key for each in now.tokens]
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.quick_ratio() < ORDER or matcher.ratio() < ORDER:
        return
    for tag, begin, end, start, stop in matcher.get_opcodes():
        if tag != "replace":
            continue
        old, new = was.tokens[begin:end], now.tokens[start:stop]
        if _own(old, now.keys) and _own(new, was.keys):
            leads = not any(_has_meaning(each) for each in was.tokens[:begin])
            closes = not any(_has_meaning(each) for each in (*was.tokens[end : end + 1], *now.tokens[stop : stop + 1]))
            saying = (before[end:], after[stop:]) if leads else (before[:begin], after[:start])
            single = all(SINGLE.intersection(keys) for keys in saying)
            yield _Change(old, new, before[begin - 1] if begin else "", leads, closes, single)


def _is_value(change: _Change, subject_named: bool) -> bool:
    """Whether the place is one that a value takes, and not one that says of what, or in which case, it holds.

    What a sentence begins with is what it is about, unless both name their subject elsewhere (`subject_named`). Other
    words may mean the same: a value looks like one on both sides.
    """
    if (change.leads and not subject_named) or change.was[0].fresh or change.now[0].fresh:
        return False
    if not _look_like_values(change):
        return False
    numeric = _has_number(change.was) and _has_number(change.now)
    if change.before in OTHER_CASES and not (numeric and change.before == "for"):  # for 30 days is how long
        return False
    openings = [each[0].key if each[0].key in PREPOSITIONS else "" for each in (change.was, change.now)]
    if openings[0] != openings[1] or openings[0] in OTHER_CASES:
        return False
    for side in (change.was, change.now):
        meaningful = [each for each in side if each.meaningful]
        if len(meaningful) > _LONGEST_VALUE or all(each.written.casefold() in CIRCUMSTANCES for each in meaningful):
            return False
    return True


def _look_like_values(change: _Change) -> bool:
    """Whether both sides are numbers, names of which one can be right, the object of a choice, or contraries."""
    sides = [[each for each in side if each.meaningful] for side in (change.was, change.now)]
    numeric = [any(each.role == "number" for each in side) for side in sides]
    named = [any(_is_name(each) for each in side) for side in sides]
    if all(numeric):
        return True
    if all(number or name for number, name in zip(numeric, named, strict=True)):
        return change.single
    if change.before in CHOICES and change.closes and not any(numeric):
        return True
    one, other = (side[-1].key if len(side) == 1 else "" for side in sides)
    return _are_contrary(one, other)


def _is_name(token: Token) -> bool:
    """A name has a capital or a digit, or a mark within it: MySQL, eu-west-1, main.py."""
    return token.role == "content" and any(
        each.isupper() or each.isdigit() or each in "._/+#" for each in token.written
    )


def _are_contrary(one: str, other: str) -> bool:
    if not one or not other:
        return False
    return frozenset((one, other)) in CONTRARIES or any(
        other == prefix + one or one == prefix + other for prefix in NEGATING
    )


def _disjoint(one: frozenset[Any], other: frozenset[Any]) -> bool:
    """Whether both name something, and nothing in common."""
    return bool(one) and bool(other) and not one & other


def _own(tokens: Sequence[Token], other: frozenset[str]) -> bool:
    return any(each.meaningful and each.key not in other for each in tokens)


def _has_meaning(token: Token) -> bool:
    return token.role in ("content", "verb", "number")


def _has_number(tokens: Sequence[Token]) -> bool:
    return any(each.role == "number" for each in tokens)


def _entities(memory: Material) -> set[str]:
    return {entity.name.casefold() for entity in memory.entities}


def _shown(tokens: Sequence[Token]) -> str:
    return _unique([each.written for each in tokens])


def _unique(words: Sequence[str]) -> str:
    return " ".join(dict.fromkeys(words))
