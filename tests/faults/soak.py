"""Nothing acknowledged may get lost: `python -m tests.faults.soak [--kills N] [--sessions N] [--seed N]`.

Sessions call tools at random, through real bridges, and write down what was acknowledged, while every process (store,
gateway, embedders, consolidator, indexer, launcher, bridges) is killed with SIGKILL at random moments. Beside memories
they write Markdown notes. At the end each acknowledged memory has to be there exactly once, as its last acknowledged
change left it, with each of its changes in the history once; what was forgotten stays forgotten; each note has what was
acknowledged once; nothing is queued; no process and no file is left. The exit status is 1 when anything of that is not
so.

What a session does and when something is killed follows from the seed; how that falls together does not.

`python -m tests.faults.soak --journal [--operations N]` is the soak of what several machines share: see
`tests/faults/shared_soak.py`.
"""

import argparse
import asyncio
import json
import random
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import psutil

import tests.runtime
from bench.client import CLOSED, ClientError, Json, StdioClient
from bench.varied_text import varied
from remembrancer.actors.launcher.home import read_record
from remembrancer.memory.credentials import find_credential
from remembrancer.protocol.paths import RuntimePaths
from tests.conftest import DISK, processes_of
from tests.patience import until
from tests.runtime import Runtime

ROLES: Final = ("store", "gateway", "embedder", "consolidator", "indexer", "launcher", "bridge")
SETTLE_S: Final = 180.0
MOST_KILLS, KILLS_S = 9, 60.0
"""The most kills of one role within that time: more would end its quick restarts."""
LEAVE_S: Final = 15.0
TEXT_CHARACTERS: Final = 240
BREADTH: Final = ("session", "project", "user")
TOOLSETS: Final = "memory,files"
HOME: Final = {
    *("memory.db", "catalog.db", "queue.db", "shown.db", "backups", "projects", "hooks", "vectors", "logs", "run"),
    "keys",
}
"""The files that a home holds besides locks, and those that SQLite keeps beside a database."""


class State(NamedTuple):
    content: str
    scope: str
    importance: float
    tags: frozenset[str] = frozenset()
    forgotten: bool = False


class Expected:
    """A memory as it has to be: `before` and after the one change whose outcome nobody knows, if there is one."""

    def __init__(self, state: State) -> None:
        self.states = [state]
        self.changes: Counter[str] = Counter()
        self.perhaps: Counter[str] = Counter()

    @property
    def now(self) -> State:
        return self.states[0]

    @property
    def is_certain(self) -> bool:
        return len(self.states) == 1


class Figures(msgspec.Struct):
    seed: int
    wrong: list[str] = []
    kept: list[str] = []
    """The directories, where something was found wrong."""
    took_s: float = 0.0

    def end(self, began: float, *directories: Path) -> None:
        """Keep the directories if something was wrong, or remove them."""
        self.took_s = time.monotonic() - began
        if self.wrong:
            self.kept = [str(each) for each in directories]
        else:
            for each in directories:
                shutil.rmtree(each)


class Soak(Figures):
    sessions: int = 0
    kills: Counter[str] = msgspec.field(default_factory=Counter)
    calls: Counter[str] = msgspec.field(default_factory=Counter)
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    acknowledged: int = 0
    unknown: int = 0
    memories: int = 0
    queued: int = 0
    lost: int = 0
    doubled: int = 0
    longest_outage_s: float = 0.0


class Session:
    """One session: its bridge, which is started again when it was killed, and the memories and notes that it made."""

    def __init__(
        self,
        number: int,
        home: Path,
        environ: dict[str, str],
        soak: Soak,
        texts: Iterator[str],
        dice: random.Random,
        workspace: Path,
    ) -> None:
        self.number, self._home, self._soak, self._texts, self._dice = number, home, soak, texts, dice
        self._environ = {**environ, "REMEMBRANCER_SESSION_ID": f"soak-{number}"}
        self._workspace = workspace
        self.noted: dict[str, bool] = {}
        """By the word that only a text in its note has: true if it was acknowledged."""
        self.expected: dict[str, Expected] = {}
        self.unsure: set[str] = set()
        """Texts whose storing was not answered: each may be there, once."""
        self.client: StdioClient
        self._note = f"memory/soak-{number}.md"
        self._runs: list[str] = []
        self._made = 0
        self._good_at = 0.0

    async def connect(self) -> None:
        """Start a bridge, as a client does whose server has gone; the session is the same one."""
        while True:
            client = tests.runtime.Session(self._home, cwd=self._workspace, environ=self._environ)
            await client.start()
            self.client = client  # once it has a process that can be killed
            try:
                await self.client.initialize()
                return
            except (ClientError, OSError):  # killed again
                await self.client.aclose()

    async def work(self, is_over: Callable[[], bool]) -> None:
        self._good_at = time.monotonic()
        deeds = [deed for deed, share in DEEDS.items() for _ in range(share)]
        while not is_over():
            await self._dice.choice(deeds)(self)
            await asyncio.sleep(self._dice.uniform(0, 0.3))  # tens of thousands would measure something else

    async def _call(self, tool: str, **arguments: Any) -> Json | None:
        """The answer of a tool; None where the outcome is unknown."""
        self._soak.calls[tool] += 1
        began = time.monotonic()
        try:
            answer = await self.client.call_or_error(tool, **arguments)
        except OSError:
            answer = {"error": CLOSED["code"], "message": CLOSED["message"]}
        now = time.monotonic()
        if "error" not in answer:
            if tool != "reflect_and_consolidate":  # which may take its time
                self._soak.longest_outage_s = max(self._soak.longest_outage_s, now - self._good_at)
            self._good_at = now
            self._soak.queued += any(each["code"] == "queued" for each in answer.get("warnings", ()))
            return answer
        code = str(answer["error"])
        self._soak.errors[code] += 1
        if answer["error"] == CLOSED["code"]:
            await self.client.aclose()
            await self.connect()
        elif not (
            answer.get("retry_possible")
            or (tool == "promote_memory" and answer.get("field") == "target_scope")
            or "is ambiguous" in answer["message"]  # of a short id whose ending another memory has got since
        ):
            self._soak.wrong.append(f"{tool} of a call that is right was refused: {answer}")
        if tool == "reflect_and_consolidate":
            self._good_at += now - began
        return None

    def _fresh(self) -> str:
        self._made += 1
        return f"note-{self.number}-{self._made}: {next(self._texts)[:TEXT_CHARACTERS]}"

    def _pick(self, *, forgotten: bool = False) -> tuple[str, Expected] | None:
        """One of the session's memories that nothing is unknown of."""
        found = [each for each in self.expected.items() if each[1].is_certain and each[1].now.forgotten is forgotten]
        return self._dice.choice(found) if found else None

    def _settle(self, expected: Expected, change: str, after: State, answer: Json | None) -> None:
        if answer is None:
            self._soak.unknown += 1
            expected.perhaps[change] += 1
            expected.states.append(after)
        else:
            self._soak.acknowledged += 1
            expected.changes[change] += 1
            expected.states = [after]

    async def store(self) -> None:
        part = f"Part{self._dice.randrange(40)}"
        state = State(self._fresh(), self._dice.choice(BREADTH), round(self._dice.random(), 3), frozenset({"soak"}))
        answer = await self._call(
            "store_memory",
            content=state.content,
            scope=state.scope,
            type=self._dice.choice(["episodic", "semantic", "procedural"]),
            importance=state.importance,
            tags=sorted(state.tags),
            related_entities=[{"name": part, "type": "component", "relationship": "is about"}],
            wait_for_embedding=self._dice.random() < 0.1,
            allow_secrets=True,
        )
        if answer is None:
            self._soak.unknown += 1
            self.unsure.add(state.content)
        else:
            self._soak.acknowledged += 1
            self.expected[answer["memory_id"]] = Expected(state)

    async def update(self) -> None:
        if picked := self._pick():
            memory_id, expected = picked
            after = expected.now._replace(content=self._fresh(), importance=round(self._dice.random(), 3))
            answer = await self._call(
                "update_memory",
                memory_id=memory_id,
                content=after.content,
                importance=after.importance,
                allow_secrets=True,
            )
            self._settle(expected, "updated", after, answer)

    async def tag(self) -> None:
        if picked := self._pick():
            memory_id, expected = picked
            self._made += 1
            after = expected.now._replace(tags=frozenset({"soak", f"tag-{self._made}"}))
            removed, added = expected.now.tags - after.tags, after.tags - expected.now.tags
            answer = await self._call("tag_memory", memory_id=memory_id, add=sorted(added), remove=sorted(removed))
            self._settle(expected, "tagged", after, answer)

    async def forget(self) -> None:
        if picked := self._pick():
            memory_id, expected = picked
            answer = await self._call("forget_memory", memory_id=memory_id, reason="of no use")
            self._settle(expected, "forgotten", expected.now._replace(forgotten=True), answer)

    async def restore(self) -> None:
        if picked := self._pick(forgotten=True):
            memory_id, expected = picked
            answer = await self._call("restore_memory", memory_id=memory_id)
            self._settle(expected, "restored", expected.now._replace(forgotten=False), answer)

    async def promote(self) -> None:
        picked = self._pick()
        if picked and picked[1].now.scope == "session":  # refused, if the consolidator is faster
            memory_id, expected = picked
            scope = self._dice.choice(BREADTH[1:])
            answer = await self._call("promote_memory", memory_id=memory_id, target_scope=scope)
            self._settle(expected, "promoted", expected.now._replace(scope=scope), answer)

    async def get(self) -> None:
        if picked := self._pick():
            memory_id, expected = picked
            answer = await self._call("get_memory", memory_id=memory_id)
            if answer is not None and answer["content"] != expected.now.content:
                self._soak.wrong.append(f"get_memory answers with another content: {answer}, and not {expected.now}")

    async def recall(self) -> None:
        picked = self._pick(forgotten=self._dice.random() < 0.3)
        query = picked[1].now.content[:120] if picked else "what is there?"
        strategy = self._dice.choice(["keyword", "hybrid", "vector", "graph"])
        sources = {"sources": ["memory", "notes"]} if self._dice.random() < 0.3 else {}
        answer = await self._call("recall_memories", query=query, strategy=strategy, **sources)
        for memory in answer["memories"] if answer else ():
            known = self.expected.get(memory.get("id"))
            if known is not None and known.is_certain and known.now.forgotten:
                self._soak.wrong.append(f"a recall shows what is forgotten: {memory}")

    async def look_around(self) -> None:
        part = f"Part{self._dice.randrange(40)}"
        tool, arguments = self._dice.choice(
            [
                ("search_knowledge_graph", {"entity": part, "depth": 2}),
                ("search_knowledge_graph", {}),
                ("get_memory_context", {"task_description": f"work on {part}", "max_tokens": 800}),
                ("get_memory_status", {}),
            ]
        )
        await self._call(tool, **arguments)

    async def append_note(self) -> None:
        word = f"soaknote{self.number}x{len(self.noted)}"
        self.noted[word] = False
        text = next(text for text in self._texts if find_credential(text) is None)[:TEXT_CHARACTERS]
        answer = await self._call("memory_store", content=f"- {word} {text}", path=self._note, mode="append")
        if answer is None:
            self._soak.unknown += 1
        else:
            self._soak.acknowledged += 1
            self.noted[word] = True

    def compare_note(self) -> None:
        path = self._workspace / self._note
        words = Counter(path.read_text().split()) if path.exists() else Counter()
        for word, is_acknowledged in self.noted.items():
            if words[word] > 1:
                self._soak.doubled += 1
                self._soak.wrong.append(f"{word} is {words[word]} times in {path}")
            elif is_acknowledged and not words[word]:
                self._soak.lost += 1
                self._soak.wrong.append(f"{word} is not in {path}")

    async def reflect(self) -> None:
        if self._runs and self._dice.random() < 0.5:
            await self._call("reflect_and_consolidate", undo=self._runs.pop())
        else:
            answer = await self._call("reflect_and_consolidate", dry_run=self._dice.random() < 0.3)
            if answer is not None and answer.get("run_id"):
                self._runs.append(answer["run_id"])


DEEDS: Final = {
    **{Session.store: 26, Session.update: 11, Session.tag: 7, Session.forget: 7, Session.restore: 4},
    **{Session.promote: 6, Session.get: 7, Session.recall: 12, Session.look_around: 8, Session.reflect: 1},
    Session.append_note: 11,
}
"""The actions of a session, and how many of a hundred each is."""


class Killer:
    """Kills a process of a random role at random moments; never so often that the launcher would rest from it."""

    def __init__(self, runtime: Runtime, sessions: list[Session], soak: Soak, dice: random.Random) -> None:
        self.runtime = runtime
        self._paths = RuntimePaths(runtime.home)
        self._sessions, self._soak, self._dice = sessions, soak, dice
        self._recent: dict[str, deque[float]] = {role: deque(maxlen=MOST_KILLS) for role in ROLES}

    async def kill(self, kills: int, pace_s: float) -> None:
        """So many kills, one every `pace_s` on average."""
        while sum(self._soak.kills.values()) < kills:
            await asyncio.sleep(self._dice.uniform(0, 2 * pace_s))
            if self._dice.random() < 0.7:  # else, on a busy machine, nobody would ever get as far as an answer
                await self.acknowledged_some(1)
            role = self._dice.choice(ROLES)
            if self._may(role) and (process := await self._find(role)) is not None:
                process.kill()
                self._recent[role].append(time.monotonic())
                self._soak.kills[role] += 1
                if (done := sum(self._soak.kills.values())) % 100 == 0:
                    print(f"{done} kills, {self._soak.acknowledged} changes acknowledged", file=sys.stderr, flush=True)

    async def acknowledged_some(self, count: int = 6) -> None:
        """Return when so many more changes have been acknowledged, or when that takes too long."""
        enough = self._soak.acknowledged + count
        with suppress(TimeoutError):
            await until(lambda: self._soak.acknowledged >= enough, timeout_s=SETTLE_S)

    def _may(self, role: str) -> bool:
        recent = self._recent[role]
        full = len(recent) == recent.maxlen and time.monotonic() - recent[0] < KILLS_S
        return role in ("bridge", "launcher") or not full

    async def _find(self, role: str) -> psutil.Process | None:
        """A live process of that role; None when there is none at this moment."""
        found: list[int] = []
        if role == "bridge":
            bridges = [each.client.process for each in self._sessions]
            found += [each.pid for each in bridges if each.returncode is None]
        elif role == "launcher":
            found += [pid for pid in [read_record(self._paths)] if pid is not None]
        else:
            status = await asyncio.to_thread(tests.runtime.status_of, self._paths.home)
            found += [each.pid for each in (status.processes if status else ()) if each.role == role and each.pid]
        self._dice.shuffle(found)
        for pid in found:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    return process
        return None


MADE_BY_RUNS: Final = (
    "SELECT memory_id FROM history WHERE change = 'stored' AND json_extract(details, '$.run') IS NOT NULL"
)
"""The memories that consolidation made, which may have the text of one of their sources: undoing a run forgets them and
removes their links."""


class Row(NamedTuple):
    state: State
    derived: bool


def read_files(home: Path, soak: Soak) -> tuple[dict[str, list[Row]], Counter[tuple[str, str]]]:
    """The rows of every memory, by id, and how often each change of each stands in the history."""
    rows: dict[str, list[Row]] = {}
    with closing(sqlite3.connect(f"file:{home}/memory.db?mode=ro", uri=True)) as file:
        if file.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            soak.wrong.append("memory.db is damaged")
        made = {row[0] for row in file.execute(MADE_BY_RUNS)}
        columns = "id, content, scope, importance, tags, forgotten_at IS NOT NULL"
        for memory_id, content, scope, importance, tags, gone in file.execute(f"SELECT {columns} FROM memories"):
            state = State(content, scope, importance, frozenset(json.loads(tags)), bool(gone))
            rows.setdefault(memory_id, []).append(Row(state, memory_id in made))
        changes = file.execute("SELECT DISTINCT memory_id, change, operation_id FROM history").fetchall()
    return rows, Counter((memory_id, change) for memory_id, change, _ in changes)


def compare(sessions: list[Session], home: Path, soak: Soak) -> None:
    rows, changes = read_files(home, soak)
    copies = Counter(row.state.content for found in rows.values() for row in found if not row.derived)
    for session in sessions:
        for text in session.unsure:
            if copies[text] > 1:
                soak.doubled += 1
                soak.wrong.append(f"there {copies[text]} times: {text}")
        for short_id, expected in session.expected.items():
            # An answer has the end of an id, which a later memory may come to have too.
            meant = [each for each in rows if each.endswith(short_id)]
            right = [each for each in meant if any(is_as(rows[each][0].state, state) for state in expected.states)]
            memory_id = (*right, *meant, short_id)[0]
            found = rows.get(memory_id, [])
            if not right:
                soak.lost += 1
                soak.wrong.append(f"{memory_id} is {found}, and should be {expected.states}")
            elif len(found) > 1 or copies[found[0].state.content] > 1:
                soak.doubled += 1
                soak.wrong.append(f"{memory_id} is there twice: {found}")
            for change in ("updated", "tagged", "forgotten", "restored"):
                least, most = expected.changes[change], expected.changes[change] + expected.perhaps[change]
                if not least <= changes[memory_id, change] <= most:
                    soak.doubled += changes[memory_id, change] > most
                    soak.lost += changes[memory_id, change] < least
                    soak.wrong.append(f"{memory_id} was {change} {changes[memory_id, change]} times, and not {least}")


def is_as(found: State, expected: State) -> bool:
    """True if a memory is as it should be: the consolidator may have promoted it."""
    wider = BREADTH[BREADTH.index(expected.scope) :]
    return found.scope in wider and found._replace(scope=expected.scope) == expected


def strange_files(home: Path) -> list[str]:
    """The files that a runtime which is down does not leave in its home. A log, or a journal that a kill cut off, goes
    when its database is opened again."""
    names = {re.sub("-(wal|shm|journal)$", "", path.name) for path in home.iterdir()}
    strange = [name for name in names - HOME if not name.endswith(".lock")]
    return strange + [str(path.relative_to(home)) for path in [*(home / "run").glob("*"), *home.rglob("*.new")]]


async def run(
    kills: int,
    sessions: int,
    seed: int,
    pace_s: float = 1.0,
    embedders: int = 2,
    killing: Callable[[Killer], Awaitable[None]] | None = None,
) -> Soak:
    """One soak in a home of its own, with so many kills, one every `pace_s` on average, or with others than those."""
    soak, began = Soak(seed, sessions=sessions), time.monotonic()
    workspace = Path(tempfile.mkdtemp(prefix="rmb-soak-"))
    runtime = Runtime(Path(tempfile.mkdtemp(prefix="rmb-soak-")))
    environ = {"REMEMBRANCER_EMBEDDERS": str(embedders), "REMEMBRANCER_TOOLSETS": TOOLSETS}
    texts = iter(varied(100_000)) if kills > 100 else iter(varied(5000))
    crew = [
        Session(each, runtime.home, environ, soak, texts, random.Random(f"{seed} {each}"), workspace)
        for each in range(1, sessions + 1)
    ]
    ended = False
    try:
        await crew[0].connect()  # which starts the runtime
        await asyncio.gather(*(session.connect() for session in crew[1:]))

        await until(runtime.is_ready, timeout_s=SETTLE_S)
        working = [asyncio.create_task(session.work(lambda: ended)) for session in crew]
        killer = Killer(runtime, crew, soak, random.Random(seed))
        shooting = asyncio.ensure_future(killing(killer) if killing else killer.kill(kills, pace_s))
        await asyncio.wait({shooting, *working}, return_when=asyncio.FIRST_COMPLETED)
        ended = True
        shooting.cancel()
        await asyncio.gather(*working)
        if not shooting.cancelled():
            shooting.result()
        for session in crew:
            await session.client.aclose()
            if session.client.strays:
                soak.wrong.append(f"lines that are no JSON-RPC: {session.client.strays[:3]}")
        try:
            await until(runtime.is_drained, timeout_s=SETTLE_S)
        except TimeoutError:
            soak.wrong.append(f"not drained after {SETTLE_S:g} s: {await runtime.status()}")
        await runtime.down()
        for session in crew:
            session.compare_note()
        if left := await asyncio.to_thread(processes_of, runtime.home, LEAVE_S):
            soak.wrong.append(f"processes are left: {left}")
        if strange := strange_files(runtime.home):
            soak.wrong.append(f"files are left: {strange}")
        soak.memories = sum(len(session.expected) for session in crew)
        compare(crew, runtime.home, soak)
    except BaseException:
        await runtime.down()
        raise
    soak.end(began, runtime.home, workspace)
    return soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--pace", type=float, default=1.0, metavar="S", help="seconds between two faults, on average")
    parser.add_argument("--journal", action="store_true", help="four machines share a project by three NATS servers")
    parser.add_argument("--operations", type=int, default=2000, help="with --journal: of each machine")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    soak: Figures
    if options.journal:
        from tests.faults.shared_soak import Weather
        from tests.faults.shared_soak import run as share

        weather = Weather(0.05, options.pace, 8.0)  # faults some of which last longer than the journal is waited for
        soak = asyncio.run(share(options.seed, options.operations, options.sessions, weather, look_s=1.0, root=DISK))
    else:
        soak = asyncio.run(run(options.kills, options.sessions, options.seed, options.pace))
    print(json.dumps(msgspec.to_builtins(soak), indent=1))
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
