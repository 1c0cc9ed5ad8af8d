"""`remembrancer admin projects`, and the catalogue that it reads, with a real gateway and a real store."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio.to_thread

from remembrancer.config.project import project_of
from remembrancer.protocol.paths import RuntimePaths
from tests.actors.gateway_rig import PATIENT, Rig
from tests.git import make_worktree
from tests.patience import until
from tests.runtime import command
from tests.spaces import rows_of


def last_used(home: Path, project_id: str) -> tuple[float, str | None]:
    query = "SELECT last_used_at, directory FROM projects WHERE id = ?"
    ((used_at, directory),) = rows_of(RuntimePaths(home).database, query, project_id)
    return used_at, directory


async def test_the_projects_are_listed_with_their_worktree_their_last_use_and_what_they_have(
    home: Path, tmp_path: Path
) -> None:
    repository, plain = tmp_path / "repository", tmp_path / "plain"
    plain.mkdir()
    repository.mkdir()
    worktree = tmp_path / "worktree"
    make_worktree(repository, worktree)
    (worktree / "inner").mkdir()
    rig = Rig(home, PATIENT)
    async with rig.store(), rig.running():
        async with rig.session(directory=str(repository), session="session:one") as client:
            first = await client.store("Of the repository")
            await client.store("Forgotten", scope="session")
        async with rig.session(directory=str(plain), bridge="11" * 16, session="session:two") as client:
            await client.store("Of the plain directory")
        project = project_of(repository)
        used_at, _ = last_used(home, project.id)
        before = time.time()
        async with rig.session(directory=str(worktree / "inner"), bridge="22" * 16, session="session:three") as client:
            await until(lambda: last_used(home, project.id)[0] > used_at)
            assert last_used(home, project.id)[1] == str(worktree)
            noted = last_used(home, project.id)
            await client.call("forget_memory", memory_id=first["memory_id"])
            await client.store("Written since")
            assert last_used(home, project.id) == noted, "a write is no session"
        done = await anyio.to_thread.run_sync(lambda: command("admin", "projects", "--json", home=home))
        table = await anyio.to_thread.run_sync(lambda: command("admin", "projects", home=home))
    latest, other = json.loads(done.stdout)["projects"]
    assert latest.pop("last_used_at") >= before
    assert latest.pop("created_at") < before
    assert latest == {
        "id": project.id,
        "path": str(repository / ".git"),
        "directory": str(worktree),
        "memories": 2,
        "forgotten": 1,
        "sessions": 2,
        "lane": None,
    }
    assert (other["directory"], other["memories"], other["sessions"]) == (str(plain), 1, 1)
    shown = [line.split()[0] for line in table.stdout.splitlines()]
    assert shown == ["project", str(worktree), str(plain)]
