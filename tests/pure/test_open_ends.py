"""Lists of open ends, and what is none."""

from __future__ import annotations

import pytest

from remembrancer.memory.open_ends import asks_for_open_ends, is_list_of_open_ends, open_ends_in


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Next: a; b; c", ["a", "b", "c"]),
        ("Next: add the index;", ["Next: add the index;"]),
        ("next steps (RB-412): ask Jonas; run it.", ["ask Jonas (RB-412)", "run it (RB-412)"]),
        (
            "Open (Friday): (1) a counter: not in; only named. (2) a mail",
            ["a counter: not in; only named (Friday)", "a mail (Friday)"],
        ),
        ("TODO:\n- rename the queue\n- docs:\n  for the CLI", ["rename the queue", "docs: for the CLI"]),
        ("To do:\n1. one\n2) two", ["one", "two"]),
        ("- one\n- two", ["one", "two"]),
        ("Als Nächstes: der Export; die Doku", ["der Export", "die Doku"]),
        ("Prochaines étapes : tester ; livrer", ["tester", "livrer"]),
        ("Pendiente: probar; publicar", ["probar", "publicar"]),
        ("Ask Ilse; she is back on Monday", ["Ask Ilse; she is back on Monday"]),
        ("Next: ask Ilse.\nShe is back on Monday.", ["Next: ask Ilse.\nShe is back on Monday."]),
        ("", [""]),
    ],
)
def test_the_items_of_a_list_are_open_ends_of_their_own(text: str, items: list[str]) -> None:
    assert open_ends_in(text) == tuple(items)


@pytest.mark.parametrize("text", ["Next: a", "Open questions (for Ilse): a", "still to do: a", "TODO: a", "Offen: a"])
def test_a_heading_says_that_open_ends_follow(text: str) -> None:
    assert is_list_of_open_ends(text)


@pytest.mark.parametrize("text", ["Next.js: used here", "The next: a", "Opened: a", "Nextcloud: a", "- a\n- b", ""])
def test_other_words_do_not(text: str) -> None:
    assert not is_list_of_open_ends(text)


@pytest.mark.parametrize(
    ("query", "asks"),
    [
        ("what is left to do?", True),
        ("what's still open?", True),
        ("what must be done by December?", True),
        ("open tasks", True),
        ("Was ist noch offen?", True),
        ("what is open in the billing service?", False),
        ("what did Anna leave?", False),
        ("what should be logged?", False),
        ("which port is open?", False),
        ("what did we do this week?", False),
    ],
)
def test_a_question_without_a_subject_asks_for_all_open_ends(query: str, *, asks: bool) -> None:
    assert asks_for_open_ends(query) is asks
