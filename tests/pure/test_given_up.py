"""What could not be embedded is remembered with its reason, until it has another chance."""

from __future__ import annotations

from remembrancer.actors.store.vectors.given_up import DEADLY_S, REMEMBERED, GivenUp


def test_a_memory_that_was_given_up_is_tried_again_when_another_worker_comes() -> None:
    book = GivenUp()
    book.add(("p", 1), "the worker will not", now=10.0)
    assert book.reason_of(("p", 1)) == book.last_reason == "the worker will not"
    assert book.try_again(("p", 1), 10.0)
    assert len(book) == 0
    assert ("p", 1) not in book


def test_what_workers_have_died_of_is_kept_from_the_next_ones_for_a_while() -> None:
    book = GivenUp()
    book.add(("p", 1), "four have died", now=10.0, deadly=True)
    assert not book.try_again(("p", 1), 10.0 + DEADLY_S - 1)
    assert ("p", 1) in book
    assert book.try_again(("p", 1), 10.0 + DEADLY_S)
    assert ("p", 1) not in book


def test_a_memory_whose_text_is_another_was_never_given_up() -> None:
    book = GivenUp()
    book.add(("p", 1), "four have died", now=10.0, deadly=True)
    book.remove(("p", 1))
    assert book.try_again(("p", 1), 11.0)


def test_of_very_many_the_oldest_are_forgotten() -> None:
    book = GivenUp()
    for number in range(REMEMBERED + 5):
        book.add(("p", number), f"reason {number}", now=0.0)
    assert len(book) == REMEMBERED
    assert ("p", 4) not in book
    assert book.last_reason == f"reason {REMEMBERED + 4}"
