"""Fits `memory/weights.json`: `python -m bench.fit --kept DIRECTORY FILE … [--write] [--drop]`.

Each FILE is a development set of any format (weeks, LoCoMo, LongMemEval, named sets); `everyday`, the short notes and
the tuned half of `bench.joined` come with the benchmark. The weights are fitted listwise: they maximise the likelihood,
by a softmax over the candidates of a question, that an answer is drawn (ListNet's top-one loss; Cao et al., 2007). Each
set counts equally, and a ridge pulls the weights towards `PRIOR`, in which scaled cosine and scaled BM25 have the same
weight. Then a logistic regression turns the scores into probabilities, and the threshold is the largest that loses at
most one answerable question in a hundred of any set.

For a multilingual model, sets whose haystacks have the same texts in several languages are also queried across
languages.

It prints each set with the weights fitted on all sets, and with those fitted on all other sets (leave-one-out). With
`--drop`, it prints the benefit of each feature: the NDCG@10 lost on each set if the weights are fitted without it.
"""

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from bench.datasets import Haystack, Question, load_sets
from bench.in_process import Asking, Sets, arguments
from bench.joined import read_joined
from bench.measures import Answered, percentages
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.memory.features import NAMES
from remembrancer.memory.ranking import (
    DEFAULT_MODEL,
    By,
    Fitted,
    column_of,
    competing,
    scored,
    weights_file,
)
from remembrancer.memory.ranking import JOINED as JOINED_PLACE

Array = NDArray[np.float64]

PRIOR: Final = {
    "meaning": 4.0,
    "bm25": 4.0,
    "words": 3.0,
    "context_words": 3.0,
    "joined": 4.0,
    "time": 1.5,
    "context_meaning": 1.0,
    "continues": 2.0,
    "opening": 3.0,
    "assistant": -4.0,
    "outdated": -3.0,
    "names_missed": -3.0,
    "standing": -2.0,
}
"""The weights towards which the ridge pulls: rounded weights of earlier fits, or, for features that only one set tests
(`assistant`, `continues`, `joined`, `opening`), weights of that set. The sets do not test expired memories and unknown
identifiers, so those weights are kept."""
FIXED: Final = frozenset({"graph", "importance", "joined", "names_missed", "recency", "standing"})
"""Features that only named rankings use or that the sets do not test, and `joined`, which only one set tests and whose
weight would worsen the weeks (docs/retrieval.md)."""
RIDGE: Final = 0.003
MOST: Final = 300
"""The number of questions taken from a set."""
WEIGHTS_FILE: Final = Path(__file__).parent.parent / "remembrancer" / "memory" / "weights.json"
LEAST_BY_WORDS: Final = 0.00017
"""The upper limit of the threshold by words alone: in a file with few memories, the rarity of words says little."""
LOST: Final = 0.01
"""The share of answerable questions that the threshold may lose."""
ACROSS: Final = "across"
JOINED: Final = "joined"
"""This set is left out of the calibration: its labels do not cover the memory that has the question's words and leads
to the answer."""


class Judged(NamedTuple):
    """One question's candidates: their features (candidates, features), whether each answers, and their labels."""

    table: Array
    answers: NDArray[np.bool_]
    question: Question
    labels: list[str]


def across(haystacks: Sequence[Haystack]) -> list[Haystack]:
    """Ask each haystack's questions of the next haystack, if both have the same labels and so the same texts in
    different languages."""
    return [
        msgspec.structs.replace(searched, questions=asked.questions)
        for asked, searched in zip(haystacks, [*haystacks[1:], *haystacks[:1]], strict=True)
        if searched is not asked and {item.label for item in searched.items} == {item.label for item in asked.items}
    ]


def judged(asking: Asking, question: Question, *, by_words: bool) -> Judged:
    """Return the candidates of a question, as the store finds them."""
    table, labels = asking.candidates(question, by_words=by_words)
    return Judged(
        table,
        np.array([label in question.wanted for label in labels], dtype=bool),
        question,
        labels,
    )


def read(sets: Sets, *, by_words: bool) -> dict[str, list[Judged]]:
    """Read the questions of all sets, at most `MOST` of each, always the same ones."""
    found: dict[str, list[Judged]] = {}
    for name in sets:
        asked = []
        for asking in sets.of(name):
            questions = list(asking.haystack.questions)
            if name == JOINED:
                questions = [each for each in questions if each.kind == "tuned"]
            share = min(1.0, MOST / max(1, sets.questions(name)))
            chosen = random.Random(0).sample(questions, max(1, round(share * len(questions))))
            asked += [judged(asking, question, by_words=by_words) for question in chosen]
        found[name] = asked
    return found


def fit(sets: Iterable[Sequence[Judged]], without: Collection[str] = (), ridge: float = RIDGE) -> Array:
    """Return the feature weights fitted on these sets."""
    prior = np.array([0.0 if name in without else PRIOR.get(name, 0.0) for name in NAMES])
    free = np.array([name not in without and name not in FIXED for name in NAMES])
    groups: list[tuple[Array, Array, NDArray[np.bool_], float]] = []
    for of_set in sets:
        telling = [each for each in of_set if each.answers.any() and not each.answers.all()]
        for each in telling:  # the effect of `joined` is bounded, so it is fixed at its value with the prior's weights
            own = np.where(np.arange(len(NAMES)) == JOINED_PLACE, 0.0, each.table)
            groups.append((own, scored(each.table, prior)[1] - own @ prior, each.answers, 1.0 / len(telling)))
    total = sum(weight for *_, weight in groups)

    def loss(weights: Array) -> tuple[float, Array]:
        value, gradient = 0.0, np.zeros_like(weights)
        for table, lifted, answers, weight in groups:
            scores = table @ weights + lifted
            drawn = np.exp(scores - scores.max())
            all_of_them, right = drawn.sum(), drawn[answers].sum() + 1e-300
            value += weight * (math.log(all_of_them) - math.log(right))
            gradient += weight * ((drawn / all_of_them - np.where(answers, drawn, 0.0) / right) @ table)
        off = weights - prior
        return value / total + ridge * float(off @ off), np.where(free, gradient / total + 2 * ridge * off, 0.0)

    return np.asarray(minimize(loss, prior, jac=True, method="L-BFGS-B").x)


def calibrate(sets: Iterable[Sequence[Judged]], weights: Array) -> tuple[float, float, float]:
    """Return the slope, competition and intercept (see `Fitted`) of a logistic regression on the first ten candidates.
    Each set counts equally."""
    rows: list[tuple[float, float]] = []
    answers: list[bool] = []
    counts: list[float] = []
    for of_set in sets:
        for each in of_set:
            if not len(each.table):
                continue
            scores = scored(each.table, weights)[1]
            together = competing(scores)
            for place in np.argsort(-scores)[:10]:
                rows.append((float(scores[place]), together))
                answers.append(bool(each.answers[place]))
                counts.append(1.0 / len(of_set))
    model = LogisticRegression(C=10.0, max_iter=10_000)
    model.fit(np.array(rows), answers, sample_weight=np.array(counts) / np.mean(counts))
    slope, competition = model.coef_[0].tolist()
    return slope, competition, float(model.intercept_[0])


def probabilities(each: Judged, fitted: Fitted) -> Array:
    """Return the probability of each candidate of a question."""
    return fitted.probabilities(scored(each.table, column_of(fitted.weights))[1])


def figures_of(of_set: Sequence[Judged], weights: Array) -> dict[str, float]:
    """Return the figures of a set in per cent of its answerable questions, and how often an outdated answer is
    first."""
    found = []
    for each in of_set:
        if each.question.wanted:
            order = np.argsort(-scored(each.table, weights)[1], kind="stable")[:10].tolist()
            ranked = tuple(each.labels[place] for place in order)
            found.append(Answered(each.question.kind, ranked, each.question.wanted, each.question.stale))
    means = percentages(found)
    return means | {"never": 100 - means["any@10"], "stale first": sum(each.is_stale_first for each in found)}


def threshold(sets: Mapping[str, Sequence[Judged]], fitted: Fitted) -> float:
    """Return the largest threshold that loses at most `LOST` of any set's questions with an answer among the first
    ten."""
    least = 1.0
    for of_set in sets.values():
        firsts = []
        for each in of_set:
            if each.question.wanted and len(each.table):
                chances = probabilities(each, fitted)
                order = np.argsort(-chances)[:10]
                right = [float(chances[place]) for place in order if each.answers[place]]
                firsts += [max(right)] if right else []
        lost = int(LOST * len(firsts))
        least = min(least, sorted(firsts)[lost]) if firsts else least
    return math.floor(least * 1e5) / 1e5


def fitted_on(sets: Mapping[str, Sequence[Judged]], without: Collection[str] = ()) -> Fitted:
    """Return the weights and the calibration."""
    weights = fit(sets.values(), without)
    said = (each for name, each in sets.items() if name != JOINED)
    slope, competition, intercept = calibrate(said, weights)
    named = {name: round(float(each), 3) for name, each in zip(NAMES, weights, strict=True) if abs(each) >= 0.0005}
    return Fitted(named, round(slope, 4), round(competition, 4), round(intercept, 4))


def report(sets: Mapping[str, Sequence[Judged]], *, drop: bool) -> Fitted:
    """Fit, print, and return the fit with its threshold."""
    whole = fitted_on(sets)
    least = threshold(sets, whole)
    whole = msgspec.structs.replace(whole, least_probability=least)
    print("weights", whole.weights)
    print(f"slope {whole.slope}, competition {whole.competition}, intercept {whole.intercept}, threshold {least}")
    columns = ("NDCG@10", "any@1", "any@5", "never", "stale first")
    print(f"{'set':12} | all sets: {', '.join(columns)} | left out: the same")
    for name, of_set in sets.items():
        left_out = fitted_on({other: each for other, each in sets.items() if other != name})
        lines = [figures_of(of_set, column_of(each.weights)) for each in (whole, left_out)]
        texts = ["  ".join(f"{each[column]:5.1f}" for column in columns) for each in lines]
        print(f"{name:12} | {texts[0]} | {texts[1]}", flush=True)
    if drop:
        full = {name: figures_of(of_set, column_of(whole.weights))["NDCG@10"] for name, of_set in sets.items()}
        print("NDCG@10 lost without each feature")
        for feature in NAMES:
            if feature in FIXED:
                continue
            weights = fit(sets.values(), {feature})
            lost = {name: full[name] - figures_of(of_set, weights)["NDCG@10"] for name, of_set in sets.items()}
            print(f"{feature:16}" + "".join(f" {name} {each:5.1f}" for name, each in lost.items()), flush=True)
    return whole


def main() -> None:
    """Fit by meaning and by words, print, and write if requested."""
    parser = arguments(__doc__)
    parser.add_argument("--write", action="store_true", help="put the weights into the package")
    parser.add_argument("--drop", action="store_true", help="also what each feature earns")
    parser.add_argument("--engine", default="onnx", choices=("onnx", "multilingual"), help="whose vectors are weighed")
    given = parser.parse_args()
    engine = load_engine(Settings(engine=given.engine), 2)
    is_default = given.engine == "onnx"
    more: dict[str, Sequence[Haystack]] = {"joined": (read_joined(),)}
    if not is_default:
        read_files = {name: each for file in given.files for name, each in load_sets(file).items()}
        more |= {f"{name} {ACROSS}": its for name, each in read_files.items() if (its := across(each))}
    sets = Sets(given.files, given.kept, own=True, haystacks=more, engine=engine)
    models: dict[str, dict[By, Fitted]] = dict(weights_file())
    fitted: dict[By, Fitted] = {"meaning": report(read(sets, by_words=False), drop=given.drop)}
    if is_default:
        by_words = report(read(sets, by_words=True), drop=False)
        least = min(by_words.least_probability, LEAST_BY_WORDS)
        fitted["words"] = msgspec.structs.replace(by_words, least_probability=least)
    models[DEFAULT_MODEL if is_default else engine.identity.key] = fitted
    if given.write:
        WEIGHTS_FILE.write_bytes(msgspec.json.format(msgspec.json.encode(models), indent=1) + b"\n")


if __name__ == "__main__":
    main()
