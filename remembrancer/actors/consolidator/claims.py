"""A sentence as a claim: the words that it is made of, in order, and which of them it denies.

There is no grammar here: a word of denial denies the next word that has a meaning of its own, or else the one before.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from remembrancer.memory.wording import ARTICLES, DENIALS, FILLERS, FUNCTION_WORDS, NUMBERS, stem, words

PERSONS: Final = {
    "i": 1, "me": 1, "my": 1, "we": 2, "us": 2, "our": 2, "you": 3, "your": 3,
    "he": 4, "him": 4, "his": 4, "she": 5, "her": 5, "they": 6, "them": 6, "their": 6,
}  # fmt: skip
PREPOSITIONS: Final = words("""
    in on at by for from of with without to into onto over under via through during when while if unless because after
    before until between within about against per as
""")
GENERAL_VERBS: Final = frozenset(
    stem(verb)
    for verb in words("""
    use utilise utilize employ run keep store save hold live reside work need require prefer like love want support get
    make take give say go come lie sit stand belong write put set switch migrate move change replace become start rely
    depend choose pick call
    kept held wrote written ran made took taken gave given went gone came sat stood became chose chosen got
""")
)
"""Stems of verbs of so general a meaning that one in another's place changes nothing."""
DENYING_VERBS: Final = frozenset(
    stem(verb)
    for verb in words("""
    stop drop remove retire abandon deprecate cease quit discontinue dislike hate avoid refuse lack forbid ban disallow
""")
)
ORDINALS: Final = words("first second third fourth fifth sixth last next previous")
"""After an article they tell one thing of a series from another."""
DETERMINERS: Final = words("""
    all any both each either every few many more most much neither none other another same several some such various
    everything everyone everybody something someone somebody anything anyone nothing else lot lots ton bit plenty
""")
"""How much of something: one for another is no other value."""
BEING: Final = words("is are be been being was were")
CHOICES: Final = frozenset(
    stem(verb) for verb in words("use utilise utilize employ prefer choose pick call name title chose chosen")
)
"""Stems of verbs whose object is a value, however it is written: a tool, a name, a taste."""
SINGLE: Final = (
    CHOICES
    | words("is are")
    | frozenset(
        stem(verb)
        for verb in words("run keep store save live reside go belong listen deploy host default point depend rely set")
    )
)
"""What takes one value at a time. Things are supported, liked or reported beside one another, and happen so too."""
NEGATING: Final = ("dis", "un", "in", "im", "ir", "non", "non-")
"""Prefixes that make the contrary of a word: stable and unstable."""
CONTRARIES: Final = frozenset(
    frozenset(stem(word) for word in pair.split())
    for pair in (
        "enabled disabled", "open closed", "public private", "light dark", "true false", "manual automatic",
        "mandatory optional", "required optional", "internal external", "allowed denied", "ascending descending",
        "horizontal vertical", "synchronous asynchronous", "sync async", "serial parallel", "up down", "left right",
    )
)  # fmt: skip
"""Other pairs of words of which one is right."""
LABELLING: Final = words("issue pr ticket bug task step chapter session case part section line sprint milestone")
"""A number after one of these names a thing."""
OTHER_CASES: Final = words("for of when if during unless while")
"""After these stands the case that is spoken of: another case is no contradiction."""
CIRCUMSTANCES: Final = words("""
    production prod staging development dev test tests ci locally local remote linux macos windows monday tuesday
    wednesday thursday friday saturday sunday summer winter morning evening week weekday weekend
""")
"""What a claim may hold in, and another one elsewhere."""

Role = Literal["content", "verb", "number", "label", "function"]
"""`verb`: of so general a meaning that another in its place changes nothing. `label`: names a thing by a number."""

_TOKEN: Final = re.compile(
    r"(?P<label>#\d+|[a-z]{2,10}-\d+\b)"
    r"|v?(?P<number>\d+(?:[.,:/-]\d+)*)(?P<unit>[a-z%°]*)"
    r"|(?P<word>[^\W_]+(?:[._'/+#-][^\W_]+)*[+#]{0,2})"
    r"|(?P<break>[,;:()—–])"
)
_MARKS: Final = ".,;:!?()\"'"
_REWRITES: Final = (
    (re.compile(r"\bnot only\b|\bno (?:problem|doubt|worries)\b|\b(?:can't wait|couldn't agree more)\b"), ""),
    (re.compile(r"\b(?:give|gives|gave|giving|given) up\b"), "resign"),
    (re.compile(r"\b(ca|wo|sha)n't\b"), "can not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\b(?:instead of|rather than)\b"), "not"),
    (re.compile(r"\b(is|are|was|were|be|been|being|get|gets|got) used to\b"), r"\1 used for"),
    (re.compile(r"\bused to\b"), "not"),
    (re.compile(r"\breplac(?:e|es|ed|ing)\b(?= .{1,60} (?:with|by)\b)"), "not"),
    (re.compile(r"\b((?:switch|migrat|mov|chang|went|convert|upgrad|downgrad)\w*\b.{0,40}?) from\b"), r"\1 not"),
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a claim: what it is compared by, how it is written, and what it does.

    `fresh`: a part of the sentence begins with it, after a comma or the like.
    """

    key: str
    written: str
    role: Role
    fresh: bool = False

    @property
    def meaningful(self) -> bool:
        """Whether a difference in it may be a difference of what is claimed."""
        return self.role in ("content", "number")


@dataclass(frozen=True)
class Claim:
    """The words of a sentence without articles, fillers and denials, and the keys of those that are denied.

    `given_up` are the denied ones that a verb denies: to drop, to stop.
    """

    tokens: tuple[Token, ...]
    denied: frozenset[str]
    given_up: frozenset[str] = frozenset()

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of all words that have a meaning of their own, general verbs among them."""
        return frozenset(each.key for each in self.tokens if each.role not in ("function", "label"))

    @cached_property
    def meaningful(self) -> frozenset[str]:
        """The keys of the words in which claims may differ."""
        return frozenset(each.key for each in self.tokens if each.meaningful)

    @cached_property
    def happened(self) -> bool:
        """Whether it tells what was done once: its verb is in the past, so far as that can be seen."""
        before = ("", *(each.key for each in self.tokens))
        return any(
            each.role == "content" and each.written.endswith("ed") and not each.written.endswith("eed")
            for each, key in zip(self.tokens, before, strict=False)
            if key not in BEING
        )

    @cached_property
    def persons(self) -> frozenset[int]:
        """The persons that pronouns speak of."""
        return frozenset(PERSONS[each.key] for each in self.tokens if each.key in PERSONS)

    @cached_property
    def labels(self) -> frozenset[str]:
        """The things that are named by a number."""
        return frozenset(each.key for each in self.tokens if each.role == "label")


def read_claim(sentence: str) -> Claim:
    """What a sentence claims."""
    text = unicodedata.normalize("NFKC", sentence).replace("’", "'")
    folded = text.casefold()
    for pattern, instead in _REWRITES:
        folded = pattern.sub(instead, folded)
    reader = _Reader(text)
    for match in _TOKEN.finditer(folded):
        reader.read(match)
    reader.deny_what_came()
    return Claim(tuple(reader.tokens), frozenset(reader.denied), frozenset(reader.given_up & reader.denied))


class _Reader:
    """A sentence while it is read."""

    def __init__(self, text: str) -> None:
        words = (word.strip(_MARKS) for word in reversed(text.split()))
        self._written = {word.casefold(): word for word in words}
        self.tokens: list[Token] = []
        self.denied: set[str] = set()
        self.given_up: set[str] = set()
        self._odd = False
        """Whether a denial waits for what it denies."""
        self._by_verb = False
        self._fresh = False
        self._before = ""

    def read(self, match: re.Match[str]) -> None:
        """The next word or mark."""
        word: str | None = match.group("word")
        before, self._before = self._before, word or ""
        if match.group("break") or word == "but":
            self.deny_what_came()
            self._fresh = True
        elif word is not None and (word in DENIALS or stem(word) in DENYING_VERBS):
            self._odd = not self._odd
            self._by_verb = word not in DENIALS
        elif word not in ARTICLES and word not in FILLERS:
            for token in self._tokens_of(match, before):
                self._take(token)

    def deny_what_came(self) -> None:
        """If a denial is open and nothing follows that could be denied, it is about the last meaningful word."""
        meant = next((each for each in reversed(self.tokens) if each.meaningful), None) if self._odd else None
        if meant is not None:
            self.denied ^= {meant.key}
        self._odd = False

    def _take(self, token: Token) -> None:
        self.tokens.append(token)
        self._fresh = False
        if self._odd and token.meaningful:
            self.denied.add(token.key)
            if self._by_verb:
                self.given_up.add(token.key)
            self._odd = False

    def _tokens_of(self, match: re.Match[str], before: str) -> list[Token]:
        found = match.group()
        if match.group("label"):
            return [Token(found, found.upper(), "label")]
        if number := match.group("number"):
            key = re.sub(r",(?=\d{3}\b)", "", number)
            if before in LABELLING:
                return [Token(key, found, "label")]
            unit = match.group("unit")
            return [Token(key, found, "number"), *([Token(stem(unit), unit, "function")] if unit else [])]
        if found in NUMBERS:
            return [Token(NUMBERS[found], found, "number")]
        if found in ORDINALS and before in ARTICLES:
            return [Token(found, found, "label")]
        key = found.removesuffix("'s")
        shown = self._written.get(found, found)
        if key in PREPOSITIONS or key in FUNCTION_WORDS or key in DETERMINERS:
            return [Token(key, shown, "function", self._fresh)]
        # A word with a capital within a sentence is a name: Go is no verb there.
        general = stem(key) in GENERAL_VERBS and not (self.tokens and shown[0].isupper())
        return [Token(stem(key), shown, "verb" if general else "content", self._fresh)]
