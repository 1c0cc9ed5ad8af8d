"""Texts that could not be embedded are remembered with the reason, until they have another chance."""

from __future__ import annotations

from remembrancer.actors.store.vectors.embedding_queue import DEADLY_S, REMEMBERED, DeadLetters


def test_a_memory_that_could_not_be_embedded_is_tried_again_when_another_worker_comes() -> None:
    letters = DeadLetters()
    letters.add(("p", 1), "the worker will not", 1, now=10.0)
    assert letters.reason_of(("p", 1)) == letters.last_reason == "the worker will not"
    assert not letters.try_again(("p", 1), 1, 10.0), "whoever looks, it is nobody else who would be asked"
    assert letters.try_again(("p", 1), 2, 10.0)
    assert len(letters) == 0
    assert ("p", 1) not in letters


def test_what_workers_have_died_of_is_kept_from_the_next_ones_for_a_while() -> None:
    letters = DeadLetters()
    letters.add(("p", 1), "four have died", 4, now=10.0, deadly=True)
    assert not letters.try_again(("p", 1), 5, 10.0 + DEADLY_S - 1)
    assert ("p", 1) in letters
    assert letters.try_again(("p", 1), 5, 10.0 + DEADLY_S)
    assert ("p", 1) not in letters


def test_a_memory_whose_text_is_another_is_no_dead_letter() -> None:
    letters = DeadLetters()
    letters.add(("p", 1), "four have died", 4, now=10.0, deadly=True)
    letters.remove(("p", 1))
    assert letters.try_again(("p", 1), 4, 11.0)


def test_of_very_many_the_oldest_are_forgotten() -> None:
    letters = DeadLetters()
    for number in range(REMEMBERED + 5):
        letters.add(("p", number), f"reason {number}", 1, now=0.0)
    assert len(letters) == REMEMBERED
    assert ("p", 4) not in letters
    assert letters.last_reason == f"reason {REMEMBERED + 4}"
