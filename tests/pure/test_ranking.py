"""Weights make a score and a probability of the features; and what a question and a turn of a conversation are."""

from __future__ import annotations

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from remembrancer.actors.store.records.types import PassageVectors
from remembrancer.actors.store.retrieval.candidates import compare
from remembrancer.memory.decay import RECENCY_HALF_LIFE_S, recency
from remembrancer.memory.features import NAMES, Asked, Candidates
from remembrancer.memory.ranking import (
    COMPOSITE,
    CONNECTED,
    DEFAULT_MODEL,
    JOINED,
    PAGERANK,
    Fitted,
    WeightsFile,
    asks_of_the_user,
    composite_score,
    fitted_for,
    is_assistants,
    is_message,
    on_the_scale,
    scored,
    weigh,
    weights_file,
)
from remembrancer.protocol.work import CALIBRATED, CosineScale
from tests.cases import cases
from tests.pure.test_features import NOW, any_candidates, candidates, questions

shares = st.floats(0.0, 1.0)
fitted_weights = st.builds(
    Fitted,
    st.dictionaries(st.sampled_from(NAMES), st.floats(-6.0, 6.0)),
    st.floats(0.1, 2.0),
    st.floats(-2.0, 0.0),
    st.floats(-5.0, 1.0),
)


# --- A score and a probability.


@pytest.mark.parametrize(("own", "joined", "scores"), cases("ranking", "joined"))
def test_what_a_memory_shares_with_others_lifts_it_towards_the_best_one_and_not_past_it(
    own: list[float], joined: list[float], scores: list[float]
) -> None:
    rows = np.zeros((len(own), len(NAMES)))
    rows[:, NAMES.index("words")], rows[:, JOINED] = own, joined
    shares, found = scored(rows, np.ones(len(NAMES)))
    assert found.tolist() == scores
    assert shares.sum(axis=1) == pytest.approx(found)


@given(any_candidates(), questions, fitted_weights)
def test_a_score_is_the_sum_of_its_shares_and_the_likelier_has_the_higher_score(
    of: Candidates, asked: Asked, fitted: Fitted
) -> None:
    weighed = weigh(of, asked, fitted)
    assert weighed.scores == pytest.approx(weighed.shares.sum(axis=1))
    assert ((weighed.probabilities >= 0.0) & (weighed.probabilities <= 1.0)).all()
    order = np.argsort(weighed.scores, kind="stable")
    assert (np.diff(weighed.probabilities[order]) >= 0.0).all()


@given(any_candidates(), questions, st.sampled_from([PAGERANK, CONNECTED, COMPOSITE]))
def test_a_formula_of_a_seed_ranks_by_itself_in_0_to_1_and_leaves_the_probabilities(
    of: Candidates, asked: Asked, formula: dict[str, float]
) -> None:
    fitted = fitted_for(DEFAULT_MODEL)
    weighed = weigh(of, asked, fitted, formula)
    assert ((weighed.scores >= 0.0) & (weighed.scores <= 1.0 + 1e-9)).all()
    assert weighed.probabilities.tolist() == weigh(of, asked, fitted).probabilities.tolist()


def test_pagerank_lifts_no_answer_a_shift_is_added_to_each_and_no_candidates_have_no_scores() -> None:
    of = candidates(3, cosine=[0.7, 0.3, 0.3], bm25=[1.0, 0.0, 0.2], graph=[0.0, 1.0, 0.4])
    answer, *reached = weigh(of, Asked(NOW), fitted_for(DEFAULT_MODEL), PAGERANK).scores.tolist()
    (alone,) = weigh(candidates(1, cosine=[0.7], bm25=[1.0]), Asked(NOW), fitted_for(DEFAULT_MODEL), PAGERANK).scores
    assert answer == alone > max(reached)
    of, shift = candidates(2, cosine=[0.9, 0.9]), np.array([0.0, -0.5])
    for formula in (None, PAGERANK):
        first, second = weigh(of, Asked(NOW), fitted_for(DEFAULT_MODEL), formula, shift).scores.tolist()
        assert first - second == pytest.approx(0.5)
    for formula in (None, PAGERANK):
        weighed = weigh(candidates(0), Asked(NOW), fitted_for(None), formula)
        assert (len(weighed.scores), len(weighed.probabilities)) == (0, 0)
    alone = weigh(candidates(1, cosine=[0.6]), Asked(NOW), fitted_for(DEFAULT_MODEL)).probabilities[0]
    crowded = weigh(candidates(9, cosine=[0.6] * 9), Asked(NOW), fitted_for(DEFAULT_MODEL)).probabilities[0]
    assert alone > crowded > 0.0


@given(shares, shares, shares)
def test_the_composite_score_is_a_weighted_mean(relevance: float, importance: float, recent: float) -> None:
    assert sum(COMPOSITE.values()) == pytest.approx(1.0)
    parts = {"meaning": relevance, "bm25": relevance, "importance": importance, "recency": recent}
    final = sum(COMPOSITE[name] * part for name, part in parts.items())
    assert composite_score(relevance, importance, recent) == pytest.approx(final)


# --- The weights that ship.


def test_the_weights_that_ship_are_of_features_that_there_are_and_of_models_or_the_default() -> None:
    file = weights_file()
    assert set(file.models[DEFAULT_MODEL]) == {"meaning", "words"}
    for by in file.models.values():
        for fitted in by.values():
            assert set(fitted.weights) <= set(NAMES)
            assert fitted.slope > 0.0, "a better score is likelier"
            assert 0.0 < fitted.least_probability < 0.05, "nothing that may answer is cut"
            assert all(map(math.isfinite, (*fitted.weights.values(), fitted.slope, fitted.competition)))
            for name in ("meaning", "words", "bm25", "time", "joined"):
                assert fitted.weights.get(name, 0.0) > 0.0, name
            for name in ("assistant", "outdated", "standing"):
                assert fitted.weights.get(name, 0.0) < 0.0, name
    of_default = weights_file().models[DEFAULT_MODEL]
    assert fitted_for("nobody-knows-it") is of_default["meaning"]
    assert fitted_for(None) is of_default["words"]
    made = msgspec.to_builtins(weights_file())
    made["models"][DEFAULT_MODEL]["words"]["weights"]["astrology"] = 1.0
    with pytest.raises(msgspec.ValidationError, match="astrology"):
        msgspec.json.decode(json.dumps(made), type=WeightsFile)


# --- The parts of a candidate.


@given(st.floats(0, 1e10), st.floats(0, 1e10), st.floats(0, 1e10))
def test_recency_falls_with_age_and_the_future_counts_as_now(now: float, one: float, two: float) -> None:
    assert 0.0 <= recency(one, now) <= 1.0
    assert recency(max(one, two), now) >= recency(min(one, two), now)
    assert recency(now + one, now) == 1.0


def test_recency_halves_in_its_half_life() -> None:
    assert recency(0.0, RECENCY_HALF_LIFE_S) == pytest.approx(0.5)
    assert recency(0.0, 3 * RECENCY_HALF_LIFE_S) == pytest.approx(0.125)


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


@pytest.mark.parametrize(("query", "expected"), cases("ranking", "messages"))
def test_a_message_has_several_sentences_of_which_the_first_is_no_question(query: str, expected: bool) -> None:
    assert is_message(query) is expected


def test_only_a_turn_of_the_assistant_alone_is_the_assistants() -> None:
    assert is_assistants("assistant: the port is 8443")
    assert is_assistants("  AI : the port is 8443\nand 8080")
    assert not is_assistants("user: the port?\n\nassistant: 8443")
    assert not is_assistants("assistant: which port?\n\nuser: 8443")
    assert not is_assistants("The assistant: a role")


@pytest.mark.parametrize(("query", "expected"), cases("ranking", "users"))
def test_users_ask_about_themselves_in_the_first_person_unless_they_ask_what_they_were_told(
    query: str, expected: bool
) -> None:
    assert asks_of_the_user(query) is expected


@given(st.floats(-0.5, 0.9), st.floats(0.0, 5.0))
def test_the_cosines_of_a_model_that_finds_everything_alike_are_read_on_the_default_ones_scale(
    cosine: float, common: float
) -> None:
    """`common`: what each of its vectors has in one direction, beside what tells them apart."""

    def seen(own: float) -> float:
        return (own + common) / (1.0 + common)

    scale = CosineScale(seen(CALIBRATED.answering), seen(CALIBRATED.unrelated))
    assert on_the_scale(seen(cosine), scale) == pytest.approx(cosine, abs=1e-6)
