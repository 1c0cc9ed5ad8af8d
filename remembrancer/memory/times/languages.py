"""Translates German, French and Spanish time phrases: "vor zwei Wochen" becomes "2 weeks ago". In questions, only whole
phrases are translated: "Mai" alone may be a name, and "hier" is "yesterday" in French and "here" in German. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final

from remembrancer.memory.lexicon import toml_file, word_lists
from remembrancer.memory.times.phrases import MONTHS, WEEKDAYS, pattern_of

Words = Mapping[str, Mapping[str, str]]

_IN_ORDER: Final[Mapping[str, Sequence[str]]] = {"month": MONTHS, "weekday": WEEKDAYS}
FILE: Final = "times/languages.toml"
_LANGUAGES: Final = ("german", "french", "spanish")
_HIER: Final = re.compile(r"(?<![\w-])hier(?![\w-])", re.IGNORECASE)
_HERE: Final = word_lists("languages")["here"]
"""German and Dutch words next to which "hier" means "here"."""
_SHORT: Final = re.compile(
    r"\b(?=(?:mon|tue|wed|thu|fri|sat|sun)(?:s|r|rs)?\b)"
    r"(?:(?<=\b(?:by|on) )|(?<=\b(?:this|next) )|(?=\w+\.?"
    r"(?:$|[,:;]| \d| (?:[ap]m|at|eve|morning|afternoon|night|from|between|when|and|next|this)\b)))(\w{3})\w*\.?",
    re.IGNORECASE,
)
"""Abbreviated weekdays beside words of time, since some of them are other words, too."""
_GERMAN_SHORT: Final = re.compile(r"\b(mo|di|mi|do|fr|sa|so)\b\.? (?=\d{1,2}(?:[:.]\d\d\b| ?uhr\b|h\b))", re.IGNORECASE)
_NUMERIC: Final = re.compile(
    r"(\b(?:am|bis|zum|den|dem|spätestens|\w+day,?|(?:by|before|than)(?= (?:1[3-9]|2\d|3[01])))\s+|^)"
    r"(\d{1,2})\.(0?[1-9]|1[0-2])\.(?!\d)",
    re.IGNORECASE,
)
"""Days such as "am 3.12."."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_PLACE: Final = re.compile(r"<([\w|]+?)(2?)>")


def in_english(text: str) -> str:
    """Translate time phrases from other languages. `text` must be in NFC."""
    lowered = f" {text.lower()}"
    if " hier" in lowered and _HERE.isdisjoint(_WORD.findall(lowered)):
        text = _HIER.sub("yesterday", text)
    for language in _LANGUAGES:
        words = _words(language)
        for pattern, english in _rewritings(language):
            text = pattern.sub(partial(_put, english=english, words=words), text)
    return text


def days_in_english(text: str) -> str:
    """Translate the days to come of other languages, and abbreviations, as `coming` lists them: "bis zum 3. Dezember"
    becomes "by 3 December"."""
    for words, plain in _coming():
        text = words.sub(plain, text)
    return text


@cache
def _coming() -> Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]:
    german_names = [word for group in _IN_ORDER for word in _words("german")[group]]
    english = {word: name for each in _LANGUAGES for group in _IN_ORDER for word, name in _words(each)[group].items()}
    # within a sentence, "Samedi" is a name: only German days begin with a capital letter
    names = re.compile(rf"^\w+|\b(?i:{'|'.join(german_names)})\b|\b(?:{'|'.join(english)})\b")
    starts = {name[:3]: name for name in WEEKDAYS}
    german = dict(zip(["mo", "di", "mi", "do", "fr", "sa", "so"], WEEKDAYS, strict=True))
    later = [
        (words, partial(_put, english=plain, words=_words(each)))
        for each in _LANGUAGES
        for words, plain in _rewritings(each, "coming")
    ]
    rules = [(pattern_of(words), plain) for words, plain in toml_file(FILE)["coming"]["rules"]]
    return [
        (names, lambda name: english.get(name[0].lower(), name[0])),
        (_SHORT, lambda name: starts[name[1].lower()]),
        (_GERMAN_SHORT, lambda name: f"{german[name[1].lower()]} "),
        (_NUMERIC, lambda day: f"{day[1]}{day[2]} {MONTHS[int(day[3]) - 1]}"),
        *later,
        *rules,
    ]


@cache
def _words(language: str) -> Words:
    words: dict[str, dict[str, str]] = {}
    for group, lines in toml_file(FILE)[language]["words"].items():
        known = words.setdefault(group, {})
        for line in lines:
            if "=" in line:
                known |= (pair.split("=") for pair in line.split(", "))
            else:
                known |= zip(line.split(), _IN_ORDER[group], strict=True)
    return words


def _put(match: re.Match[str], english: str, words: Mapping[str, Mapping[str, str]]) -> str:
    def word(place: re.Match[str]) -> str:
        text = match[_group(place)] or ""
        plain = " ".join(text.lower().split())
        known = next((words[kind][plain] for kind in place[1].split("|") if plain in words.get(kind, ())), text)
        return known.capitalize() if known in MONTHS else known

    return _PLACE.sub(word, english).rstrip()


def _group(place: re.Match[str]) -> str:
    return place[1].replace("|", "_or_") + place[2]


@cache
def _rewritings(language: str, rules: str = "rules") -> tuple[tuple[re.Pattern[str], str], ...]:
    known = _words(language)
    year = r"(?:19|20)\d\d(?![\w-]|[.:/]\d)"
    numbers = {"day": r"[0-3]?\d", "year": year}

    def part(name: re.Match[str]) -> str:
        if name[1] == "of_year":
            return rf"(?: (?:del? )?(?P<year>{year}))?"
        words = [word for group in name[1].split("|") for word in known.get(group, ())]
        alternatives = numbers.get(name[1]) or "|".join(sorted(words, key=len, reverse=True))
        number = r"\d{1,3}|" if name[1] == "count" else ""
        return rf"(?P<{_group(name)}>{number}{alternatives})"

    return tuple(
        (re.compile(rf"(?<![\w-]){_PLACE.sub(part, phrase)}(?![\w-])".replace(" ", r"\s+"), re.IGNORECASE), english)
        for phrase, english in (*toml_file(FILE)[language].get(rules, ()), *toml_file(FILE)["all"][rules])
    )
