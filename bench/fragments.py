"""Tests that six words of a memory bring it first: `python -m bench.fragments --kept DIRECTORY FILE …`.

Of each haystack some memories, and six consecutive words of each, common ones included, are taken at random (always the
same ones). Memories with the exact sequence should rank above all others. `--show` prints the fragments that fail.
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import Final

from bench.data_forms import Question
from bench.in_process import Asking, Sets, arguments

EACH: Final = 20
WORDS: Final = 6
SEED: Final = 7
LEAST: Final = 8
"""The number of words that a memory needs for a fragment."""


def word_for_word(text: str) -> str:
    """Return a text as its words, common ones included, separated by spaces."""
    words = re.findall(r"[^\W_]+", text.casefold())
    return f" {' '.join(words)} "


def fragments_of(asking: Asking, chance: random.Random, each: int) -> list[str]:
    """Return fragments of some memories as they are written."""
    texts = [item.text.split() for item in asking.haystack.items]
    found = []
    for words in chance.sample(texts, min(each, len(texts))):
        if len(words) >= LEAST:
            first = chance.randrange(len(words) - WORDS + 1)
            fragment = " ".join(words[first : first + WORDS])
            if len(word_for_word(fragment).split()) >= WORDS:  # no brackets and dashes
                found.append(fragment)
    return found


def place_of(fragment: str, contents: list[str]) -> int:
    """Return the number of texts before the first that contains the fragment's words in sequence."""
    wanted = word_for_word(fragment)
    return next((place for place, each in enumerate(contents) if wanted in word_for_word(each)), len(contents))


def main() -> None:
    """Search for the fragments, and print how many bring their memory first."""
    parser = arguments(__doc__)
    parser.add_argument("--each", type=int, default=EACH, metavar="N", help="memories of a haystack")
    parser.add_argument("--show", action="store_true", help="print the fragments that fail")
    given = parser.parse_args()
    sets, chance = Sets(given.files, given.kept), random.Random(SEED)
    for name in sets:
        places: list[int] = []
        for asking in sets.of(name):
            for fragment in fragments_of(asking, chance, given.each):
                asking.vectors[fragment] = sets.embed(fragment)
                question = Question("", fragment, "", asking.now, frozenset())
                found = [each.content for each in asyncio.run(asking.ask(question))]
                places.append(place_of(fragment, found))
                if places[-1] and given.show:
                    print(f"  {places[-1]}: {fragment!r}")
        first, ten = sum(place == 0 for place in places), sum(place < 10 for place in places)
        print(
            f"{name}: of {len(places)} fragments {first} bring their memory first, {ten} among the first ten",
            flush=True,
        )


if __name__ == "__main__":
    main()
