"""Damages to one file of a home, which must not stop another project.

A home with two projects, P and Q, and the user's memories is damaged in one place: something else is put where a file
was (a directory, a pipe, a device, a file instead of a directory), or it is locked, cut, overwritten, taken away, or of
a newer release; before the runtime starts, or while it works. Then real sessions of both projects store and recall.
Each store of Q has to be acknowledged as stored, each recall of Q to be whole, what was in the place to be there still,
and somebody to say what is wrong. The worst dozen are tried, with `TEST_DAMAGES=all` all of them.
"""

import asyncio
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest

from bench.client import ClientError, Json, StdioClient
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.commands.clients import ClientEnvironment
from remembrancer.commands.doctor import CHECKS, Examination, Finding
from remembrancer.config.project import project_of
from remembrancer.protocol.errors import FileLocked
from remembrancer.protocol.paths import RuntimePaths, delete_database
from tests.cases import cases
from tests.patience import PATIENCE_S, until
from tests.ports import free_port
from tests.runtime import READ_AT_ONCE, Runtime, Session
from tests.spaces import locked, write_rows

STORES: Final = 3
WITHOUT_EMBEDDER: Final = frozenset({"embedding_failed", "embedding_starting", "embedding_pending"})
SETTINGS: Final = {"embedders": "0", "consolidator": "0", "toolsets": "memory,files"}
EXAMINED: Final = ("configuration", "home", "files", "processes", "records")
"""The doctor's checks that look at the home; those of the installation and of the model take seconds each."""
PUT: Final = ("directory", "file", "pipe", "device", "garbage")
"""What is put in the place of something else."""


class Damage(msgspec.Struct, frozen=True):
    """One damage. `path` is within the home, where P stands for the id of project P.

    `is_derived`: nothing is lost with it.
    """

    path: str
    how: str
    running: bool = False
    is_derived: bool = False

    @property
    def name(self) -> str:
        return f"{self.path}: {self.how}{', while it runs' if self.running else ''}"


def damages() -> Iterator[Damage]:
    for table in ("lost", "derived", "running"):
        for path, ways in cases("damage", table).items():
            is_derived = table == "derived" or (table == "running" and not path.endswith("y.db"))
            # To root a mode is nothing.
            for how in (each for each in ways if each != "unreadable" or os.geteuid()):
                yield Damage(path, how, table == "running", is_derived)


class Place:
    """The thing that is damaged, and the way to find it again afterwards: `release` lets go of what is held."""

    def __init__(self, home: Path, project: str, damage: Damage) -> None:
        self.path = home / damage.path.replace("P", project)
        self._held = ExitStack()
        self._how = damage.how
        if self._how in PUT:
            if self.path.is_dir():
                shutil.rmtree(self.path)
            delete_database(self.path)
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make()
        self._put = _content(self.path) if self._how in (*PUT, "newer") else None

    def release(self) -> None:
        self._held.close()
        if self._how == "unreadable":
            with suppress(OSError):
                self.path.chmod(0o600)

    def is_kept(self) -> bool:
        """True if what was put in the place is there still, or beside it under another name."""
        beside = [*self.path.parent.glob(f"{self.path.stem}*"), *self.path.parent.glob(f"{self.path.name}*")]
        return self._put is None or any(_content(path) == self._put for path in beside)

    def _make(self) -> None:
        match self._how:
            case "directory":
                self.path.mkdir()
                (self.path / "kept").write_bytes(b"what somebody keeps there")
            case "file":
                self.path.write_bytes(b"what somebody keeps there")
            case "pipe":
                os.mkfifo(self.path)
            case "device":
                self.path.symlink_to("/dev/zero")
            case "unreadable":
                self.path.chmod(0)
            case "newer":
                write_rows(self.path, "PRAGMA user_version = 99000000", "PRAGMA wal_checkpoint(TRUNCATE)")
            case "garbage":
                self.path.write_bytes(b"no database, but a note that somebody wrote\n" * 500)
            case "empty":
                self.path.write_bytes(b"")
            case "missing" if self.path.is_dir():
                shutil.rmtree(self.path)
            case "missing":
                self.path.unlink(missing_ok=True)
            case "locked":  # by another program
                self._held.enter_context(locked(self.path))


def _content(path: Path) -> object:
    """What tells the thing at a path from another."""
    if path.is_dir():
        return {each.name: each.read_bytes() for each in path.glob("kept")}
    return path.read_bytes() if path.is_file() else path.is_fifo() or (path.is_symlink() and path.readlink())


class Scene:
    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rmb-damage-", dir="/tmp"))
        self.projects = {name: self.directory / name for name in ("P", "Q")}
        for name, place in self.projects.items():
            place.mkdir()
            (place / "MEMORY.md").write_text(f"# Notes of {name}\n\nThe lighthouse of {name} is white.\n")
        self.id = project_of(self.projects["P"]).id
        self.template = self.directory / "template"

    def client(self, home: Path, name: str, settings: Mapping[str, str]) -> StdioClient:
        environ = {f"REMEMBRANCER_{key.upper()}": value for key, value in {**SETTINGS, **settings}.items()}
        return Session(home, cwd=self.projects[name], environ=environ)

    async def prepare(self) -> None:
        """Fill the home that all others are copies of."""
        self.template.mkdir(mode=0o700)
        (self.template / "config.toml").write_text(READ_AT_ONCE)
        for name in self.projects:
            async with self.client(self.template, name, {}) as client:
                await connected(client)
                for scope in ("project", "user"):
                    answer = await client.store(f"The harbour of {name} is deep ({scope})", scope=scope)
                    assert "memory_id" in answer, answer
                await client.call("memory_sync")
        await Runtime(self.template).down()

    def home(self) -> Path:
        home = self.directory / "home"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self.template, home, symlinks=True)
        home.chmod(0o700)
        return home

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


async def connected(client: StdioClient) -> None:
    ask = partial(client.call_or_error, "get_memory_status")
    await until(ask, lambda said: said.get("connection", {}).get("status") == "connected")


async def answered(client: StdioClient, tool: str, **arguments: Any) -> tuple[Json, list[Json]]:
    """An answer, and what is said in it: an error, or warnings other than those that there is no embedder."""
    answer = await asyncio.wait_for(client.call_or_error(tool, **arguments), PATIENCE_S)
    warnings = (each for each in answer.get("warnings", ()) if each["code"] not in WITHOUT_EMBEDDER)
    return answer, [answer] if "error" in answer else list(warnings)


async def stored(client: StdioClient, content: str, scope: str = "project") -> list[Json]:
    return (await answered(client, "store_memory", content=content, type="semantic", scope=scope))[1]


async def said_to(client: StdioClient) -> list[Json]:
    said = await asyncio.gather(*(stored(client, f"The quay {number} is old") for number in range(STORES)))
    _, recalled = await answered(client, "recall_memories", query="harbour")
    return [*itertools.chain(*said), *recalled, *await stored(client, "The user likes quays", "user")]


async def goes_on(client: StdioClient) -> list[Json]:
    """Check that the other project has lost nothing; what it is told of the user, whose writes wait as well."""
    for number in range(STORES):
        assert await stored(client, f"The crane {number} is red") == []
    found, said = await answered(client, "recall_memories", query="harbour of Q")
    assert "The harbour of Q is deep (project)" in [memory["content"] for memory in found["memories"]]
    assert all(each.get("code") == "partial_results" or "user's" in each["message"] for each in said), said
    return said


def examined(home: Path) -> list[Finding]:
    around = ClientEnvironment.here({**os.environ, "REMEMBRANCER_HOME": str(home)}, home)
    examination = Examination(RuntimePaths(home), around)
    found = [CHECKS[name](examination) for name in EXAMINED]
    return [finding for finding in found if finding.status != "ok"]


WORST: Final = cases("damage", "worst")
TRIED: Final = [each for each in damages() if "TEST_DAMAGES" in os.environ or each.name in WORST]
assert {each.name for each in TRIED}.issuperset(WORST)

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    made = Scene()
    try:
        anyio.run(made.prepare)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("damage", TRIED, ids=lambda damage: damage.name)
async def test_damage_to_one_file_stops_no_other_project(scene: Scene, damage: Damage) -> None:
    home = scene.home()
    settings = {"http_port": str(free_port())} if damage.path == "tokens.json" else {}
    place = None if damage.running else Place(home, scene.id, damage)
    try:
        async with scene.client(home, "Q", settings) as other, scene.client(home, "P", settings) as own:
            await connected(other)
            if damage.running:
                await asyncio.gather(*(client.store("The mole is long") for client in (own, other)))
                place = Place(home, scene.id, damage)
                await own.call_or_error("recall_memories", query="mole")
            felt, elsewhere = await asyncio.gather(said_to(own), goes_on(other))
            found = await asyncio.to_thread(examined, home)
    finally:
        if place is not None:
            place.release()
        await Runtime(home).down()
    assert damage.is_derived or (place is not None and place.is_kept()), "it was overwritten"
    is_harmless = not felt and (damage.how == "locked" or damage.is_derived)
    assert felt or elsewhere or found or is_harmless, "nobody says it"


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None, reason="nobody else may mount a disk"
)
async def test_a_start_on_a_disk_without_a_byte_fails_with_a_sentence(scene: Scene) -> None:
    home = scene.directory / "full"
    home.mkdir(mode=0o700)
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=1M,mode=0700", "tmpfs", str(home)])
    try:
        with suppress(OSError), (home / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        try:
            async with scene.client(home, "Q", {}) as client:
                (refused,) = await stored(client, "The harbour is deep")
        except ClientError as error:
            refused = error.as_envelope()
        assert any(word in refused["message"] for word in ("No space left", "no room", "full")), refused
        assert "exit status" not in refused["message"]
    finally:
        await Runtime(home).down()
        await anyio.run_process(["umount", "-l", str(home)])


def test_a_file_that_was_taken_away_is_not_begun_anew_by_who_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    records = Records(SqliteFile(path, MEMORY), "user", lambda: 1.0)
    assert records.proposals() == ()
    for each in tmp_path.iterdir():
        each.unlink()
    assert records.proposals() == (), "what is open is still there"
    with pytest.raises(FileLocked, match="removed or replaced"), records._file.reading():
        records.proposals()  # while something is read, another has to be opened
    assert not path.exists()
    records.close()
