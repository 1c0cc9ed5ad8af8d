"""The block of memories in a Markdown file: what stands around it stays, and a person's words in it are seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.markdown_index import (
    ASIDE,
    MOST_BYTES,
    MOST_LINES,
    changed_words,
    items_in,
    kept_in,
    named_in,
    size_of,
    with_block,
    without_block,
)

AT = 1_800_000_000.0
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))


@given(before=TEXTS, after=TEXTS, first=TEXTS, second=TEXTS)
def test_what_stands_around_the_block_stays_and_nothing_is_written_twice(
    before: str, after: str, first: str, second: str
) -> None:
    once = with_block(f"{before}\n", first, AT)
    kept = kept_in(once)
    assert kept is not None
    assert (kept.at, kept.edits) == (AT, ())
    assert once.startswith(before.rstrip())
    whole = f"{once}{after}"
    assert with_block(whole, first, AT + 60) == whole
    again = with_block(whole, second, AT + 60)
    assert again.endswith(after)
    assert again.startswith(before.rstrip())
    assert len(again.split("<!-- /remembrancer -->")) == len(whole.split("<!-- /remembrancer -->"))
    assert without_block(whole).count("\n") == whole.count("\n")


def test_a_memory_cannot_end_the_block_and_one_of_several_lines_is_left_alone() -> None:
    content = with_block("# Mine\n", "- AB12 <!-- /remembrancer -->\n- CD34 later", AT)
    assert with_block(content, "- EF56 other", AT).count("remembrancer") == 2
    assert "later" not in without_block(content)
    items = items_in("- AB12 first\n\n  second\n- CD34 one line\n### Group\n")
    assert list(map(named_in, items)) == [None, ("CD34", "one line"), None]
    assert size_of("x\n" * (MOST_LINES - 5)) <= MOST_BYTES < size_of("x\n" * MOST_LINES)
    assert size_of("x" * (MOST_BYTES + 1)) > MOST_BYTES
    assert size_of("x\n" * 100, "y\n" * (MOST_LINES - 105)) <= MOST_BYTES < size_of("x\n" * 100, "y\n" * 100)


BLOCK = "## Memory\n\n- AB12 Deploys are on Fridays.\n- CD34 First:\n  one, two\n\n  three\n- EF56 Boil water."


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("on Fridays.", "on Mondays.", f"- AB12 Deploys are on Mondays.{ASIDE}"),
        ("AB12 Deploys are", "AB12", f"- AB12 on Fridays.{ASIDE}"),
        ("one, two", "one", f"- CD34 First:\n  one\n  three{ASIDE}"),
        ("  one, two\n\n  three\n", "", f"- CD34 First:{ASIDE}"),
        ("Boil water.", "Boil water.\nAnd never restart the boiler.", "And never restart the boiler."),
        ("Boil water.", "Boil water.\n- TODO boil more", "- TODO boil more"),
    ],
)
def test_an_edit_that_is_not_taken_over_stays_behind_the_block_alone(old: str, new: str, kept: str) -> None:
    edited = with_block("# Mine\n", BLOCK, AT).replace(old, new)
    again = with_block(edited, BLOCK.replace("Boil", "Heat"), AT + 60)
    assert again.endswith(f"<!-- /remembrancer -->\n\n{kept}\n")
    assert with_block(again, BLOCK, AT + 90).count(kept) == 1


def test_an_edit_that_a_memory_has_taken_over_does_not_stay() -> None:
    edited = with_block("", BLOCK, AT).replace("Fridays", "Mondays")
    kept = kept_in(edited)
    assert kept is not None
    assert "Mondays" not in with_block(edited, BLOCK.replace("Boil", "Heat"), AT + 60, kept.edits)
    assert with_block(edited, edited.partition("-->\n")[2].partition("<!--")[0] + "- new", AT).count("Mondays") == 1


@pytest.mark.parametrize(
    ("edited", "new"),
    [
        ("due 2027-01-01: Deploy on Monday. (changed 2026-11-17)", "Deploy on Monday."),
        ("due 2027-01-01: Deploy on Friday. (changed 2026-11-17)", None),
        ("Deploy on Monday.", None),
        ("due 2027-01-01:  (changed 2026-11-17)", None),
    ],
)
def test_the_words_of_a_changed_item_are_taken_without_its_remarks(edited: str, new: str | None) -> None:
    rendered = "due 2027-01-01: Deploy on Friday. (changed 2026-11-17)"
    assert changed_words(edited, rendered, "Deploy on Friday.") == new
