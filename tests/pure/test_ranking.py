"""The rank of a memory: bounded, monotonous, and silent about noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from msgspec.structs import replace

from remembrancer.actors.store.retrieval.candidates import best_cosines
from remembrancer.memory.profiles import PROFILES
from remembrancer.memory.ranking import (
    ANSWERABLE_COSINE,
    COSINE_FLOOR,
    DAMPING,
    EXPIRED_FACTOR,
    HEAD_SHARE,
    MIN_COSINE,
    QUESTION_RECENCY,
    RECENCY_HALF_LIFE_S,
    Signals,
    Weights,
    answerable_cosine,
    asks_of_the_user,
    is_assistants,
    is_message,
    is_unlikely,
    noise,
    on_the_scale,
    pagerank_relevances,
    personal_pagerank,
    recency,
    relevances,
    scope_factors,
    score,
    side_by_side,
    standing,
    words_tell,
)
from remembrancer.protocol.kinds import SCOPES, STATUSES, Scope, Status
from remembrancer.protocol.reads import ProfileName, Strategy
from remembrancer.protocol.work import CALIBRATED, CosineScale

cosines = st.none() | st.floats(-1.0, 1.0001)
bm25s = st.none() | st.floats(0.0, 50.0)
nearnesses = st.none() | st.floats(0.01, 1.0)
signals = st.builds(Signals, cosines, bm25s)
connected = st.builds(Signals, cosines, bm25s, nearnesses)
candidates = st.dictionaries(st.integers(0, 30), signals, max_size=12)
strategies: st.SearchStrategy[Strategy] = st.sampled_from(["vector", "keyword", "hybrid", "graph"])
shares = st.floats(0.0, 1.0)
weights = st.builds(Weights, st.floats(0.01, 1.0), shares, shares)


@given(candidates, strategies)
def test_relevance_lies_between_0_and_1_for_every_candidate(found: dict[int, Signals], strategy: Strategy) -> None:
    relevance = relevances(found, strategy)
    assert relevance.keys() == found.keys()
    assert all(0.0 <= each <= 1.0 for each in relevance.values())


@given(candidates, strategies)
def test_who_is_better_in_both_signals_is_not_less_relevant(found: dict[int, Signals], strategy: Strategy) -> None:
    relevance = relevances(found, strategy)
    for one, first in found.items():
        for two, second in found.items():
            if (first.cosine or -1.0) >= (second.cosine or -1.0) and (first.bm25 or 0.0) >= (second.bm25 or 0.0):
                assert relevance[one] >= relevance[two] - 1e-12


@given(st.dictionaries(st.integers(), st.floats(0.2, 1.0), min_size=1, max_size=10))
def test_a_question_none_of_whose_words_is_found_rests_on_meaning_alone(found: dict[int, float]) -> None:
    by_meaning = {key: Signals(cosine, None) for key, cosine in found.items()}
    assert relevances(by_meaning, "hybrid") == relevances(by_meaning, "vector")
    best = max(found.values())
    scaled = (best - COSINE_FLOOR) / (max(best, ANSWERABLE_COSINE) - COSINE_FLOOR)
    assert max(relevances(by_meaning, "hybrid").values()) == pytest.approx(scaled)


def test_a_memory_without_a_vector_that_has_the_words_comes_before_one_that_is_near_by_chance() -> None:
    relevance = relevances({1: Signals(0.26, None), 2: Signals(None, 9.0)}, "hybrid")
    assert relevance[2] > relevance[1]


def test_the_fewer_passages_the_less_likeness_is_chance() -> None:
    least = [answerable_cosine(count) for count in (0, 1, 10, 100, 1000, 10_000, 1_000_000)]
    assert least == sorted(least)
    assert 0.1 < least[0] < 0.2
    assert least[-1] == ANSWERABLE_COSINE
    some = Signals(0.24, None)
    assert noise({1: some}, answerable=answerable_cosine(20)) == set()
    assert noise({1: some, 2: Signals(0.9, None)}, answerable=answerable_cosine(20)) == {1}, "beside a good one"
    assert noise({1: some}, answerable=answerable_cosine(2000)) == {1}


@given(st.dictionaries(st.integers(), st.floats(0.1, 40.0), min_size=1, max_size=10))
def test_a_question_without_a_vector_rests_on_words_alone(found: dict[int, float]) -> None:
    by_words = {key: Signals(None, bm25) for key, bm25 in found.items()}
    assert relevances(by_words, "hybrid") == relevances(by_words, "keyword")
    assert max(relevances(by_words, "hybrid").values()) == pytest.approx(1.0)


@given(signals, shares, shares, shares, st.floats(0.0, 1.0))
def test_every_score_of_an_answer_lies_between_0_and_1(
    each: Signals, relevance: float, importance: float, recent: float, part: float
) -> None:
    best_bm25 = max(each.bm25 or 0.0, 50.0 * part)
    scores = score(each, relevance, best_bm25, importance, recent)
    parts = [scores.final, scores.relevance, scores.importance, scores.recency]
    parts += [value for value in (scores.vector, scores.keyword) if value is not None]
    assert all(0.0 <= value <= 1.0 + 1e-12 for value in parts)
    assert (scores.vector is None) == (each.cosine is None)
    assert scores.final == pytest.approx(0.6 * relevance + 0.2 * importance + 0.2 * recent)


@given(shares, shares, shares, shares)
def test_more_of_anything_never_ranks_lower(relevance: float, importance: float, recent: float, more: float) -> None:
    nothing = Signals(None, None)
    base = score(nothing, relevance, 0.0, importance, recent).final
    assert score(nothing, max(relevance, more), 0.0, importance, recent).final >= base
    assert score(nothing, relevance, 0.0, max(importance, more), recent).final >= base
    assert score(nothing, relevance, 0.0, importance, max(recent, more)).final >= base


@given(st.floats(0, 1e10), st.floats(0, 1e10), st.floats(0, 1e10))
def test_recency_falls_with_age_and_the_future_counts_as_now(now: float, one: float, two: float) -> None:
    assert 0.0 <= recency(one, now) <= 1.0
    assert recency(max(one, two), now) >= recency(min(one, two), now)
    assert recency(now + one, now) == 1.0


@given(st.dictionaries(st.integers(0, 30), connected, max_size=12))
def test_what_is_nearer_and_as_relevant_is_more_relevant_in_the_graph(found: dict[int, Signals]) -> None:
    relevance, hybrid = relevances(found, "graph"), relevances(found, "hybrid")
    for one, first in found.items():
        assert 0.0 <= relevance[one] <= 1.0
        for two, second in found.items():
            if hybrid[one] >= hybrid[two] and (first.graph or 0.0) >= (second.graph or 0.0):
                assert relevance[one] >= relevance[two] - 1e-12


@given(st.dictionaries(st.integers(0, 30), connected, max_size=12))
def test_what_is_connected_with_the_question_is_no_noise(found: dict[int, Signals]) -> None:
    assert all(found[key].graph is None for key in noise(found))


@given(weights, shares, shares, shares)
def test_the_final_score_is_the_weighted_mean_whatever_the_weights_add_up_to(
    weighing: Weights, relevance: float, importance: float, recent: float
) -> None:
    final = score(Signals(None, None), relevance, 0.0, importance, recent, weighing).final
    assert min(relevance, importance, recent) - 1e-9 <= final <= max(relevance, importance, recent) + 1e-9
    doubled = Weights(weighing.relevance * 2, weighing.importance * 2, weighing.recency * 2)
    assert doubled.final(relevance, importance, recent) == pytest.approx(final)


@pytest.mark.parametrize("parts", [(0.0, 0.0, 0.0), (-0.1, 0.5, 0.6)])
def test_weights_that_weigh_nothing_or_less_are_refused(parts: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        Weights(*parts)


def test_recency_halves_in_its_half_life() -> None:
    assert recency(0.0, RECENCY_HALF_LIFE_S) == pytest.approx(0.5)
    assert recency(0.0, 3 * RECENCY_HALF_LIFE_S) == pytest.approx(0.125)


@given(candidates)
def test_noise_never_has_a_word_of_the_question(found: dict[int, Signals]) -> None:
    assert all(found[key].bm25 is None for key in noise(found))


@given(candidates)
def test_beside_a_memory_with_the_words_only_unlikely_ones_are_noise(found: dict[int, Signals]) -> None:
    found[31] = Signals(None, 1.0)
    expected = {key for key, each in found.items() if each.bm25 is None and (each.cosine or 0.0) < MIN_COSINE}
    assert noise(found) == expected


def test_a_question_without_a_known_word_needs_one_likely_memory() -> None:
    unlikely = {1: Signals(ANSWERABLE_COSINE - 0.01, None), 2: Signals(MIN_COSINE + 0.01, None)}
    assert noise(unlikely) == {1, 2}
    assert noise({**unlikely, 3: Signals(ANSWERABLE_COSINE, None)}) == set()


def test_a_question_is_unlikely_to_be_answered_when_all_candidates_were_compared_and_none_is_near() -> None:
    far = {1: Signals(ANSWERABLE_COSINE - 0.001, 9.0), 2: Signals(-0.2, None)}
    assert is_unlikely(far)
    assert not is_unlikely({**far, 3: Signals(ANSWERABLE_COSINE, None)})
    assert not is_unlikely({**far, 3: Signals(None, 1.0)}), "what has no vector yet may be near"
    assert not is_unlikely({})


@pytest.mark.parametrize(
    ("asked", "least"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (6, 4), (40, 21)], ids=lambda number: str(number)
)
def test_more_than_half_of_the_words_of_a_question_tell_or_one_of_two(asked: int, least: int) -> None:
    assert [matched for matched in range(asked + 1) if words_tell(matched, asked)] == list(range(least, asked + 1))


def test_of_a_question_without_a_word_no_word_tells() -> None:
    assert not words_tell(0, 0)


@given(st.dictionaries(st.integers(0, 30), connected, max_size=12))
def test_where_words_do_not_speak_for_candidates_the_more_are_noise(found: dict[int, Signals]) -> None:
    unfit = noise(found, by_words=False)
    assert noise(found) <= unfit
    for key, each in found.items():
        assert key not in unfit or (each.graph is None and (each.cosine is None or each.cosine < 1.0))
        assert key in unfit or each.graph is not None or (each.cosine or 0.0) >= MIN_COSINE


@given(candidates)
def test_where_nothing_is_near_and_words_do_not_speak_all_is_noise(found: dict[int, Signals]) -> None:
    far = {key: replace(each, cosine=min(each.cosine or 0.0, ANSWERABLE_COSINE - 0.001)) for key, each in found.items()}
    assert noise(far, by_words=False) == set(far)


def test_beside_a_likely_memory_words_are_not_needed_and_an_unlikely_one_with_words_alone_is_noise() -> None:
    found = {1: Signals(ANSWERABLE_COSINE, None), 2: Signals(MIN_COSINE, None), 3: Signals(MIN_COSINE - 0.01, 9.0)}
    assert noise(found, by_words=False) == {3}
    assert noise(found) == set()


whole_cosines = st.floats(-1.0, 1.0)


@given(whole_cosines, whole_cosines)
def test_the_meaning_of_a_long_memory_lies_between_its_best_passage_and_its_first(best: float, head: float) -> None:
    meaning = Signals(best, None, head=head).meaning
    assert meaning == pytest.approx((1.0 - HEAD_SHARE) * best + HEAD_SHARE * head)
    assert meaning is not None
    assert min(best, head) - 1e-9 <= meaning <= max(best, head) + 1e-9
    assert Signals(best, None).meaning == best, "a short one's is that of its one passage"
    assert Signals(None, 1.0, head=head).meaning is None


def test_of_two_whose_best_passages_are_as_near_the_one_that_begins_with_the_matter_is_more_relevant() -> None:
    found = {
        "beside the point": Signals(0.6, None, head=0.2),
        "short": Signals(0.6, None),
        "to the point": Signals(0.5, None, head=0.5),
        "far": Signals(COSINE_FLOOR, None, head=0.0),
    }
    relevance = relevances(found, "vector")
    assert sorted(relevance, key=lambda key: -relevance[key]) == [
        "short",
        "to the point",
        "beside the point",
        "far",
    ]
    assert relevance["short"] == 1.0
    assert relevance["far"] == 0.0


@given(weights, shares, shares, shares)
def test_a_question_leaves_recency_a_part_of_its_weight_and_the_score_a_mean(
    weighing: Weights, relevance: float, importance: float, recent: float
) -> None:
    asked = weighing.asked("which port?")
    assert (asked.relevance, asked.importance) == (weighing.relevance, weighing.importance)
    assert asked.recency == QUESTION_RECENCY * weighing.recency
    final = asked.final(relevance, importance, recent)
    assert min(relevance, importance, recent) - 1e-9 <= final <= max(relevance, importance, recent) + 1e-9


def test_where_recency_alone_is_weighed_a_question_leaves_it_alone_too() -> None:
    assert Weights(0.0, 0.0, 1.0).asked("which port?").final(1.0, 1.0, 0.5) == 0.5


def test_a_good_match_in_a_small_file_is_not_drowned_by_a_large_one() -> None:
    of_the_user = {7: Signals(0.6, 0.000002)}
    of_the_project = {1: Signals(0.3, 9.0), 2: Signals(0.2, 4.5)}
    together = side_by_side([of_the_project, of_the_user], [10_000, 2])
    assert [together[0, 1].bm25, together[0, 2].bm25] == pytest.approx([1.0, 0.5])
    relevance = relevances(together, "hybrid")
    assert max(relevance, key=lambda key: relevance[key]) == (1, 7)


def test_the_best_of_a_large_file_is_no_good_match_for_being_the_best() -> None:
    together = side_by_side([{1: Signals(0.3, 9.0)}, {1: Signals(0.3, 2.0), 2: Signals(0.3, 1.0)}], [10_000, 10_000])
    assert together[0, 1].bm25 == pytest.approx(1.0)
    assert together[1, 1].bm25 == pytest.approx(2 / 9, abs=0.01)
    assert together[1, 2].bm25 == pytest.approx(1 / 9, abs=0.01)


whole = st.builds(Signals, cosines, bm25s, nearnesses, cosines)
whole_candidates = st.dictionaries(st.integers(0, 30), whole, max_size=12)
sized_files = st.lists(st.tuples(whole_candidates, st.integers(0, 100_000)), max_size=3)


@given(sized_files)
def test_side_by_side_every_candidate_keeps_its_place_and_all_signals_but_the_one_by_words(
    sized: list[tuple[dict[int, Signals], int]],
) -> None:
    files = [file for file, _ in sized]
    together = side_by_side(files, [size for _, size in sized])
    assert together.keys() == {(place, number) for place, file in enumerate(files) for number in file}
    for (place, number), each in together.items():
        assert replace(each, bm25=None) == replace(files[place][number], bm25=None)
        assert (each.bm25 is None) == (files[place][number].bm25 is None)
        assert each.bm25 is None or 0.0 <= each.bm25 <= 1.0 + 1e-9


@given(sized_files)
def test_side_by_side_the_order_by_words_inside_a_file_stays(sized: list[tuple[dict[int, Signals], int]]) -> None:
    files = [file for file, _ in sized]
    together = side_by_side(files, [size for _, size in sized])
    for place, file in enumerate(files):
        for one, first in file.items():
            for two, second in file.items():
                if (first.bm25 or 0.0) >= (second.bm25 or 0.0):
                    assert (together[place, one].bm25 or 0.0) >= (together[place, two].bm25 or 0.0) - 1e-12


profiles = st.sampled_from(sorted(PROFILES))
some_scopes = st.sets(st.sampled_from(SCOPES), min_size=2)


@given(profiles, some_scopes)
def test_a_profile_orders_the_scopes_as_its_weights_do_and_leaves_the_heaviest_as_it_is(
    name: ProfileName, scopes: set[Scope]
) -> None:
    weights = PROFILES[name]
    factors = scope_factors(weights, scopes)
    assert factors.keys() == scopes
    assert max(factors.values()) == 1.0
    for one in scopes:
        for two in scopes:
            assert (factors[one] > factors[two]) == (weights.of(one) > weights.of(two))


@given(profiles, st.sampled_from(SCOPES))
def test_one_scope_alone_is_not_weighed(name: ProfileName, scope: Scope) -> None:
    assert scope_factors(PROFILES[name], {scope}) == {}
    assert score(Signals(0.5, None), 1.0, 0.0, 0.5, 0.5).scope is None


@given(shares, shares, shares, st.floats(0.5, 1.0), st.sampled_from(STATUSES), st.none() | st.floats(-1.0, 1.0))
def test_scope_and_status_only_ever_lower_a_final_score(
    relevance: float, importance: float, recent: float, factor: float, status: Status, until: float | None
) -> None:
    nothing = Signals(None, None)
    plain = score(nothing, relevance, 0.0, importance, recent)
    lowered = score(nothing, relevance, 0.0, importance, recent, scope=factor, stands=standing(status, until, 0.0))
    assert 0.0 <= lowered.final <= plain.final
    assert (lowered.relevance, lowered.scope) == (relevance, factor)


def test_what_is_stood_for_or_archived_comes_after_what_is_active_and_is_not_hidden_by_that() -> None:
    of = {status: standing(status, None, 0.0) for status in STATUSES}
    assert of["active"] == 1.0
    assert of["active"] > of["consolidated"] > of["promoted"] > of["archived"] >= 0.95


def test_what_was_valid_comes_after_what_is_valid_from_its_last_moment_on() -> None:
    assert standing("active", 100.0, 99.9) == standing("active", None, 99.9) == 1.0
    assert standing("active", 100.0, 100.0) == EXPIRED_FACTOR < 1.0
    assert standing("archived", 100.0, 100.0) < EXPIRED_FACTOR


unit_vectors = npst.arrays(np.float32, (4,), elements=st.floats(-1, 1, width=32)).filter(
    lambda vector: float(np.linalg.norm(vector)) > 0.1
)


@given(st.lists(st.tuples(st.integers(0, 5), unit_vectors), max_size=20), unit_vectors)
def test_a_memory_is_as_near_as_its_nearest_passage(
    rows: list[tuple[int, np.ndarray[tuple[int], np.dtype[np.float32]]]],
    query: np.ndarray[tuple[int], np.dtype[np.float32]],
) -> None:
    query = query / np.linalg.norm(query)
    vectors = np.array([vector / np.linalg.norm(vector) for _, vector in rows], dtype=np.float32).reshape(-1, 4)
    best = best_cosines([memory for memory, _ in rows], vectors, query)
    assert best.keys() == {memory for memory, _ in rows}
    for memory, cosine in best.items():
        own = [float(vectors[place] @ query) for place, (each, _) in enumerate(rows) if each == memory]
        assert cosine == pytest.approx(max(own), abs=1e-5)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Where is the harbour?", False),
        ("Where is the harbour? And who is there?", False),
        ("harbour", False),
        ("src/app.py v2.4.1 fails", False),
        ("", False),
        ("I have painted the lantern. What is next?", True),
        ("你好。下一步是什么？", True),
        ("Let us go on\nwith what we had", True),
    ],
)
def test_a_message_has_several_sentences_of_which_one_is_no_question(query: str, expected: bool) -> None:
    assert is_message(query) is expected
    assert (Weights().asked(query) == Weights()) is expected


def test_only_a_turn_of_the_assistant_alone_is_the_assistants() -> None:
    assert is_assistants("assistant: the port is 8443")
    assert is_assistants("  AI : the port is 8443\nand 8080")
    assert not is_assistants("user: the port?\n\nassistant: 8443")
    assert not is_assistants("assistant: which port?\n\nuser: 8443")
    assert not is_assistants("The assistant: a role")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Have I obtained a key?", True),
        ("Wann habe ich das Tor gestrichen?", True),
        ("Can you help me set up a cache?", True),
        ("What did you recommend to me?", False),
        ("I want your advice again", False),
        ("Which port does the gateway have?", False),
        ("the inside of the lantern", False),
    ],
)
def test_users_ask_about_themselves_in_the_first_person_unless_they_ask_what_they_were_told(
    query: str, expected: bool
) -> None:
    assert asks_of_the_user(query) is expected


class Edges:
    """A graph that is known whole. It counts the edges that were read."""

    def __init__(self, pairs: set[tuple[int, int]]) -> None:
        self.joined: dict[int, list[int]] = {}
        for one, other in sorted(pairs):
            if one != other and other not in self.joined.get(one, ()):
                self.joined.setdefault(one, []).append(other)
                self.joined.setdefault(other, []).append(one)
        self.read = 0

    def degrees(self, nodes: Sequence[int], most: int) -> dict[int, int]:
        return {node: min(most, len(self.joined.get(node, ()))) for node in nodes}

    def neighbours(self, nodes: Sequence[int]) -> dict[int, Sequence[int]]:
        self.read += sum(map(len, map(self.joined.get, nodes, [()] * len(nodes))))
        return {node: self.joined[node] for node in nodes if node in self.joined}


@given(
    st.sets(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=60),
    st.dictionaries(st.integers(0, 15), st.floats(0.01, 1.0), min_size=1, max_size=5),
    st.sampled_from([0.1, 0.02, 0.001, 0.0001]),
)
def test_pagerank_is_below_the_exact_one_by_no_more_than_it_says_and_walks_no_more(
    pairs: set[tuple[int, int]], seeds: dict[int, float], precision: float
) -> None:
    graph = Edges(pairs)
    found = personal_pagerank(seeds, graph, precision)
    steps = np.zeros((16, 16))
    for node, others in graph.joined.items():
        steps[others, node] = 1.0 / len(others)
    start = np.array([seeds.get(node, 0.0) for node in range(16)]) / sum(seeds.values())
    exact = (1.0 - DAMPING) * np.linalg.solve(np.eye(16) - DAMPING * steps, start)
    for node in range(16):
        lacking = exact[node] - found.get(node, 0.0)
        assert -1e-12 < lacking <= precision * len(graph.joined.get(node, ())) + 1e-12
    assert graph.read <= 1.0 / ((1.0 - DAMPING) * precision)


@given(st.dictionaries(st.integers(0, 30), connected, max_size=12))
def test_relevance_by_pagerank_lies_between_0_and_1_and_the_graph_alone_decides_between_equals(
    found: dict[int, Signals],
) -> None:
    relevance = pagerank_relevances(found)
    assert relevance.keys() == found.keys()
    assert all(0.0 <= each <= 1.0 + 1e-9 for each in relevance.values())
    alike = {key: replace(each, cosine=0.5, bm25=1.0) for key, each in found.items()}
    ranked = pagerank_relevances(alike)
    for one, first in alike.items():
        assert all(
            (first.graph or 0.0) >= (alike[other].graph or 0.0) for other in alike if ranked[one] > ranked[other]
        )


@given(st.floats(-0.5, 0.9), st.floats(0.0, 5.0))
def test_the_cosines_of_a_model_that_finds_everything_alike_are_read_on_the_default_ones_scale(
    cosine: float, common: float
) -> None:
    """`common`: what each of its vectors has in one direction, beside what tells them apart."""

    def seen(own: float) -> float:
        return (own + common) / (1.0 + common)

    scale = CosineScale(seen(CALIBRATED.answering), seen(CALIBRATED.unrelated))
    assert on_the_scale(seen(cosine), scale) == pytest.approx(cosine, abs=1e-6)


def test_a_model_that_tells_nothing_apart_is_read_as_if_it_did_a_little() -> None:
    scale = CosineScale(0.9, 0.9)
    assert on_the_scale(0.9, scale) == CALIBRATED.unrelated
    assert on_the_scale(1.0, scale) <= 1.0
