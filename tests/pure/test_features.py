"""The features of a recall's candidates: each by an example, and all of them for whatever the candidates are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.decay import DAY_S
from remembrancer.memory.features import (
    ANSWERING_COSINE,
    COMMON,
    COSINE_FLOOR,
    EXPIRED,
    NAMES,
    UNKNOWN,
    Asked,
    Candidates,
    Column,
    coverage,
    rarity,
    scaled,
    standing,
    table,
)
from remembrancer.protocol.kinds import STATUSES

NOW = 1_700_000_000.0


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


def column(of: Candidates, name: str, asked: Asked | None = None) -> list[float]:
    """The numbers of one feature."""
    numbers = table(of, asked or Asked(NOW))[:, NAMES.index(name)].tolist()
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


def test_a_feature_of_one_candidate_beside_others() -> None:
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


def test_what_does_not_hold_any_more_stands_behind_what_is_stood_for_and_that_behind_what_is_active() -> None:
    of = {status: standing(status, None, NOW) for status in STATUSES}
    assert of["active"] == 0.0 < of["consolidated"] < of["promoted"] < of["archived"] < EXPIRED
    assert standing("active", NOW + 1, NOW) == 0.0
    assert standing("active", NOW, NOW) == standing("archived", NOW - 1, NOW) == EXPIRED


# --- What the columns are made of.


def test_a_rare_word_weighs_more_and_a_question_without_a_word_is_covered_by_nothing() -> None:
    unknown, rare, common = rarity([0, 1, 500], 1000)
    assert unknown > rare > common > 0.0
    assert rarity([COMMON], 10_000) == rarity([9_000], 10_000)
    assert coverage(np.zeros((1, 0), dtype=bool), np.zeros(0)).tolist() == [0.0]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=8), st.data())
def test_coverage_is_a_share_that_grows_with_each_word(frequencies: list[int], data: st.DataObject) -> None:
    weights = np.array(rarity(frequencies, 5000))
    some = np.array(data.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights))))
    none, every = coverage(np.array([np.zeros_like(some), np.ones_like(some)]), weights)
    assert none == 0.0
    assert every == pytest.approx(1.0)
    for place in np.flatnonzero(~some):
        more = some | (np.arange(len(some)) == place)
        fewer_covered, more_covered = coverage(np.array([some, more]), weights)
        assert 0.0 <= fewer_covered < more_covered <= 1.0 + 1e-9


rounded = st.floats(-1.0, 1.0).map(lambda value: round(value, 6))


@given(st.lists(st.none() | rounded, max_size=8), rounded.map(abs), rounded.map(abs))
def test_scaled_numbers_lie_between_0_and_1_in_their_order(
    values: list[float | None], floor: float, least: float
) -> None:
    numbers = np.array([math.nan if each is None else each for each in values], dtype=float)
    found = scaled(numbers, floor, least).tolist()
    assert all(0.0 <= each <= 1.0 for each in found)
    assert all(each == 0.0 for each, value in zip(found, values, strict=True) if value is None)
    known = sorted((value, each) for each, value in zip(found, values, strict=True) if value is not None)
    assert [each for _, each in known] == sorted(each for _, each in known)


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


questions = st.builds(Asked, st.floats(0.0, 4e9), st.booleans(), st.booleans())


@given(any_candidates(), questions)
def test_every_feature_is_a_number_in_its_bounds(of: Candidates, asked: Asked) -> None:
    rows = table(of, asked)
    assert rows.shape == (len(of), len(NAMES))
    assert np.isfinite(rows).all()
    signed = [NAMES.index(name) for name in ("opening", "context_meaning", "context_words")]
    assert (np.abs(rows[:, signed]) <= 2.0 + 1e-9).all()
    others = np.delete(rows, signed, axis=1)
    assert (others >= 0.0).all()
    assert (others <= 1.0 + 1e-9).all()


@given(any_candidates(), questions, st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_changes_no_features(of: Candidates, asked: Asked, random: Any) -> None:
    order = list(range(len(of)))
    random.shuffle(order)
    columns = {each.name: getattr(of, each.name)[order] for each in fields(of) if each.name != "likeness"}
    likeness = of.likeness[np.ix_(order, order)] if of.likeness.size else of.likeness
    moved = Candidates(**columns, likeness=likeness)
    assert table(moved, asked) == pytest.approx(table(of, asked)[order], abs=1e-9)
