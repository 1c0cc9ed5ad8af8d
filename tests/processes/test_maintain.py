"""`remembrancer admin maintain` on real homes: what it says, and where."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from remembrancer.commands import exit_codes
from remembrancer.protocol.paths import RuntimePaths
from tests.processes.runtimes import until
from tests.runtime import command, done, start, stop_runtime

CONTENT = "Builds take nine minutes."


@pytest.fixture(autouse=True)
def only_consolidated(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is embedded; the runtime of the home is stopped at the end."""
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "0")
    yield
    stop_runtime(home)


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "app"
    directory.mkdir()
    start(home)
    done("add", CONTENT, home=home, directory=directory)
    return directory


def test_the_memories_of_a_project_of_all_and_of_the_user_are_looked_through(home: Path, project: Path) -> None:
    said = json.loads(done("admin", "maintain", "--project", str(project), "--dry-run", "--json", home=home))
    assert said["dry_run"] is True
    (place,) = said["places"]
    assert place["project"]["path"] == str(project)
    assert place["outcome"]["examined"] in (1, 2), (
        "the memory, and what its session hands over once its end is dealt with"
    )
    assert place["outcome"].keys().isdisjoint(("done", "run_ids"))
    first, *others = done("admin", "maintain", "--all-projects", home=home).splitlines()
    assert first in (f"{project}: 1 examined", f"{project}: 2 examined")
    assert others == ["the user: 0 examined", "There was nothing to do."]
    done("down", home=home)
    said = json.loads(done("admin", "maintain", "--user", "--json", home=home))
    assert [place["project"] for place in said["places"]] == [None], "also where no runtime is up"


def test_a_run_is_undone_by_its_name_and_an_unknown_one_is_refused(home: Path, project: Path) -> None:
    done("add", "The lamp flickered.", "--kind", "observation", "--importance", "0.1", home=home, directory=project)
    done("down", home=home)
    with closing(sqlite3.connect(RuntimePaths(home).database)) as database, database:
        database.execute("UPDATE memories SET created_at = created_at - 9e6 WHERE kind = 'observation'")
    start(home)
    would_be = done("admin", "maintain", "--project", str(project), "--dry-run", home=home)
    said = json.loads(done("admin", "maintain", "--project", str(project), "--json", home=home))
    (place,) = said["places"]
    (memory,) = place["outcome"]["done"]["archived"]["ids"]
    assert ", 1 archived\n" in would_be
    assert f"  {memory[-4:]}\n" in would_be
    (run_id,) = place["outcome"]["run_ids"]
    undone = json.loads(done("undo", run_id, "--all-projects", "--json", home=home))
    (found,) = undone["places"]
    assert not found["already"]
    assert [memory.endswith(each) for each in found["memories"]] == [True]
    again = done("undo", run_id, "--project", str(project), home=home)
    assert again == f"{project}: it was undone before\n"
    refused = command("undo", "run:unknown", "--all-projects", home=home)
    assert refused.returncode == exit_codes.USAGE
    assert "there is no run run:unknown" in refused.stderr


def test_it_comes_when_there_is_work_gives_way_to_the_others_and_is_in_the_status(home: Path) -> None:
    start(home)
    assert json.loads(command("status", "--json", home=home).stdout)["consolidator"]["finished"] is None
    command("admin", "maintain", "--user", home=home)
    idle = {"job": None, "finished": 1, "failed": 0, "error": None}
    until(lambda: json.loads(command("status", "--json", home=home).stdout)["consolidator"] == idle)
    (process,) = (
        each
        for each in json.loads(command("status", "--json", home=home).stdout)["processes"]
        if each["role"] == "consolidator"
    )
    assert psutil.Process(process["pid"]).nice() == 10
    assert "consolidator waits for work; 1 done" in command("status", home=home).stdout
