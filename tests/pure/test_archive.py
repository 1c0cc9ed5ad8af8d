"""Backups as files: what is written is held to its manifest when it is read, and nothing else gets out of one."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from remembrancer.commands import output_files
from remembrancer.commands.backup import (
    MANIFEST,
    SEAL,
    Manifest,
    make_manifest,
    read_archive,
    read_manifest,
    write_archive,
)
from remembrancer.commands.output_files import new_directory, new_file, target_of
from remembrancer.protocol.errors import FileUnusable, InvalidInput, SchemaTooNew
from remembrancer.protocol.home import CopiedFile

CONTENTS = {
    "queue.db": b"queue" * 300,
    "projects/p_0123456789ab/memory.db": b"memories" * 20_000,
    "lanes/l_0123456789ab.db": b"shared" * 500,
    "lanes/projects.json": b"{}",
    "user/memory.db": b"user" * 5_000,
    "catalog.db": b"",
}


def archived(name: str, content: bytes) -> CopiedFile:
    return CopiedFile(name, hashlib.sha256(content).hexdigest(), len(content), 1, {"memories": 2})


def write(directory: Path, *, compress: bool = True) -> Path:
    """A backup of `CONTENTS`."""
    for name, content in CONTENTS.items():
        path = directory / "staged" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    manifest = make_manifest(directory, tuple(archived(*item) for item in CONTENTS.items()), 1e9)
    target = directory / "backup"
    with new_file(target, force=False) as file:
        write_archive(file, directory / "staged", manifest, compress=compress)
    return target


def tar(path: Path, *members: tuple[str, bytes], linked_to: str | None = None) -> Path:
    """An archive with these members; the last one is a link when `linked_to` is given."""
    if members[0][0] == MANIFEST:
        members = (members[0], (SEAL, hashlib.sha256(members[0][1]).hexdigest().encode()), *members[1:])
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if linked_to is not None and name not in (MANIFEST, SEAL):
                info.type, info.linkname, info.size = tarfile.SYMTYPE, linked_to, 0
            archive.addfile(info, io.BytesIO(content))
    return path


def manifest_of(**changes: object) -> bytes:
    manifest = make_manifest(Path("/home"), (archived("user/memory.db", b"x"),), 1e9)
    return msgspec.json.encode({**msgspec.to_builtins(manifest), **changes})


@pytest.mark.parametrize("compress", [True, False])
def test_a_backup_is_unpacked_as_it_was_packed(tmp_path: Path, compress: bool) -> None:
    target = write(tmp_path, compress=compress)
    assert target.stat().st_mode & 0o777 == 0o600
    out = tmp_path / "out"
    out.mkdir()
    manifest = read_archive(target, lambda file: (out / file.name.replace("/", "_")).open("xb"))
    assert {name: (out / name.replace("/", "_")).read_bytes() for name in CONTENTS} == CONTENTS
    assert read_manifest(target) == manifest == read_archive(target)
    assert manifest.total("memories") == 2 * len(CONTENTS)


@pytest.mark.parametrize("compress", [True, False])
def test_a_damaged_backup_is_never_taken_for_a_whole_one(tmp_path: Path, compress: bool) -> None:
    target = write(tmp_path, compress=compress)
    content = target.read_bytes()
    whole = read_archive(target)
    damaged = tmp_path / "damaged"
    for place in range(0, len(content), max(1, len(content) // 150)):
        for changed in (content[:place], content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]):
            damaged.write_bytes(changed)
            with suppress(FileUnusable, SchemaTooNew):
                assert read_archive(damaged) == whole  # a byte that says nothing: a time, say, or what follows the end


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "user/../../evil", "projects/p_/memory.db", "projects/../x/memory.db", "user", ""]
)
def test_a_name_that_has_no_place_in_a_home_is_refused(tmp_path: Path, name: str) -> None:
    content = manifest_of(files=msgspec.to_builtins([archived(name, b"x")]))
    backup = tar(tmp_path / "backup", (MANIFEST, content), (name or "x", b"x"))
    with pytest.raises(FileUnusable):
        read_archive(backup, lambda _: pytest.fail("it was unpacked"))


@pytest.mark.parametrize(
    ("members", "linked_to", "why"),
    [
        ([("catalog.db", b"x")], None, "catalog"),
        ([("user/memory.db", b"x")], "/etc/passwd", "manifest"),
        ([], None, "missing"),
    ],
)
def test_a_member_that_the_manifest_does_not_name_a_link_and_a_missing_file_are_refused(
    tmp_path: Path, members: list[tuple[str, bytes]], linked_to: str | None, why: str
) -> None:
    with pytest.raises(FileUnusable, match=why):
        read_archive(tar(tmp_path / "backup", (MANIFEST, manifest_of()), *members, linked_to=linked_to))


def test_a_backup_of_a_newer_release_is_told_from_none_and_further_fields_are_passed_over(tmp_path: Path) -> None:
    with pytest.raises(SchemaTooNew, match="newer"):
        read_manifest(tar(tmp_path / "newer", (MANIFEST, manifest_of(version=2))))
    with pytest.raises(FileUnusable):
        read_manifest(tar(tmp_path / "other", (MANIFEST, manifest_of(format="other"))))
    with pytest.raises(FileUnusable):
        read_manifest(tar(tmp_path / "without", ("user/memory.db", b"x")))
    (tmp_path / "text").write_text("no archive at all")
    with pytest.raises(FileUnusable, match="not a backup") as caught:
        read_manifest(tmp_path / "text")
    assert "\n" not in caught.value.message
    with pytest.raises(FileUnusable, match="No such file"):
        read_manifest(tmp_path / "missing")
    backup = tar(tmp_path / "backup", (MANIFEST, manifest_of(note="more")), ("user/memory.db", b"x"))
    assert isinstance(read_archive(backup), Manifest)


def test_a_file_that_is_there_is_replaced_only_if_wanted_and_an_error_leaves_none(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "new", force=False) as file:
        file.write(b"half" * (1 // 0))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileUnusable, match="No such file"), new_file(tmp_path / "no" / "new", force=False):
        pass
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


# --- Files that a command makes for a person: where they lie, and that what a killed one left is cleared away.


def test_what_a_killed_backup_left_is_removed_by_a_later_one_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    target = tmp_path / "backup.tar"
    with new_directory(target) as left:
        (left / "part").write_text("x")
        with new_directory(target):
            assert left.is_dir()
        yesterday = time.time() - output_files.ABANDONED_S - 1
        os.utime(left, (yesterday, yesterday))
        with new_directory(target) as mine:
            assert list(tmp_path.iterdir()) == [mine]
    assert list(tmp_path.iterdir()) == []


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
