"""Fits and tests the kinds that the wording of a text suggests: `python -m bench.kinds [--held-out FILE …] [--write]`.

Each line of `kinds.jsonl`, and of each FILE, has a text, its kind and its author. The weights of
`memory/likely_kind.py` are fitted on `kinds.jsonl`. Each author's figures come from weights fitted without that author,
and those of a FILE from the weights fitted on all. Tasks and appointments count as one kind.
"""

import argparse
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from remembrancer.memory import likely_kind as module
from remembrancer.memory.likely_kind import Label, Weights, damped, features_of, likely_kind
from remembrancer.memory.open_ends import due_of_open_end
from remembrancer.protocol.kinds import OPEN_END

SENTENCES: Final = Path(__file__).with_name("kinds.jsonl")
WEIGHTS: Final = Path(module.__file__).with_name("kinds.json")
UNDATED: Final = ("changes", "earlier cases", "plain", "short notes")
"""Authors whose sentences have no labelled due dates."""
LEAST: Final = 4
"""The minimum number of texts in which a feature occurs."""
LEAST_WEIGHT: Final = 3
"""In tenths. A feature with only smaller weights is dropped."""
STRENGTH: Final = 40.0
"""The inverse of the ridge penalty."""


class Sentence(msgspec.Struct):
    text: str
    kind: Label
    author: str
    said: str = ""
    due: str | None = None


def read(path: Path) -> list[Sentence]:
    return [msgspec.json.decode(line, type=Sentence) for line in path.read_bytes().splitlines()]


def fitted(sentences: Sequence[Sentence]) -> Weights:
    """Fit the weights, rounded as they are stored."""
    words = _frequent(features_of(each.text, None) for each in sentences)
    counted = [features_of(each.text, words) for each in sentences]
    places = {name: place for place, name in enumerate(_frequent(counted))}
    rows = [
        (row, places[name], damped(len(features)))
        for row, features in enumerate(counted)
        for name in features
        if name in places
    ]
    row, column, value = zip(*rows, strict=True)
    table = csr_matrix((value, (row, column)), shape=(len(counted), len(places)))
    model = LogisticRegression(C=STRENGTH, max_iter=3000).fit(table, [each.kind for each in sentences])
    weights = np.rint(10 * model.coef_.T).astype(int).tolist()
    features = {
        name: tuple(weights[place]) for name, place in places.items() if max(map(abs, weights[place])) >= LEAST_WEIGHT
    }
    return Weights(tuple(model.classes_.tolist()), tuple(np.round(model.intercept_, 3).tolist()), features)


def _frequent(counted: Iterable[Collection[str]]) -> dict[str, None]:
    texts = Counter(name for features in counted for name in features)
    return {name: None for name, count in texts.items() if count >= LEAST}


def _kind(label: Label) -> str:
    return OPEN_END if label in ("task", "appointment") else label


def print_figures(name: str, sentences: Sequence[Sentence], weights: Weights) -> None:
    pairs = Counter((_kind(each.kind), str(likely_kind(each.text, weights))) for each in sentences)
    right = 100 * sum(count for (wanted, named), count in pairs.items() if wanted == named) / len(sentences)
    table = Table(f"{name}: {right:.1f} % of {len(sentences)}", "wanted", "found", "named wrongly")
    for kind in sorted({wanted for wanted, _ in pairs}):
        wanted = sum(count for (each, _), count in pairs.items() if each == kind)
        named = sum(count for (_, each), count in pairs.items() if each == kind)
        table.add_row(kind, str(wanted), f"{pairs[kind, kind]}", f"{named - pairs[kind, kind]} of {named}")
    Console().print(table)


def print_days(sentences: Sequence[Sentence]) -> None:
    """The due dates read from tasks and appointments, at two o'clock on the day they were said."""
    counts: Counter[str] = Counter()
    for each in sentences:
        if _kind(each.kind) == OPEN_END:
            day = due_of_open_end(each.text, datetime.fromisoformat(f"{each.said}T14:00").timestamp())
            read_as = day and datetime.fromtimestamp(day, UTC).date().isoformat()
            is_right = read_as == each.due
            counts["right" if is_right else "invented" if not each.due else "wrong" if read_as else "missed"] += 1
    print(f"due dates: {dict(counts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--write", action="store_true", help="write the fitted weights")
    given = parser.parse_args()
    sentences = read(SENTENCES)
    for author in sorted({each.author for each in sentences}):
        others = fitted([each for each in sentences if each.author != author])
        print_figures(author, [each for each in sentences if each.author == author], others)
    weights = fitted(sentences)
    print_days([each for each in sentences if each.author not in UNDATED])
    for path in given.held_out:
        held_out = read(path)
        print_figures(path.name, held_out, weights)
        print_days(held_out)
    if given.write:
        WEIGHTS.write_bytes(msgspec.json.encode(weights))


if __name__ == "__main__":
    main()
