"""Commands ask the store that runs: this process opens no file of memories, and the answers are those of the files."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from remembrancer.actors.gateway.write_queue import QueueFile, queued_row
from remembrancer.command_line import main
from remembrancer.commands import runtime_client
from remembrancer.commands.clients import Surroundings
from remembrancer.commands.doctor import Examination, check_model, check_records
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.paths import RuntimePaths
from tests.operations import PROJECT, store_operation
from tests.patience import PATIENCE_S
from tests.processes.portable_rig import fill
from tests.processes.runtimes import until
from tests.processes.test_export import write_lines
from tests.runtime import Runtime, done, stop_runtime

pytestmark = pytest.mark.usefixtures("without_embedders")
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
    at = Examination(RuntimePaths(home), Surroundings(home, {}, "linux", home), settings=Settings())
    return {
        "projects": listed,
        "lines": lines,
        "counts": (made["memories"], made["queued"]),
        "model": check_model(at),
        "records": check_records(at).status,
    }


def test_a_store_answers_as_its_files(home: Path, said: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    refused = [store_operation(f"refused {number}", "Refused") for number in range(2)]
    with closing(QueueFile(home / "queue.db")) as file:
        file.append([queued_row(each, PROJECT.id, 1.0) for each in refused])
        file.settle([], {each.operation_id: Failure("not_found", "gone") for each in refused}, now=2.0)
    fill(home)

    def connect(database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
        named = str(database)
        ours = str(home / "user") in named or str(home / "projects") in named
        ours |= str(home / "queue.db") in named and "mode=ro" not in named
        assert not ours, f"a command has opened {named}, which is the store's or the gateway's"
        opened: sqlite3.Connection = CONNECT(database, *arguments, **options)
        return opened

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        patch.setattr(runtime_client, "ANSWER_S", PATIENCE_S)
        asked = answers(home, said)
        assert main(["admin", "queue", "drop", "--all"]) == 5  # the file is the gateway's
    said()
    stop_runtime(home)
    assert answers(home, said) == asked
    assert asked["records"] == "ok"
    assert len([line for line in asked["lines"] if json.loads(line)["line"] == "memory"]) == 9
    assert main(["admin", "queue", "drop", "--all"]) == 0
    assert said().startswith(b"Deleted for good: 2 writes")


def test_a_store_that_hangs_is_not_waited_for(home: Path, said: Callable[[], bytes]) -> None:
    fill(home)
    store = Runtime(home).process("store")
    store.suspend()
    try:
        assert main(["admin", "projects", "--json"]) == 0
        assert store.status() == psutil.STATUS_STOPPED
    finally:
        store.resume()
    assert {each["id"] for each in json.loads(said())["projects"]} >= {PROJECT.id}


def test_an_export_is_whole_when_the_store_that_writes_it_is_killed(home: Path, said: Callable[[], bytes]) -> None:
    names = [f"memory {number}" for number in range(3000)]
    done("backup", "import", str(write_lines(home / "lines", *names)), home=home)
    store = Runtime(home).process("store")
    target = home / "exports" / "export.jsonl"
    target.parent.mkdir()

    is_over = threading.Event()

    def is_under_way() -> bool:
        with suppress(FileNotFoundError):
            return any(path.stat().st_size for path in target.parent.glob("*.part"))
        return False

    def kill() -> None:
        until(lambda: is_under_way() or is_over.is_set())
        store.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        assert main(["backup", "export", str(target)]) == 0
    finally:
        is_over.set()
        killing.join()
    header, *lines = map(json.loads, target.read_bytes().splitlines())
    assert header["format"] == "remembrancer-export"
    assert (
        lines[-1]["memories"] == len(names) == len({line["memory"]["id"] for line in lines if line["line"] == "memory"})
    )
    assert b"3,000 memories" in said()
    assert list(target.parent.iterdir()) == [target]
