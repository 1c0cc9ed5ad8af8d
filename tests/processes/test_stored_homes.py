"""The homes of all releases, each made by that release (`python -m release home`), are opened by this one."""

import asyncio
import json
import sqlite3
import tarfile
import textwrap
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from release.home import (
    HOMES,
    MERGED,
    NOT_PROPOSED,
    PROJECT,
    PROMPTED,
    PROPOSED,
    QUEUED,
    RUN,
    SHARED,
    TOGETHER_NOW,
)
from remembrancer.actors.gateway import shown_log, write_queue
from remembrancer.actors.migrations import Schema, copy_of, release_of, version_in, version_of
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.protocol.paths import RuntimePaths
from tests.patience import until
from tests.runtime import PatientSession, Runtime, Session, command, patiently
from tests.spaces import rows_of

pytestmark = pytest.mark.usefixtures("without_embedders")

CODE = "-code"
"""The suffix of the home of 0.2.0 with a code tree; later ones can make its index anew."""
STORED = sorted(path.stem for path in HOMES.glob("*.jsonl"))
RELEASES = [name for name in STORED if not name.endswith((SHARED, CODE))]
NEXT = version_in("99.0.0")
LATER = """
    # What the processes of an invented later release import first: a step for every kind of file.
    from remembrancer.actors.gateway import shown_log, write_queue
    from remembrancer.actors.migrations import Step
    from remembrancer.actors.store.records import schema

    IS_LATER = schema.MEMORY.steps[-1].release == "99.0.0"  # a fork of one that is
    SLOW = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT max(i) FROM n"
    LONG = f"ALTER TABLE memories ADD COLUMN colour; UPDATE memories SET colour = ({SLOW});"
    for each in () if IS_LATER else (schema.MEMORY, write_queue.SCHEMA, shown_log.SCHEMA):
        each.steps += (Step("99.0.0", LONG if each is schema.MEMORY else "CREATE TABLE later (x);"),)
"""


def unpack_home(release: str, home: Path) -> None:
    with tarfile.open(HOMES / f"{release}.tar.gz") as packed:
        packed.extractall(home, filter="data")
    for path in (home, *home.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    unpack_home(request.param, home)
    monkeypatch.setenv("REMEMBRANCER_PROJECT", PROJECT)
    monkeypatch.setenv("REMEMBRANCER_CONSOLIDATOR", "false")
    given: str = request.param
    return given


def exported_lines(path: Path) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, path.read_text().splitlines()[1:])
    return {line["memory"]["id"]: line for line in lines if line["line"] == "memory"}


async def has_no_queue(home: Path) -> bool:
    return bool((await Runtime(home).fresh_status())["write_queue"]["depth"] == 0)


def exported_again(home: Path, path: Path) -> dict[str, dict[str, Any]]:
    done = patiently("export", str(path), home=home)
    assert done.returncode == 0, done.stderr
    return exported_lines(path)


async def test_the_home_of_each_release_is_read_whole_and_goes_on(home: Path, release: str, tmp_path: Path) -> None:
    before = exported_lines(HOMES / f"{release}.jsonl")
    async with Session(home) as client:
        await until(partial(has_no_queue, home))
        await until(lambda: not any(each.is_file() for each in RuntimePaths(home).hooks.iterdir()))
        await until(lambda: PROMPTED in str(rows_of(RuntimePaths(home).database, "SELECT * FROM turns")))
        after = exported_again(home, tmp_path / "again.jsonl")  # before reading: each access is counted
        assert {memory_id: after.get(memory_id) for memory_id in before} == before
        for memory_id, line in before.items():
            is_sessions = line["memory"]["scope"] == "session"
            shown = await client.call_or_error("get_memory", memory_id=memory_id)
            assert shown.get("content") == (None if is_sessions else line["memory"]["content"])
        found = await client.call("recall_memories", query=QUEUED, strategy="keyword")
        assert QUEUED in [memory["content"] for memory in found["memories"]]
        lamp, boat = (
            next(each for each in before if before[each]["memory"]["content"].startswith(words))
            for words in ("We chose SQLite", "The pilot boat leaves at seven")
        )
        new = await client.store("The lighthouse is painted white.", supersedes=lamp)
        assert (await client.call("update_memory", memory_id=boat, content="It leaves at eight."))["version"] == 3
        assert (await client.call("restore_memory", memory_id=boat, version=1))["version"] == 4
        assert (await client.call("forget_memory", memory_id=new["memory_id"]))["status"] == "forgotten"
    queue = patiently("queue", home=home)
    assert "was too" in queue.stdout, queue.stdout + queue.stderr
    listed = command("shown", boat, home=home)
    assert "pilot boat" in listed.stdout, listed.stdout + listed.stderr
    assert databases_with("boat leaves at seven", home)
    erased = patiently("erase", boat, "--yes", home=home)
    assert erased.returncode == 0, erased.stdout + erased.stderr
    assert databases_with("boat leaves at seven", home) == []
    assert version_of(home / "memory.db") == MEMORY.latest
    assert {name: schema_in(home / name) for name in FILES} == schemas_of_new_files(tmp_path)


@pytest.mark.parametrize("name", [name for name in STORED if name.endswith(SHARED)])
async def test_the_shared_home_of_each_release_keeps_its_lane_its_runs_and_its_proposals(
    home: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack_home(name, home)
    for variable, value in {"PROJECT": PROJECT, "CONSOLIDATOR": "false", "TOOLSETS": "memory,admin"}.items():
        monkeypatch.setenv(f"REMEMBRANCER_{variable}", value)
    async with PatientSession(home) as client:  # the home is taken over first
        found = await client.call("recall_memories", query="crews moor quay", strategy="keyword")
        (shared,) = (each for each in found["memories"] if each["content"] == TOGETHER_NOW)
        assert any("exchanged" in each["message"] for each in found["warnings"]), "without a journal it can be read"
        told = await client.call("get_memory", memory_id=shared["id"], detail=True)
        assert told["version"] == 2
        refused = await client.call_or_error("update_memory", memory_id=shared["id"], content="They moor nowhere.")
        assert "error" in refused or refused["status"] == "queued"
        proposals = (await client.call("get_memory_status"))["proposals"]
        assert [(each["content"], "refused_at" in each) for each in proposals if PROPOSED in each["content"]] == [
            (PROPOSED, False)
        ]
        assert NOT_PROPOSED not in [each["content"] for each in proposals if "refused_at" not in each]
        assert MERGED not in str(await client.call("recall_memories", query=MERGED, strategy="keyword"))
        await client.call("reflect_and_consolidate", undo=RUN)
        assert MERGED in str(await client.call("recall_memories", query=MERGED, strategy="keyword"))


@pytest.mark.parametrize("name", [name for name in STORED if name.endswith(CODE)])
async def test_the_home_of_each_release_that_knows_code_says_what_has_become_of_it(
    home: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack_home(name, home)
    tree = tmp_path / "harbour"
    (tree / "memory").mkdir(parents=True)
    (tree / "memory/tides.md").write_text("# Tides\n\nThe tide table hangs in the pilot house.\n")
    (tree / "lamp.py").write_text("def light_lamp(hour):\n    return hour > 6\n")
    for path in home.glob("projects/*/code/trees.json"):
        path.write_text(path.read_text().replace(f'"{PROJECT}"', f'"{tree}"'))
    settings = {"PROJECT": PROJECT, "CONSOLIDATOR": "false", "TOOLSETS": "memory,files,code", "WORKSPACE": str(tree)}
    for variable, value in settings.items():
        monkeypatch.setenv(f"REMEMBRANCER_{variable}", value)
    async with Session(home, cwd=tree) as client:
        await until(partial(client.call, "list_projects"), lambda said: said["projects"][0]["status"] == "ready")
        found = await client.call("search_code", query="light_lamp")
        assert [each["file_path"] for each in found["results"]] == ["lamp.py"]
        search = partial(client.call, "memory_search", query="where does the tide table hang")
        tides = ["memory/tides.md"]  # of a workspace that is elsewhere now
        await until(search, lambda said: [each["path"] for each in said["results"]] == tides)


@pytest.mark.parametrize("name", [name for name in STORED if not name.endswith(CODE)])
async def test_the_export_of_each_release_is_taken_in(home: Path, name: str, tmp_path: Path) -> None:
    exported = HOMES / f"{name}.jsonl"
    done = await asyncio.to_thread(patiently, "import", str(exported), home=home)
    assert done.returncode == 0, done.stderr
    before, after = exported_lines(exported), exported_again(home, tmp_path / "again.jsonl")
    assert {each: before[each]["memory"]["content"] for each in before} == {
        each: after[each]["memory"]["content"] for each in before
    }


async def test_a_later_release_brings_every_file_forward_though_two_start_it_and_its_store_is_killed(
    home: Path, release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "sitecustomize.py").write_text(textwrap.dedent(LATER))
    async with Session(home) as client:
        await client.store("It is one database now.")
    await Runtime(home).down()
    records, made_by = RuntimePaths(home).database, release_of(MEMORY.latest)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "later"))
    async with Session(home) as first, Session(home) as second:
        asking = asyncio.create_task(first.call_or_error("recall_memories", query="Kestrel", strategy="keyword"))
        await until(lambda: copy_of(records, made_by).exists() and version_of(records) < NEXT)
        Runtime(home).kill("store")
        await asking
        await second.store("A later release can write.")
        await until(lambda: version_of(records) == NEXT)
        await until(partial(has_no_queue, home))
        found = await second.call("recall_memories", query="Kestrel tows later release", strategy="keyword")
        contents = {memory["content"] for memory in found["memories"]}
        assert {"The Kestrel tows at night.", "A later release can write."} <= contents
    await Runtime(home).down()
    monkeypatch.delenv("PYTHONPATH")
    copies = list(home.glob("*.release-*"))
    assert {path.name.partition(".release")[0] for path in copies} == {*("memory.db", "queue.db", "shown.db")}
    done = command("search", "Kestrel", home=home)
    assert "newer release (99.0.0" in done.stderr + done.stdout
    await Runtime(home).down()
    for copy in copies:
        copy.replace(copy.with_name(copy.name.partition(".release-")[0]))
    assert "The Kestrel tows at night." in command("search", "Kestrel", home=home).stdout


def databases_with(words: str, home: Path) -> list[Path]:
    return [path for path in home.rglob("*.db*") if words.encode() in path.read_bytes()]


FILES: dict[str, Schema] = {"memory.db": MEMORY, "queue.db": write_queue.SCHEMA, "shown.db": shown_log.SCHEMA}


def schema_in(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT type, name, tbl_name FROM sqlite_schema "
            "WHERE tbl_name NOT GLOB 'words_*' AND tbl_name NOT GLOB 'names_[0-9]*' ORDER BY 1, 2"  # one for each space
        ).fetchall()
        tables = [name for kind, name, _ in found if kind == "table"]
        columns = [sorted(connection.execute(f"SELECT name, type FROM pragma_table_info('{name}')")) for name in tables]
    return [found, columns]


def schemas_of_new_files(directory: Path) -> dict[str, list[Any]]:
    """Those of files that are made now: what was released and brought forward has to be the same."""
    found = {}
    for name, schema in FILES.items():
        made = directory / name.replace("/", "-")
        with closing(sqlite3.connect(made, isolation_level=None)) as connection:
            schema.migrate(connection, made)
        found[name] = schema_in(made)
    return found
