import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from remembrancer.actors.store.records.types import PassageVectors
from remembrancer.actors.store.retrieval.candidates import compare
from remembrancer.memory.decay import DAY_S, RECENCY_HALF_LIFE_S, recency
from remembrancer.memory.features import (
    ANSWERING_COSINE,
    COMMON,
    COSINE_FLOOR,
    EXPIRED,
    NAMES,
    Candidates,
    Column,
    QueryProperties,
    coverage,
    rarity,
    standing,
    table,
)
from remembrancer.memory.pagerank import DAMPING, Around, personal_pagerank
from remembrancer.memory.ranking import (
    COMPOSITE,
    CONNECTED,
    DEFAULT_MODEL,
    JOINED,
    PAGERANK,
    PROFILES,
    Fitted,
    WeightsFile,
    asks_about_user,
    fitted_for,
    is_assistants,
    is_message,
    on_the_scale,
    scope_shares,
    scored,
    weigh,
    weights_file,
)
from remembrancer.protocol.kinds import SCOPES, STATUSES, Scope
from remembrancer.protocol.reads import ProfileName
from remembrancer.protocol.work import CALIBRATED, CosineScale
from tests.cases import cases

NOW = 1_700_000_000.0
UNKNOWN = ("cosine", "opening", "context_cosine", "context_coverage")


def candidates(
    count: int, likeness: Sequence[Sequence[float]] | None = None, **columns: Sequence[float | None]
) -> Candidates:
    """So many candidates, with these numbers (None: not known); of all else nothing speaks for or against them."""
    made: dict[str, Column] = {}
    for each in fields(Candidates):
        default = math.nan if each.name in UNKNOWN else NOW if each.name == "happened_at" else 0.0
        given = columns.get(each.name, [default] * count)
        if each.name != "likeness":
            made[each.name] = np.array([math.nan if value is None else value for value in given], dtype=float)
    return Candidates(**made) if likeness is None else Candidates(**made, likeness=np.array(likeness, dtype=float))


def column(of: Candidates, name: str) -> list[float]:
    numbers = table(of, QueryProperties(NOW))[:, NAMES.index(name)].tolist()
    assert isinstance(numbers, list)
    return numbers


FAR = (ANSWERING_COSINE + COSINE_FLOOR) / 2
ALIKE = [[1.0, 0.9], [0.9, 1.0]]
ONE_AFTER_THE_OTHER = {"happened_at": [NOW - 9, NOW]}


@pytest.mark.parametrize(
    ("name", "columns", "numbers"),
    [
        ("meaning", {"cosine": [0.8, (0.8 + COSINE_FLOOR) / 2, COSINE_FLOOR, None]}, [1.0, 0.5, 0.0, 0.0]),
        ("meaning", {"cosine": [FAR]}, [0.5]),  # the best of what is all far is no perfect match
        ("opening", {"cosine": [0.6, 0.6, 0.6], "opening": [0.2, 0.6, None]}, [-0.4, 0.0, 0.0]),
        ("words", {"coverage": [0.75, 0.0]}, [0.75, 0.0]),
        ("bm25", {"bm25": [8.0, 4.0, 0.0], "coverage": [0.5, 0.25, 0.0]}, [0.5, 0.25, 0.0]),
        ("bm25", {"bm25": [1.0, 0.0], "coverage": [0.05, 0.0]}, [0.05, 0.0]),  # in another language
        ("context_words", {"coverage": [0.25, 0.25], "context_coverage": [1.0, None]}, [0.75, 0.0]),
        ("time", {"nearness": [1.0, 1.0]}, [0.0, 0.0]),  # a time that tells no candidates apart
        ("continues", {"happened_at": [NOW, NOW - 100 * DAY_S]}, [0.0, 0.0]),  # for a message alone
        ("assistant", {"by_assistant": [1.0, 0.0]}, [0.0, 0.0]),  # where users ask about themselves alone
        ("outdated", ONE_AFTER_THE_OTHER | {"is_fact": [1, 0], "likeness": ALIKE}, [0.0, 0.0]),
        ("outdated", ONE_AFTER_THE_OTHER | {"is_fact": [0, 1], "likeness": ALIKE}, [0.0, 0.0]),
        ("outdated", ONE_AFTER_THE_OTHER | {"is_fact": [0, 0], "likeness": ALIKE}, [0.0, 0.0]),
        ("outdated", ONE_AFTER_THE_OTHER | {"is_fact": [1, 1], "likeness": [[1.0, 0.3], [0.3, 1.0]]}, [0.0, 0.0]),
        *((name, {name: [0.25, 1.0]}, [0.25, 1.0]) for name in ("graph", "importance", "standing")),
    ],
)
def test_each_feature_of_some_candidates(name: str, columns: dict[str, Any], numbers: list[float]) -> None:
    assert column(candidates(len(numbers), **columns), name) == pytest.approx(numbers)


def test_a_feature_of_one_candidate_beside_others_and_the_standing_of_what_does_not_hold() -> None:
    of = candidates(3, cosine=[0.2, 0.5, 0.5], context_cosine=[0.5, 0.5, None])
    turn, same, fact = column(of, "context_meaning")
    assert turn > same == fact == 0.0
    of = candidates(3, graph=[1.0, 1.0, 0.0], coverage=[0.0, 0.6, 0.0], cosine=[0.1, 0.6, 0.1])
    far, near, without = column(of, "joined")
    assert far == 1.0
    assert near == without == 0.0
    alike = [[1.0, 0.9, 0.6], [0.9, 1.0, 0.6], [0.6, 0.6, 1.0]]
    of = candidates(3, happened_at=[NOW - 9, NOW, NOW - 5], is_fact=[1, 1, 1], likeness=alike)
    oldest, latest, third = column(of, "outdated")
    assert oldest > third > 0.0
    assert latest == 0.0
    new, old, older = column(candidates(3, happened_at=[NOW + 5, NOW - DAY_S, NOW - 90 * DAY_S]), "recency")
    assert new == 1.0 > old > older > 0.0
    by = {status: standing(status, None, NOW) for status in STATUSES}
    assert by["active"] == 0.0 < by["consolidated"] < by["promoted"] < by["archived"] < EXPIRED
    assert standing("active", NOW + 1, NOW) == 0.0
    assert standing("active", NOW, NOW) == standing("archived", NOW - 1, NOW) == EXPIRED
    unknown, rare, common = rarity([0, 1, 500], 1000)
    assert unknown > rare > common > 0.0
    assert rarity([COMMON], 10_000) == rarity([9_000], 10_000)
    assert coverage(np.zeros((1, 0), dtype=bool), np.zeros(0)).tolist() == [0.0]
    assert coverage(np.array([[True, False], [True, True]]), np.array([3.0, 1.0])).tolist() == [0.75, 1.0]


# --- Whatever the candidates are.
shares = st.floats(0.0, 1.0)
cosines = st.floats(-1.0, 1.0)
perhaps = st.none() | cosines


@st.composite
def any_candidates(draw: st.DrawFn) -> Candidates:
    count = draw(st.integers(0, 6))
    ranges: dict[str, st.SearchStrategy[Any]] = dict.fromkeys([each.name for each in fields(Candidates)], shares)
    ranges |= {"cosine": perhaps, "opening": perhaps, "context_cosine": perhaps, "context_coverage": st.none() | shares}
    ranges |= {"bm25": st.floats(0.0, 60.0), "happened_at": st.floats(0.0, 4e9)}
    ranges |= dict.fromkeys(("is_fact", "by_assistant"), st.sampled_from([0.0, 1.0]))
    del ranges["likeness"]
    made = candidates(count, **{n: draw(st.lists(r, min_size=count, max_size=count)) for n, r in ranges.items()})
    if count and draw(st.booleans()):
        vectors = np.array(draw(st.lists(st.tuples(cosines, cosines), min_size=count, max_size=count)))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = np.where(lengths > 0, vectors / np.maximum(lengths, 1e-12), 0.0)
        made = replace(made, likeness=vectors @ vectors.T)
    return made


questions = st.builds(QueryProperties, st.floats(0.0, 4e9), st.booleans(), st.booleans())


@given(any_candidates(), questions, st.randoms(use_true_random=False))
def test_every_feature_is_a_number_in_its_bounds_in_whatever_order(
    of: Candidates, asked: QueryProperties, random: Any
) -> None:
    rows = table(of, asked)
    assert rows.shape == (len(of), len(NAMES))
    assert np.isfinite(rows).all()
    signed = [NAMES.index(name) for name in ("opening", "context_meaning", "context_words")]
    assert (np.abs(rows[:, signed]) <= 2.0 + 1e-9).all()
    others = np.delete(rows, signed, axis=1)
    assert (others >= 0.0).all()
    assert (others <= 1.0 + 1e-9).all()
    order = list(range(len(of)))
    random.shuffle(order)
    columns = {each.name: getattr(of, each.name)[order] for each in fields(of) if each.name != "likeness"}
    likeness = of.likeness[np.ix_(order, order)] if of.likeness.size else of.likeness
    assert table(Candidates(**columns, likeness=likeness), asked) == pytest.approx(rows[order], abs=1e-9)


# --- Weights make a score and a probability of the features; and what a question and a turn of a conversation are.
fitted_weights = st.builds(
    Fitted,
    st.dictionaries(st.sampled_from(NAMES), st.floats(-6.0, 6.0)),
    st.floats(0.1, 2.0),
    st.floats(-2.0, 0.0),
    st.floats(-5.0, 1.0),
)


# --- A score and a probability.
@pytest.mark.parametrize(("own", "joined", "scores"), cases("ranking", "joined"))
def test_what_a_memory_shares_lifts_it(own: list[float], joined: list[float], scores: list[float]) -> None:
    rows = np.zeros((len(own), len(NAMES)))
    rows[:, NAMES.index("words")], rows[:, JOINED] = own, joined
    shares, found = scored(rows, np.ones(len(NAMES)))
    assert found.tolist() == scores
    assert shares.sum(axis=1) == pytest.approx(found)


@given(any_candidates(), questions, fitted_weights, st.sampled_from([PAGERANK, CONNECTED, COMPOSITE]))
def test_a_score_is_the_sum_of_its_shares_and_likelihood_and_a_seeds_formula_leaves_the_probabilities(
    of: Candidates, asked: QueryProperties, fitted: Fitted, formula: dict[str, float]
) -> None:
    weighed = weigh(of, asked, fitted)
    assert weighed.scores == pytest.approx(weighed.shares.sum(axis=1))
    assert ((weighed.probabilities >= 0.0) & (weighed.probabilities <= 1.0)).all()
    order = np.argsort(weighed.scores, kind="stable")
    assert (np.diff(weighed.probabilities[order]) >= 0.0).all()
    seeds = weigh(of, asked, fitted, formula)
    assert ((seeds.scores >= 0.0) & (seeds.scores <= 1.0 + 1e-9)).all()
    assert seeds.probabilities.tolist() == weighed.probabilities.tolist()


def test_pagerank_lifts_no_answer_a_shift_is_added_to_each_and_no_candidates_have_no_scores() -> None:
    of = candidates(3, cosine=[0.7, 0.3, 0.3], bm25=[1.0, 0.0, 0.2], graph=[0.0, 1.0, 0.4])
    answer, *reached = weigh(of, QueryProperties(NOW), fitted_for(DEFAULT_MODEL), PAGERANK).scores.tolist()
    (alone,) = weigh(
        candidates(1, cosine=[0.7], bm25=[1.0]), QueryProperties(NOW), fitted_for(DEFAULT_MODEL), PAGERANK
    ).scores
    assert answer == alone > max(reached)
    of, shift = candidates(2, cosine=[0.9, 0.9]), np.array([0.0, -0.5])
    for formula in (None, PAGERANK):
        first, second = weigh(of, QueryProperties(NOW), fitted_for(DEFAULT_MODEL), formula, shift).scores.tolist()
        assert first - second == pytest.approx(0.5)
    for formula in (None, PAGERANK):
        weighed = weigh(candidates(0), QueryProperties(NOW), fitted_for(None), formula)
        assert (len(weighed.scores), len(weighed.probabilities)) == (0, 0)
    alone = weigh(candidates(1, cosine=[0.6]), QueryProperties(NOW), fitted_for(DEFAULT_MODEL)).probabilities[0]
    rivals = candidates(9, cosine=[0.6] * 9), QueryProperties(NOW), fitted_for(DEFAULT_MODEL)
    crowded = weigh(*rivals).probabilities[0]
    assert alone > crowded > 0.0
    copies, others = (weigh(*rivals, likeness=np.full((9, 9), cosine)).probabilities[0] for cosine in (0.96, 0.9))
    assert (copies, others) == pytest.approx((alone, crowded)), "a copy does not compete"


# --- The weights that ship.
def test_the_weights_that_ship_are_of_features_that_there_are_and_of_models_or_the_default() -> None:
    file = weights_file()
    assert set(file[DEFAULT_MODEL]) == {"meaning", "words"}
    for by in file.values():
        for fitted in by.values():
            assert set(fitted.weights) <= set(NAMES)
            assert fitted.slope > 0.0, "a better score is likelier"
            assert 0.0 < fitted.least_probability < 0.05, "nothing that may answer is cut"
            assert all(map(math.isfinite, (*fitted.weights.values(), fitted.slope, fitted.competition)))
            for name in ("meaning", "words", "bm25", "time", "joined"):
                assert fitted.weights.get(name, 0.0) > 0.0, name
            for name in ("assistant", "outdated", "standing"):
                assert fitted.weights.get(name, 0.0) < 0.0, name
    of_default = file[DEFAULT_MODEL]
    assert fitted_for("nobody-knows-it") is of_default["meaning"]
    assert fitted_for(None) is of_default["words"]
    made = msgspec.to_builtins(file)
    made[DEFAULT_MODEL]["words"]["weights"]["astrology"] = 1.0
    with pytest.raises(msgspec.ValidationError, match="astrology"):
        msgspec.json.decode(json.dumps(made), type=WeightsFile)


# --- The parts of a candidate.
def test_only_a_turn_of_the_assistant_alone_is_the_assistants_and_recency_halves() -> None:
    assert recency(0.0, RECENCY_HALF_LIFE_S) == pytest.approx(0.5)
    assert recency(DAY_S, 0.0) == 1.0, "of a clock that was set back"
    assert recency(0.0, 3 * RECENCY_HALF_LIFE_S) == pytest.approx(0.125)
    assert is_assistants("assistant: the port is 8443")
    assert is_assistants("  AI : the port is 8443\nand 8080")
    assert not is_assistants("user: the port?\n\nassistant: 8443")
    assert not is_assistants("assistant: which port?\n\nuser: 8443")
    assert not is_assistants("The assistant: a role")


unit_vectors = npst.arrays(np.float32, (4,), elements=st.floats(-1, 1, width=32)).filter(
    lambda vector: float(np.linalg.norm(vector)) > 0.1
)


@given(st.lists(st.tuples(st.integers(0, 5), unit_vectors), max_size=20), unit_vectors)
def test_a_memory_is_as_near_as_its_nearest_passage_and_a_long_one_also_by_its_first(
    rows: list[tuple[int, np.ndarray[tuple[int], np.dtype[np.float32]]]],
    query: np.ndarray[tuple[int], np.dtype[np.float32]],
) -> None:
    query = query / np.linalg.norm(query)
    vectors = np.array([vector / np.linalg.norm(vector) for _, vector in rows], dtype=np.float32).reshape(-1, 4)
    memories = [memory for memory, _ in rows]
    ordinals = [memories[:place].count(memory) for place, memory in enumerate(memories)]
    found = compare(PassageVectors(list(range(len(rows))), memories, ordinals, vectors), query)
    assert list(found.memories) == sorted(set(memories))
    for memory, cosine, opening in zip(found.memories, found.cosines, found.openings, strict=True):
        own = [float(vectors[place] @ query) for place, each in enumerate(memories) if each == memory]
        assert cosine == pytest.approx(max(own), abs=1e-5)
        assert np.isnan(opening) == (len(own) == 1)
        assert len(own) == 1 or opening == pytest.approx(own[0], abs=1e-5)


# --- What is asked and told.
def test_a_message_begins_with_no_question_and_users_ask_about_themselves_in_the_first_person() -> None:
    for rows, reads in (("messages", is_message), ("users", asks_about_user)):
        for query, expected in cases("ranking", rows):
            assert reads(query) is expected, query


@given(st.floats(-0.5, 0.9), st.floats(0.0, 5.0))
def test_cosines_of_a_model_that_finds_all_alike_are_read_on_the_default_scale(cosine: float, common: float) -> None:
    """`common`: what each of its vectors has in one direction, beside what tells them apart."""

    def seen(own: float) -> float:
        return (own + common) / (1.0 + common)

    scale = CosineScale(seen(CALIBRATED.answering), seen(CALIBRATED.unrelated))
    assert on_the_scale(seen(cosine), scale) == pytest.approx(cosine, abs=1e-6)


# --- PageRank is as exact as it says, and walks no more than it says.
class Edges:
    """A graph that is known whole. It counts the edges that were read."""

    def __init__(self, pairs: set[tuple[int, int]]) -> None:
        self.joined: dict[int, list[int]] = {}
        for one, other in sorted(pairs):
            if one != other and other not in self.joined.get(one, ()):
                self.joined.setdefault(one, []).append(other)
                self.joined.setdefault(other, []).append(one)
        self.read = 0

    def look(self, nodes: Mapping[int, int]) -> Around[int]:
        degrees = {node: min(most + 1, len(self.joined.get(node, ()))) for node, most in nodes.items()}
        near = {node: self.joined.get(node, []) for node, most in nodes.items() if degrees[node] <= most}
        self.read += sum(map(len, near.values()))
        return Around(degrees, near)


@given(
    st.sets(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=60),
    st.dictionaries(st.integers(0, 15), st.floats(0.01, 1.0), min_size=1, max_size=5),
    st.sampled_from([0.1, 0.02, 0.001, 0.0001]),
)
def test_pagerank_is_below_the_exact_one_by_no_more_than_it_says_and_walks_no_more(
    pairs: set[tuple[int, int]], seeds: dict[int, float], precision: float
) -> None:
    graph = Edges(pairs)
    found = personal_pagerank(seeds, graph.look, precision)
    steps = np.zeros((16, 16))
    for node, others in graph.joined.items():
        steps[others, node] = 1.0 / len(others)
    start = np.array([seeds.get(node, 0.0) for node in range(16)]) / sum(seeds.values())
    exact = (1.0 - DAMPING) * np.linalg.solve(np.eye(16) - DAMPING * steps, start)
    for node in range(16):
        lacking = exact[node] - found.get(node, 0.0)
        assert -1e-12 < lacking <= precision * len(graph.joined.get(node, ())) + 1e-12
    assert graph.read <= 1.0 / ((1.0 - DAMPING) * precision)


# --- The six profiles, and what each of them adds to the score of a scope.
@given(st.sampled_from(get_args(ProfileName)), st.sets(st.sampled_from(SCOPES), min_size=1))
def test_a_profile_orders_the_scopes_as_its_weights_do(name: ProfileName, scopes: set[Scope]) -> None:
    weights, shares = PROFILES[name], scope_shares(PROFILES[name], scopes)
    assert shares.keys() == scopes
    assert max(shares.values()) == 0.0
    for one in scopes:
        for two in scopes:
            assert (shares[one] > shares[two]) == (weights[one] > weights[two])
