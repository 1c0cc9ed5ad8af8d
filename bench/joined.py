"""Reads `joined.txt`: questions that share only an entity with their answer.

`joined.txt` has 202 memories from twenty domains, each with the entities that an assistant named for it. 100 questions
have words that find one memory while another one answers them, 40 are answered by the memory that their words find, and
40 have no answer. The memories are mixed with those of `everyday.json` and `topics.txt`, which name no entity. Each
memory also names its domain, so that there are hubs. One half was used for choosing the ranking (`tuned`); the other is
only reported.
"""

from pathlib import Path
from typing import Final

from bench.datasets import OWN_SETS, UNDATED, Haystack, Item, Question, load_sets

DATA: Final = Path(__file__).with_name("joined.txt")
TOPICS: Final = DATA.with_name("topics.txt")


def read_joined() -> Haystack:
    """Read all memories and questions. A question's kind is its half. Its id names the memory that its words find."""
    items: list[Item] = []
    entities: dict[str, tuple[str, ...]] = {}
    questions: list[Question] = []
    half = domain = ""
    first = 0
    for line in DATA.read_text(encoding="utf-8").splitlines():
        mark, text = line[:1], line[2:]
        if mark == "#":
            half = text
        elif mark == "@":
            domain, first = text, len(items)
        elif mark == "-":
            content, _, names = text.rpartition(" | ")
            items.append(Item(f"j{len(items)}", content, UNDATED))
            entities[items[-1].label] = (*names.split("; "), domain)
        elif mark == "?":
            asked, _, places = text.rpartition(" | ")
            clue, answer = (items[first + int(place) - 1].label for place in places.split(">"))
            questions.append(Question(clue, asked, half, UNDATED, frozenset([answer])))
        elif mark == "=":
            asked, _, place = text.rpartition(" | ")
            answer = items[first + int(place) - 1].label
            questions.append(Question(answer, asked, half, UNDATED, frozenset([answer])))
        elif mark == "!":
            questions.append(Question("", text, half, UNDATED, frozenset()))
    topics = [line[2:] for line in TOPICS.read_text(encoding="utf-8").splitlines() if line[:2] in ("- ", "= ")]
    (everyday,) = load_sets(OWN_SETS[0])["everyday"]
    others = [*(item.text for item in everyday.items), *topics]
    items += [Item(f"o{place}", text, UNDATED) for place, text in enumerate(dict.fromkeys(others))]
    return Haystack("joined", tuple(items), tuple(questions), "semantic", entities=entities)
