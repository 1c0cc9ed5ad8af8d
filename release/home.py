"""Makes this release's homes and exports, which all later releases must open: `python -m release home`.

Real sessions fill a home in a runtime of its own. Some writes are left in the queue, as if the store had been away.
"""

import asyncio
import shutil
import tarfile
import time
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench.client import StdioClient
from bench.harness import Runtime, runtime
from remembrancer import __version__
from remembrancer.actors.gateway.write_queue import QueueFile, queued_row
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.shared_lane import SharedLane
from remembrancer.commands.hook import Hook
from remembrancer.config.project import project_of
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.runs import ApplyRun, ProposeMemory, ReviseMemory
from remembrancer.protocol.writes import (
    Applied,
    EraseMemory,
    Operation,
    PromoteMemory,
    StoreMemory,
    UpdateMemory,
    memory_id_of,
)
from tests.contracts.records_rig import apply
from tests.in_process_journal import InProcessJournal, InProcessServer

HOMES: Final = Path(__file__).parents[1] / "tests" / "homes"
PROJECT: Final = "/home/ada/harbour"
"""The project's path, which need not exist."""
LEFT_OUT: Final = ("logs", "run", "vectors", "*.lock", "runtime.*", "index.db*", "*-wal", "*-shm")
"""Files that a home has only temporarily, or can rebuild."""
QUEUED: Final = "The tide table of the north mole is renewed each spring."
REFUSED: Final = "This was too late for a store that had gone."
PROMPTED: Final = "when does the pilot boat leave?"
SHARED: Final = "-shared"
"""The suffix of the home whose project is shared."""
LANE: Final = "l_0a1b2c3d4e5f"
RUN: Final = "run:01JHARBOUR"
PROPOSED: Final = "Every answer about ships names their tonnage."
NOT_PROPOSED: Final = "The north mole is closed in winter."
MERGED: Final = "The pilot boat is the one that leaves at seven."
TOGETHER: Final = "All crews moor at the east quay."
TOGETHER_NOW: Final = "All crews moor at the west quay since May."
SETTINGS: Final = 'log_level = "warning"\n'
SUBJECTS: Final[dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def make_homes(homes: Path = HOMES) -> list[Path]:
    """Make an archive and an export of this release's home, and of one with a shared project. Returns their paths.
    Raises `FileExistsError` if they exist, since released files never change."""
    homes.mkdir(exist_ok=True)
    made = []
    for name, leave_more in ((__version__, _leave_waiting), (f"{__version__}{SHARED}", _share)):
        archive, exported = homes / f"{name}.tar.gz", homes / f"{name}.jsonl"
        if archive.exists() or exported.exists():
            raise FileExistsError(f"{archive} is there: what was released stays as it is")
        asyncio.run(_make_home(archive, exported, leave_more))
        made += [archive, exported]
    return made


async def _make_home(archive: Path, exported: Path, leave_more: Callable[[Path], None]) -> None:
    async with runtime(project=PROJECT) as running:
        home = running.home
        (home / "config.toml").write_text(SETTINGS, encoding="utf-8")
        await _fill(running)
        for arguments in (("token", "create", "a desktop", "--project", "/"), ("backup", "export", str(exported))):
            status, _ = await running.command(*arguments)
            if status != 0:
                raise RuntimeError(f"{arguments} ended with status {status}")
        await running.stop()
        await asyncio.to_thread(leave_more, home)
        with tarfile.open(archive, "w:gz") as packed:
            for path in sorted(home.rglob("*")):
                name = path.relative_to(home)
                if path.is_file() and not any(Path(part).match(left) for left in LEFT_OUT for part in name.parts):
                    packed.add(path, str(name), filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


async def _fill(running: Runtime) -> None:
    """Store memories of every kind and scope, versions, links, entities; one forgotten, one erased, one promoted."""
    tools = "memory,nodes,admin"
    async with running.client(REMEMBRANCER_SESSION_ID="monday", REMEMBRANCER_TOOLSETS=tools) as client:
        stored: dict[str, str] = {}
        for kind, content in SUBJECTS.items():
            scope = {"preference": "user", "scratchpad": "session", "tool_outcome": "session"}.get(kind, "project")
            answer = await _called(
                client,
                "store_memory",
                content=content,
                kind=kind,
                scope=scope,
                tags=[kind, "harbour"],
                importance=0.7,
                source={"file": "docs/harbour.md"},
                metadata={"berth": 7},
                wait_for_embedding=True,
            )
            stored[kind] = answer["memory_id"]
        await _called(
            client,
            "update_memory",
            memory_id=stored["fact"],
            content="The pilot boat leaves at seven in the morning.",
            related_entities={"add": [{"name": "pilot boat", "type": "custom", "relationship": "about"}]},
            add_links=[{"relation": "supports", "target": stored["decision"]}],
        )
        await _called(client, "tag_memory", memory_id=stored["pattern"], add=["lights"])
        await _called(client, "promote_memory", memory_id=stored["convention"], target_scope="user")
        await _called(client, "forget_memory", memory_id=stored["observation"], reason="it was lit")
        erased = await _called(client, "store_memory", content="A word that nobody should have said.", scope="project")
        await _called(client, "erase_memory", memory_id=erased["memory_id"])
        await _called(client, "remember", content="The Kestrel tows at night.", tags=["tug"], links=[stored["entity"]])
        await _called(client, "recall_memories", query="when does the pilot boat leave")
    async with running.client(REMEMBRANCER_SESSION_ID="tuesday", REMEMBRANCER_TOOLSETS="graph") as client:
        tides = "High water is at noon."
        fact = await _called(client, "store_memory", content=tides, valid_from="2026-05-01T00:00:00Z")
        await _called(client, "invalidate", id=fact["memory_id"], reason="the moon moved", at="2026-06-01T00:00:00Z")
        tug = await _called(client, "create_entity", name="Kestrel", entity_type="ship")
        port = await _called(client, "create_entity", name="north mole", entity_type="place")
        await _called(client, "create_relation", from_id=tug["id"], to_id=port["id"], relation_type="moored_at")


async def _called(client: StdioClient, tool: str, /, **arguments: Any) -> dict[str, Any]:
    answer = await client.call(tool, **arguments)
    if "error" in answer:
        raise RuntimeError(f"{tool}: {answer}")
    return answer


def _leave_waiting(home: Path) -> None:
    """Leave a waiting write, a rejected one, and a hook's event, none of which the store has processed."""
    project, now = project_of(Path(PROJECT)), time.time()
    waiting, refused = (_stored(name, content, now) for name, content in (("waiting", QUEUED), ("refused", REFUSED)))
    queue = QueueFile(home / "queue.db")
    for each in (waiting, refused):
        queue.append(queued_row(each, project.id, now))
    queue.settle((), {refused.operation_id: Failure("invalid_input", "it was too late")}, now)
    queue.close()
    given = {"session_id": "wednesday", "prompt": PROMPTED}
    hook = Hook("UserPromptSubmit", "claude-code", given, {"REMEMBRANCER_HOME": str(home)}, 0.0)
    hook.directory = PROJECT
    hook.record()
    shutil.rmtree(home / "hooks" / "running", ignore_errors=True)


def _share(home: Path) -> None:
    """Leave a run that can be undone, proposals (one refused), and a lane with an unreachable journal."""
    paths, project, now = RuntimePaths(home), project_of(Path(PROJECT)), time.time()
    with closing(Records(SqliteFile(paths.database, MEMORY), project.id, time.time)) as records:
        waiting, refused, merged = (
            _stored(name, content, now)
            for name, content in (("proposed", PROPOSED), ("refused", NOT_PROPOSED), ("merged", MERGED))
        )
        edits = (
            ProposeMemory(memory_id_of(waiting.change) or "", "it was useful in three sessions", 0.8),
            ProposeMemory(memory_id_of(refused.change) or "", "it was useful in three sessions", 0.8),
            ReviseMemory(memory_id_of(merged.change) or "", "consolidated", forget="said by another"),
        )
        run = ApplyRun(RUN, "project", "consolidation", edits)
        kept = PromoteMemory(memory_id_of(refused.change) or "", "project")
        _applied(records, waiting, refused, merged, Operation("run", project, "", now, run))
        _applied(records, Operation("kept", project, "monday", now, kept))
    with closing(asyncio.new_event_loop()) as loop:
        journal = InProcessJournal(InProcessServer())
        loop.run_until_complete(journal.create(LANE))
        with closing(
            SharedLane(SqliteFile(paths.database, MEMORY), LANE, time.time, journal, "ada", loop.run_until_complete)
        ) as shared:
            stored, gone = (_stored(f"shared {number}", each, now) for number, each in enumerate((TOGETHER, "A slip.")))
            _applied(shared, stored, gone)
            change = UpdateMemory(memory_id_of(stored.change) or "", content=TOGETHER_NOW)
            erased = EraseMemory(memory_id_of(gone.change) or "")
            _applied(shared, Operation("changed", project, "monday", now, change))
            _applied(shared, Operation("erased", project, "monday", now, erased))
    with closing(SqliteFile(paths.database, MEMORY)) as database, database.transaction() as connection:
        connection.execute("INSERT INTO shares VALUES (?, ?)", (project.id, LANE))


def _stored(name: str, content: str, now: float) -> Operation:
    change = StoreMemory(
        memory_id=derive_memory_id(name, now), content=content, type="semantic", scope="project", session_id="monday"
    )
    return Operation(name, project_of(Path(PROJECT)), "monday", now, change)


def _applied(records: Records, *operations: Operation) -> None:
    outcomes = records.apply(operations) if isinstance(records, SharedLane) else apply(records, operations)
    for outcome in outcomes:
        if not isinstance(outcome, Applied):
            raise outcome
