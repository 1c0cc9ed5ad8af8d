"""The words of code and of questions about it. Names are split into parts, and parts are stemmed. Pure."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

from remembrancer.memory.wording import stem

LONGEST: Final = 64
"""The maximum length in characters. Longer words are data."""
SIGILS: Final = "_$@"
words_in: Final = re.compile(r"\w+").findall
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_WIDE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|#)[A-Za-z_$][\w$]*)*")


@lru_cache(maxsize=200_000)
def terms_of(word: str) -> tuple[str, ...]:
    """The stems of a word's parts and, if there are several, the word itself in lower case."""
    if len(word) > LONGEST:
        return ()
    if word.isascii() and word.isalpha() and word.islower():
        return (stem(word),)
    parts = _PART.findall(word)
    terms = [stem(part.lower()) for part in parts if len(part) > 1 or len(parts) == 1]
    if len(parts) > 1:
        terms.append(word.strip("_").lower())
    for run in _WIDE.findall(word):
        terms += (run[at : at + 2] for at in range(len(run) - 1))
    return tuple(terms)


def terms_in(text: str) -> Iterator[str]:
    return chain.from_iterable(map(terms_of, words_in(text)))


def question_words(question: str) -> list[str]:
    """The words without stop words, unless all are stop words."""
    from remembrancer.memory.stop_words import stop_words_of  # without it, the reader process starts faster

    words = words_in(question)
    silent = stop_words_of(question)
    telling = [word for word in words if word.lower() not in silent]
    return telling or words


def names_in(question: str) -> list[str]:
    """The names in a question, such as `Class.method`, `snake_case`, `camelCase` or `call()`, or its only word."""
    question = question.strip()
    names = [found.group() for found in _NAME.finditer(question) if _is_name(found, question)]
    dotted = (re.sub(r"::|->|#", ".", name).strip("$.") for name in names)
    return list(dict.fromkeys(filter(None, dotted)))


def _is_name(found: re.Match[str], question: str) -> bool:
    name = found.group()
    if name == question or question[found.end() : found.end() + 1] == "(":
        return True
    if found.start() and question[found.start() - 1] in ".`":
        return True
    return bool(re.search(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]|\w_\w|\w\.\w|::|->|^\$", name))


def last_part(name: str) -> str:
    """The last part in lower case, without the sigils of private names or variables."""
    return name.rpartition(".")[2].strip(SIGILS).lower()


def own_name(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]
