import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from remembrancer.actors.migrations import daily_copies
from remembrancer.commands import exit_codes
from remembrancer.commands.backup import repair_home
from remembrancer.protocol.errors import AlreadyRunning
from remembrancer.protocol.paths import RuntimePaths
from tests.patience import until
from tests.runtime import Runtime, Session, command
from tests.spaces import spoil_page

CHECKS = {
    *("start", "configuration", "home", "files", "processes", "model", "records", "copies"),
    "clients",
}
SECRET = "the heron nests behind the third lock"


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Findings:
    def __init__(self, home: Path, *arguments: str) -> None:
        done = command("doctor", "--json", *arguments, home=home)
        assert done.stderr == ""
        self.whole = done.stdout
        said = json.loads(self.whole)
        self.checks: dict[str, dict[str, Any]] = {check["name"]: check for check in said["checks"]}
        assert set(self.checks) == CHECKS
        assert done.returncode == (exit_codes.DEGRADED if said["status"] == "problem" else exit_codes.OK)

    def statuses(self) -> dict[str, str]:
        return {name: check["status"] for name, check in self.checks.items() if check["status"] != "ok"}

    def text(self, name: str) -> str:
        check = self.checks[name]
        return "\n".join([check["found"], *check["details"], check["advice"]])


def everything(home: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in [home, *home.rglob("*")]
    }


async def test_a_running_memory_and_one_at_rest_are_well_and_nothing_of_them_is_changed_or_shown(home: Path) -> None:
    runtime = Runtime(home)
    async with Session(home, cwd=home) as client:
        await client.store(SECRET)
        await client.store("Ana prefers tabs.", scope="user")
        await until(runtime.is_drained)

    async def well() -> Findings | None:
        """A consolidator comes and goes while there are jobs: what its session hands over comes after it has ended."""
        found = await asyncio.to_thread(Findings, home)
        is_ready = re.search("[45] processes are ready", found.text("processes"))
        return found if is_ready and found.statuses() == {} else None

    found: Findings = await until(well)
    assert "384 dimensions" in found.text("model")
    assert SECRET not in found.whole
    await runtime.down()
    before = everything(home)
    found = Findings(home)
    assert found.statuses() == {}
    assert everything(home) == before
    assert SECRET not in found.whole


async def test_a_damaged_file_is_made_whole_of_what_can_be_read_and_the_daily_copy(home: Path) -> None:
    paths = RuntimePaths(home)
    async with Session(home, cwd=home) as client:
        await client.store(SECRET)
        await until(lambda: daily_copies(paths.database))
        later = await client.call("store_memory", content="The heron has moved.", memory_type="semantic")
    await Runtime(home).down()
    spoil_page(paths.database, "memories", 1)
    found = Findings(home)
    assert found.checks["records"]["status"] == "problem"
    assert "doctor --repair" in found.text("records")
    async with Session(home, cwd=home) as client:
        told = await client.call("store_memory", content="The kingfisher waits.", memory_type="semantic")
        assert [warning["code"] for warning in told["warnings"]] == ["queued"], told
        await until(Runtime(home).status, lambda said: str(paths.database) in str(said["unusable"]))
        assert command("status", home=home).returncode == exit_codes.DEGRADED
        with pytest.raises(AlreadyRunning):
            repair_home(paths)
    await Runtime(home).down()
    repaired = Findings(home, "--repair")
    (file,) = json.loads(repaired.whole)["repaired"]
    assert (file["incomplete"], file["path"]) == ([], str(paths.database))
    assert any(lost.endswith(later["memory_id"]) for lost in file["lost"]), "both pages were written since the copy"
    assert file["damaged"] in everything(home)
    assert repaired.checks["records"]["status"] == "ok"
    Path(f"{file['damaged']}-wal").touch()
    assert "1 damaged file set aside" in Findings(home).text("files")
    async with Session(home, cwd=home) as client:
        await until(Runtime(home).is_drained)
        said = await client.call("recall_memories", query="heron kingfisher")
        assert {memory["content"] for memory in said["memories"]} >= {SECRET, "The kingfisher waits."}
        assert "The heron has moved." not in str(said)
