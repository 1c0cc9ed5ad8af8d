"""Stop words in the most common languages, and a guess at a text's language. Only the stop words of a query's own
language are dropped, since "car" and "die" are content words in other languages. Pure."""

import re
from functools import lru_cache
from typing import Final

from remembrancer.memory.lexicon import word_lists

ENGLISH: Final = "en"
STOP_WORDS: Final = word_lists("stop_words")
_ELIDED: Final = frozenset(("c", "d", "j", "l", "m", "n", "qu", "s", "t"))
"""French words before an apostrophe."""
ENGLISH_STOP_WORDS: Final = STOP_WORDS[ENGLISH]
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_SCRIPTS: Final = (
    ("ja", re.compile("[\u3041-\u30ff]")), ("zh", re.compile("[\u3400-\u9fff]")), ("ko", re.compile("[\uac00-\ud7a3]")),
    ("th", re.compile("[\u0e01-\u0e5b]")), ("ar", re.compile("[\u0600-\u06ff]")), ("he", re.compile("[\u0590-\u05ff]")),
    ("hi", re.compile("[\u0900-\u097f]")), ("el", re.compile("[\u0370-\u03ff]")), ("ru", re.compile("[\u0400-\u04ff]")),
)  # fmt: skip


@lru_cache(maxsize=8)  # a stored text is examined several times
def language_of(text: str) -> str | None:
    """Guess the language from a distinctive script, or else from the text's stop words. None if it has neither."""
    if not text.isascii():
        for language, letters in _SCRIPTS:
            if len(letters.findall(text)) * 3 > len(text):
                return language
    folded = text.casefold().replace("’", "'")
    words = _WORD.findall(folded)
    if "'" in folded:
        words = [part for word in words for part in (word.split("'") if word.partition("'")[0] in _ELIDED else [word])]
    counts = {language: sum(map(known.__contains__, words)) for language, known in STOP_WORDS.items()}
    return max(counts, key=counts.__getitem__) if any(counts.values()) else None


def stop_words_of(text: str) -> frozenset[str]:
    return STOP_WORDS.get(language_of(text) or ENGLISH, STOP_WORDS[ENGLISH])
