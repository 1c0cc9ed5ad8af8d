"""A note's path stays inside its workspace, and a change takes nothing away but what it says that it does."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.notes import MAX_REPLACED, Edited, clean_note_path, daily_note, directories_of, edited
from remembrancer.protocol.errors import InvalidInput, NotFound
from tests.cases import cases

ROOT = "/home/me/app"
PLACES = ("MEMORY.md", "memory.md", "memory/")
NOTE = "# App\n\nIntro.\n\n## Decisions\n\n- Postgres\n\n### Dates\n\nNone.\n\n## Open\n\nWho pays?\n"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("memory/2026-02-16.md", "memory/2026-02-16.md"),
        ("./memory//a/b.MD", "memory/a/b.MD"),
        ("MEMORY.md", "MEMORY.md"),
        (f"{ROOT}/memory/x.md", "memory/x.md"),
        ("memory/Überblick 2.md", "memory/Überblick 2.md"),
    ],
)
def test_a_path_inside_is_taken_relative_to_the_workspace(path: str, name: str) -> None:
    assert clean_note_path(path, ROOT, PLACES) == name


@pytest.mark.parametrize(
    ("path", "why"),
    [
        *cases("notes", "refused"),
        (f"{ROOT}x/memory/x.md", "outside the workspace"),
        (f"memory/{'x' * 300}.md", "more than 200 bytes"),
        ("\ud800.md", "half a character"),
    ],
)
def test_any_other_path_is_refused_with_what_would_be_one(path: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as refused:
        clean_note_path(path, ROOT, PLACES)
    assert refused.value.field == "path"


@given(st.text(max_size=60))
def test_no_path_leads_out(path: str) -> None:
    try:
        name = clean_note_path(f"memory/{path}", ROOT, PLACES)
    except InvalidInput:
        return
    assert name.startswith("memory/")
    assert not {"..", ".", ""} & set(name.split("/"))


def test_a_place_that_is_no_markdown_file_is_a_directory() -> None:
    places = ("NOTES.md", "docs/notes", "./log/")
    assert directories_of(places) == ("docs/notes/", "log/")
    for path in ("NOTES.md", "docs/notes/a.md", "log/b/c.md"):
        assert clean_note_path(path, ROOT, places) == path
    for path in ("docs/notes.md", "docs/notesy/a.md", "other.md"):
        with pytest.raises(InvalidInput, match=r"notes are NOTES\.md, docs/notes/\*\.md, log/\*\.md"):
            clean_note_path(path, ROOT, places)
    assert daily_note(0.0, places).startswith("docs/notes/19")


def test_a_note_that_names_no_file_goes_into_the_log_of_its_day() -> None:
    at = time.mktime((2026, 2, 16, 23, 59, 0, 0, 0, -1))
    assert daily_note(at, PLACES) == "memory/2026-02-16.md"
    assert daily_note(at + 61, PLACES) == "memory/2026-02-17.md"
    with pytest.raises(InvalidInput, match=r"path is missing: it must be one of MEMORY\.md"):
        daily_note(at, ("MEMORY.md",))


@pytest.mark.parametrize(("before", "content", "after"), cases("notes", "appended"))
def test_appended_is_after_a_blank_line(before: str, content: str, after: str) -> None:
    assert edited(before, content, "append", None).text == after


@pytest.mark.parametrize(
    ("heading", "after"),
    [
        ("Decisions", NOTE.replace("- Postgres\n", "- Postgres\n- Redis\n")),
        ("## decisions", NOTE.replace("- Postgres\n", "- Postgres\n- Redis\n")),
        ("App > Decisions > Dates", NOTE.replace("None.\n\n", "None.\n\n- Redis\n\n")),
        ("Open", NOTE + "\n- Redis\n"),
        ("Later", NOTE + "\n## Later\n\n- Redis\n"),
        ("### Later", NOTE + "\n### Later\n\n- Redis\n"),
    ],
)
def test_appended_under_a_heading_is_before_the_next_one(heading: str, after: str) -> None:
    assert edited(NOTE, "- Redis", "append", heading).text == after


def test_replaced_is_a_section_or_the_whole_given_back_and_no_more_than_can_be_shown() -> None:
    made = edited(NOTE, "- Redis", "replace", "Decisions")
    assert made.text == "# App\n\nIntro.\n\n## Decisions\n\n- Redis\n\n## Open\n\nWho pays?\n"
    assert made.replaced == "- Postgres\n\n### Dates\n\nNone."
    assert made.lines == 1
    assert edited(NOTE, "## Decisions\n\n- Redis", "replace", "Decisions").text == made.text, "its heading stays once"
    assert edited(NOTE, "New.", "replace", None) == Edited("New.\n", NOTE.strip(), 1)
    with pytest.raises(InvalidInput, match="replace a smaller section"):
        edited("x" * (MAX_REPLACED + 1), "y", "replace", None)
    note = "```\n# Decisions\n```\n"
    with pytest.raises(NotFound):
        edited(note, "x", "replace", "Decisions")


def test_what_heading_is_meant_must_be_clear() -> None:
    with pytest.raises(NotFound, match="no heading 'Decision': did you mean"):
        edited("# Decisions\n", "x", "replace", "Decision")
    twice = "# A\n## Log\n# B\n## Log\n"
    with pytest.raises(
        InvalidInput, match="2 headings are called 'Log': give the path of one of them, A > Log, B > Log"
    ):
        edited(twice, "x", "append", "Log")
    assert edited(twice, "x", "append", "A > Log").text == "# A\n## Log\n\nx\n\n# B\n## Log\n"
    for heading in ("", " ", "##", "a\nb"):
        with pytest.raises(InvalidInput, match="one line"):
            edited(twice, "x", "append", heading)


LINES = st.lists(
    st.sampled_from(["# A", "## B", "### C", "text", "- item", "", "```", "    code", "> quoted", "A", "===", "\t"]),
    max_size=14,
)


@given(LINES, LINES, st.sampled_from(["\n", "\r\n"]), st.sampled_from([None, "A", "B", "C", "D"]), st.booleans())
def test_appending_loses_no_line_and_keeps_their_order(
    lines: list[str], new: list[str], newline: str, heading: str | None, ends: bool
) -> None:
    text = newline.join(lines) + (newline if ends else "")
    content = "\n".join(["- new", *new])
    try:
        made = edited(text, content, "append", heading)
    except InvalidInput:
        return
    rest = made.text.replace("\r\n", "\n").replace(content.strip("\n").rstrip(), "", 1)
    left = [line for line in rest.split("\n") if line and line != f"## {heading}"]
    assert left == [line for line in lines if line and line != f"## {heading}"]
