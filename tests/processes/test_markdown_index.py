"""The file of memories that a working tree keeps, as sessions and a person change it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.bridge_rig import bridge
from tests.processes.portable_rig import start
from tests.processes.runtimes import until

pytestmark = pytest.mark.usefixtures("without_embedders")


def test_the_block_follows_the_memories_and_takes_a_persons_words(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMEMBRANCER_MARKDOWN_INDEX", "MEMORY.md")
    tree = tmp_path / "app"
    tree.mkdir()
    file = tree / "MEMORY.md"
    file.write_text("# Mine\n")
    start(home)
    with bridge(REMEMBRANCER_PROJECT=str(tree)) as client:
        client.initialize()
        stored = client.store("Deploys are on Fridays.", kind="convention")
        client.store("The user likes short answers.", scope="user", kind="preference")
        until(lambda: "Deploys are on Fridays." in file.read_text())
        assert file.read_text().startswith("# Mine\n")
        assert "short answers" not in file.read_text(), "the file may be everybody's"
        file.write_text(file.read_text().replace("Fridays", "Mondays").replace("# Mine", "# Still mine"))
        client.store("Revisions are rebased, never merged.", kind="convention")
        until(lambda: "rebased" in file.read_text())
        until(lambda: "Deploys are on Mondays." in file.read_text())
        assert file.read_text().startswith("# Still mine\n")
        found = client.request("tools/call", name="get_memory", arguments={"memory_id": stored["memory_id"]})
        assert found["result"]["structuredContent"]["content"] == "Deploys are on Mondays."
        client.request("tools/call", name="forget_memory", arguments={"memory_id": stored["memory_id"]})
        until(lambda: "Deploys" not in file.read_text())
        client.end_input()
    assert [each.name for each in tree.iterdir()] == ["MEMORY.md"]
