"""A note is written once, whatever happens meanwhile, and nobody's edit is lost."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from remembrancer.actors.store import note_files
from remembrancer.actors.store.note_files import REPEATED_S
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.memory.notes import MAX_FILE_BYTES
from remembrancer.protocol.errors import InvalidInput, RemembrancerError, StorageFull
from remembrancer.protocol.writes import Applied, NoteWritten, Operation
from remembrancer.toolsets.files.workspace_files import RealNote, find_note, open_directory, open_note
from tests.cases import cases
from tests.contracts.dying_process import NOTE, dies_of, note_operation, write_note, write_note_and_die
from tests.contracts.records_rig import RecordsRig

BEFORE = "# Log\n\nBy hand.\n"


class Workspace:
    def __init__(self, directory: Path) -> None:
        self.root = directory / "work"
        self.root.mkdir()
        self.rig = RecordsRig(directory / "records" / "memory.db")

    def open(self) -> None:
        self.rig.close()
        self.rig = RecordsRig(self.rig.path)

    @property
    def records(self) -> Records:
        return self.rig.records

    @property
    def path(self) -> Path:
        return self.root / NOTE

    def has(self, text: str) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(text)

    def operation(self, name: str, content: str, **fields: object) -> Operation:
        return note_operation(name, self.root, content, **fields)

    def write(self, name: str, content: str, **fields: object) -> NoteWritten:
        outcome = write_note(self.records, self.operation(name, content, **fields))
        assert isinstance(outcome, Applied), outcome
        assert isinstance(outcome.result, NoteWritten)
        return outcome.result

    def refused(self, name: str, content: str, **fields: object) -> RemembrancerError:
        outcome = write_note(self.records, self.operation(name, content, **fields))
        assert isinstance(outcome, RemembrancerError)
        assert self.records.outcome_of(name) is None
        assert not self.leftovers()
        return outcome

    def leftovers(self) -> list[str]:
        return [path.name for path in self.root.rglob(".note-*")]


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path)
    yield made
    made.rig.close()


def test_a_note_is_appended_to_what_is_there_and_written_once(work: Workspace) -> None:
    assert work.write("a", "One.\n\nTwo.") == NoteWritten(3)
    work.path.write_text(work.path.read_text() + "By hand.\n")
    assert work.write("b", "Three.") == NoteWritten(1)
    again = write_note(work.records, work.operation("a", "One.\n\nTwo."))
    assert again == Applied("a", NoteWritten(3), replayed=True)
    assert work.path.read_text() == "One.\n\nTwo.\nBy hand.\n\nThree.\n"
    assert not work.leftovers()


def test_mode_line_ends_and_byte_order_mark_of_a_file_stay_and_a_link_to_it(work: Workspace) -> None:
    work.has("")
    work.path.write_bytes(b"\xef\xbb\xbfBy hand.\r\n")
    work.path.chmod(0o640)
    (work.root / "MEMORY.md").symlink_to(NOTE)
    work.write("a", "One.\nTwo.", path="MEMORY.md")
    assert work.path.read_bytes() == b"\xef\xbb\xbfBy hand.\r\n\r\nOne.\r\nTwo.\r\n"
    assert work.path.stat().st_mode & 0o777 == 0o640
    assert (work.root / "MEMORY.md").is_symlink()


@pytest.mark.parametrize("taken", ["memory", "memory/deep", "memory/deep/log.md"])
def test_a_link_that_takes_a_place_after_it_was_looked_at_is_not_followed(work: Workspace, taken: str) -> None:
    """Between the look at a path and its opening anybody may put a link there."""
    there = work.root / "memory/deep/log.md"
    there.parent.mkdir(parents=True)
    there.write_text("Ours.")
    away = work.root / "away"
    (away / "deep").mkdir(parents=True)
    for each in (away / "log.md", away / "deep/log.md"):
        each.write_text("Theirs.")
    found = find_note("memory/deep/log.md", work.root, ("memory/",))
    assert isinstance(found, RealNote)
    os.close(open_note(found))
    (work.root / taken).rename(work.root / "before")
    (work.root / taken).symlink_to(away / "log.md" if taken.endswith(".md") else away)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        open_note(found)
    if not taken.endswith(".md"):
        with pytest.raises(OSError, match="Not a directory"):
            open_directory(found, make=True)


def test_what_git_is_to_ignore_is_not_read_through_a_link(work: Workspace, tmp_path: Path) -> None:
    (work.root / ".git").mkdir()
    (work.root / ".gitignore").symlink_to("/dev/zero")
    assert work.write("a", "One.").ignored == ()
    assert (work.root / ".gitignore").is_symlink()


def test_what_leads_out_or_is_no_note_is_refused(work: Workspace, tmp_path: Path) -> None:
    outside, notes = tmp_path / "outside.md", work.root / "memory"
    outside.write_text("Theirs.")
    notes.mkdir()
    for name, target in cases("note_files", "links"):
        (notes / name).symlink_to(tmp_path / target)
    os.mkfifo(notes / "pipe.md")
    (notes / "latin.md").write_bytes(b"caf\xe9\n")
    (notes / "large.md").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    for name, why in cases("note_files", "refused"):
        refusal = work.refused(name, "New.", path=f"memory/{name}")
        assert isinstance(refusal, InvalidInput)
        assert why in refusal.message
    assert outside.read_text() == "Theirs."
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside.md", "records", "work"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused_with_the_reason(work: Workspace) -> None:
    work.has(BEFORE)
    work.path.parent.chmod(0o500)
    assert "Permission denied" in work.refused("a", "New.").message


def test_a_full_disk_leaves_the_note_as_it_was(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    work.has(BEFORE)

    def no_space(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        assert isinstance(work.refused("a", "New."), StorageFull)
    assert work.path.read_text() == BEFORE
    work.write("a", "New.")
    assert work.path.read_text() == BEFORE + "\nNew.\n"


def test_git_ignores_the_directory_from_the_first_note_on(work: Workspace) -> None:
    ignore = work.root / ".gitignore"
    assert work.write("no repository", "One.").ignored == ()
    work.path.unlink()
    (work.root / ".git").mkdir()
    assert work.write("another place", "One.", path="MEMORY.md").ignored == ()
    assert not ignore.exists()
    ignore.write_text("build")
    assert work.write("first", "One.").ignored == ("memory/",)
    assert ignore.read_text() == "build\n/memory/\n"
    ignore.write_text("build\n")
    assert work.write("second", "Two.").ignored == (), "somebody wants them in the repository"
    work.path.unlink()
    for said in ("memory", "/memory/", "!memory/"):
        ignore.write_text(f"{said}\n")
        assert work.write(f"said {said}", "One.").ignored == ()
        work.path.unlink()


def test_a_note_saved_while_it_is_written_is_read_again(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    work.has(BEFORE)
    other = work.path.with_name("other")
    other.write_text("Renamed.\n")
    saves: Iterator[Callable[[], object]] = iter(
        [partial(work.path.write_text, BEFORE + "In place.\n"), partial(other.replace, work.path)]
    )
    write = note_files._write_durably

    def write_late(directory: int, name: str, data: bytes, mode: int | None) -> None:
        write(directory, name, data, mode)
        next(saves, lambda: None)()

    monkeypatch.setattr(note_files, "_write_durably", write_late)
    work.write("a", "New.")
    assert work.path.read_text() == "Renamed.\n\nNew.\n"
    assert not work.leftovers()


@pytest.mark.parametrize(("is_first", "least_steps"), [(False, 10), (True, 20)])
def test_a_process_killed_at_any_step_has_written_it_once(work: Workspace, is_first: bool, least_steps: int) -> None:
    for step in range(200):
        work.open()
        work.rig.close()
        work.rig.path.unlink()
        (work.root / ".git").mkdir(exist_ok=True)
        (work.root / ".gitignore").unlink(missing_ok=True)
        if not is_first:
            work.has(BEFORE)
        elif work.path.exists():
            work.path.unlink()
            work.path.parent.rmdir()
        was_killed = dies_of(partial(write_note_and_die, work.rig.path, work.root, "New.", step))
        work.open()
        is_by_hand = bool(step % 3) and work.path.exists() and "New." not in work.path.read_text()
        if is_by_hand:  # somebody goes on before anybody notices
            work.path.write_text(work.path.read_text() + "Later.\n")
        work.write("a", "New.")
        text = ("" if is_first else BEFORE) + ("Later.\n" if is_by_hand else "")
        assert work.path.read_text() == f"{text}\nNew.\n".lstrip("\n"), step
        ignore = work.root / ".gitignore"
        assert not ignore.exists() or ignore.read_text() == "/memory/\n"
        assert not work.leftovers(), step
        if not was_killed:
            break
        work.rig.close()
    else:
        pytest.fail("it never survived")
    assert step >= least_steps


@pytest.mark.parametrize("fields", [{}, {"heading": "Log"}, {"mode": "replace"}, {"mode": "replace", "heading": "Log"}])
def test_a_text_is_written_again_only_by_a_later_operation(work: Workspace, fields: dict[str, str]) -> None:
    work.has(BEFORE)
    work.records.complete = lambda *_: StorageFull("full")  # type: ignore[method-assign]
    outcome = write_note(work.records, work.operation("a", "New.", **fields))
    assert isinstance(outcome, StorageFull)
    written = work.path.read_text()
    work.open()
    work.write("a", "New.", **fields)
    assert work.path.read_text() == written
    for wait_s, count in ((REPEATED_S - 1, 1), (REPEATED_S + 1, 1 if "mode" in fields else 2)):
        later = work.path.stat().st_mtime + wait_s
        repeated = work.operation(f"after {wait_s} s", "New.", **fields)
        write_note(work.records, msgspec.structs.replace(repeated, requested_at=later))
        assert work.path.read_text().count("New.") == count
