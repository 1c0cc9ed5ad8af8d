"""Damages to one file of a home, which must not stop another project.

`python -m tests.faults.damage [--only WORD]`

A home with two projects, P and Q, and the user's memories is damaged in one place: something else is put where a file
was (a directory, a pipe, a device, a file instead of a directory), or it is locked, cut, overwritten, taken away, or of
a newer release; before the runtime starts, or while it works. Then real sessions of both projects store and recall.
Printed as JSON is for each damage what went on and who said what. The exit status is 1 when a store of Q was not
acknowledged as stored, a recall of Q was not whole, what had been in the place was overwritten, or nobody said
anything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from bench.client import ClientError, Json, StdioClient
from remembrancer.commands.clients import Surroundings
from remembrancer.commands.doctor import CHECKS, Examination, Finding
from remembrancer.config.project import project_of
from remembrancer.protocol.paths import RuntimePaths, delete_database
from tests.patience import until
from tests.runtime import Runtime, Session, command

CALL_S: Final = 60.0
"""Longer than any answer takes on the busiest machine: what is not answered by then hangs."""
READY_S: Final = 60.0
STORES: Final = 3
WITHOUT_EMBEDDER: Final = frozenset({"embedding_failed", "embedding_starting", "embedding_pending"})
SETTINGS: Final = {"embedders": "0", "consolidator": "0", "toolsets": "memory,files"}
EXAMINED: Final = ("configuration", "home", "files", "processes", "records", "write queue")
"""The doctor's checks that look at the home; those of the installation and of the model take seconds each."""
FULL_DISK_BYTES: Final = 1024 * 1024


class Damage(msgspec.Struct, frozen=True):
    """One damage. `path` is within the home, where P stands for the id of project P.

    `is_derived`: nothing is lost with it. `settings` are those of the runtime beside the common ones.
    """

    path: str
    how: str
    running: bool = False
    is_derived: bool = False
    settings: dict[str, str] = {}

    @property
    def name(self) -> str:
        return f"{self.path}: {self.how}{', while it runs' if self.running else ''}"


def damages() -> Iterator[Damage]:
    ways = {
        "queue.db": ("directory", "pipe", "device", "unreadable", "newer", "garbage", "empty", "locked"),
        "queue.db-wal": ("directory",),
        "projects/P": ("file",),
    }
    derived = {
        "projects/P/index.db": ("directory", "pipe", "newer", "garbage", "empty"),
        "shown.db": ("directory", "pipe", "newer", "garbage", "empty"),
        "config.toml": ("directory", "pipe"),
        "logs/gateway.log": ("directory",),
        "logs/store.out": ("pipe",),
        "logs": ("file",),
        "runtime.json": ("directory", "garbage"),
        "hooks": ("file",),
        "keys": ("file",),
        "vectors": ("file",),
    }
    for path, each in ways.items():
        # To root a mode is nothing.
        yield from (Damage(path, how) for how in each if how != "unreadable" or os.geteuid())
    for path, each in derived.items():
        yield from (Damage(path, how, is_derived=True) for how in each)
    over_http = {"http_port": "18763"}
    for how in ("directory", "pipe", "garbage"):
        yield Damage("tokens.json", how, is_derived=True, settings=over_http)
    if _may_mount():
        yield Damage(".", "full disk", is_derived=True)
    while_running = {
        "queue.db": ("locked", "missing", "empty"),
        "projects/P/index.db": ("missing", "empty"),
        "logs": ("missing",),
        "runtime.json": ("missing",),
    }
    for path, each in while_running.items():
        yield from (Damage(path, how, running=True, is_derived=not path.endswith("y.db")) for how in each)


class Outcome(msgspec.Struct):
    """The outcome of one damage, and what was said. The words are codes of errors and warnings."""

    damage: str
    other_stores: int = 0
    other_recall: str = ""
    own_store: str = ""
    own_recall: str = ""
    user_store: str = ""
    status: int | None = None
    said: list[str] = []
    doctor: list[str] = []
    stopped: bool = False
    overwritten: bool = False
    silent: bool = False

    @property
    def is_good(self) -> bool:
        return not (self.stopped or self.overwritten or self.silent)


class Place:
    """The thing that is damaged, and the way to find it again afterwards: `release` lets go of what is held."""

    def __init__(self, home: Path, project: str, damage: Damage) -> None:
        self.path = home / damage.path.replace("P", project)
        self._mark: bytes | None = None
        self._holder: subprocess.Popen[bytes] | None = None
        self._how = damage.how
        self._home = home
        getattr(self, f"_make_{damage.how.replace(' ', '_')}")()

    def release(self) -> None:
        """Let go of a lock or a disk."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()
        if self._how == "unreadable":
            with suppress(OSError):
                self.path.chmod(0o600)

    def is_kept(self) -> bool:
        """True if what was put in the place is there still, or beside it under another name."""
        if self._mark is None:
            return True
        beside = [*self.path.parent.glob(f"{self.path.stem}*"), *self.path.parent.glob(f"{self.path.name}*")]
        return any(_content(path) == self._mark for path in beside)

    def _clear(self) -> None:
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        delete_database(self.path)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _make_directory(self) -> None:
        self._clear()
        self.path.mkdir()
        (self.path / "kept").write_bytes(b"what somebody keeps there")
        self._mark = b"what somebody keeps there"

    def _make_file(self) -> None:
        self._clear()
        self._mark = b"what somebody keeps there"
        self.path.write_bytes(self._mark)

    def _make_pipe(self) -> None:
        self._clear()
        os.mkfifo(self.path)
        self._mark = b"a pipe"

    def _make_device(self) -> None:
        self._clear()
        self.path.symlink_to("/dev/zero")
        self._mark = b"a link to a device"

    def _make_unreadable(self) -> None:
        self.path.chmod(0)

    def _make_newer(self) -> None:
        with closing(sqlite3.connect(self.path)) as database:
            database.execute("PRAGMA user_version = 99000000")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._mark = self.path.read_bytes()

    def _make_garbage(self) -> None:
        self._clear()
        self._mark = b"no database, but a note that somebody wrote\n" * 500
        self.path.write_bytes(self._mark)

    def _make_empty(self) -> None:
        os.truncate(self.path, 0)

    def _make_missing(self) -> None:
        if self.path.is_dir():
            shutil.rmtree(self.path)
        self.path.unlink(missing_ok=True)

    def _make_locked(self) -> None:
        """By another program."""
        script = "import sqlite3, sys\nd = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        script += "d.execute('BEGIN EXCLUSIVE')\nprint(flush=True)\nsys.stdin.read()"
        command = [sys.executable, "-c", script, str(self.path)]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        self._holder.stdout.readline()


def _content(path: Path) -> bytes | None:
    """A mark that tells the thing at a path from another."""
    if path.is_symlink():
        return b"a link to a device"
    if path.is_fifo():
        return b"a pipe"
    if path.is_dir():
        kept = path / "kept"
        return kept.read_bytes() if kept.is_file() else None
    return path.read_bytes() if path.is_file() else None


def _may_mount() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount") is not None


class Scene:
    """Two projects, and a home in which each has a memory and P has notes."""

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
        for name in self.projects:
            async with self.client(self.template, name, {}) as client:
                await connected(client)
                for scope in ("project", "user"):
                    answer = await client.store(f"The harbour of {name} is deep ({scope})", scope=scope)
                    assert "memory_id" in answer, answer
                await client.call("memory_sync")
        await Runtime(self.template).down()

    def home(self, damage: Damage) -> Path:
        home = self.directory / "home"
        shutil.copytree(self.template, home, symlinks=True)
        home.chmod(0o700)
        return home

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


async def connected(client: StdioClient) -> None:
    """Return when the gateway has its store. Raises `TimeoutError`."""

    ask = partial(client.call_or_error, "get_memory_status")
    await until(ask, lambda said: said.get("connection", {}).get("status") == "connected", timeout_s=READY_S)


async def tried(scene: Scene, damage: Damage) -> Outcome:
    outcome = Outcome(damage.name)
    if damage.how == "full disk":
        return await tried_on_a_full_disk(scene, outcome)
    home = scene.home(damage)
    place = None if damage.running else Place(home, scene.id, damage)
    try:
        async with scene.client(home, "Q", damage.settings) as other, scene.client(home, "P", damage.settings) as own:
            await connected(other)
            if damage.running:
                await asyncio.gather(*(client.store("The mole is long") for client in (own, other)))
                place = Place(home, scene.id, damage)
                await own.call_or_error("recall_memories", query="mole")
            await observe(outcome, own, other)
            found = await asyncio.to_thread(examined, home)
            outcome.status = (await asyncio.to_thread(command, "status", home=home)).returncode
    except (TimeoutError, ClientError, OSError) as error:
        outcome.stopped = True
        outcome.said.append(f"{type(error).__name__}: {error}")
        found = await asyncio.to_thread(examined, home)
    finally:
        if place is not None:
            place.release()
        await Runtime(home).down()
    outcome.doctor = [line for finding in found for line in (finding.found, *finding.details)]
    outcome.overwritten = place is not None and not damage.is_derived and not place.is_kept()
    is_felt = {outcome.own_store, outcome.own_recall, outcome.user_store} != {"well"}
    is_harmless = not is_felt and (damage.how == "locked" or damage.is_derived)
    outcome.silent = not outcome.said and not outcome.doctor and not is_harmless
    shutil.rmtree(home, ignore_errors=True)
    return outcome


async def observe(outcome: Outcome, own: StdioClient, other: StdioClient) -> None:
    said: dict[str, None] = {}

    async def answer(client: StdioClient, tool: str, **arguments: Any) -> Json:
        found = await asyncio.wait_for(client.call_or_error(tool, **arguments), CALL_S)
        for each in (*found.get("warnings", ()), *([found] if "error" in found else [])):
            if each.get("code") not in WITHOUT_EMBEDDER:
                said[f"{each.get('code') or each['error']}: {each['message']}"] = None
        return found

    def store(client: StdioClient, text: str, scope: str = "project") -> Any:
        return answer(client, "store_memory", content=text, type="semantic", scope=scope)

    async def of_own() -> None:
        stored = await asyncio.gather(*(store(own, f"The quay {number} is old") for number in range(STORES)))
        recalled = await answer(own, "recall_memories", query="harbour")
        outcome.own_store, outcome.own_recall = word_of(stored[-1]), word_of(recalled)
        outcome.user_store = word_of(await store(own, "The user likes quays", "user"))

    async def of_other() -> None:
        for number in range(STORES):
            outcome.other_stores += word_of(await store(other, f"The crane {number} is red")) == "well"
        recalled = await answer(other, "recall_memories", query="harbour of Q")
        contents = [each["content"] for each in recalled.get("memories", ())]
        outcome.other_recall = word_of(recalled)
        is_whole = "The harbour of Q is deep (project)" in contents and all(map(_is_of_the_user, _said_of(recalled)))
        outcome.stopped = outcome.stopped or not is_whole

    await asyncio.gather(of_own(), of_other())
    outcome.stopped = outcome.stopped or outcome.other_stores < STORES
    outcome.said += list(said)


def _said_of(answer: Json) -> list[Json]:
    """The warnings of an answer, without those that there is no embedder."""
    return [each for each in answer.get("warnings", ()) if each["code"] not in WITHOUT_EMBEDDER]


def _is_of_the_user(warning: Json) -> bool:
    """True if a warning says what the user's memories lack, which every project is told: a write to them waits, too."""
    return warning["code"] == "partial_results" or "user's" in warning["message"]


def word_of(answer: Json) -> str:
    """`well`, or the code of what an answer says."""
    said = [answer["error"]] if "error" in answer else [each["code"] for each in _said_of(answer)]
    return str(said[0]) if said else "well"


def examined(home: Path) -> list[Finding]:
    around = Surroundings.here({**os.environ, "REMEMBRANCER_HOME": str(home)}, home)
    examination = Examination(RuntimePaths(home), around)
    found = [CHECKS[name](examination) for name in EXAMINED]
    return [finding for finding in found if finding.status != "ok"]


async def tried_on_a_full_disk(scene: Scene, outcome: Outcome) -> Outcome:
    """A start on a disk without a byte: nothing can go on, and it has to be said in a sentence."""
    home = scene.directory / "full"
    home.mkdir(mode=0o700)
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", f"size={FULL_DISK_BYTES},mode=0700", "tmpfs", str(home)])
    try:
        with suppress(OSError), (home / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        client = scene.client(home, "Q", {})
        try:
            async with client:
                answer = await asyncio.wait_for(client.call_or_error("store_memory", **FULL_STORE), CALL_S)
        except (TimeoutError, ClientError) as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        outcome.said = [f"{answer.get('error')}: {answer.get('message')}"]
        is_sentence = any(word in outcome.said[0] for word in ("No space left", "no room", "full"))
        outcome.silent = not is_sentence or "exit status" in outcome.said[0]
    finally:
        await Runtime(home).down()
        await anyio.run_process(["umount", "-l", str(home)])
    return outcome


FULL_STORE: Final = {"content": "The harbour is deep", "type": "semantic", "scope": "project"}


async def run(chosen: Sequence[Damage]) -> list[Outcome]:
    scene = Scene()
    try:
        await scene.prepare()
        return [await tried(scene, damage) for damage in chosen]
    finally:
        scene.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="WORD", default="", help="only damages whose name has this word")
    chosen = [each for each in damages() if parser.parse_args().only in each.name]
    outcomes = asyncio.run(run(chosen))
    bad = [each for each in outcomes if not each.is_good]
    found = {"damages": len(outcomes), "paths": len({each.path for each in chosen}), "faults": len(bad)}
    stopped = sum(each.stopped for each in outcomes)
    print(json.dumps({**found, "stopped": stopped, "outcomes": msgspec.to_builtins(outcomes)}, indent=2))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
