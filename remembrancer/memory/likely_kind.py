"""Estimates from its wording what kind of memory a text is: a multinomial logistic regression on its words and their
neighbours, whose weights `python -m bench.kinds` fits on labelled sentences. Pure."""

import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain
from typing import Final, Literal, NamedTuple, cast

import msgspec

from remembrancer.memory.lexicon import word_lists
from remembrancer.protocol.kinds import OPEN_END, Kind

Label = Literal["task", "appointment", "decision", "error_fix", "preference", "procedure", "convention", "fact"]
"""Tasks and appointments are both open ends."""
PROBABLE: Final = 0.6
"""A text whose likeliest kind is less probable than this is a fact."""
READ_CHARACTERS: Final = 600
LONGEST_OPEN_END: Final = 300
"""In characters. A longer text reports on several things."""
OPENING: Final = 3
"""The number of words with which a text opens."""
_DAMPING: Final = 0.4
"""The power of the number of features by which their sum is divided: a long text has more evidence, but not n times."""
_TOKEN: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)|(?P<clock>\d{1,2}[:.]\d\d\b(?![.\d]))|(?P<number>\d[\d.,/]*)"
    r"|(?P<code>`[^`\n]*`|\w*[^\W\d](?:\w*(?:_|/|\.(?=\w\w)))+[\w/.-]*|\w+\(\))"
    r"|(?P<word>[^\W\d_]+(?:['’-][^\W\d_]+)*)|(?P<mark>[^\w\s])"
)
_NAMED: Final = {word: f"<{name}>" for name, words in word_lists("likely_kind").items() for word in words}
_LABEL: Final = re.compile(r"\W*(\w+)(?: \([^()\n]*\))?: ")
_LABELS: Final = {word: cast(Kind, kind) for kind, words in word_lists("labels").items() for word in words}
_SUFFIX: Final = re.compile(r"ing$|ed$|ly$|ion$|er$|s$")


class Weights(msgspec.Struct, frozen=True, eq=False):
    """For each feature, ten times its weight for each label."""

    labels: tuple[Label, ...]
    intercepts: tuple[float, ...]
    features: dict[str, tuple[int, ...]]


class Token(NamedTuple):
    word: str
    """In lower case."""
    sort: str
    """Such as "<number>" or "<weekday>"; "<mark>" for a punctuation mark, and "" for any other word."""
    ending: str
    """What stands for an unknown word."""

    @property
    def is_name(self) -> bool:
        return self.ending.startswith("<name")


def tokens(text: str) -> Iterator[Token]:
    """The words and marks of a text, without the year of a date."""
    before, last = "^", ""
    for token in _TOKEN.finditer(text[:READ_CHARACTERS]):
        written, kind = token[0], token.lastgroup
        word = written.lower().replace("’", "'")
        if kind == "number" and last == "<month>" and len(written) == 4:
            continue
        if kind == "date":
            yield Token(word, "<number>", "")  # as in "30 November"
        last = "<month>" if kind == "date" else _NAMED.get(word, f"<{kind}>" * (kind != "word"))
        suffix = _SUFFIX.search(word)
        is_name = written[0].isupper() and before not in ("^", ".", ":", "!", "?")
        yield Token(word, last, f"<{'name' if is_name else 'word'}{suffix[0] if suffix else ''}>")
        before = word


def features_of(text: str, known: Container[str] | None = None) -> set[str]:
    """Each word, each two or three neighbours, the opening words, and the first word with each later word.
    Numbers, days and code are read as such, and a word that is not `known` (None: all are) as its ending."""
    words = ["^"]
    for word, sort, ending in tokens(text):
        if sort not in ("", "<mark>"):
            words.append(sort)
        else:
            words.append(word if sort or known is None or word in known else ending)
    words.append("$")
    first, *later = words[1:]
    opening = {f"1:{word}" for word in words[1 : 1 + OPENING]} | {f"{first}&{word}" for word in later}
    return {*neighbours(words, 3), *opening}


def neighbours(words: Sequence[str], most: int) -> Counter[str]:
    """Count the words between the first and the last one, and all groups of two to `most` neighbours."""
    groups = (zip(*(words[place:] for place in range(size)), strict=False) for size in range(2, most + 1))
    return Counter([*words[1:-1], *map(" ".join, chain.from_iterable(groups))])


def damped(features: int) -> float:
    return math.pow(max(features, 1), -_DAMPING)


_WEIGHTS: Final = msgspec.json.Decoder(Weights)


@cache
def _weights() -> Weights:
    return _WEIGHTS.decode(files(__package__).joinpath("kinds.json").read_bytes())


@lru_cache(maxsize=16)  # several functions ask about one text
def probabilities(text: str, weights: Weights | None = None) -> Mapping[Label, float]:
    weights = weights or _weights()
    features = features_of(text, weights.features)
    known = (weights.features[feature] for feature in features if feature in weights.features)
    sums = map(sum, zip((0,) * len(weights.labels), *known, strict=True))
    scale = damped(len(features)) / 10
    powers = [math.exp(intercept + scale * each) for intercept, each in zip(weights.intercepts, sums, strict=True)]
    return dict(zip(weights.labels, (each / sum(powers) for each in powers), strict=True))


def open_end_probability(text: str, weights: Weights | None = None) -> float:
    """0 for a long text."""
    likely = probabilities(text, weights)
    return (likely["task"] + likely["appointment"]) * (len(text) <= LONGEST_OPEN_END)


def likely_kind(text: str, weights: Weights | None = None) -> Kind:
    """The kind named by an opening label ("Rule: …"), or else the one that is `PROBABLE`, or else `fact`."""
    if (label := _LABEL.match(text)) and (labelled := _LABELS.get(label[1].casefold())):
        return labelled
    likely: dict[Kind, float] = {OPEN_END: open_end_probability(text, weights)}
    likely.update(
        (label, each)
        for label, each in probabilities(text, weights).items()
        if label != "task" and label != "appointment"
    )
    best = max(likely, key=likely.__getitem__)
    return best if likely[best] >= PROBABLE and len(text.split()) > 1 else "fact"


def is_appointment(text: str) -> bool:
    """True if an open end is rather an appointment than a task."""
    likely = probabilities(text)
    return likely["appointment"] > likely["task"]
