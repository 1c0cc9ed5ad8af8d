"""The memory browser in a real Chromium: whole walks, as a person takes them.

They need Chromium, Node and what `make browser` installs; without them these tests are skipped.
"""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from remembrancer.commands.runtime_client import ask_store
from remembrancer.config.project import project_of
from remembrancer.config.tokens import Tokens
from remembrancer.protocol.code import IndexCode
from tests.clients.test_protocol_clients import CLIENTS
from tests.patience import PATIENCE_S
from tests.processes.browser_visit import Visit
from tests.processes.http_door import Door
from tests.runtime import command

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MODULES = CLIENTS.parents[1]
MINUTES_S = 6 * PATIENCE_S

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or not (MODULES / "node_modules" / "axe-core").exists(),
    reason="Chromium or playwright-core is not installed: run `make browser`",
)


def walk(door: Door, which: str, folder: Path) -> None:
    visit = Visit(door, door.home)
    visit.client.close()
    link = f"{visit.base}/enter?link={Tokens(door.home).link(str(door.home), time.time())}"
    if which == "actions":
        visit.consolidated(visit.stored("The old gate is rusty"), visit.stored("The old gate squeaks"))
    if which == "pages":
        (folder / "retry_policy_of_payments.py").touch()
        environ = {**os.environ, "REMEMBRANCER_HOME": str(door.home)}
        ask_store(IndexCode(project_of(door.home), str(folder), watch=False), environ=environ)
    processes = json.loads(command("status", "--json", home=door.home).stdout)["processes"]
    gateway = next(each["pid"] for each in processes if each["role"] == "gateway")
    about = json.dumps({"token": visit.token, "url": door.url, "gateway": gateway})
    environ = {**os.environ, "DOOR": about, "CHROMIUM": str(CHROMIUM), "REMEMBRANCER_CLIENTS": str(MODULES)}
    script = Path(__file__).with_name("browser_walk.cjs")
    walking = ["node", str(script), which, link, str(door.home), str(folder)]
    finished = subprocess.run(walking, env=environ, capture_output=True, text=True, timeout=MINUTES_S, check=False)
    assert finished.returncode == 0, finished.stderr


WALKS = {
    "person": "a person finds, corrects and undoes, and watches a session store",
    "actions": "several are forgotten, and a run is undone, as another tab shows",
    "killed": "two open pages connect again when the gateway was killed",
    "pages": "every page is accessible in any light, fits a phone and works without scripts",
    "card": "a card in a conversation is corrected, undone and explained",
}


@pytest.mark.parametrize("which", WALKS, ids=WALKS.values())
def test_a_walk_ends_well(door: Door, tmp_path: Path, which: str) -> None:
    if which == "card" and not (MODULES / "node_modules" / "@modelcontextprotocol" / "ext-apps").exists():
        pytest.skip("no ext-apps")
    door.start()
    walk(door, which, tmp_path)
