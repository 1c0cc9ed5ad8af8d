"""Lists of open ends, and what is none."""

from __future__ import annotations

import pytest

from remembrancer.memory.open_ends import is_list_of_open_ends, open_ends_in


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
