"""The figures of a week of use, and what its baselines find."""

from __future__ import annotations

import pytest

from bench.data_forms import Asked, Memory, Week, moment
from bench.weeks import Shown, calibration_error, figures_of, leaks_of, packed


def shown(*results: str, probability: float | None = None) -> list[Shown]:
    return [Shown(frozenset(each.split()), probability) for each in results]


def test_a_question_counts_by_the_rank_of_the_first_wanted_result() -> None:
    wanted = frozenset(("a", "b"))
    figures = figures_of(
        [
            (Asked("1", "p", wanted=wanted), shown("a", "x")),
            (Asked("2", "p", wanted=wanted), shown("x", "x", "a b")),
            (Asked("3", "p", wanted=wanted), shown("v", "w", "x", "y", "z", "a")),
            (Asked("4", "p", wanted=wanted), shown("x")),
            (Asked("5", "p"), shown()),
            (Asked("6", "p"), shown("a")),
        ]
    )
    assert (figures["questions"], figures["first"], figures["five"], figures["never"]) == (4, 1, 2, 1)
    assert figures["recall@10"] == 50.0
    assert (figures["shown"], figures["irrelevant"]) == (12, 75.0)
    assert (figures["unanswerable"], figures["empty for nothing"]) == (2, 1)


def test_a_past_state_is_first_where_it_comes_before_every_present_one() -> None:
    def asked(*results: str) -> tuple[Asked, list[Shown]]:
        return Asked("?", "p", wanted=frozenset("n"), stale=frozenset("o")), shown(*results)

    figures = figures_of([asked("o", "n"), asked("n", "o"), asked("x", "o"), asked("x"), asked()])
    assert (figures["changed"], figures["stale first"]) == (5, 2)


def test_the_calibration_error_is_the_gap_of_each_bin_by_its_size() -> None:
    asked = Asked("?", "p", wanted=frozenset("a"))
    answers = [(asked, [*shown("a", "x", probability=0.9), *shown("x", "x", probability=0.1)])]
    assert calibration_error(answers) == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)
    assert calibration_error([(asked, shown("a"))]) is None


def test_a_memory_of_another_project_is_a_leak_unless_it_is_about_the_user() -> None:
    memories = (
        Memory("m1", "a", 1, "s1", "one"),
        Memory("m2", "b", 1, "s2", "two"),
        Memory("m3", "b", 1, "s2", "three", about_user=True),
    )
    week = Week(("a", "b"), memories, ())
    assert leaks_of(week, [(Asked("?", "a"), shown("m1", "m2", "m3", ""))]) == 1


def test_memories_of_a_day_follow_each_other_by_seven_minutes_from_nine() -> None:
    memories = tuple(Memory(f"m{place}", "a", day, "s", "text") for place, day in enumerate((1, 1, 3, 1)))
    happened = Week(("a",), memories, ()).happened()
    assert [at - moment(1) for at in happened.values()] == [0.0, 420.0, 2 * 86_400.0, 840.0]
    assert moment(1) == 1_794_819_600.0, "2026-11-16T09:00:00Z"


def test_sentences_are_packed_and_none_is_cut() -> None:
    long = "x" * 400 + "."
    assert packed(f"One. Two!\nThree? {long} Four.") == ["One. Two! Three?", long, "Four."]
