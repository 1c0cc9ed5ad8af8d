"""Six words of a memory should bring it first: `python -m bench.fragments --kept DIRECTORY FILE …`.

Of each haystack some memories, and six words of each, are taken at random (always the same ones), common words and
all. What has the words one after the other should come before what has not. `--show` prints the fragments that fail.
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
"""Words of a memory of which a fragment is taken."""


def word_for_word(text: str) -> str:
    """A text as its words, common ones and all, each between two spaces."""
    words = re.findall(r"[^\W_]+", text.casefold())
    return f" {' '.join(words)} "


def fragments_of(asking: Asking, chance: random.Random, each: int) -> list[str]:
    """Some of the memories' words, as they are written."""
    texts = [item.text.split() for item in asking.haystack.items]
    found = []
    for words in chance.sample(texts, min(each, len(texts))):
        if len(words) >= LEAST:
            first = chance.randrange(len(words) - WORDS + 1)
            fragment = " ".join(words[first : first + WORDS])
            if len(word_for_word(fragment).split()) >= WORDS:  # not brackets and dashes
                found.append(fragment)
    return found


def place_of(fragment: str, contents: list[str]) -> int:
    """The number of texts before the first that has the fragment's words one after the other."""
    wanted = word_for_word(fragment)
    return next((place for place, each in enumerate(contents) if wanted in word_for_word(each)), len(contents))


def main() -> None:
    """Ask for the fragments, and print how many bring their memory first."""
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
