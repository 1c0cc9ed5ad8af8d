import errno
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import psutil
import pytest

from remembrancer.command_line import main
from remembrancer.commands import exit_codes, runtime_client
from remembrancer.commands.clients import ClientEnvironment
from remembrancer.commands.doctor import Examination, check_model, check_records
from remembrancer.commands.runtime_client import ask_store, is_up
from remembrancer.config.project import project_of
from remembrancer.config.settings import Settings
from remembrancer.memory.export_format import EndLine, Line, MemoryLine, ProjectLine, encode_header, encode_line
from remembrancer.memory.markdown_index import with_block
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import NoteAccess, Recall, Recalled
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    EraseMemory,
    ForgetMemory,
    Operation,
    ProjectRef,
    PromoteMemory,
    RestoreMemory,
    Scope,
    SourceRef,
    Submit,
    TagMemory,
    UpdateMemory,
)
from tests.forked import start_command
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION, memory_id_of, store_operation
from tests.patience import PATIENCE_S, wait_until
from tests.pure.test_export_format import memory
from tests.runtime import Runtime, command, done, start, stop_runtime
from tests.spaces import full_disk, rows_if_there, rows_of

pytestmark = [pytest.mark.usefixtures("at_noon"), pytest.mark.usefixtures("without_embedders")]


def write_lines(path: Path, *names: str, padding: str = "", project: ProjectRef = PROJECT) -> Path:
    lines = [MemoryLine(memory(name, content=f"what {name} says{padding}"), project.id) for name in names]
    body: list[Line] = [ProjectLine(project.id, project.path), *lines, EndLine(1, len(names), 0)]
    path.write_bytes(encode_header(1e9) + b"".join(map(encode_line, body)))
    return path


def without_import(line: dict[str, Any], run_id: str) -> dict[str, Any]:
    """A line without the note in its history by which the import can be undone."""
    line = deepcopy(line)
    if line["line"] == "memory":
        last = line["memory"]["history"][-1]
        assert last["details"].pop("imported") == run_id
        if not last["details"]:
            del last["details"]
    return line


def test_a_round_trip_keeps_everything(home: Path, second: Path) -> None:
    fill(home)
    file = home / "export.jsonl"
    said = json.loads(done("backup", "export", str(file), "--json", home=home))
    assert (said["memories"], said["projects"], said["forgotten"]) == (9, 2, 1)
    assert file.stat().st_mode & 0o777 == 0o600

    report = json.loads(done("backup", "import", str(file), "--json", home=second))
    assert (report["imported"], report["present"], report["skipped"]) == (9, 0, [])
    before, after = exported(home), exported(second)
    assert [without_import(line, report["run_id"]) for line in after] == before
    memories = exported_memories(second)
    rich, plain = memories[id_of("rich")], memories[id_of("plain")]
    assert [entry["change"] for entry in rich["history"]] == ["stored", "updated", "tagged", "updated"]
    assert rich["metadata"] == {"n": 1.1, "deep": {"x": [None, "é"]}}
    assert rich["tags"] == ["größe", "cache"]
    assert plain["access_count"] == 1

    again = json.loads(done("backup", "import", str(file), "--json", home=second))
    assert (again["imported"], again["present"]) == (0, 9)
    assert exported(second) == after

    stop_runtime(second)
    assert exported(second) == after, "an export needs no runtime"
    ask(second, store("new", "Something new."), REMEMBRANCER_EMBEDDERS="1")
    wait_until(lambda: id_of("rich") in recall(second, "where are logins remembered?", strategy="vector"))
    assert id_of("forgotten") not in recall(second, "password rule", strategy="keyword")


def test_what_is_exported_can_be_chosen(home: Path) -> None:
    fill(home)
    assert len(exported_memories(home)) == 9
    assert set(exported_memories(home, "--project", OTHER_PROJECT.id)) == {id_of("other")}
    for arguments, reason in (
        (("-", "--project", "nosuch"), "is not a directory"),
        (("-", "--project", str(home)), "no memories of p_"),
        ((str(write_lines(home / "there")),), "--force"),
        (("-", "--markdown"), "--markdown writes a directory"),
        (("notes.md",), "an export is JSON Lines: name it notes.jsonl, or a directory with --markdown"),
    ):
        assert reason in done("backup", "export", *arguments, home=home, status=exit_codes.USAGE)


def test_a_damaged_file_is_refused_with_the_line_and_a_memory_with_a_secret_is_skipped(home: Path) -> None:
    file = write_lines(home / "lines", "one", "two", "three")
    sound = file.read_bytes()
    file.write_bytes(sound.replace(b"what two", b'\\u001b]0;x\\u0007wh"at two'))
    refused = command("backup", "import", str(file), home=home)
    assert refused.returncode == exit_codes.FILE_UNUSABLE
    assert "nothing was imported, because of line 4: " in refused.stderr
    assert "\x1b" not in refused.stderr + refused.stdout
    assert not is_up(RuntimePaths(home)), "a file that is refused starts nothing"

    file.write_bytes(sound.replace(b"what two says", b"The password is Xk9$vb2!pqRt77"))
    partly = command("backup", "import", str(file), home=home)
    assert partly.returncode == exit_codes.FAILED
    assert partly.stderr.startswith("line 4: ")
    assert "2 memories imported, 0 already there; 1 skipped" in partly.stdout
    assert "They are found by words at once" in partly.stdout
    done("backup", "import", str(home / "missing"), home=home, status=exit_codes.FILE_UNUSABLE)


def test_undoing_an_import_forgets_what_it_brought_and_nothing_else(home: Path, tmp_path: Path) -> None:
    project = project_of(tmp_path)
    done("backup", "import", "-", home=home, stdin=write_lines(home / "first", "one", project=project).read_text())
    done("add", "--user", "I prefer tabs.", home=home)
    both = write_lines(home / "both", "one", "two", "three", project=project)
    run_id = json.loads(done("backup", "import", str(both), "--json", home=home))["run_id"]
    done("edit", memory("two").id, "what two says now", "--project", str(tmp_path), home=home)
    refused = command("undo", run_id, home=home)
    assert (refused.returncode, "confirm with --yes" in refused.stderr) == (exit_codes.USAGE, True), refused.stderr
    undone = done("undo", run_id, "--yes", home=home)  # in another directory
    assert ": 1 memory forgotten; another import brings them back\n" in undone
    assert "was not changed: it has been changed since" in undone
    contents = {each["content"] for each in exported_memories(home).values() if "forgotten_at" not in each}
    assert contents == {"I prefer tabs.", "what one says", "what two says now"}
    now = str(home / "now.jsonl")
    done("backup", "export", now, home=home)
    assert "0 memories imported, 4 already there" in done("backup", "import", now, home=home)
    again = done("backup", "import", str(both), home=home)
    assert "1 memory imported, 2 already there (1 with a different text here).\n" in again, (
        "importing it again brings back what was undone"
    )
    done("edit", memory("three").id, "--to", "user", "--project", str(tmp_path), home=home)
    done("add", "The game has nine levels.", home=home)
    assert done("undo", run_id, "--yes", home=home).splitlines() == [
        f"“what {name}” was not changed: it has been changed since" for name in ("three says", "two says now")
    ], "each once, and nothing about other projects"


def test_an_undo_without_an_id_takes_an_import_as_one_run_and_no_change_from_its_history(
    home: Path, second: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ("--project", str(tmp_path))
    for text in ("The ferry leaves at nine.", "The quay is wet."):
        memory_id = json.loads(done("add", text, *here, "--json", home=home))["memory_id"]
        done("tag", memory_id, "sea", *here, home=home)
    done("add", "I like the quay.", "--user", "--tag", "sea", home=home)
    file = str(home / "export.jsonl")
    done("backup", "export", file, home=home)
    done("backup", "import", file, home=second)
    refused = command("undo", *here, home=second)
    assert "Undo the import of 20" in refused.stderr
    memory_id = json.loads(done("list", *here, "--json", home=second))["memories"][0]["id"]
    done("tag", memory_id, "port", *here, home=second)
    assert "the last change (tagged): " in done("undo", "--yes", *here, home=second), "the change since comes first"
    assert done("undo", "--yes", *here, home=second).splitlines() == [
        f"{tmp_path.name}: 2 memories forgotten; another import brings them back",
        "the user: 1 memory forgotten; another import brings them back",
    ]
    again = command("undo", "--yes", *here, home=second)
    assert "there is nothing left to undo here" in again.stderr
    note = tmp_path / "notes.md"
    note.write_text("# Boats\n\nThe boat is red.\n\n# Docks\n\nThe dock is old.\n\n# TODO\n\n- [x] Sell it\n")
    monkeypatch.chdir(tmp_path)
    assert "already there; 1 ticked item left out as done." in done("backup", "import", str(note), home=second)
    assert "(2 memories)?" in command("undo", home=second).stderr, "it had no effect elsewhere"
    assert ": 2 memories forgotten; another import brings them back\n" in done("undo", "--yes", home=second)
    old = write_lines(home / "old", "one", "two", "three", project=project_of(tmp_path))
    done("backup", "import", str(old), home=second)
    imports = [line.split("\t")[2:4] for line in done("log", home=second).splitlines() if "imported\t" in line]
    assert sorted(imports) == [
        *(["imported", number] for number in ("1 memory", "2 memories", "2 memories", "3 memories")),
        *(["undid: imported", number] for number in ("2 memories", "3 memories")),
    ], "a line for each import and each undo; only an import has another for the user's memories"
    done("backup", "import", str(note), home=second)
    assert "\trestored\t" not in done("log", home=second), "no line for each memory"
    done("undo", "--yes", home=second)
    done("forget", memory("one").id, home=second)
    repeated = done("backup", "import", str(old), home=second)
    assert "0 memories imported, 3 already there (1 forgotten, see 'remembrancer list --forgotten').\n" in repeated
    done("restore", memory("one").id, home=second)
    assert "(restored): “what one says”; it is forgotten now" in done("undo", "--yes", home=second)
    assert "Undid the last change (forgotten): “what one says”" in done("undo", "--yes", home=second)
    undone = done("undo", "--yes", home=second)
    assert ": 3 memories forgotten; another" in undone, "although its history is of another day"
    assert "\timported\t3 memories\tundone\n" in done("log", home=second)


def test_part_of_the_ids_of_memories_in_two_projects_is_refused_with_their_names(home: Path) -> None:
    lines: list[Line] = [ProjectLine(each.id, each.path) for each in (PROJECT, OTHER_PROJECT)]
    ids = {"1": PROJECT.id, "2": OTHER_PROJECT.id}
    made = (memory(id=f"{memory().id[:-5]}{digit}WXYZ", content=f"text {digit}") for digit in ids)
    lines += map(MemoryLine, made, ids.values())
    lines.append(EndLine(2, 2, 0))
    (home / "lines").write_bytes(encode_header(1e9) + b"".join(map(encode_line, lines)))
    done("backup", "import", str(home / "lines"), home=home)
    assert done("list", "--all-projects", home=home).count("WXYZ\t") == 2
    refused = command("forget", "WXYZ", "--all-projects", home=home)
    assert (refused.returncode, "1WXYZ (text 1, in one); 2WXYZ (text 2, in two)" in refused.stderr) == (2, True), (
        refused.stderr
    )
    assert "Forgotten: “text 2”" in done("forget", "2WXYZ", "--all-projects", home=home)


def test_a_dry_run_shows_what_would_be_imported(home: Path, tmp_path: Path) -> None:
    file = write_lines(home / "lines", *(f"number {each}" for each in range(12)), project=project_of(tmp_path))
    first, *lines = done("backup", "import", str(file), "--dry-run", home=home).splitlines()
    assert first == "12 memories would be imported, 0 already there."
    assert lines == [*(f"  what number {each} says" for each in range(10)), "  … and 2 more"]
    assert done("backup", "import", str(file.rename(home / "x.md")), "--dry-run", home=home).startswith(first)
    refused = command("backup", "import", str(home), "--dry-run", home=home)
    assert (refused.returncode, "is an export; move it" in refused.stderr) == (exit_codes.FILE_UNUSABLE, True)


def test_a_memory_that_was_erased_is_refused_by_an_import_that_names_it_once(home: Path) -> None:
    ask(home, store("one", "the harbour is deep"))
    done("backup", "export", str(home / "lines"), home=home)
    ask(home, change("erase", EraseMemory(id_of("one"))))
    refused = command("backup", "import", str(home / "lines"), home=home)
    assert refused.returncode == exit_codes.FAILED
    assert "0 memories imported, 0 already there; 1 skipped" in refused.stdout
    assert refused.stderr == f"{id_of('one')} was erased for good and cannot be imported again\n"


def count(database: Path) -> int:
    """The memories of a database; 0 while it is being made."""
    return len(rows_if_there(database, "SELECT id FROM memories"))


@pytest.mark.parametrize("killed", ["store", "import"])
def test_an_import_bears_the_death_of_the_store_and_goes_on_after_its_own(home: Path, killed: str) -> None:
    names = [f"memory {number}" for number in range(1200)]
    importing = ("backup", "import", str(write_lines(home / "lines", *names)), "--json")
    process = start_command(*importing, environ=os.environ, printed=home / "said")
    wait_until(lambda: count(home / "memory.db") > 200)
    if killed == "store":
        Runtime(home).kill("store")
        assert process.wait(PATIENCE_S) == 0
        report = json.loads((home / "said").read_bytes())
    else:
        process.kill()
        process.wait()
        report = json.loads(done(*importing, home=home))
        assert report["present"] >= 200
    assert report["imported"] + report["present"] == len(names)
    assert count(home / "memory.db") == len(names)


def test_a_store_that_has_no_more_room_says_so_and_the_import_can_go_on(home: Path) -> None:
    names = [f"memory {number}" for number in range(600)]
    file = write_lines(home / "lines", *names, padding=" again" * 500)
    limited = {"REMEMBRANCER_DATABASE_LIMIT_BYTES": "1048576"}
    full = done("backup", "import", str(file), home=home, variables=limited, status=exit_codes.REFUSED)
    assert ("database_limit_bytes" in full, "Imported before the error: " in full) == (True, True)
    assert "have reached the limit of 1.0 MiB" in command("status", home=home).stdout
    stop_runtime(home)
    report = json.loads(done("backup", "import", str(file), "--json", home=home))
    assert report["imported"] > 0
    assert report["imported"] + report["present"] == len(names)


def test_a_directory_of_markdown_brings_everything_back(home: Path, second: Path) -> None:
    fill(home)
    directory = home / "notes"
    said = json.loads(done("backup", "export", str(directory), "--markdown", "--json", home=home))
    files = sorted(directory.rglob("*.md"))
    assert said["memories"] == 9
    kinds = {each.get("kind", "fact") for each in exported_memories(home).values()}
    assert {file.stem for file in files} == kinds, "a file for all memories of one kind"
    assert {file.stat().st_mode & 0o077 for file in [directory, *files]} == {0}
    assert "5 memories would be imported" in done("backup", "import", str(files[0]), "--dry-run", home=second)
    report = json.loads(done("backup", "import", str(directory), "--json", home=second))
    assert (report["imported"], report["present"], report["skipped"]) == (9, 0, [])
    before, after = exported(home), [without_import(line, report["run_id"]) for line in exported(second)]
    assert sorted(map(str, after)) == sorted(map(str, before))


def test_the_details_beside_markdown_are_ours_and_others_are_left_alone(home: Path, tmp_path: Path) -> None:
    (tmp_path / "deploy.md").write_text("# Deploy\n\nNever on Fridays.\n")
    for theirs in (b"", b'{"level": "info"}\n[1]\n', b"\xff\n"):
        (tmp_path / "details.jsonl").write_bytes(theirs)
        assert "1 memory would be imported" in done("backup", "import", str(tmp_path), "--dry-run", home=home)
    for broken in (b"{", b"[1]", b'{"history": []}', b'{"line": "project"}'):
        (tmp_path / "details.jsonl").write_bytes(encode_header(1e9) + broken)
        refused = done("backup", "import", str(tmp_path), home=home, status=exit_codes.FILE_UNUSABLE)
        assert f"line 2 of {tmp_path}/details.jsonl" in refused


def test_a_directory_is_the_same_by_every_path_to_it(home: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "deploy.md").write_text(with_block("# Deploy\n\nNever on Fridays.\n", "- AB12 A memory.", 0.0))
    (tmp_path / "link").symlink_to(notes)
    assert "1 memory imported" in done("backup", "import", str(notes), home=home)
    for path in (f"{notes}/../notes", str(tmp_path / "link"), f"{notes}/deploy.md"):
        assert "0 memories imported, 1 already there" in done("backup", "import", path, home=home)
    (memory_id,) = exported_memories(home)
    erased = done("forget", "--for-good", memory_id, "--yes", home=home)
    assert f" is erased for good; {notes}/deploy.md may still contain it\n" in erased


def test_a_text_that_is_remembered_is_not_imported_again_with_or_without_the_title(home: Path, tmp_path: Path) -> None:
    texts = [f"The {each} are watered by the intern every second Friday" for each in ("plants", "herbs", "trees")]
    here = ("--project", str(Path.cwd()))
    for text in (texts[0], f"Office: {texts[1]}", f"Garden: {texts[2]}"):
        done("add", text, *here, home=home)
    done("add", "They ring at nine.", "--user", home=home)
    file = tmp_path / "office.md"
    file.write_text("\n- ".join(("# Office", *texts)) + "\n## Bells\nThey ring at nine.\n")
    assert "2 memories imported, 2 already there" in done("backup", "import", str(file), home=home)
    done("add", "Doors: They close.", *here, home=home)
    file.write_text("# Office\n## Doors\nThey close.\n## Doors, 2024-05-06\nThey close.\n")
    assert "1 memory imported, 1 already there" in done("backup", "import", str(file), home=home)


def test_an_import_says_that_a_text_was_replaced_since(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "deploy.md"
    file.write_text("# Deploy\n\nOnly on Tuesdays.\n")
    done("backup", "import", str(file), home=home)
    done("backup", "export", str(tmp_path / "before"), home=home)
    done("add", "Only on Mondays.", "--supersedes", *exported_memories(home), home=home)
    for path in (file, tmp_path / "before"):
        again = done("backup", "import", str(path), home=home)
        assert again == "0 memories imported, 1 already there (1 replaced or expired since).\n"
    done("backup", "export", str(tmp_path / "after"), home=home)
    again = done("backup", "import", str(tmp_path / "after"), home=home)
    assert again == "0 memories imported, 2 already there.\n", "it is replaced in the file, too"


def test_review_asks_whether_a_section_of_an_edited_file_replaces_the_one_that_it_extends(
    home: Path, tmp_path: Path
) -> None:
    file, section = tmp_path / "lab.md", "# Lab\n\n## Freezer\nIt is kept at minus eighty degrees."
    for text in (section, f"{section}\nThe compressor was bought in 2019, and its contract is on the door."):
        file.write_text(text + "\n\n## Freezers\nIt hums.\n")
        done("backup", "import", str(file), home=home)
    (pair,) = json.loads(done("list", "--review", "--json", home=home))["contradictions"]
    assert (pair["older"] in pair["newer"], len(exported_memories(home))) == (True, 3)


def test_what_an_assistant_remembers_itself_is_taken_over_once(home: Path, tmp_path: Path) -> None:
    own = {"HOME": str(tmp_path)}
    folder = "".join(each if each.isalnum() else "-" for each in str(Path.cwd()))
    notes = tmp_path / ".claude" / "projects" / folder / "memory"
    notes.mkdir(parents=True)
    (notes / "MEMORY.md").write_text("# Deploy\n\nNever on Fridays.\n\n# Tests\n\nThey need a database.\n")
    for imported, present in ((2, 0), (0, 2)):
        report = json.loads(done("backup", "import", "--from", "claude-code", "--json", home=home, variables=own))
        assert (report["imported"], report["present"]) == (imported, present)
    texts = {each["content"]: each for each in exported_memories(home).values()}
    assert set(texts) == {"Deploy: Never on Fridays.", "Tests: They need a database."}
    assert texts["Deploy: Never on Fridays."]["kind"] == "convention"


CONNECT = sqlite3.connect


@pytest.fixture
def said(capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[[], bytes]:
    return lambda: capsysbinary.readouterr().out


def answers(home: Path, said: Callable[[], bytes]) -> dict[str, Any]:
    """What each command says of a home, less what is another at each time."""
    assert main(["admin", "projects", "--json"]) == 0
    listed = json.loads(said())["projects"]
    assert main(["backup", "export", "-"]) == 0
    lines = said().splitlines()[1:]
    archive = home / "answers.tar"
    assert main(["backup", str(archive), "--json"]) == 0
    made = json.loads(said())
    archive.unlink()
    at = Examination(RuntimePaths(home), ClientEnvironment(home, {}, "linux", home), settings=Settings())
    return {
        "projects": listed,
        "lines": lines,
        "counts": (made["memories"], made["queued"]),
        "model": check_model(at),
        "records": check_records(at).status,
    }


def test_a_store_answers_as_its_files_and_one_that_hangs_is_not_waited_for(
    home: Path, said: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home)

    def connect(database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
        is_ours = str(home) not in str(database) or str(home / "remembrancer-backup-") in str(database)
        assert is_ours or "mode=ro" in str(database), f"a command may write {database}, which is the store's"
        opened: sqlite3.Connection = CONNECT(database, *arguments, **options)
        return opened

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        patch.setattr(runtime_client, "ANSWER_S", PATIENCE_S)
        asked = answers(home, said)
    said()
    with Runtime(home).suspended("store") as store:
        assert main(["admin", "projects", "--json"]) == 0
        assert store.status() == psutil.STATUS_STOPPED
    assert json.loads(said())["projects"] == asked["projects"]
    stop_runtime(home)
    assert answers(home, said) == asked
    assert asked["records"] == "ok"
    assert len([line for line in asked["lines"] if json.loads(line)["line"] == "memory"]) == 9


def test_an_export_without_room_says_where_and_leaves_nothing_as_one_to_stdout_always_does(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    fill(home)
    monkeypatch.chdir(home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = list(tmp_path.iterdir())
    for file in (["-"], ["export", "--markdown"], ["export.jsonl"]):
        with full_disk(1024):
            assert main(["backup", "export", *file]) == exit_codes.FILE_UNUSABLE
        where = home / file[0] if file == ["export.jsonl"] else f"a temporary file in {tmp_path}"
        assert f"{where} cannot be written: {os.strerror(errno.EFBIG)}" in capsysbinary.readouterr().err.decode()
        assert not list(home.glob("export*"))
    files: list[Path] = []
    monkeypatch.setattr(shutil, "copyfileobj", lambda *_: files.extend(tmp_path.iterdir()))
    assert main(["backup", "export", "-"]) == exit_codes.OK
    assert files == before


NOW = 1_700_000_000.0


def exported(home: Path, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done("backup", "export", "-", *arguments, home=home).split("\n")[1:-1]]


def exported_memories(home: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    lines = exported(home, *arguments)
    return {line["memory"]["id"]: line["memory"] for line in lines if line["line"] == "memory"}


def ask(home: Path, *requests: Request[Any], **environ: str) -> list[Any]:
    if not is_up(RuntimePaths(home)):
        start(home, **environ)
    of_home = {**os.environ, "REMEMBRANCER_HOME": str(home), **environ}
    return [ask_store(request, environ=of_home) for request in requests]


def change(name: str, what: Change) -> Submit:
    return Submit(Operation(name, PROJECT, SESSION, NOW + 60, what))


def store(name: str, content: str, scope: Scope = "project", **fields: Any) -> Submit:
    return Submit(store_operation(name, content, scope=scope, **fields))


def id_of(name: str) -> str:
    return memory_id_of(store_operation(name, ""))


def fill(home: Path, **environ: str) -> None:
    entities = (EntityRef("AuthService", "component", "about"), EntityRef("Redis", "technology", "uses"))
    rich: dict[str, Any] = {"tags": ("auth", "größe"), "importance": 0.123456789012345, "occurred_at": NOW - 0.1}
    rich |= {"source": SourceRef("editor", "src/auth.py", 7), "related_entities": entities}
    requests: list[Submit | NoteAccess] = [
        store("plain", "The release is cut on Thursdays."),
        store("rich", "AuthService keeps its sessions in Redis.", **rich),
        store("session", "Today the parser is debugged.", "session", type="episodic"),
        store("foreign", "Another session's note.", "session", session_id=OTHER_SESSION),
        store("user", "I prefer tabs over spaces.", "user", type="procedural"),
        store("other", "The other project speaks Rust.", project=OTHER_PROJECT),
        store("forgotten", "The password rule of last year."),
        store("back", "Deploys need two approvals."),
        store("promoted", "I write commit messages in English."),
        change("update", UpdateMemory(id_of("rich"), importance=0.7, metadata={"n": 1.1, "deep": {"x": [None, "é"]}})),
        change("rewrite", UpdateMemory(id_of("plain"), content="The release is cut on Wednesdays.")),
        change("tag", TagMemory(id_of("rich"), add=("cache",), remove=("auth",))),
        change("drop", UpdateMemory(id_of("rich"), remove_entities=("Redis",))),
        change("forget", ForgetMemory(id_of("forgotten"), "outdated")),
        change("forget-back", ForgetMemory(id_of("back"))),
        change("restore", RestoreMemory(id_of("back"))),
        change("promote", PromoteMemory(id_of("promoted"), "user", "true everywhere")),
        change("widen", PromoteMemory(id_of("session"), "project")),
        NoteAccess(PROJECT, SESSION, (id_of("plain"), id_of("user"))),
    ]
    for request, answer in zip(requests, ask(home, *requests, **environ), strict=True):
        assert isinstance(request, NoteAccess) or isinstance(answer, Applied), answer
    accesses = "SELECT sum(access_count) FROM memories"  # which are counted after the answer
    wait_until(lambda: rows_of(home / "memory.db", accesses) == [(2,)])


def recall(home: Path, query: str, **fields: Any) -> list[str]:
    (answer,) = ask(home, Recall(SESSION, project=PROJECT, query=query, **fields))
    assert isinstance(answer, Recalled)
    return [memory.id for memory in answer.memories]
