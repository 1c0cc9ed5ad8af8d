"""Splits text into sentences, joins it into one line, and shortens it. Pure."""

import re
from collections.abc import Callable, Iterable
from typing import Final

SENTENCE_END: Final = re.compile(
    r"""[.!?…؟۔।]["'”’»)\]]{0,3}\s+"""
    r"""|[。！？｡](?![。！？｡])[”’」』）]{0,3}\s*"""
    r"""|\n\s*"""
)
"""This includes the space after the end. Each alternative is bounded, so that a search takes linear time."""
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|etc|approx|mr|mrs|ms|dr|prof|st|no|fig|ca|z\.b|d\.h|[^\W\d_])\.$", re.IGNORECASE
)
_ABBREVIATION_LENGTH: Final = 9
_LONGEST_NUMBER: Final = 4
LETTERS_A_WORD: Final = 10
_NUMBER: Final = re.compile(r"\d")
_BULLET: Final = re.compile(r"\A(?:[-*•>]|#{1,6}|\d{1,3}[.)])\s+")
_PREFACE: Final = re.compile(
    r"\A\s*(?:\(?\d{4}-\d\d-\d\d\)?[:,]?\s+)?"
    r"(?P<label>(?:correction|decision|decided|convention|preference|rule|note|fact|update|reminder)\b[^:.\n]{0,60}:\s+)?",
    re.IGNORECASE,
)
"""Matches "2026-02-18 Correction from Marta: ", for example."""

_LIST: Final = re.compile(r"\w, (?:[\w’'-]+ ){0,3}[\w’'-]+,? (?:and|or|und|oder|et|ou|y|o) \w")
"""At least three things: "English, German and Polish"."""
_MARKS: Final = re.compile(r"^\s*(?:#{1,6}|[-*])\s+|(?<=:)\s+[-*](?=\s)|^[\s|:-]+$|^\s*```\w*\s*$")
"""Marks at the beginning of a line or after a colon, and lines of marks. Numbers are not marks: "24. December"."""
_BOLD: Final = re.compile(r"(?<![\w*])\*\*(?=\S)((?:[^*`\n]|`[^`\n]*`)+)(?<=\S)\*\*(?![\w*])")


def split_sentences(text: str) -> list[str]:
    """A line break ends a sentence. A full stop after an abbreviation, an initial or a line's number does not."""
    pieces: list[str] = []
    begin = 0
    for match in SENTENCE_END.finditer(text):
        if not _ends_nothing(text, begin, match):
            pieces.append(text[begin : match.end()])
            begin = match.end()
    pieces.append(text[begin:])
    bare = (_BULLET.sub("", piece.strip()) for piece in pieces)
    sentences = [each for each in bare if any(character.isalnum() for character in each)]
    return sentences or ([text.strip()] if text.strip() else [])  # a text of nothing but punctuation is one sentence


def _ends_nothing(text: str, begin: int, match: re.Match[str]) -> bool:
    mark = match.start()
    if text[mark] != "." or "\n" in match.group():
        return False
    if mark - begin <= _LONGEST_NUMBER and text[begin:mark].strip().isdigit():
        return True
    return _ABBREVIATION.search(text[max(begin, mark - _ABBREVIATION_LENGTH) : mark + 1]) is not None


def says_more(older: str, newer: str) -> bool:
    """True if the newer text is less than half as long, has fewer statements, or lists nothing where the older lists
    several things, and so changes only a part."""
    lists_less = _LIST.search(older) is not None and not _LIST.search(newer)
    one, other = (sum(len(each.split("; ")) for each in split_sentences(text)) for text in (older, newer))
    return bool(newer) and (2 * len(newer) < len(older) or other < one or lists_less)


def from_best_sentence(text: str, score: Callable[[str], int]) -> str:
    """The text on one line, beginning with its best sentence. "…" replaces the earlier ones."""
    sentences = split_sentences(text) or [""]
    scores = [score(each) for each in sentences]
    best = scores.index(max(scores))
    return f"{'… ' if best else ''}{' '.join(' '.join(sentences[best:]).split())}"


def without_preface(text: str) -> str:
    return _PREFACE.sub("", text)


def without_label(text: str) -> str:
    """Strip the preface of a text, unless it contains a number, as in "Decided on 27 November: "."""
    preface = _PREFACE.match(text)
    return text if preface and _NUMBER.search(preface["label"] or "") else without_preface(text)


def cut_at_word(text: str, length: int) -> str:
    """Cut a text to at most `length` characters, after a word if possible."""
    if len(text) <= length:
        return text
    head = text[: length + 1]
    end = max((place for place, character in enumerate(head) if character.isspace()), default=0)
    return (head[:end] if end > length // 2 else head[:length]).rstrip()


def one_line(text: str) -> str:
    return " ".join(text.split())


def without_marks(text: str) -> str:
    lines = []
    for line in _BOLD.sub(r"\1", text).splitlines():
        words = _MARKS.sub("", line).strip()
        if words.startswith("|"):
            words = words.strip(" |").replace(" | ", ", ")
        if words:
            lines.append(words if words == line.strip() else f"{words} ·")
    return " ".join(lines).removesuffix(" ·")


def excerpt(text: str, length: int = 200) -> str:
    line = one_line(text)
    return line if len(line) <= length else f"{cut_at_word(line, length)} …"


def first_words(text: str, number: int) -> str:
    """The first `number` words on one line. In scripts without spaces, `LETTERS_A_WORD` characters count as a word."""
    text = text.strip()
    words = text[: 20 * number].split()
    cut = cut_at_word(" ".join(words[:number]), LETTERS_A_WORD * number)
    return cut if cut == " ".join(words) and len(text) <= 20 * number else f"{cut} …"


LEAST_QUOTED: Final = 16
"""The minimum length, in characters, of a sentence that identifies a quotation."""


def quotable(texts: Iterable[str]) -> tuple[str, ...]:
    """The passages that reveal a quotation: whole texts, and sentences too long to match by chance."""
    quotations: dict[str, None] = {}
    for text in texts:
        for each in (text.strip(), *split_sentences(text)):
            quotations |= dict.fromkeys((each, " ".join(each.split())))
    return tuple(each for each in quotations if len(each) >= LEAST_QUOTED)
