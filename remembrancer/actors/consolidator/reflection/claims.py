"""A sentence as a claim: the words that it is made of, in order, and which of them it denies.

There is no grammar here: a word of denial denies the next word that has a meaning of its own, or else the one before.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from remembrancer.actors.consolidator.reflection.claim_words import (
    ARTICLES,
    DENIALS,
    DENYING_VERBS,
    FILLERS,
    FUNCTION_WORDS,
    GENERAL_VERBS,
    LABELLING,
    NUMBERS,
    PERSONS,
    PREPOSITIONS,
)
from remembrancer.actors.consolidator.reflection.words import stem

Role = Literal["content", "verb", "number", "label", "function"]
"""`verb`: of so general a meaning that another in its place changes nothing. `label`: names a thing by a number."""

_TOKEN: Final = re.compile(
    r"(?P<label>#\d+|[a-z]{2,10}-\d+\b)"
    r"|v?(?P<number>\d+(?:[.,:/-]\d+)*)(?P<unit>[a-z%°]*)"
    r"|(?P<word>[^\W_]+(?:[._'/+#-][^\W_]+)*[+#]{0,2})"
    r"|(?P<break>[,;:()—–])"
)
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
    """A word of a claim: what it is compared by, how it is written, and what it does."""

    key: str
    written: str
    role: Role

    @property
    def meaningful(self) -> bool:
        """Whether a difference in it may be a difference of what is claimed."""
        return self.role in ("content", "number")


@dataclass(frozen=True)
class Claim:
    """The words of a sentence without articles, fillers and denials, and the keys of those that are denied."""

    tokens: tuple[Token, ...]
    denied: frozenset[str]

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of all words that have a meaning of their own, general verbs among them."""
        return frozenset(each.key for each in self.tokens if each.role not in ("function", "label"))

    @cached_property
    def meaningful(self) -> frozenset[str]:
        """The keys of the words in which claims may differ."""
        return frozenset(each.key for each in self.tokens if each.meaningful)

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
    written = {word.casefold(): word for word in reversed(re.findall(r"\S+", text))}
    tokens: list[Token] = []
    denied: set[str] = set()
    odd, last_label = False, False
    for match in _TOKEN.finditer(folded):
        word = match.group("word")
        if match.group("break") or word == "but":
            odd = _deny_before(tokens, denied) if odd else False
            continue
        if word in ARTICLES or word in FILLERS:
            continue
        if word is not None and (word in DENIALS or stem(word) in DENYING_VERBS):
            odd = not odd
            continue
        for token in _tokens_of(match, written, last_label, bool(tokens)):
            tokens.append(token)
            if odd and token.meaningful:
                denied.add(token.key)
                odd = False
        last_label = word is not None and word in LABELLING
    if odd:
        _deny_before(tokens, denied)
    return Claim(tuple(tokens), frozenset(denied))


def _tokens_of(match: re.Match[str], written: dict[str, str], labelled: bool, inside: bool) -> list[Token]:
    found = match.group()
    if match.group("label"):
        return [Token(found, found.upper(), "label")]
    if number := match.group("number"):
        key = re.sub(r",(?=\d{3}\b)", "", number)
        if labelled:
            return [Token(key, found, "label")]
        unit = match.group("unit")
        return [Token(key, found, "number"), *([Token(stem(unit), unit, "function")] if unit else [])]
    if found in NUMBERS:
        return [Token(NUMBERS[found], found, "number")]
    key = found.removesuffix("'s")
    shown = written.get(found) or written.get(found + ".") or written.get(found + ",") or found
    if key in PREPOSITIONS or key in FUNCTION_WORDS:
        return [Token(key, shown, "function")]
    # A word with a capital within a sentence is a name: Go is no verb there.
    general = stem(key) in GENERAL_VERBS and not (inside and shown[0].isupper())
    return [Token(stem(key), shown.strip(".,;:!?()\"'"), "verb" if general else "content")]


def _deny_before(tokens: list[Token], denied: set[str]) -> bool:
    """Deny the last meaningful word, as nothing follows that could be denied. Gives back that no denial is open."""
    for token in reversed(tokens):
        if token.meaningful:
            denied ^= {token.key}
            break
    return False
