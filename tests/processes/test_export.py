"""Export and import with real runtimes: a round trip keeps everything, and what is wrong changes nothing."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import is_up
from remembrancer.memory.export_format import EndLine, Line, MemoryLine, ProjectLine, encode_header, encode_line
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.writes import EraseMemory
from tests.forked import start_command
from tests.operations import OTHER_PROJECT, PROJECT
from tests.patience import PATIENCE_S
from tests.processes.portable_rig import ask, change, exported, exported_memories, fill, id_of, recall, store
from tests.processes.runtimes import until
from tests.pure.test_export_format import memory
from tests.runtime import Runtime, command, done, stop_runtime
from tests.spaces import rows_if_there

pytestmark = pytest.mark.usefixtures("without_embedders")


def write_lines(path: Path, *names: str, padding: str = "") -> Path:
    """An export of these memories of one project."""
    lines = [MemoryLine(memory(name, content=f"what {name} says{padding}"), PROJECT.id) for name in names]
    body: list[Line] = [ProjectLine(PROJECT.id, PROJECT.path), *lines, EndLine(1, len(names), 0)]
    path.write_bytes(encode_header(1e9) + b"".join(map(encode_line, body)))
    return path


def _over(line: dict[str, Any]) -> dict[str, Any]:
    """A line as it is after an import: a session that was going on elsewhere goes on nowhere here."""
    session = line.get("session")
    if session is None or session["status"] != "active":
        return line
    ended = {"status": "abandoned", "ended_at": session["last_active_at"], "ending": "abandoned"}
    return {**line, "session": {**session, **ended}}


def test_a_round_trip_keeps_everything(home: Path, second: Path) -> None:
    fill(home)
    file = home / "export.jsonl"
    said = json.loads(done("backup", "export", str(file), "--json", home=home))
    assert (said["memories"], said["projects"], said["forgotten"]) == (9, 2, 1)
    assert file.stat().st_mode & 0o777 == 0o600

    report = json.loads(done("backup", "import", str(file), "--json", home=second))
    assert (report["imported"], report["present"], report["rejected"], report["bad"]) == (9, 0, 0, 0)
    before, after = exported(home), exported(second)
    assert after == [_over(line) for line in before]
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
    until(lambda: id_of("rich") in recall(second, "where are logins remembered?", strategy="vector"))
    assert id_of("forgotten") not in recall(second, "password rule", strategy="keyword")


def test_what_is_exported_can_be_chosen(home: Path) -> None:
    fill(home)
    assert len(exported_memories(home)) == 9
    assert id_of("forgotten") not in exported_memories(home, "--no-include-forgotten")
    assert set(exported_memories(home, "--project", OTHER_PROJECT.id)) == {id_of("other")}
    assert set(exported_memories(home, "--scope", "user")) == {id_of("user"), id_of("promoted")}
    assert set(exported_memories(home, "--scope", "session")) == {id_of("foreign")}
    both = exported_memories(home, "--project", OTHER_PROJECT.id, "--scope", "project", "--scope", "user")
    assert set(both) == {id_of("other"), id_of("user"), id_of("promoted")}
    nowhere = command("backup", "export", "-", "--project", "nosuch", home=home)
    assert (nowhere.returncode, "is no directory" in str(nowhere.stderr)) == (exit_codes.USAGE, True)
    unknown = command("backup", "export", "-", "--project", str(home), home=home)
    assert unknown.returncode == exit_codes.USAGE
    assert "no memories of p_" in unknown.stderr
    there = command("backup", "export", str(write_lines(home / "there")), home=home)
    assert there.returncode == exit_codes.USAGE
    assert "--force" in there.stderr
    printed = command("backup", "export", "-", "--markdown", home=home)
    assert (printed.returncode, "--markdown writes a directory" in printed.stderr) == (exit_codes.USAGE, True)


def test_lines_that_no_tool_would_have_stored_are_named_and_the_others_are_imported(home: Path) -> None:
    file = write_lines(home / "lines", "one", "two", "three")
    sound = file.read_bytes()
    file.write_bytes(
        sound.replace(b'"type":', b'"occurred_at":1e300,"type":', 1).replace(
            b"what two", b'\\u001b]0;x\\u0007wh"at two'
        )
    )
    partly = command("backup", "import", str(file), home=home)
    assert partly.returncode == exit_codes.FAILED
    assert "line 3: occurred_at must be a time between the years 1 and 9999" in partly.stderr
    assert "line 4: " in partly.stderr
    assert "\x1b" not in partly.stderr + partly.stdout
    assert "1 memory imported" in partly.stdout
    assert "It can be found by its words now" in partly.stdout

    nothing = write_lines(home / "bad", "four")
    nothing.write_bytes(nothing.read_bytes().replace(b'"type":', b'"importance":7,"type":', 1))
    stop_runtime(home)
    report = json.loads(command("backup", "import", str(nothing), "--json", home=home).stdout)
    assert (report["imported"], report["bad"], report["bad_lines"][0]["line"]) == (0, 1, 3)
    assert not is_up(RuntimePaths(home)), "a file of which nothing is left starts nothing"

    newer = command("backup", "import", "-", home=home, stdin=sound.decode().replace('"version":1', '"version":9', 1))
    assert newer.returncode == exit_codes.FILE_UNUSABLE
    assert "newer" in newer.stderr
    assert command("backup", "import", str(home / "missing"), home=home).returncode == exit_codes.FILE_UNUSABLE


def test_memories_can_be_imported_into_another_project(home: Path) -> None:
    file = write_lines(home / "lines", "one")
    target = home / "repository"
    target.mkdir()
    done("backup", "import", "-", "--project", str(target), home=home, stdin=file.read_text())
    (project,) = [line for line in exported(home) if line["line"] == "project"]
    assert project["path"] == str(target)


def test_a_memory_that_was_erased_is_refused_by_an_import_that_names_it_once(home: Path) -> None:
    ask(home, store("one", "the harbour is deep"))
    done("backup", "export", str(home / "lines"), home=home)
    ask(home, change("erase", EraseMemory(id_of("one"))))
    refused = command("backup", "import", str(home / "lines"), home=home)
    assert refused.returncode == exit_codes.FAILED
    assert "0 memories imported, 0 were there already, 1 refused" in refused.stdout
    assert refused.stderr == f"{id_of('one')} was erased for good: it is not imported again\n"


def test_an_import_survives_a_store_that_is_killed(home: Path) -> None:
    names = [f"memory {number}" for number in range(1500)]
    file = write_lines(home / "lines", *names)
    ask(home, store("first", "so that a runtime is up", requested_at=time.time()))
    runtime = Runtime(home)
    said = home / "said"
    importing = start_command("backup", "import", str(file), "--json", environ=os.environ, printed=said)
    database = home / "memory.db"
    until(lambda: count(database) > 300)
    runtime.kill("store")
    assert importing.wait(PATIENCE_S) == 0
    report = json.loads(said.read_bytes())
    assert report["imported"] + report["present"] == len(names)
    assert count(database) == len(names) + 1


def count(database: Path) -> int:
    """The memories of a database; 0 while it is being made."""
    return len(rows_if_there(database, "SELECT id FROM memories"))


def test_an_import_that_was_killed_goes_on(home: Path) -> None:
    names = [f"memory {number}" for number in range(1000)]
    file = write_lines(home / "lines", *names)
    importing = start_command("backup", "import", str(file), environ=os.environ, printed=Path(os.devnull))
    database = home / "memory.db"
    until(lambda: count(database) > 100)
    importing.kill()
    importing.wait()
    report = json.loads(done("backup", "import", str(file), "--json", home=home))
    assert report["present"] >= 100
    assert report["imported"] + report["present"] == len(names)
    assert count(database) == len(names)


def test_a_store_that_has_no_more_room_says_so_and_the_import_can_go_on(home: Path) -> None:
    names = [f"memory {number}" for number in range(600)]
    file = write_lines(home / "lines", *names, padding=" again" * 500)
    full = command("backup", "import", str(file), home=home, variables={"REMEMBRANCER_DATABASE_LIMIT_BYTES": "1048576"})
    assert full.returncode == exit_codes.REFUSED
    assert "database_limit_bytes" in full.stderr
    assert "were imported before" in full.stderr
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
    report = json.loads(done("backup", "import", str(directory), "--json", home=second))
    assert (report["imported"], report["present"], report["rejected"], report["bad"]) == (9, 0, 0, 0)
    before, after = exported(home), exported(second)
    assert sorted(map(str, after)) == sorted(map(str, map(_over, before)))
    forgotten = {line["memory"]["id"] for line in after if "forgotten_at" in line.get("memory", {})}
    assert "8 memories forgotten again" in done("backup", "import", str(directory), "--undo", home=second)
    assert all("forgotten_at" in each for each in exported_memories(second).values())
    again = json.loads(done("backup", "import", str(directory), "--json", home=second))
    assert (again["imported"], again["present"]) == (8, 1), "the one that was forgotten before stays so"
    assert {name for name, each in exported_memories(second).items() if "forgotten_at" in each} == forgotten


def test_a_directory_is_the_same_by_every_path_to_it(home: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "deploy.md").write_text("# Deploy\n\nNever on Fridays.\n")
    (tmp_path / "link").symlink_to(notes)
    assert "1 memory imported" in done("backup", "import", str(notes), home=home)
    for path in (f"{notes}/../notes", str(tmp_path / "link")):
        assert "0 memories imported, 1 was there" in done("backup", "import", path, home=home)
    undone = json.loads(done("backup", "import", str(tmp_path / "link"), "--undo", "--json", home=home))
    assert (undone["imported"], undone["forgotten"]) == (0, 1)


def test_what_an_assistant_remembers_by_itself_is_taken_over_once_and_forgotten_again(
    home: Path, tmp_path: Path
) -> None:
    own = {"HOME": str(tmp_path)}
    folder = "".join(each if each.isalnum() else "-" for each in str(Path.cwd()))
    notes = tmp_path / ".claude" / "projects" / folder / "memory"
    notes.mkdir(parents=True)
    (notes / "MEMORY.md").write_text("# Deploy\n\nNever on Fridays.\n\n# Tests\n\nThey need a database.\n")
    done("add", "They need a database, the tests.", home=home)
    for imported, present in ((2, 0), (0, 2)):
        report = json.loads(done("backup", "import", "--from", "claude-code", "--json", home=home, variables=own))
        assert (report["imported"], report["present"]) == (imported, present)
    texts = {each["content"]: each for each in exported_memories(home).values()}
    taken = {"Deploy: Never on Fridays.", "Tests: They need a database."}
    assert set(texts) - taken == {"They need a database, the tests."}
    assert texts["Deploy: Never on Fridays."]["kind"] == "convention"
    (notes / "MEMORY.md").write_text("# Deploy\n\nWhat is forgotten need not be in the file any more.\n")
    assert "2 memories forgotten again" in done(
        "backup", "import", "--from", "claude-code", "--undo", home=home, variables=own
    )
    memories = exported_memories(home).values()
    assert {memory["content"] for memory in memories if "forgotten_at" in memory} == taken
    (notes / "MEMORY.md").write_text("# Deploy\n\nNever on Fridays.\n\n# Tests\n\nThey need a database.\n")
    report = json.loads(done("backup", "import", "--from", "claude-code", "--json", home=home, variables=own))
    assert (report["imported"], report["present"]) == (2, 0)
    assert all("forgotten_at" not in each for each in exported_memories(home).values())


def test_a_database_of_nodes_is_taken_in_with_its_links(home: Path, tmp_path: Path) -> None:
    path, project = tmp_path / "memory.db", tmp_path / "project"
    project.mkdir()
    with sqlite3.connect(path) as nodes:
        nodes.execute(
            "CREATE TABLE nodes (id TEXT PRIMARY KEY, content TEXT NOT NULL, tags TEXT DEFAULT '[]', links TEXT"
            " DEFAULT '[]', source TEXT DEFAULT '', created_at TEXT NOT NULL, last_accessed TEXT NOT NULL,"
            " access_count INTEGER DEFAULT 0)"
        )
        at = "2026-02-03T04:05:06+00:00"
        rows = [("a", "the cache is Redis", '["cache"]', '["b", "lost"]', "monday", at, at, 3)]
        rows += [("b", "Redis listens on 6380", "[]", '["a"]', "", at, at, 0), ("c", " ", "[]", "[]", "", at, at, 0)]
        nodes.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    nodes.close()
    asked = ("backup", "import", str(path), "--json")
    finished = command(*asked, home=home, variables={"REMEMBRANCER_PROJECT": str(project)})
    assert finished.returncode == exit_codes.FAILED, "the empty one is passed over"
    said = json.loads(finished.stdout)
    assert (said["imported"], [each["line"] for each in said["bad_lines"]]) == (2, [5])
    again = command(
        *asked, "--project", str(project), home=home, variables={"REMEMBRANCER_PROJECT": str(tmp_path / "other")}
    )
    assert json.loads(again.stdout)["present"] == 2
    (best, *_) = json.loads(done("list", "--tag", "cache", "--project", str(project), "--json", home=home))["memories"]
    assert (best["content"], best["scope"]) == ("the cache is Redis", "project")
    lines = exported_memories(home).values()
    assert sorted(len(line.get("links", ())) for line in lines) == [0, 1], "a link of both is there once"
    assert {line["source"].get("label") for line in lines} == {"monday", None}
    assert {(line.get("access_count", 0), line["pinned"]) for line in lines} >= {(3, True)}
