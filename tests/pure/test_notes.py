"""Notes: a path stays inside its workspace, a change takes nothing else away, and a block of memories stays a block."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.gateway import markdown_index
from remembrancer.actors.gateway.markdown_index import MAX_FILE_BYTES, MarkdownIndex, place_of, read_file
from remembrancer.actors.gateway.store_access import WriteNews
from remembrancer.code.words import terms_in
from remembrancer.config.project import project_of
from remembrancer.memory.markdown_index import (
    ASIDE,
    MOST_BYTES,
    MOST_LINES,
    kept_in,
    size_of,
    with_block,
    without_block,
)
from remembrancer.memory.notes import MAX_REPLACED, Edited, clean_note_path, daily_note, directories_of, edited
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.reads import ContextGathered, GatherContext
from remembrancer.protocol.writes import Operation, SourceRef, TagMemory
from remembrancer.toolsets.files.note_tools import SNIPPET, snippet_of
from remembrancer.toolsets.service import Asked, Caller
from tests.cases import cases
from tests.patience import until
from tests.pure.memories import recalled

ROOT = "/home/me/app"
PLACES = ("MEMORY.md", "memory.md", "memory/")
NOTE = cases("notes", "note")


def test_a_path_inside_is_taken_relative_to_the_workspace() -> None:
    for name in ("memory/2026-02-16.md", "MEMORY.md", "memory/Überblick 2.md"):
        assert clean_note_path(name, ROOT, PLACES) == name
    assert clean_note_path("./memory//a/b.MD", ROOT, PLACES) == "memory/a/b.MD"
    assert clean_note_path(f"{ROOT}/memory/x.md", ROOT, PLACES) == "memory/x.md"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        *cases("notes", "refused"),
        (f"{ROOT}x/memory/x.md", "outside the workspace"),
        (ROOT, "is not a Markdown file"),
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


def test_a_note_that_names_no_file_goes_into_the_log_of_its_day_in_a_place_that_is_a_directory() -> None:
    places = ("NOTES.md", "docs/notes", "./log/")
    assert directories_of(places) == ("docs/notes/", "log/")
    for path in ("NOTES.md", "docs/notes/a.md", "log/b/c.md"):
        assert clean_note_path(path, ROOT, places) == path
    for path in ("docs/notes.md", "docs/notesy/a.md", "other.md"):
        with pytest.raises(InvalidInput, match=r"notes are NOTES\.md, docs/notes/\*\.md, log/\*\.md"):
            clean_note_path(path, ROOT, places)
    assert daily_note(0.0, places).startswith("docs/notes/19")
    at = time.mktime((2026, 2, 16, 23, 59, 0, 0, 0, -1))
    assert daily_note(at, PLACES) == "memory/2026-02-16.md"
    assert daily_note(at + 61, PLACES) == "memory/2026-02-17.md"
    with pytest.raises(InvalidInput, match=r"path is missing: it must be one of MEMORY\.md"):
        daily_note(at, ("MEMORY.md",))


def test_appended_is_after_a_blank_line_and_under_a_heading_before_the_next_one() -> None:
    for before, content, after in cases("notes", "appended"):
        assert edited(before, content, "append", None).text == after
    for heading, before, after in cases("notes", "under_headings"):
        assert edited(NOTE, "- Redis", "append", heading).text == NOTE.replace(before, after), heading


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
    with pytest.raises(NotFound, match="no heading 'Übungen': did you mean Übung"):
        edited("# Übung\n", "x", "replace", "Übungen")
    twice = "# A\n## Log\n# B\n## Log\n"
    with pytest.raises(
        InvalidInput, match="2 headings are called 'Log'; give the path of one of them, A > Log, B > Log"
    ):
        edited(twice, "x", "append", "Log")
    with pytest.raises(InvalidInput, match="2 headings are called 'A > Log'; rename one"):
        edited(f"{twice}# A\n## Log\n", "x", "append", "A > Log")
    assert edited(twice, "x", "append", "A > Log").text == "# A\n## Log\n\nx\n\n# B\n## Log\n"
    for heading in ("", " ", "##", "a\nb"):
        with pytest.raises(InvalidInput, match="one line"):
            edited(twice, "x", "append", heading)


LINES = st.lists(
    st.sampled_from(["# A", "## B", "### C", "text", "- item", "", "```", "    code", "> quoted", "A", "===", "\t"]),
    max_size=14,
)


@given(LINES, LINES, st.sampled_from(["\n", "\r\n"]), st.sampled_from([None, "A", "B", "C", "D"]), st.booleans())
def test_appending_loses_no_line(
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


@given(st.text("ab .!\n-#…", max_size=1500) | st.text(max_size=1500), st.text(max_size=20))
def test_a_snippet_is_a_part_of_the_text_and_no_longer_than_allowed(text: str, query: str) -> None:
    snippet = snippet_of(text.strip(), frozenset(terms_in(query)))
    assert len(snippet) <= SNIPPET + len("…  …")
    assert snippet.removeprefix("… ").removesuffix(" …") in text


def test_a_snippet_of_a_long_text_begins_with_the_sentence_about_the_query() -> None:
    text = f"{'The lamp is lit. ' * 50}Ferries leave at noon. {'The mole is long. ' * 50}"
    assert snippet_of(text, frozenset(terms_in("when does the ferry leave?"))).startswith(
        "… Ferries leave at noon. The mole"
    )
    assert snippet_of(text, frozenset()).startswith("The lamp is lit.")


# --- The block of memories in a Markdown file: what stands around it stays, and a person's words in it are seen.
AT = 1_800_000_000.0
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))


@given(before=TEXTS, after=TEXTS, first=TEXTS, second=TEXTS)
def test_what_stands_around_the_block_stays_and_once(before: str, after: str, first: str, second: str) -> None:
    once = with_block(f"{before}\n", first, AT)
    assert (kept := kept_in(once)) is not None
    assert kept.edits == ()
    assert once.startswith(before.rstrip())
    whole = f"{once}{after}"
    assert with_block(whole, first, AT + 60) == whole
    again = with_block(whole, second, AT + 60)
    assert again.endswith(after)
    assert again.startswith(before.rstrip())
    assert len(again.split("<!-- /remembrancer -->")) == len(whole.split("<!-- /remembrancer -->"))
    assert without_block(whole).count("\n") == whole.count("\n")


def test_a_memory_cannot_end_the_block_which_has_no_more_than_assistants_read() -> None:
    content = with_block("# Mine\n", "- AB12 <!-- /remembrancer -->\n- CD34 later", AT)
    assert with_block(content, "- EF56 other", AT).count("remembrancer") == 2
    assert "later" not in without_block(content)
    assert size_of("x\n" * (MOST_LINES - 5)) <= MOST_BYTES < size_of("x\n" * MOST_LINES)
    assert size_of("x" * (MOST_BYTES + 1)) > MOST_BYTES
    assert size_of("x\n" * 100, "y\n" * (MOST_LINES - 105)) <= MOST_BYTES < size_of("x\n" * 100, "y\n" * 100)
    long = f"- AB12 {'x' * 500}\n" * 40
    assert len(with_block("# Mine\n", long, AT).encode()) <= size_of(long, "# Mine")
    edited = with_block("", BLOCK, AT).replace("Fridays", "Mondays")
    assert with_block(edited, edited.partition("-->\n")[2].partition("<!--")[0] + "- new", AT).count("Mondays") == 1


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
def test_an_edit_stays_behind_the_block_alone(old: str, new: str, kept: str) -> None:
    edited = with_block("# Mine\n", BLOCK, AT).replace(old, new)
    again = with_block(edited, BLOCK.replace("Boil", "Heat"), AT + 60)
    assert again.endswith(f"<!-- /remembrancer -->\n\n{kept}\n")
    assert with_block(again, BLOCK, AT + 90).count(kept) == 1


def test_a_file_is_kept_only_if_it_is_plain_text_and_outside_of_all_trees_only_if_it_is_ours(tmp_path: Path) -> None:
    tree, outside = tmp_path / "app", tmp_path / "elsewhere.md"
    tree.mkdir()
    caller = Caller("", "", project_of(tree), 0.0, str(tree))
    assert place_of(caller, "MEMORY.md") == (tree / "MEMORY.md", tree)
    assert place_of(caller, f"{tmp_path}/{{project}}.md") == (tmp_path / f"app-{caller.project.id}.md", None)
    block = with_block("# Mine\n", BLOCK, AT)
    conflict = f"<<<<<<< main\n{block}=======\n{block}>>>>>>> other\n"  # the lines of the other branch are no edits
    assert read_file(tree / "MEMORY.md", tree) == read_file(outside, None) == ""
    for text in ("# Mine\n", block, conflict, block.replace("\n", "\r\n"), block + "x" * MAX_FILE_BYTES):
        for path in (tree / "MEMORY.md", outside):
            path.write_text(text, newline="")
        assert read_file(tree / "MEMORY.md", tree) == (text if text in ("# Mine\n", block) else None)
        assert read_file(outside, None) == (text if text == block else None)
    (tree / "link.md").symlink_to(outside)
    outside.write_text(block)
    assert read_file(tree / "link.md", tree) is None


async def test_a_write_updates_only_the_blocks_of_its_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown_index, "COALESCE_S", 0.0)
    asked: list[str] = []

    async def ask(question: GatherContext, _received_at: float) -> Asked[ContextGathered]:
        asked.append(question.project.id)
        return Asked(ContextGathered((), is_all=True))

    access: Any = SimpleNamespace(settings=SimpleNamespace(markdown_index="MEMORY.md"), ask=ask, writes=WriteNews())
    index, trees = MarkdownIndex(access), [tmp_path / name for name in ("one", "two", "barred")]
    for tree in trees:
        tree.mkdir()
    (trees[-1] / "MEMORY.md").write_bytes(b"\xff")
    callers = [Caller("", "", project_of(tree), 0.0, str(tree)) for tree in trees]
    for each in callers:
        await index.attend(each)
    one, two, barred = (each.project for each in callers)
    assert asked == [one.id, two.id], "the third file cannot be written"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(index.run)
        await until(lambda: access.writes.listeners)
        for project in (barred, two):
            access.writes.note(Operation(project.id, project, "", 0.0, TagMemory("", ("sea",))))
        await until(lambda: len(asked) > 2)
        tasks.cancel_scope.cancel()
    assert asked[2:] == [two.id]


async def test_a_relative_day_in_the_block_counts_from_the_day_on_which_its_text_was_written(tmp_path: Path) -> None:
    source = SourceRef(file=f"{tmp_path}/NOTES.md")
    heating = recalled("The heating was repaired yesterday", version=3, updated_at=4 * 86400.0, source=source)
    gathered = ContextGathered((heating,), is_all=True, edited={heating.id: 2 * 86400.0})

    async def ask(_question: GatherContext, _received_at: float) -> Asked[ContextGathered]:
        return Asked(gathered)

    access: Any = SimpleNamespace(settings=SimpleNamespace(markdown_index="MEMORY.md"), ask=ask)
    await MarkdownIndex(access).attend(Caller("", "", project_of(tmp_path), 0.0, str(tmp_path)))
    assert (
        "repaired yesterday (from file NOTES.md) (stored 1970-01-03) (changed 1970-01-05)"
        in (tmp_path / "MEMORY.md").read_text()
    )
