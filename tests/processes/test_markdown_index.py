"""The file of memories that a working tree keeps, as sessions and a person change it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from remembrancer.config.project import project_of
from tests.patience import until
from tests.runtime import Session

pytestmark = pytest.mark.usefixtures("without_embedders")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the block of a project's memories is kept in."""
    monkeypatch.setenv("REMEMBRANCER_MARKDOWN_INDEX", "MEMORY.md")
    tree = tmp_path / "app"
    tree.mkdir()
    return tree / "MEMORY.md"


async def test_the_block_follows_the_memories_and_takes_a_persons_words(home: Path, file: Path) -> None:
    file.write_text("# Mine\n")
    async with Session(home, cwd=file.parent) as client:
        stored = await client.store("Deploys are on Fridays.", kind="convention")
        await client.store("The user likes short answers.", scope="user", kind="preference")
        await until(lambda: "Deploys are on Fridays." in file.read_text())
        assert file.read_text().startswith("# Mine\n")
        assert "short answers" not in file.read_text(), "the file may be everybody's"
        file.write_text(file.read_text().replace("Fridays", "Mondays").replace("# Mine", "# Still mine"))
        await client.store("Revisions are rebased, never merged.", kind="convention")
        await until(lambda: "rebased" in file.read_text() and "Deploys are on Mondays." in file.read_text())
        assert file.read_text().startswith("# Still mine\n")
        shown = await client.call("get_memory", memory_id=stored["memory_id"])
        assert shown["content"] == "Deploys are on Mondays."
        await client.call("forget_memory", memory_id=stored["memory_id"])
        await until(lambda: "Deploys" not in file.read_text())
    assert [each.name for each in file.parent.iterdir()] == ["MEMORY.md"]


async def test_a_file_outside_of_all_trees_is_kept_if_it_is_ours(home: Path, tmp_path: Path) -> None:
    tree, outside = tmp_path / "app", tmp_path / "memories_extensions"
    tree.mkdir()
    outside.mkdir()
    file = outside / f"app-{project_of(tree).id}.md"
    file.write_text("# Mine\n")
    (home / "config.toml").write_text(f'markdown_index = "{outside}/{{project}}.md"\n')
    async with Session(home, cwd=tree) as client:
        await client.store("Deploys are on Fridays.", kind="convention")
        await anyio.sleep(3.0)  # nobody tells that a file is not written
        assert file.read_text() == "# Mine\n"
        file.unlink()
        await client.store("Revisions are rebased, never merged.", kind="convention")
        await until(lambda: file.exists() and "Deploys are on Fridays." in file.read_text())
        file.write_text(f"# Mine\n{file.read_text().replace('Fridays', 'Mondays')}")
        await client.store("Boil water first.", kind="convention")
        await until(lambda: "Deploys are on Mondays." in file.read_text() and "Boil" in file.read_text())
    assert file.read_text().startswith("# Mine\n")
    assert list(outside.iterdir()) == [file]
    assert list(tree.iterdir()) == []
