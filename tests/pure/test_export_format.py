"""The lines of an export: what is written is what is read, and what is wrong is said."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.commands.import_ import read_export
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
from remembrancer.protocol.errors import FileUnusable, InvalidInput, SchemaTooNew
from remembrancer.protocol.ids import MAX_ULID_MS, derive_memory_id
from remembrancer.protocol.kinds import SCOPES
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
lines: st.SearchStrategy[Line] = (
    st.builds(ProjectLine, st.just(PROJECT.id), texts)
    | st.builds(MemoryLine, memories, st.just(PROJECT.id))
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
    )
    encoded = [each if isinstance(each, bytes) else encode_line(each) for each in body]
    return BytesIO(b"".join([encode_header(1e9), *encoded, encode_line(end or counted)]))


@given(lines)
def test_a_line_is_read_as_it_was_written(line: Line) -> None:
    encoded = encode_line(line)
    assert encoded.count(b"\n") == 1
    assert encoded.endswith(b"\n")
    decoded = decode_line(encoded)
    assert decoded == line
    assert encode_line(decoded) == encoded


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
    with pytest.raises(FileUnusable, match="because of line 3: ") as caught:
        read_export(file)
    assert reason in caught.value.message


def test_what_looks_like_a_secret_is_skipped_unless_it_is_allowed() -> None:
    version = MemoryVersion(
        content="AWS key AKIAQ3EGRT5XW7PLBNZJ", type="semantic", scope="project", session_id="session:one"
    )
    secrets = [
        memory("one", content="The password is Xk9$vb2!pqRt77"),
        memory("two", history=(HistoryEntry(1, "stored", 1.0, "session:one", "operation", version),)),
    ]
    lines = [MemoryLine(each, PROJECT.id) for each in (*secrets, memory("three"))]
    contents = read_export(export(ProjectLine(PROJECT.id, "/"), *lines))
    assert [each.partition(":")[0] for each in contents.secrets] == ["line 3", "line 4"]
    assert all("--allow-secrets" in each for each in contents.secrets)
    assert [each.id for _, each in contents.memories] == [memory("three").id]
    allowed = read_export(export(ProjectLine(PROJECT.id, "/"), *lines), allow_secrets=True)
    assert (len(allowed.memories), allowed.secrets) == (3, [])


def test_a_session_in_the_export_of_an_older_release_is_skipped() -> None:
    session = b'{"line":"session","session":{"session_id":"session:one","started_at":1.0,"last_active_at":2.0}}\n'
    assert len(read_export(export(session, MemoryLine(memory(scope="user")), end=EndLine(0, 1, 1))).memories) == 1


def test_a_file_of_a_newer_release_is_told_from_one_that_is_no_export() -> None:
    newer = encode_header(1e9).replace(b'"version":1', b'"version":2')
    with pytest.raises(SchemaTooNew, match="newer"):
        decode_header(newer)
    for strange in (b"", b"SQLite format 3\0", b'{"format":"other","version":1,"release":"","exported_at":1}', b"{}"):
        with pytest.raises(FileUnusable, match="no export"):
            decode_header(strange)


@pytest.mark.parametrize(
    ("line", "reason"), [(b"{oops\n", "malformed"), (MemoryLine(memory("two"), OTHER.id), OTHER.id)]
)
def test_a_file_with_a_bad_line_is_refused_with_its_number(line: Line | bytes, reason: str) -> None:
    file = export(ProjectLine(PROJECT.id, PROJECT.path), MemoryLine(memory("one"), PROJECT.id), line)
    with pytest.raises(FileUnusable, match=f"because of line 4: .*{reason}"):
        read_export(file)


def test_a_file_that_was_cut_off_or_lost_a_line_is_noticed() -> None:
    whole = export(ProjectLine(PROJECT.id, "/"), *(MemoryLine(memory(str(n)), PROJECT.id) for n in range(3)))
    assert read_export(whole).cut_after is None
    content = whole.getvalue()
    for place in range(content.index(b"\n") + 1, len(content) - 1):
        cut = content[:place]
        try:
            assert read_export(BytesIO(cut)).cut_after == len(cut.splitlines())
        except FileUnusable as error:
            assert f"line {len(cut.splitlines())}: the file was cut off" in error.message  # noqa: PT017
    file = export(ProjectLine(PROJECT.id, "/"), MemoryLine(memory(), PROJECT.id), end=EndLine(1, 2, 0))
    with pytest.raises(FileUnusable, match="2 memories"):
        read_export(file)
