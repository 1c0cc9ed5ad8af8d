"""Selects the memories relevant to a command or an edit that an assistant is about to make. A command is not a
question, so a separate logistic regression, fitted on commands and edits from nine projects (docs/benchmarks.md),
scores the candidates of a recall. A rule about the form of names or code applies to every edit that creates such names
or code. Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import msgspec

from remembrancer.code.words import terms_in, words_in
from remembrancer.memory.decay import has_ended
from remembrancer.memory.replacement import forms_of
from remembrancer.memory.sentences import from_best_sentence
from remembrancer.memory.tokens import estimate_tokens, truncate
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import RecalledMemory

RELEVANT_KINDS: Final[frozenset[Kind]] = frozenset({"convention", "decision", "preference", "procedure"})
SEARCHED: Final = 600
"""The number of characters of a command or an edit used as a query."""
MOST: Final = 2
LEAST_PROBABILITY: Final = 0.38
"""One in forty actions without a relevant memory had a higher probability."""
WEIGHTS: Final = {"words": 0.718, "cosine": 8.548, "denied": 2.398, "share": -11.932, "length": -2.23}
"""`words` is the number of words that an action shares with a memory, weighted by rarity; `share` is their share of the
memory's words; `denied` is 1 if one of these words is rare, new in this project and denied by the memory."""
INTERCEPT: Final = 3.167
MOST_OF_WORDS, MOST_SHARE = 12.0, 0.15
RARE: Final = 2.0
RAREST: Final = 3.95
"""The rarity of a word that only one candidate contains, however many candidates there are."""
NAMING_PROBABILITY: Final = 0.6
"""The probability of a naming rule that applies to the edit."""
TOKENS_OF_FACT: Final = 39
UNSEEN: Final = 20
"""The number of empty actions to add, so that a few real ones do not decide which words are common."""
MOST_PAST: Final = 500
"""The counts are halved after this many actions, to limit memory."""

_COMMON: Final = frozenset(
    terms_in("""
        a and api app apps async await class components const crates def else err export false fn for from func get go
        id if impl import in index int internal is json js key let lib main md mod models mut name new nil none not null
        of or package packages pub py return rs self set sql src str string struct test tests the this to toml true ts
        tsx type use value var yaml yml 10
    """)
)
_CLAUSE: Final = re.compile(r"[.;:!?()\n]+\s|[,;]\s|\s[-–—]\s|\n")
_DENIES: Final = re.compile(
    r"\b(?:never|not|no|nobody|neither|nor|without|instead of|rather than|avoid|forbid\w*|refus\w*|nothing|none of"
    r"|don't|nie|nicht|kein\w*|jamais|pas de|nunca|sin)\b",
    re.IGNORECASE,
)
_GONE: Final = re.compile(
    r"\b(?:removed?|gone|dropped|cancell?ed|retired|taken out|(?:not|n't) "
    r"(?:used|introduced|added|committed|edited|packaged|copied|run))\b",
    re.IGNORECASE,
)
AFTER_DENIAL, BEFORE_GONE = 5, 6
"""The number of words that a denial covers: after "never", and before "removed"."""
_CONSTRUCTS: Final = {
    "function": re.compile(r"\b(?:def|fn|func|function)\b|=>"),
    "argument": re.compile(r"\b(?:def|fn|func|function)\s+\w+\(\s*\w"),
    "class": re.compile(r"\b(?:class|struct)\b"),
    "method": re.compile(r"\bdef\s+\w+\(self\b|\bfunc\s*\(\w"),
    "attribute": re.compile(r"\b(?:self|this)\.\w+\s*="),
    "variable": re.compile(r"^\s*(?:let|const|var|val)?\s*\w+\s*:?=[^=]", re.MULTILINE),
    "import": re.compile(r"^\s*(?:import|from|use|#include)\b", re.MULTILINE),
    "comment": re.compile(r"\n.*\S.*\n.*\S"),
}
"""Parts of code that rules of naming and style cover, with a pattern for edits that create them."""


@dataclass
class PastActions:
    """The words of a project's earlier actions. Words in most actions are not informative."""

    number: int = 0
    having: Counter[str] = field(default_factory=Counter)

    def novelty(self, term: str) -> float:
        """1 for a word in no earlier action, and near 0 for a word in all of them."""
        total = self.number + UNSEEN
        return math.log(total / (self.having[term] + 1)) / math.log(total)

    def add(self, terms: Iterable[str]) -> None:
        self.number += 1
        self.having.update(terms)
        if self.number >= MOST_PAST:
            self.number //= 2
            self.having = Counter({term: number // 2 for term, number in self.having.items() if number > 1})


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A command, or an edit that replaces `old` (perhaps empty) with `new` in the file at `path`."""

    command: str = ""
    path: str = ""
    old: str = ""
    new: str = ""

    @property
    def query(self) -> str:
        return (self.command or f"{self.path}\n{self.new}")[:SEARCHED]

    @cached_property
    def terms(self) -> frozenset[str]:
        if self.command:
            return terms_of(self.command[:SEARCHED])
        had = set(words_in(self.old))
        added = " ".join(word for word in words_in(self.new[: 4 * SEARCHED]) if word not in had)
        return terms_of(f"{self.path} {added}")


def terms_of(text: str) -> frozenset[str]:
    """The stems of a text's words that are not common in code."""
    return frozenset(each for each in terms_in(text) if len(each) > 1 and each not in _COMMON)


def relevant_to(
    action: Action, candidates: Sequence[RecalledMemory], past: PastActions, given: Iterable[str], now: float
) -> list[RecalledMemory]:
    """The candidates to show before an action, most probable first. Omits those already `given` (full ids or their
    endings), replaced memories, and the earlier of two rules about the same form."""
    terms = {each.id: terms_of(each.content) for each in candidates}
    having = Counter(term for each in terms.values() for term in each)
    scale = RAREST / math.log(len(candidates) + 2)
    rarity = {term: scale * math.log(1 + (len(candidates) + 1) / having[term]) for term in action.terms if having[term]}
    had = tuple(given)
    latest: dict[tuple[str, str], RecalledMemory] = {}
    chances: dict[str, float] = {}
    constructs = {name for name, makes in _CONSTRUCTS.items() if not action.command and makes.search(action.new)}
    forms = {each.id: forms_of(each.content) for each in candidates if each.kind in RELEVANT_KINDS}
    for each in sorted(candidates, key=lambda each: each.happened_at):
        latest |= dict.fromkeys(forms.get(each.id, ()), each)
    for each in candidates:
        is_past = each.status == "archived" or each.forgotten or each.expired or has_ended(each.valid_until, now)
        if each.id in forms and not (is_past or each.superseded_by):
            is_of_form = any(part.split()[-1] in constructs for part, _ in forms[each.id])
            chances[each.id] = NAMING_PROBABILITY if is_of_form else _probability(each, terms[each.id], rarity, past)
    sure = [
        each
        for each in candidates
        if chances.get(each.id, 0.0) >= LEAST_PROBABILITY
        and not each.id.endswith(had)
        and all(latest[form] is each for form in forms[each.id])
    ]
    ids = {each.id for each in sure}
    current = (each for each in sure if ids.isdisjoint(each.possibly_superseded_by))
    return sorted(current, key=lambda each: (-chances[each.id], -each.happened_at))[:MOST]


def _probability(
    memory: RecalledMemory, terms: frozenset[str], rarity: Mapping[str, float], past: PastActions
) -> float:
    shared = terms.intersection(rarity)
    worth = {term: rarity[term] * past.novelty(term) for term in shared}
    denied = shared & denied_in(memory.content)
    features = {
        "words": min(MOST_OF_WORDS, sum(worth.values())),
        "cosine": memory.scores.cosine or 0.0,
        "denied": float(any(worth[term] > RARE for term in denied)),
        "share": min(MOST_SHARE, len(shared) / max(1, len(terms))),
        "length": math.log(max(1, len(memory.content))),
    }
    logit = INTERCEPT + sum(WEIGHTS[name] * value for name, value in features.items())
    return 1.0 / (1.0 + math.exp(-logit))


def denied_in(content: str) -> frozenset[str]:
    """The stems of denied words: npm and jest in "pnpm, never npm; jest was removed"."""
    denied: list[str] = []
    for clause in _CLAUSE.split(content):
        denied += (word for at in _DENIES.finditer(clause) for word in clause[at.end() :].split()[:AFTER_DENIAL])
        denied += (word for at in _GONE.finditer(clause) for word in clause[: at.start()].split()[-BEFORE_GONE:])
    return terms_of(" ".join(denied))


def says_never(content: str) -> bool:
    return re.search(r"\b(?:never|must not|do not|don't|nobody|nie(?:mals)?|jamais|nunca)\b", content, re.I) is not None


def fact_of(memory: RecalledMemory, terms: frozenset[str]) -> str:
    """The whole memory, or the rest of it from the sentence with the most of these terms."""
    text = " ".join(memory.content.split())
    if estimate_tokens(text) <= TOKENS_OF_FACT:
        return text
    rest = from_best_sentence(memory.content, lambda each: len(terms_of(each) & terms))
    cut = truncate(rest, TOKENS_OF_FACT)
    return rest if cut == rest else f"{cut}…"
