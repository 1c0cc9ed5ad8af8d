"""What the benchmark of leaks takes for one."""

from __future__ import annotations

import itertools

from bench.leaks import Leaks, all_text, found_in, new_words


def test_every_text_of_an_answer_is_looked_at_and_no_name() -> None:
    answer = {"memories": [{"content": "one", "tags": ["two"], "relevance_score": 0.5}], "note": {"three": "four"}}
    assert all_text(answer) == "one\ntwo\nfour"


def test_an_invented_word_is_found_wherever_it_stands() -> None:
    first, second, third = itertools.islice(new_words(), 3)
    assert found_in((first, second, third), [f"the branch {second}: gone", f"({first})"]) == {first, second}


def test_a_week_is_closed_if_nothing_but_what_is_the_users_left_its_scope() -> None:
    assert Leaks(promoted=2, promoted_right=2, proposed=3, handed_on=1).is_closed
    for leak in (Leaks(promoted=1), Leaks(elsewhere=1), Leaks(session_words=1), Leaks(prompt_words=1)):
        assert not leak.is_closed
        assert not (Leaks() + leak).is_closed
