"""The lines of an export: what is written is what is read, and what is wrong is said."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.commands.import_ import choose_targets, import_operation, read_export
from remembrancer.config.project import project_of
from remembrancer.memory.export_format import (
    EndLine,
    Line,
    MemoryLine,
    ProjectLine,
    SessionLine,
    decode_header,
    decode_line,
    encode_header,
    encode_line,
)
from remembrancer.protocol.errors import FileUnusable, InvalidInput, SchemaTooNew
from remembrancer.protocol.ids import MAX_ULID_MS, derive_memory_id
from remembrancer.protocol.kinds import SCOPES
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import (
    EntityRef,
    HistoryEntry,
    MemoryLink,
    MemoryVersion,
    PortableMemory,
    ProjectRef,
    SourceRef,
)

PROJECT = ProjectRef("p_0123456789ab", "/work/one")
OTHER = ProjectRef("p_ba9876543210", "/work/two")

texts = st.text(st.characters(codec="utf-8"), max_size=40)
names = texts.filter(str.strip)
times = st.floats(-1e12, 1e12)
fractions = st.floats(0, 1)
memory_ids = st.builds(derive_memory_id, texts, st.floats(0, MAX_ULID_MS / 1000))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
sources = st.builds(SourceRef, st.none() | texts, st.none() | texts, st.none() | st.integers(0, 10**6))
entities = st.tuples() | st.tuples(st.builds(EntityRef, names, names, names))
tags = st.lists(names, max_size=3, unique=True).map(tuple)
objects = st.dictionaries(texts, json_values, max_size=3)
recorded: dict[str, Any] = {
    "content": names,
    "type": st.sampled_from(("episodic", "semantic", "procedural")),
    "session_id": names,
    "importance": fractions,
    "tags": tags,
    "source": sources,
    "related_entities": entities,
    "metadata": objects,
    "occurred_at": st.none() | times,
    "forgotten_reason": st.none() | texts,
}
snapshots = st.builds(MemoryVersion, **recorded, scope=st.sampled_from(SCOPES), forgotten=st.booleans())
histories = st.lists(
    st.builds(HistoryEntry, st.integers(1, 50), names, times, names, names, snapshots, objects), max_size=3
).map(lambda entries: tuple(sorted(entries, key=lambda entry: entry.version)))
memories = st.builds(
    PortableMemory,
    **recorded,
    id=memory_ids,
    scope=st.sampled_from(("session", "project")),
    created_at=times,
    updated_at=times,
    version=st.integers(1, 1000),
    access_count=st.integers(0, 10**9),
    last_accessed_at=st.none() | times,
    forgotten_at=st.none() | times,
    history=histories,
    links=st.tuples() | st.tuples(st.builds(MemoryLink, memory_ids, names, fractions, times)),
)
sessions = st.builds(SessionEntry, names, times, times)
lines: st.SearchStrategy[Line] = (
    st.builds(ProjectLine, st.just(PROJECT.id), texts)
    | st.builds(MemoryLine, memories, st.just(PROJECT.id))
    | st.builds(SessionLine, sessions, st.sampled_from((PROJECT.id, None)))
    | st.builds(EndLine, st.integers(0), st.integers(0), st.integers(0))
)


def memory(name: str = "one", **fields: Any) -> PortableMemory:
    known = {"content": "text", "type": "semantic", "scope": "project", "session_id": "session:one"}
    return PortableMemory(
        **{"id": derive_memory_id(name, 1e9), **known, "created_at": 1.5, "updated_at": 2.5, **fields}
    )


def export(*body: Line | bytes, end: EndLine | None = None) -> BytesIO:
    """A file with these lines; its last line counts them, unless `end` says otherwise."""
    found = [each for each in body if not isinstance(each, bytes)]
    counted = EndLine(
        sum(isinstance(each, ProjectLine) for each in found),
        sum(isinstance(each, MemoryLine) for each in found),
        sum(isinstance(each, SessionLine) for each in found),
    )
    encoded = [each if isinstance(each, bytes) else encode_line(each) for each in body]
    return BytesIO(b"".join([encode_header(1e9), *encoded, encode_line(end or counted)]))


@given(lines)
def test_a_line_is_read_as_it_was_written(line: Line) -> None:
    encoded = encode_line(line)
    assert encoded.count(b"\n") == 1
    assert encoded.endswith(b"\n")
    assert decode_line(encoded) == line
    assert encode_line(decode_line(encoded)) == encoded


@given(lines, st.integers(0), st.binary(min_size=1, max_size=3))
def test_a_damaged_line_is_another_line_or_an_error_of_ours(line: Line, place: int, noise: bytes) -> None:
    encoded = encode_line(line)
    place %= len(encoded)
    try:
        decode_line(encoded[:place] + noise + encoded[place + 1 :])
    except InvalidInput as error:
        assert error.message  # noqa: PT017 - it need not be raised


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": "memory:no"}, "must be a memory's id"),
        ({"id": derive_memory_id("one", 1e9).lower()}, "upper case"),
        ({"scope": "user"}, "the user"),
        ({"type": "other"}, "$.memory.type"),
        ({"content": 7}, "$.memory.content"),
        ({"tag": ["a"]}, "$.memory.tag"),
        ({"source": {"tol": "x"}}, "$.memory.source.tol"),
        ({"related_entities": [{"name": "a", "type": "b", "relationship": "c", "weight": 1}]}, "[0].weight"),
    ],
)
def test_what_is_wrong_with_a_memory_is_said(change: dict[str, Any], reason: str) -> None:
    raw = msgspec.json.decode(encode_line(MemoryLine(memory(), PROJECT.id)))
    raw["memory"].update(change)
    with pytest.raises(InvalidInput) as caught:
        decode_line(msgspec.json.encode(raw))
    assert reason in caught.value.message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"content": " \n"}, "content must not be empty"),
        ({"content": "x" * 300_000}, "262144 bytes"),
        ({"content": "a\0b"}, "NUL"),
        ({"content": "The password is Xk9$vb2!pqRt77"}, "--allow-secrets"),
        ({"importance": 1.5}, "importance"),
        ({"confidence": -1.0}, "confidence"),
        ({"version": 0}, "version"),
        ({"version": 2**60}, "version"),
        ({"access_count": 2**70}, "access_count"),
        ({"occurred_at": 1.77e12}, "seconds"),
        ({"valid_until": 1e300}, "years"),
        ({"created_at": -1e300}, "years"),
        ({"tags": [f"t{number}" for number in range(101)]}, "tags may have at most 100"),
        ({"tags": ["a\u001b[31mb"]}, "control characters"),
        ({"tags": ["t" * 101]}, "100 characters"),
        ({"related_entities": [{"name": "\u202e", "type": "a", "relationship": "b"}]}, "related_entities"),
        ({"metadata": {"x": "y" * 70_000}}, "65536 bytes"),
        ({"structured": {"x": 2**60}}, "2**53"),
        ({"summary": "s" * 2001}, "summary may have at most 2000"),
        ({"source": {"file": "f" * 5000}}, "source.file"),
        ({"domain": " "}, "domain"),
        ({"history": [{"version": 2}, {"version": 1}]}, "history"),
        ({"history": [{"record": {"tags": ["\u0007"]}}]}, "history[0].tags"),
        ({"history": [{"record": {"content": "AWS key AKIAQ3EGRT5XW7PLBNZJ"}}]}, "--allow-secrets"),
        ({"links": [{"target": "memory:x", "relation": "\n", "strength": 1.0, "created_at": 1.0}]}, "links.relation"),
    ],
)
def test_what_no_tool_would_have_stored_is_refused_by_the_number_of_its_line(
    change: dict[str, Any], reason: str
) -> None:
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
    contents = read_export(file)
    assert [bad.line for bad in contents.bad] == [3]
    assert reason in contents.bad[0].reason
    (placed,) = contents.placed({PROJECT.id: PROJECT})
    assert isinstance(placed[1], PortableMemory)
    assert placed[1].id == memory("two").id


def test_a_file_of_a_newer_release_is_told_from_one_that_is_no_export() -> None:
    newer = encode_header(1e9).replace(b'"version":1', b'"version":2')
    with pytest.raises(SchemaTooNew, match="newer"):
        decode_header(newer)
    for strange in (b"", b"SQLite format 3\0", b'{"format":"other","version":1,"release":"","exported_at":1}', b"{}"):
        with pytest.raises(FileUnusable, match="no export"):
            decode_header(strange)


def test_every_bad_line_is_named_with_its_number_and_a_secret_is_imported_when_that_is_allowed() -> None:
    file = export(
        ProjectLine(PROJECT.id, PROJECT.path),
        MemoryLine(memory("one"), PROJECT.id),
        b"{oops\n",
        MemoryLine(memory("two"), OTHER.id),
        SessionLine(SessionEntry("session:one", 1.0, 2.0), OTHER.id),
    )
    contents = read_export(file)
    assert [bad.line for bad in contents.bad] == [4, 5, 6]
    assert contents.memories == 1
    assert OTHER.id in contents.bad[1].reason
    secret = MemoryLine(memory("The password is Xk9$vb2!pqRt77"), PROJECT.id)
    assert read_export(export(ProjectLine(PROJECT.id, "/"), secret), allow_secrets=True).bad == []


def test_a_file_that_was_cut_off_or_lost_a_line_is_noticed() -> None:
    whole = export(ProjectLine(PROJECT.id, "/"), *(MemoryLine(memory(str(n)), PROJECT.id) for n in range(3)))
    assert read_export(whole).bad == []
    content = whole.getvalue()
    for place in range(content.index(b"\n") + 1, len(content) - 1):
        (bad,) = read_export(BytesIO(content[:place])).bad
        assert "was cut off" in bad.reason
    file = export(ProjectLine(PROJECT.id, "/"), MemoryLine(memory(), PROJECT.id), end=EndLine(1, 2, 0))
    (bad,) = read_export(file).bad
    assert "2 memories" in bad.reason


def test_lines_go_to_the_projects_that_were_chosen_and_a_choice_has_to_be_certain_and_there(tmp_path: Path) -> None:
    span = SessionEntry("session:one", 1.0, 2.0)
    file = export(
        ProjectLine(PROJECT.id, PROJECT.path),
        MemoryLine(memory("one"), PROJECT.id),
        SessionLine(span, PROJECT.id),
        MemoryLine(memory("two", scope="user"), None),
    )
    contents = read_export(file)
    assert contents.bad == []
    placed = list(contents.placed(choose_targets(contents.projects, [str(tmp_path)])))
    elsewhere = project_of(tmp_path).path
    assert [project and project.path for project, _ in placed] == [elsewhere, elsewhere, None]
    assert placed[1][1] == span
    both = {PROJECT.id: PROJECT, OTHER.id: OTHER}
    assert choose_targets(both, []) == both
    chosen = choose_targets(both, [f"{OTHER.id}={tmp_path}"])
    assert chosen == {PROJECT.id: PROJECT, OTHER.id: project_of(tmp_path)}
    with pytest.raises(InvalidInput, match="not a directory"):
        choose_targets(both, [f"{OTHER.id}={tmp_path / 'mistyped'}"])
    with pytest.raises(InvalidInput, match="2 projects"):
        choose_targets(both, ["/elsewhere"])
    with pytest.raises(InvalidInput, match="no project"):
        choose_targets(both, ["p_000000000000=/elsewhere"])
    with pytest.raises(InvalidInput, match="0 projects"):
        choose_targets({}, ["/elsewhere"])


def test_an_operation_is_known_by_the_content_and_the_place_of_its_memory() -> None:
    first = import_operation(PROJECT, memory(), 1.0)
    assert import_operation(PROJECT, memory(), 2.0).operation_id == first.operation_id
    others = [
        import_operation(OTHER, memory(), 1.0),
        import_operation(None, memory(), 1.0),
        import_operation(PROJECT, memory(access_count=1), 1.0),
    ]
    assert len({first.operation_id, *(each.operation_id for each in others)}) == 4
