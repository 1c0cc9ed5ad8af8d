"""Exports, Markdown files and backups: what is written is what is read, and what is wrong is said."""

import tarfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.commands.backup import read_archive
from remembrancer.commands.import_ import read_export
from remembrancer.commands.output_files import new_file, target_of
from remembrancer.memory.chunks import MOST_HEADINGS, is_imported, lines_imported, lines_of, shown_chunk
from remembrancer.memory.export_format import (
    EndLine,
    Line,
    MemoryLine,
    ProjectLine,
    decode_header,
    decode_line,
    encode_header,
    encode_line,
)
from remembrancer.memory.markdown_files import details_of, file_of, read_file, sections_of
from remembrancer.protocol.errors import FileUnusable, InvalidInput, SchemaTooNew
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.writes import EntityRef, HistoryEntry, MemoryLink, MemoryVersion, PortableMemory, SourceRef
from remembrancer.toolsets.memory.store_memory import kind_of
from tests.cases import cases
from tests.operations import OTHER_PROJECT as OTHER
from tests.operations import PROJECT


def memory(name: str = "one", **fields: Any) -> PortableMemory:
    known = {"content": "text", "type": "semantic", "scope": "project", "session_id": "session:one"}
    return PortableMemory(
        **{"id": derive_memory_id(name, 1e9), **known, "created_at": 1.5, "updated_at": 2.5, **fields}
    )


def export(*body: Line | bytes, end: EndLine | None = None) -> BytesIO:
    """A file with these lines; its last line counts them, unless `end` says otherwise."""
    found = [each for each in body if not isinstance(each, bytes)]
    counted = EndLine(
        sum(isinstance(each, ProjectLine) for each in found), sum(isinstance(each, MemoryLine) for each in found)
    )
    encoded = [each if isinstance(each, bytes) else encode_line(each) for each in body]
    return BytesIO(b"".join([encode_header(1e9), *encoded, encode_line(end or counted)]))


VERSION = MemoryVersion(content="ü", type="episodic", scope="session", session_id="session:one", forgotten=True)
WHOLE = memory(
    content="The lantern\n\t“é”\u2028",
    importance=0.25,
    tags=("a", "ü"),
    source=SourceRef("Bash", "a.py", 3),
    related_entities=(EntityRef("lantern", "thing", "about", "keeper"),),
    metadata={"a": [1, 2.5, None, {"b": True}]},
    occurred_at=-1e9,
    forgotten_at=3.5,
    forgotten_reason="gone",
    version=3,
    access_count=7,
    last_accessed_at=2.75,
    history=(HistoryEntry(2, "stored", 1.5, "session:one", "operation", VERSION, {"reason": "é"}),),
    links=(MemoryLink(derive_memory_id("two", 1e9), "supersedes", 0.5, 2.0),),
)
LINES: tuple[Line, ...] = (ProjectLine(PROJECT.id, "/ü"), MemoryLine(WHOLE, PROJECT.id), EndLine(1, 2, 3))


@given(st.sampled_from(LINES), st.integers(0), st.binary(min_size=1, max_size=3))
def test_a_line_is_read_as_it_was_written_and_a_damaged_one_is_another_line_or_an_error_of_ours(
    line: Line, place: int, noise: bytes
) -> None:
    encoded = encode_line(line)
    assert encoded.count(b"\n") == 1
    assert encoded.endswith(b"\n")
    assert decode_line(encoded) == line
    place %= len(encoded)
    try:
        decode_line(encoded[:place] + noise + encoded[place + 1 :])
    except InvalidInput as error:
        assert error.message  # noqa: PT017 - it need not be raised


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *cases("export_format", "refused"),
        ({"content": "x" * 300_000}, "262144 bytes"),
        ({"access_count": 2**70}, "access_count"),
        ({"tags": [f"t{number}" for number in range(101)]}, "tags may have at most 100"),
        ({"metadata": {"x": "y" * 70_000}}, "65536 bytes"),
        ({"summary": "s" * 2001}, "summary may have at most 2000"),
        ({"source": {"file": "f" * 5000}}, "source.file"),
    ],
)
def test_what_no_tool_would_store_is_refused_by_its_line(change: dict[str, Any], reason: str) -> None:
    raw = msgspec.json.decode(encode_line(MemoryLine(memory(), PROJECT.id)))
    entry = {"version": 1, "change": "stored", "changed_at": 1.0, "session_id": "s", "operation_id": "o"}
    record = {name: raw["memory"][name] for name in ("content", "type", "scope", "session_id")}
    for each in change.get("history", ()):
        each |= {**entry, **each, "record": {**record, **each.get("record", {})}}
    raw["memory"].update(change)
    file = export(
        ProjectLine(PROJECT.id, "/"),
        msgspec.json.encode(raw) + b"\n",
        MemoryLine(memory("two"), PROJECT.id),
        end=EndLine(1, 2, 0),
    )
    with pytest.raises(FileUnusable, match="because of line 3: ") as caught:
        read_export(file)
    assert reason in caught.value.message


def test_a_secret_or_a_session_of_an_older_export_is_skipped() -> None:
    version = MemoryVersion(
        content="AWS key AKIAQ3EGRT5XW7PLBNZJ", type="semantic", scope="project", session_id="session:one"
    )
    secrets = [
        memory("one", content="The password is Xk9$vb2!pqRt77"),
        memory("two", history=(HistoryEntry(1, "stored", 1.0, "session:one", "operation", version),)),
    ]
    lines = [MemoryLine(each, PROJECT.id) for each in (*secrets, memory("three"))]
    contents = read_export(export(ProjectLine(PROJECT.id, "/"), *lines))
    assert [each.partition(":")[0] for each in contents.skipped] == ["line 3", "line 4"]
    assert all("--allow-secrets" in each for each in contents.skipped)
    assert [each.id for _, each in contents.memories] == [memory("three").id]
    allowed = read_export(export(ProjectLine(PROJECT.id, "/"), *lines), allow_secrets=True)
    assert (len(allowed.memories), allowed.skipped) == (3, [])
    session = b'{"line":"session","session":{"session_id":"session:one","started_at":1.0,"last_active_at":2.0}}\n'
    assert len(read_export(export(session, MemoryLine(memory(scope="user")), end=EndLine(0, 1, 1))).memories) == 1


def test_a_file_of_a_newer_release_is_told_from_none_one_that_was_cut_off_and_one_with_a_bad_line() -> None:
    newer = encode_header(1e9).replace(b'"version":1', b'"version":2')
    with pytest.raises(SchemaTooNew, match="newer"):
        decode_header(newer)
    for strange in (b"", b"SQLite format 3\0", b'{"format":"other","version":1,"release":"","exported_at":1}', b"{}"):
        with pytest.raises(FileUnusable, match="not an export"):
            decode_header(strange)
    whole = export(ProjectLine(PROJECT.id, "/"), *(MemoryLine(memory(str(n)), PROJECT.id) for n in range(3)))
    assert len(read_export(whole).memories) == 3
    content = whole.getvalue()
    for place in range(content.index(b"\n") + 1, len(content) - 1):
        with pytest.raises(FileUnusable, match="nothing was imported"):
            read_export(BytesIO(content[:place]))
    with pytest.raises(FileUnusable, match="after the last line"):
        read_export(BytesIO(content + b"{"))
    file = export(ProjectLine(PROJECT.id, "/"), MemoryLine(memory(), PROJECT.id), end=EndLine(1, 2, 0))
    with pytest.raises(FileUnusable, match="2 memories"):
        read_export(file)
    for line, reason in ((b"{oops\n", "malformed"), (MemoryLine(memory("two"), OTHER.id), OTHER.id)):
        file = export(ProjectLine(PROJECT.id, PROJECT.path), MemoryLine(memory("one"), PROJECT.id), line)
        with pytest.raises(FileUnusable, match=f"because of line 4: .*{reason}"):
            read_export(file)


# --- Memories as Markdown files: nothing is lost on the way out and back, and sections of notes become memories.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
MARKS = ("<!-- memory {", "<\\!-- memory {", "\n", "} -->", '{"id":"memory:x"}', "---", "\r\n", "-->")
LIKE_MARKS = st.sampled_from(MARKS)


@given(
    contents=st.lists(TEXTS | st.lists(LIKE_MARKS, min_size=1).map("".join).filter(str.strip), min_size=1, max_size=3),
    tags=st.lists(TEXTS | LIKE_MARKS, max_size=3),
    metadata=st.dictionaries(TEXTS, TEXTS | st.floats(0, 1)),
)
def test_memories_of_a_file_come_back_the_same(contents: list[str], tags: list[str], metadata: dict[str, Any]) -> None:
    lines = [
        MemoryLine(memory(str(place), content=content, tags=tuple(tags), metadata=metadata), PROJECT.id)
        for place, content in enumerate(contents)
    ]
    details = {about.pop("id"): about for line in lines for about in [details_of(line.memory)]}
    names, texts = zip(*(file_of(line, "folder") for line in lines), strict=True)
    assert set(names) == {"folder/fact.md"}
    assert read_file("".join(texts), details) == ("", lines)
    notes, back = read_file(f"# My own\n\n{''.join(texts)}".rstrip("\n"), details)
    assert notes == "# My own\n\n"
    assert [each.memory.content.rstrip("\n") for each in back] == [each.rstrip("\n") for each in contents]


def test_a_file_of_others_is_a_note_and_one_that_an_editor_of_windows_saved_is_read_as_ours() -> None:
    _, text = file_of(MemoryLine(memory("a"), PROJECT.id), "folder")
    with pytest.raises(InvalidInput, match="fields of a memory"):
        read_file(text.replace('"type":"semantic"', '"type":"strange"'), {})
    (read,) = read_file(text, {})[1]
    assert read_file(text.replace("\n", "\r\n"), {}) == ("", [read])
    for note in ("---\nname: a note\n---\ntext\n", "# A note", ""):
        assert read_file(note, {}) == read_file(note.replace("\n", "\r\n"), {}) == (note, [])


def sections(text: str) -> list[PortableMemory]:
    return sections_of("deploy.md", text, 1e9, PROJECT.id, kind_of)[0]


def lines_known(note: str) -> set[str]:
    return set[str]().union(*(lines_imported(each.content) for each in sections(note)))


def test_each_section_of_a_note_is_a_memory_and_they_have_all_lines_but_ticked_items_and_links() -> None:
    for case in cases("export_format", "sections"):
        assert [[each.kind, each.content] for each in sections(case["text"])] == case["memories"]
        missing = lines_of(shown_chunk(case["text"].strip(), 0)) - lines_known(case["text"])
        assert all(each.lower().startswith("x]") or ".md)" in each for each in missing), missing


def test_a_note_is_hidden_by_its_memories_unless_a_line_was_changed_or_an_item_ticked() -> None:
    for note, before, is_hidden in cases("export_format", "imported"):
        assert is_imported(note, lines_known(before)) is is_hidden, note
    assert len(lines_imported("a: " * 1000)) <= 1 + MOST_HEADINGS, "only the first parts of a line may be headings"


def day_at(day: str) -> float | None:
    return datetime.fromisoformat(f"{day}T00:00Z").timestamp() if day else None


def test_a_memory_of_a_section_is_of_the_day_that_it_or_its_heading_begins_or_ends_with() -> None:
    for text, days in cases("export_format", "days"):
        assert [each.occurred_at for each in sections(text)] == list(map(day_at, days)), text


def test_the_memories_of_minutes_are_of_the_day_of_their_note() -> None:
    day = datetime(1999, 5, 4, tzinfo=UTC).timestamp()
    for path, note, is_dated in cases("export_format", "dated_notes"):
        made, *_ = sections_of(path, note, 1e9, PROJECT.id, kind_of)
        assert {each.occurred_at for each in made if each.due is None} == {day if is_dated else None}, note
        assert {each.due for each in made if each.kind == "open_end"} <= {day + 3 * 86_400}, "Friday after the day"


def test_a_date_without_a_year_is_the_last_one_unless_it_is_still_to_come() -> None:
    for title, written, day in cases("export_format", "without_year"):
        at = datetime.fromisoformat(written).timestamp()
        (made,), *_ = sections_of("a.md", f"{title}\nIt leaks.", at, PROJECT.id, kind_of)
        assert made.occurred_at == day_at(day), (title, written)


def test_a_section_that_says_the_same_is_the_same_memory_and_what_is_ticked_off_is_none() -> None:
    _, plan, note, *_ = (case["text"] for case in cases("export_format", "sections"))
    before, after = ({each.id for each in sections(text)} for text in (note, note.replace("Fridays", "Mondays")))
    assert (len(before), len(before & after)) == (3, 2)
    for path, project, again in (("/other/x.md", PROJECT.id, 3), ("2026-11-30.md", PROJECT.id, 0), ("x.md", None, 0)):
        made, *_ = sections_of(path, note, 2e9, project, kind_of)
        assert len(before & {each.id for each in made}) == again, "a file's place and time do not matter, its day does"
    memories, ticked, _ = sections_of("plan.md", plan, 1e9, PROJECT.id, kind_of)
    assert ticked == 2
    assert [each.due for each in memories if each.due is not None] == [1771545600.0]


# --- Backups as files: damage is noticed, and nothing gets out of one that has no place in a home.
@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "user/../../evil", "projects/p_/memory.db", "projects/../x/memory.db", "user", ""]
)
def test_a_name_that_has_no_place_in_a_home_and_a_link_are_refused(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with tarfile.open(tmp_path / "backup", "w") as archive:
        info = tarfile.TarInfo(name or "memory.db")
        if not name:
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(FileUnusable, match="not a backup"):
        read_archive(tmp_path / "backup", out)
    assert list(out.iterdir()) == []


def test_what_is_no_backup_is_said(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive at all")
    (tmp_path / "export").write_text("{}")
    for name, why in (("text", "not a backup"), ("export", "reads exports"), ("missing", "No such file")):
        with pytest.raises(FileUnusable, match=why) as caught:
            read_archive(tmp_path / name)
        assert "\n" not in caught.value.message


def test_a_file_that_is_there_is_replaced_only_if_wanted_and_an_error_leaves_none(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "new", force=False) as file:
        file.write(b"half" * (1 // 0))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileUnusable, match="No such file"), new_file(tmp_path / "no" / "new", force=False):
        pass
    (tmp_path / "left.part").touch()
    with pytest.raises(FileUnusable, match=r"left\.part cannot be written"), new_file(tmp_path / "left", force=False):
        pass
    assert (tmp_path / "left.part").exists(), "another process may be writing it"
    there = tmp_path / "there"
    there.write_text("precious")
    with pytest.raises(InvalidInput, match="--force"):
        target_of(str(there), "name", force=False)
    with pytest.raises(InvalidInput, match="--force"), new_file(there, force=False) as file:
        file.write(b"new")
    assert there.read_text() == "precious"
    with new_file(there, force=True) as file:
        file.write(b"new")
    assert there.read_text() == "new"
    assert target_of(str(tmp_path), "name", force=False) == tmp_path / "name"


# --- The place of a backup or an export that is given no name.
def test_a_file_for_a_person_stays_out_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "repository" / "src"
    below.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    (tmp_path / "person").mkdir()
    monkeypatch.chdir(below)
    assert target_of(None, "made.tar", force=False) == below / "made.tar"
    (tmp_path / "repository" / ".git").mkdir()
    assert target_of(None, "made.tar", force=False) == tmp_path / "person" / "made.tar"
    assert target_of("named.tar", "made.tar", force=False) == below / "named.tar"
