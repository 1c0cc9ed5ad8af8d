"""Fits and tests the probability that a later memory replaces an earlier one:
`python -m bench.worlds FILE … [--held-out FILE …] [--write]`.

FILE is a week of memories or histories of MemoryCode, as read by `bench.replaced`. The weights of
`memory/likely_replacement.py` are fitted on these files, on the worlds of `worlds.txt` (by authors who had not read the
code) and `changes.txt`, and on pairs of single texts. Each author's figures come from weights fitted without that
author and others (a fifth at a time), and those of a file after `--held-out`, which has the format of `worlds.txt`,
from the weights fitted on all.
"""

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression

from bench.replaced import (
    ALONE,
    APART_S,
    CHANGES,
    DAY_S,
    MEMORYCODE,
    NEVER,
    Haystack,
    Item,
    alone,
    changes,
    compared,
    memorycode,
    topics,
    weeks,
)
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.memory import likely_replacement as module
from remembrancer.memory.likely_kind import damped, tokens
from remembrancer.memory.likely_replacement import (
    TextPair,
    Weights,
    features_of,
    measures_of,
    probability,
    with_products,
)
from remembrancer.memory.replacement import POSSIBLE, PROBABLE, REPLACED

WORLDS: Final = Path(__file__).with_name("worlds.txt")
WEIGHTS: Final = Path(module.__file__).with_name("replacements.json")
TOGETHER: Final = 3
"""The number of an author's worlds that make one haystack, since a store holds more than one."""
FOLDS: Final = 5
EVERY: Final = 5
"""One in so many haystacks of MemoryCode is used, since there are many."""
FREQUENT: Final = 8
"""The minimum number of texts in which a word occurs that counts as itself."""
LEAST_PAIRS: Final = 8
"""The minimum number of pairs in which a feature occurs."""
LEAST_WEIGHT: Final = 4
"""In hundredths. A feature with a smaller weight is dropped."""
SEVERAL: Final = 5
"""The minimum number of changes in a haystack that counts a second time."""
SMALL: Final = 12
PARTINGS: Final = 3
"""The number of times that each haystack is divided into small memories."""
AUTHOR: Final = 60.0
"""The total weight of the replaced pairs of an author with at least 20, in pairs."""
FEW: Final = 0.6
"""The weight of each pair of any other author."""
SHARES: Final = (0.3, 3.0)
"""The scales of products and of words, which set how much these are penalised."""
STRENGTH: Final = 1.0
"""The inverse of the ridge penalty."""
Array = NDArray[np.float64]


class Judged(NamedTuple):
    """The compared pairs of a haystack, whether they are replaced, and the index of the later memory."""

    author: str
    texts: Sequence[str]
    pairs: Sequence[TextPair]
    replaced: Sequence[bool]
    later: Sequence[int]
    missed: int
    """The number of replaced memories that are too distant to be compared."""


def worlds(path: Path) -> Iterator[Haystack]:
    """Yield the worlds of an author, some at a time. A later text replaces an earlier one ("=>") or a part of it ("~").
    The first and last of three versions are neither right nor wrong as a pair."""
    for author, *worlds in (part.split("\n## ") for part in path.read_text(encoding="utf-8").split("\n# by ")[1:]):
        for begin in range(0, len(worlds), TOGETHER):
            items: list[Item] = []
            pairs: dict[str, set[tuple[str, str]]] = {"=>": set(), "~": set(), "?": set()}
            for world in range(begin, min(begin + TOGETHER, len(worlds))):
                for line in worlds[world].splitlines()[1:]:
                    begins, _, rest = line.partition(" ")
                    if begins in pairs:
                        both = (pair.partition(">")[::2] for pair in rest.split())
                        pairs[begins].update((f"{world}.{one}", f"{world}.{other}") for one, other in both)
                    elif line:
                        day, _, text = rest.partition(" ")
                        items.append(Item(f"{world}.{begins}", text, int(day) * DAY_S + len(items) * APART_S))
            replaced = pairs["=>"] | pairs["~"]
            steps = {(first, last) for first, second in replaced for third, last in replaced if second == third}
            in_order = sorted(items, key=lambda item: item.at)
            yield Haystack(author.strip(), in_order, replaced, (pairs["?"] | steps) - replaced)


def judged(haystack: Haystack, engine: Engine) -> Judged | None:
    """Return the pairs of a haystack; None if there are none."""
    if len(haystack.items) < 2:
        return None
    pairs, replaced, later, missed = list[TextPair](), list[bool](), list[int](), 0
    for place, is_replaced, texts in compared(haystack, engine):
        if texts is None:
            missed += is_replaced
            continue
        pairs.append(texts)
        replaced.append(is_replaced)
        later.append(place)
    return Judged(haystack.author, [each.text for each in haystack.items], pairs, replaced, later, missed)


def fit(sets: Sequence[Judged]) -> Weights:
    """Fit the weights, rounded as they are stored. A quarter of the haystacks with several changes count a second
    time, as if told at once, since people also change what they said a moment ago (half of MemoryCode's are); and each
    haystack counts as several small memories, too, since every memory begins small."""
    told = [each for each in sets if MEMORYCODE not in each.author]
    several = [each for each in sets[::4] if sum(each.replaced) >= SEVERAL and MEMORYCODE not in each.author]
    sets = [*sets, *map(_at_once, several), *(_in_parts(each, seed) for each in told for seed in range(PARTINGS))]
    texts = {text for each in sets for text in each.texts}
    words = Counter(word for text in texts for word in {token.sort or token.word for token in tokens(text)})
    bare = Weights(len(texts), {word: count for word, count in words.items() if count >= FREQUENT})
    pairs = [pair for each in sets for pair in each.pairs]
    truth = np.array([replaced for each in sets for replaced in each.replaced])
    weight = np.full(len(pairs), FEW)
    authors = np.array([each.author for each in sets for _ in each.pairs])
    for author in set(authors[truth]):
        own = authors == author
        if truth[own].sum() >= 20:
            weight[own] = AUTHOR / truth[own].sum()
    table = np.array([measures_of(pair, bare) for pair in pairs])
    means, spreads = (tuple(np.round(each, 4).tolist()) for each in (table.mean(0), table.std(0)))
    bare = msgspec.structs.replace(bare, means=means, spreads=spreads)
    dense = np.array([with_products(row, bare) for row in table.tolist()])
    scale = np.where(np.arange(dense.shape[1]) < table.shape[1], 1.0, SHARES[0])
    counted = [features_of(pair.earlier, pair.later, bare) for pair in pairs]
    occurs = Counter(name for features in counted for name in features)
    places = {name: place for place, name in enumerate(n for n, count in occurs.items() if count >= LEAST_PAIRS)}
    cells = [
        (row, places[name], SHARES[1] * count * damped(features.total()))
        for row, features in enumerate(counted)
        for name, count in features.items()
        if name in places
    ]
    row, column, value = zip(*cells, strict=True)
    sparse = csr_matrix((value, (row, column)), shape=(len(pairs), len(places)))
    model = LogisticRegression(C=STRENGTH, max_iter=500, tol=1e-3)
    model.fit(hstack([csr_matrix(dense * scale), sparse]).tocsr(), truth, sample_weight=weight)
    of_measures, of_words = np.split(model.coef_[0], [dense.shape[1]])
    hundredths = np.rint(100 * SHARES[1] * of_words).astype(int)
    return msgspec.structs.replace(
        bare,
        intercept=round(float(model.intercept_[0]), 3),
        measures=tuple(np.round(of_measures * scale, 3).tolist()),
        features={name: int(hundredths[at]) for name, at in places.items() if abs(hundredths[at]) >= LEAST_WEIGHT},
    )


def _at_once(each: Judged) -> Judged:
    return each._replace(pairs=[pair._replace(apart_s=APART_S) for pair in each.pairs])


def _in_parts(each: Judged, seed: int) -> Judged:
    """The pairs that remain if a haystack is divided at random into memories of some `SMALL` texts."""
    order = {text: place for place, text in enumerate(each.texts)}
    shuffled = random.Random(seed).sample(list(order), len(order))
    part_of = {text: place % max(1, len(order) // SMALL) for place, text in enumerate(shuffled)}
    kept = [place for place, pair in enumerate(each.pairs) if part_of[pair.earlier] == part_of[pair.later]]
    cosines = defaultdict[str, dict[str, float]](dict)
    for pair in (each.pairs[place] for place in kept):
        cosines[pair.earlier][pair.later] = cosines[pair.later][pair.earlier] = pair.cosine

    def beside(text: str, pair: TextPair) -> list[float]:
        near = cosines[text].items()
        return [cosine for other, cosine in near if other != pair.earlier and order[other] < order[pair.later]]

    return each._replace(
        pairs=[
            pair._replace(others=beside(pair.later, pair), around=beside(pair.earlier, pair))
            for pair in (each.pairs[place] for place in kept)
        ],
        replaced=[each.replaced[place] for place in kept],
        later=[each.later[place] for place in kept],
    )


def named(sets: Iterable[tuple[Judged, Array]], least: float) -> tuple[int, int]:
    """Return the number of pairs at `least` or above (at most one for each later memory), and how many are right."""
    count = right = 0
    for each, chances in sets:
        best: dict[int, int] = {}
        for place in np.argsort(chances).tolist():
            best[each.later[place]] = place
        for place in best.values():
            if chances[place] >= least:
                count, right = count + 1, right + each.replaced[place]
    return count, right


def chances(each: Judged, weights: Weights) -> Array:
    return np.array([probability(pair, weights) for pair in each.pairs])


def print_figures(sets: Sequence[tuple[Judged, Array]]) -> None:
    table = Table("author", "replaced", *(f"{least}: right of named" for least in (POSSIBLE, PROBABLE, REPLACED)))
    authors = {each.author: None for each, _ in sets}
    for author in (*authors, "all"):
        own = [(each, of) for each, of in sets if author in (each.author, "all")]
        there = sum(sum(each.replaced) + each.missed for each, _ in own)
        rates = [named(own, least) for least in (POSSIBLE, PROBABLE, REPLACED)]
        table.add_row(author, str(there), *(f"{right} of {count}" for count, right in rates))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--held-out", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--write", action="store_true", help="write the fitted weights")
    given = parser.parse_args()
    engine = load_engine(Settings(), 2)
    haystacks = [each for path in given.files if path.suffix == ".json" for each in weeks(path)]
    for path in given.files:
        haystacks += islice(memorycode(path) if path.suffix == ".xz" else (), 0, None, EVERY)
    haystacks += [each for path in NEVER for each in topics(path)]
    haystacks += [each for path in ALONE for each in alone(path)]
    haystacks += [*changes(CHANGES), *worlds(WORLDS)]
    sets = [each for haystack in haystacks if (each := judged(haystack, engine)) is not None]
    authors = list(dict.fromkeys(each.author for each in sets))
    tested = []
    for fold in range(FOLDS):
        out = set(authors[fold::FOLDS])
        weights = fit([each for each in sets if each.author not in out])
        tested += [(each, chances(each, weights)) for each in sets if each.author in out]
    print_figures(tested)
    weights = fit(sets)
    for path in given.held_out:
        held_out = (judged(each, engine) for each in worlds(path))
        print_figures([(each, chances(each, weights)) for each in held_out if each is not None])
    if given.write:
        WEIGHTS.write_bytes(msgspec.json.encode(weights))


if __name__ == "__main__":
    main()
