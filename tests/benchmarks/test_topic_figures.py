"""The topics of the benchmark of summaries, and how its figures are counted."""

from __future__ import annotations

import random
from collections import Counter

from bench.topics import LEAST, SMALL, Statement, is_said, load_topics, purity, small_projects


def test_the_halves_have_a_hundred_statements_of_twenty_topics_each_and_nothing_in_common() -> None:
    tuned, held_out = load_topics("tuned"), load_topics("held out")
    for half in (tuned, held_out):
        assert len({each.text for each in half.statements}) == 100
        assert len(half.questions) == len({each.topic for each in half.statements}) == 20
    assert not tuned.questions.keys() & held_out.questions.keys()
    assert load_topics("both").statements == tuned.statements + held_out.statements


def test_a_statement_is_said_by_its_sentences_or_by_one_that_says_the_same() -> None:
    one, same = Statement("A is B. C is D.", "t"), Statement("B is what A is", "t", "A is B. C is D.")
    assert is_said(one, ["c is d", "First: a is b. More."], ())
    assert not is_said(one, ["A is B."], ())
    assert is_said(one, ["B is what A is."], (one, same))
    assert is_said(same, ["A is B.", "C is D."], (one, same))
    assert not is_said(one, ["B is what A is."], (one,))


def test_a_cluster_is_as_pure_as_the_share_of_its_commonest_topic() -> None:
    assert purity([["a", "a", "b"], ["c"]]) == 0.75
    assert purity([]) == 1.0


def test_in_the_first_small_projects_nothing_can_be_summed_up_and_in_the_others_three_topics_can() -> None:
    projects = list(small_projects(load_topics("tuned").statements, random.Random(1)))
    large = [sum(count >= LEAST for count in Counter(each.topic for each in one).values()) for one in projects]
    assert large == [0] * (len(projects) // 2) + [3] * (len(projects) // 2)
    assert {len(each) for each in projects} == {SMALL}
