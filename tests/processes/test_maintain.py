"""`remembrancer admin maintain` on real homes: what it says, and where."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import is_up
from remembrancer.config.project import project_of
from remembrancer.protocol.consolidation import Done, Maintain, Maintained
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope
from remembrancer.protocol.writes import ProjectRef
from tests.operations import to_store
from tests.processes.bridge_rig import bridge
from tests.processes.portable_rig import command, done, start
from tests.runtime import stop_runtime

CONTENT = "Builds take nine minutes."
GONE = "not here any more"


@pytest.fixture(autouse=True)
def only_consolidated(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is embedded; the runtime of the home is stopped at the end."""
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "0")
    yield
    stop_runtime(home)


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    """A project with a memory."""
    directory = tmp_path / "app"
    directory.mkdir()
    start(home)
    with bridge(REMEMBRANCER_PROJECT=str(directory)) as client:
        client.initialize()
        client.store(CONTENT)
        client.end_input()
    return directory


def test_the_memories_of_a_project_of_all_and_of_the_user_are_looked_through(home: Path, project: Path) -> None:
    said = json.loads(done("admin", "maintain", "--project", str(project), "--dry-run", "--json", home=home))
    assert said["dry_run"] is True
    (place,) = said["places"]
    assert place["project"]["path"] == str(project)
    assert place["examined"] in (1, 2), "the memory, and what its session hands over once its end is dealt with"
    assert (place["archived"], place["deleted"], place["run_ids"]) == (0, 0, [])
    first, *others = done("admin", "maintain", "--all", home=home).decode().splitlines()
    assert first in (f"{project}: 1 examined", f"{project}: 2 examined")
    assert others == ["the user: 0 examined", "There was nothing to do."]
    done("down", home=home)
    said = json.loads(done("admin", "maintain", "--user", "--json", home=home))
    assert [place["project"] for place in said["places"]] == [None], "also where no runtime is up"


def test_where_nothing_is_remembered_nothing_is_started(home: Path, tmp_path: Path) -> None:
    for arguments in (["--project", str(tmp_path)], ["--project", str(tmp_path / "nowhere")], ["--user"], ["--all"]):
        finished = command("admin", "maintain", *arguments, home=home)
        assert finished.returncode == exit_codes.USAGE
        assert finished.stderr.startswith(b"remembrancer admin maintain: ")
    assert not is_up(RuntimePaths(home))


def test_a_run_is_undone_by_its_name_and_an_unknown_one_is_refused(home: Path, project: Path) -> None:
    with bridge(REMEMBRANCER_PROJECT=str(project)) as client:
        client.initialize()
        for text in ("Copies are linked.", "copies are linked"):
            client.store(text)
        client.end_input()
    said = json.loads(done("admin", "maintain", "--project", str(project), "--json", home=home))
    (place,) = said["places"]
    assert place["duplicates"] == 1
    (run_id,) = place["run_ids"]
    undone = json.loads(done("admin", "maintain", "--undo", run_id, "--all", "--json", home=home))
    ((found,), (memory,)) = undone["places"], place["duplicate_ids"]
    assert not found["already"]
    assert [memory.endswith(each) for each in found["memories"]] == [True]
    again = done("admin", "maintain", "--undo", run_id, "--project", str(project), home=home).decode()
    assert again == f"{project}: it was undone before\n"
    refused = command("admin", "maintain", "--undo", "run:unknown", "--all", home=home)
    assert refused.returncode == exit_codes.USAGE
    assert b"there is no run run:unknown" in refused.stderr


@asynccontextmanager
async def played_store(home: Path, answer: Maintained | Failure) -> AsyncIterator[list[Any]]:
    """A store that gives every question the same answer. Gives what it was asked. No command starts another one."""
    asked: list[Any] = []
    paths = RuntimePaths(home)
    paths.run.mkdir(mode=0o700, exist_ok=True)

    def hear(peer: Peer, envelope: Envelope, message: Any) -> None:
        asked.append(message)
        router.send(peer, answer, in_reply_to=envelope.message_id)

    router: Router[Any] = Router(paths.store_endpoint, Speaker("store", new_ulid()), to_store, hear)
    with FileLock(paths.start_lock) as lock:
        assert lock.try_acquire()
        async with router:
            yield asked


async def maintained(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return await anyio.to_thread.run_sync(lambda: command("admin", "maintain", *arguments, home=home))


async def test_the_report_is_shown_and_given_to_programs_whole(home: Path, project: Path) -> None:
    listed = json.loads(done("list", "--project", str(project), "--json", home=home))["memories"]
    whole = json.loads(done("show", listed[-1]["id"], "--project", str(project), "--json", home=home))
    ids = (whole["id"], "memory:2")
    done("down", home=home)
    report = Maintained("project", 12, {"archived": Done(2, ids), "duplicates": Done(1)}, ("run:1",))
    async with played_store(home, report) as asked:
        shown = await maintained(home, "--project", str(project))
        said = json.loads((await maintained(home, "--all", "--dry-run", "--json")).stdout)
    assert asked == [Maintain(project_of(project)), Maintain(project_of(project), True), Maintain(None, True)]
    assert shown.stdout.decode().splitlines() == [
        f"{project}: 12 examined, 2 archived, 1 duplicates",
        *(f"  archived: {words}  {memory_id}" for memory_id, words in zip(ids, (CONTENT, GONE), strict=True)),
        f"  to undo: remembrancer undo run:1 --project {project_of(project).id}",
    ]
    assert [place["archived_ids"] for place in said["places"]] == [[*ids]] * 2
    assert said["places"][1]["project"] is None
    shared, of = RuntimePaths(home).lanes / "projects.json", project_of(project)
    shared.parent.mkdir(mode=0o700)
    shared.write_text(json.dumps({of.id: "l_0123456789ab"}))
    async with played_store(home, Maintained("project", 12)) as asked:
        both = await maintained(home, "--project", str(project))
    assert asked == [Maintain(of), Maintain(ProjectRef("l_0123456789ab", of.path))]
    assert both.stdout.decode().splitlines()[:2] == [
        f"{project}: 12 examined",
        f"{project}, what is shared: 12 examined",
    ]


async def test_a_refusal_is_said_with_its_reason(home: Path, project: Path) -> None:
    done("down", home=home)
    async with played_store(home, Failure("consolidator_unavailable", "there is no consolidator", False)):
        finished = await maintained(home, "--project", str(project))
    assert finished.returncode == exit_codes.REFUSED
    assert finished.stderr == b"remembrancer admin maintain: there is no consolidator\n"
