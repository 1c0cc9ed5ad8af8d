"""Plays the week against the real system: real bridges and a real runtime, which is down while a day passes."""

from __future__ import annotations

import json
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

import anyio
from mcp import Client
from rich.markup import escape

from examples.sessions import Json, call, command, server, until
from examples.week.time_machine import let_pass
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.paths import RuntimePaths

STORY: Final[Json] = tomllib.loads(Path(__file__).with_name("story.toml").read_text(encoding="utf-8"))
MEMORIES: Final[dict[str, Json]] = {
    step["keep"]: step for session in STORY["sessions"] for step in session["steps"] if "keep" in step
}
"""The steps that store the memories, by the story's names for these."""
SHOWN: Final = 100
"""The number of characters of a session's summary in its line."""
WAIT_S: Final = 30.0
"""The time allowed for background work of a second or two."""


@dataclass
class Journal:
    """Observations from outside. Memories have the story's names."""

    ids: dict[str, str] = field(default_factory=dict)
    read_by: Counter[str] = field(default_factory=Counter)
    """The number of sessions that read each memory, by its id."""
    answers: dict[str, set[str]] = field(default_factory=dict)
    """The memories found by each question of a session."""
    leaks: list[str] = field(default_factory=list)
    """Memories that a session saw but must not see."""
    sought: int = 0
    trouble: list[str] = field(default_factory=list)

    def named(self, memory_id: str) -> str:
        """Return the story's name for a memory, by its id or the end of it; its id if the story has no name for it."""
        return next((name for name, known in self.ids.items() if known.endswith(memory_id)), memory_id)


@dataclass(frozen=True)
class Records:
    """The records of a home. `memories` and `sessions` are rows by id."""

    memories: dict[str, Any]
    sessions: dict[str, Any]
    promotions: list[Any]
    sources: set[str]
    """The memories that were summed up in another."""


def read_records(home: Path) -> Records:
    """Read the records from the file, even while a runtime is up."""
    path = RuntimePaths(home).database.absolute()
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        memories = connection.execute("SELECT * FROM memories WHERE forgotten_at IS NULL ORDER BY number")
        sessions = connection.execute(
            """SELECT s.*, (SELECT content FROM memories AS m
                            WHERE m.session_id = s.session_id AND m.kind = 'session_record') AS summary
               FROM sessions AS s JOIN spaces ON spaces.number = s.space WHERE spaces.name != 'user'"""
        )
        sources = connection.execute(
            """SELECT source.id FROM memory_links AS l JOIN memories AS source ON source.number = l.target
               JOIN memories AS made ON made.number = l.source
               WHERE l.relation = 'derived_from' AND made.kind = 'fact'"""
        )
        return Records(
            {row["id"]: row for row in memories},
            {row["session_id"]: row for row in sessions},
            connection.execute(
                """SELECT p.*, r.kind AS run FROM promotion_log AS p LEFT JOIN runs AS r USING (run_id, space)
                   ORDER BY p.sequence"""
            ).fetchall(),
            {row["id"] for row in sources},
        )


@dataclass(frozen=True)
class Played:
    """The journal, and the records: at the end of the week, and after the holiday and its maintenance."""

    journal: Journal
    week: Records
    after: Records


async def play(home: Path, tell: Callable[[str], None]) -> Played:
    """Play the whole week in a home. `tell` is called with each event in a line. The runtime is down afterwards."""
    journal = Journal()
    numbered = list(enumerate(STORY["sessions"], 1))
    days = [(day, list(sessions)) for day, sessions in groupby(numbered, key=lambda each: each[1]["day"])]
    following = [*(day for day, _ in days[1:]), days[-1][0] + STORY["holiday_days"]]
    for (day, sessions), next_day in zip(days, following, strict=True):
        tell(f"[bold]day {day}[/]")
        try:
            async with anyio.create_task_group() as tasks:
                for number, session in sessions:
                    tasks.start_soon(_Session(number, session, home, journal, tell).play)
        finally:
            await _down(home)
        let_pass(home, (next_day - day) * DAY_S)
    week = read_records(home)
    tell(f"[bold]{STORY['holiday_days']} days later[/]")
    try:
        done = await command(home, "admin", "maintain", "--all", "--json")
        if done.returncode != 0:
            journal.trouble.append(f"remembrancer admin maintain failed: {done.stderr.decode().strip()}")
        else:
            examined = sum(place["examined"] for place in json.loads(done.stdout)["places"])
            tell(f"  remembrancer admin maintain --all looks at {examined} memories")
    finally:
        await _down(home)
    return Played(journal, week, read_records(home))


async def _down(home: Path) -> None:
    with anyio.CancelScope(shield=True):
        await command(home, "down")


class _Session:
    """One session of the week."""

    def __init__(self, number: int, session: Json, home: Path, journal: Journal, tell: Callable[[str], None]) -> None:
        self._number = number
        self._session = session
        self._home = home
        self._directory = home / "work" / session["project"]
        self._directory.mkdir(parents=True, exist_ok=True)
        self._journal = journal
        self._tell = tell
        self._id = f"week-{number}"
        self._read: set[str] = set()

    async def play(self) -> None:
        async with Client(server(self._home, self._directory, REMEMBRANCER_SESSION_ID=self._id)) as client:
            for step in self._session["steps"]:
                await self._step(client, step)
            await self._settle()

        async def is_over() -> bool:
            return bool(read_records(self._home).sessions[self._id]["status"] != "active")

        await self._wait(is_over, f"the end of session {self._number}")
        end = read_records(self._home).sessions[self._id]
        summary = f"; [dim]{escape(shorten(end['summary'], SHOWN))}[/]" if end["summary"] else ""
        self._tell(
            f"  {self._number:>2} [cyan]{self._session['project']}[/], {self._session['about']}: "
            f"{end['memories_promoted']} promoted{summary}"
        )

    async def _step(self, client: Client, step: Json) -> None:
        match step:
            case {"keep": name}:
                await self._keep(client, name, step)
            case {"ask": query, "finds": names}:
                await self._ask(client, query, names)
            case {"unseen": names}:
                for name in names:
                    await self._seek(client, name)
            case {"supersede": newer, "older": older}:
                link = {"relation": "supersedes", "target": self._journal.ids[older]}
                answer = await call(client, "update_memory", memory_id=self._journal.ids[newer], add_links=[link])
                if "error" in answer:
                    self._journal.trouble.append(f"{newer!r} could not supersede {older!r}: {answer}")

    async def _settle(self) -> None:
        """Wait until the memories that were read are counted, which happens after the answers, once a second."""
        ids = {self._journal.ids[name] for name in self._read}
        self._journal.read_by.update(ids)

        async def is_counted() -> bool:
            memories = read_records(self._home).memories
            return all(memories[each]["access_count"] >= self._journal.read_by[each] for each in ids)

        await self._wait(is_counted, f"session {self._number} counted as one that read {sorted(self._read)}")

    async def _wait(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait, and record a timeout."""
        try:
            await until(condition, what=what, within_s=WAIT_S)
        except TimeoutError as error:
            self._journal.trouble.append(str(error))

    async def _keep(self, client: Client, name: str, step: Json) -> None:
        about = [
            {"name": each, "type": kind, "relationship": "concerns"} for each, kind in step.get("about", {}).items()
        ]
        fields = {key: step[key] for key in ("content", "kind", "importance", "confidence")}
        fields |= {"related_entities": about} if about else {}
        answer = await call(client, "store_memory", scope=step.get("scope", "session"), **fields)
        short_id = answer["memory_id"]
        memories = read_records(self._home).memories
        self._journal.ids[name] = next((each for each in memories if each.endswith(short_id)), short_id)

    async def _ask(self, client: Client, query: str, names: list[str]) -> None:
        """Recall as many memories as are listed; each that is shown in full counts as read."""
        await self._embedded(client)
        answer = await call(client, "recall_memories", query=query, limit=len(names))
        memories = {self._journal.named(each["id"]): each for each in answer.get("memories", ())}
        self._journal.answers[f"{query} (session {self._number})"] = set(memories)
        for name, memory in memories.items():
            if "answers" in memory and name in self._journal.ids:
                self._read.add(name)

    async def _seek(self, client: Client, name: str) -> None:
        """Look for another session's memory by its words (among session memories, since shown memories count as read)
        and by its id, in whole answers."""
        await self._embedded(client)
        memory_id, content = self._journal.ids[name], MEMORIES[name]["content"]
        recalled = await call(
            client, "recall_memories", query=content, scope=["session"], limit=50, include_forgotten=True
        )
        got = await call(client, "get_memory", memory_id=memory_id)
        self._journal.sought += 1
        in_text = content in json.dumps([recalled, got], ensure_ascii=False)
        if in_text or any(memory_id.endswith(each["id"]) for each in recalled.get("memories", ())):
            self._journal.leaks.append(f"session {self._number} saw {name}")

    async def _embedded(self, client: Client) -> None:
        async def is_done() -> bool:
            embedding = (await call(client, "get_memory_status")).get("embedding", {})
            return bool(embedding.get("pending") == 0 and embedding.get("workers"))

        await self._wait(is_done, "the vectors of all memories")
