"""Plays the week against the real system: real bridges and a real runtime, which is down while a day passes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import Final

import anyio
from mcp import Client
from rich.markup import escape

from examples.sessions import Json, call, command, server, until
from examples.week.records import File, SessionEnd, read_project, read_user, session_status
from examples.week.steps import (
    Ask,
    AwaitPromotion,
    Hooks,
    Keep,
    Project,
    ReadContext,
    SeekInVain,
    Session,
    Step,
    Supersede,
)
from examples.week.story import HOLIDAY_DAYS, WEEK, memories
from examples.week.time_machine import let_pass
from remembrancer.memory.decay import DAY_S

PROJECTS: Final[tuple[Project, ...]] = ("tidewatch", "slipway")
SHOWN: Final = 100
"""The number of characters of a session's summary in its line."""
WAIT_S: Final = 30.0
"""The time allowed for background work of a second or two."""

Tell = Callable[[str], None]


@dataclass
class Journal:
    """Observations from outside, by session. Memories have the story's names."""

    ids: dict[str, str] = field(default_factory=dict)
    shown: Counter[str] = field(default_factory=Counter)
    """The number of sessions in which each memory was shown, by its id."""
    found: list[tuple[Session, Ask, tuple[str, ...]]] = field(default_factory=list)
    doubted: set[tuple[str, str]] = field(default_factory=set)
    """The memories reported as possibly superseded, each with the one that may have replaced it."""
    leaks: list[tuple[Session, str]] = field(default_factory=list)
    """Memories that a session saw but must not see."""
    sought: list[tuple[Session, str]] = field(default_factory=list)
    at_once: set[str] = field(default_factory=set)
    """Memories that were in the project while their session was still running."""
    context: str = ""
    maintained: Json = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)

    def named(self, memory_id: str) -> str:
        """Return the story's name for a memory, by its id or the end of it; its id if the story has no name for it."""
        return next((name for name, known in self.ids.items() if known.endswith(memory_id)), memory_id)


@dataclass(frozen=True, slots=True)
class Played:
    """The journal, and the contents of the records: at the end of the week, and after the holiday and its
    maintenance."""

    journal: Journal
    week: dict[str, File]
    after: dict[str, File]


class Week:
    """One week in its own home. `tell` is called with each event in a line."""

    def __init__(self, home: Path, tell: Tell) -> None:
        self._home = home
        self._tell = tell
        self._directories = {name: home / "work" / name for name in PROJECTS}
        self.journal = Journal()

    async def play(self) -> Played:
        """Play the whole week. The runtime is down afterwards."""
        for directory in self._directories.values():
            directory.mkdir(parents=True)
        days = [(day, list(sessions)) for day, sessions in groupby(WEEK, key=lambda session: session.day)]
        for place, (day, sessions) in enumerate(days):
            await self._day(day, sessions)
            following = days[place + 1][0] if place + 1 < len(days) else day + HOLIDAY_DAYS
            let_pass(self._home, (following - day) * DAY_S)
        week = self._read()
        await self._maintain()
        return Played(self.journal, week, self._read())

    async def _day(self, day: int, sessions: list[Session]) -> None:
        self._tell(f"[bold]day {day}[/]")
        try:
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(self._session, session)
        finally:
            with anyio.CancelScope(shield=True):
                await command(self._home, "down")

    async def _session(self, session: Session) -> None:
        directory = self._directories[session.project]
        parameters = server(self._home, directory, REMEMBRANCER_SESSION_ID=session.id)
        play = _Player(session, self._home, directory, self.journal)
        async with Client(parameters) as client:
            for step in session.steps:
                await play.step(client, step)
            await play.settle()

        async def is_over() -> bool:
            status = session_status(self._home, directory, session.id)
            return status is not None and status[0] != "active"

        await play.wait(is_over, f"the end of session {session.number}")
        end = read_project(self._home, directory).sessions.get(session.id)
        self._tell(f"  {session.number:>2} [cyan]{session.project}[/], {session.about}: {play.told(end)}")

    async def _maintain(self) -> None:
        self._tell(f"[bold]{HOLIDAY_DAYS} days later[/]")
        try:
            done = await command(self._home, "maintain", "--all", "--json")
            if done.returncode != 0:
                self.journal.trouble.append(f"remembrancer admin maintain failed: {done.stderr.decode().strip()}")
                return
            self.journal.maintained = json.loads(done.stdout)
            examined = sum(place["examined"] for place in self.journal.maintained["places"])
            self._tell(f"  remembrancer admin maintain --all looks at {examined} memories")
        finally:
            with anyio.CancelScope(shield=True):
                await command(self._home, "down")

    def _read(self) -> dict[str, File]:
        files = {"user": read_user(self._home)}
        for name, directory in self._directories.items():
            files[name] = read_project(self._home, directory)
        return files


class _Player:
    """Plays one session."""

    def __init__(self, session: Session, home: Path, directory: Path, journal: Journal) -> None:
        self._session = session
        self._home = home
        self._directory = directory
        self._journal = journal
        self._shown: set[str] = set()
        self.kept = 0
        self.asked = 0

    async def step(self, client: Client, step: Step) -> None:
        match step:
            case Keep():
                await self._keep(client, step)
            case Ask():
                await self._ask(client, step)
            case SeekInVain(names=names):
                for name in names:
                    await self._seek(client, name)
            case AwaitPromotion(name=name):
                await self._await_promotion(name)
            case Supersede(newer=newer, older=older):
                await self._supersede(client, newer, older)
            case ReadContext(shows=names):
                answer = await call(client, "get_memory_context")
                self._journal.context = answer.get("context_block", "")
                self._shown.update(names)
            case Hooks():
                await self._report(step)

    def told(self, end: SessionEnd | None) -> str:
        """Return the session in a line."""
        if end is None:
            return "nobody knows of it"
        said = f"kept {self.kept}, asked {self.asked}; its end: {end.promoted} promoted"
        return f"{said}; [dim]{escape(shorten(end.summary, SHOWN))}[/]" if end.summary else said

    async def settle(self) -> None:
        """Wait until the memories shown are counted, which happens after the answers, once a second."""

        async def is_counted() -> bool:
            files = (read_project(self._home, self._directory), read_user(self._home))
            held = {memory.id: memory for file in files for memory in file.memories.values()}
            wanted = [self._journal.ids[name] for name in self._shown if name in self._journal.ids]
            return all(each in held and held[each].access_count >= self._journal.shown[each] for each in wanted)

        for name in self._shown & self._journal.ids.keys():
            self._journal.shown[self._journal.ids[name]] += 1
        await self.wait(is_counted, f"session {self._session.number} counted as one that read {sorted(self._shown)}")

    async def wait(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait, and record a timeout."""
        try:
            await until(condition, what=what, within_s=WAIT_S)
        except TimeoutError as error:
            self._journal.trouble.append(str(error))

    async def _keep(self, client: Client, step: Keep) -> None:
        about = [{"name": name, "type": kind, "relationship": "concerns"} for name, kind in step.about]
        answer = await call(
            client,
            "store_memory",
            content=step.content,
            kind=step.kind,
            scope=step.scope,
            importance=step.importance,
            confidence=step.confidence,
            **({"related_entities": about} if about else {}),
        )
        if "memory_id" not in answer:
            self._journal.trouble.append(f"{step.name!r} was not stored: {answer}")
            return
        self._journal.ids[step.name] = self._whole(answer["memory_id"])
        self.kept += 1

    def _whole(self, short_id: str) -> str:
        """Return the full id for the end of an id from an answer."""
        held = {*read_project(self._home, self._directory).memories, *read_user(self._home).memories}
        return next((each for each in held if each.endswith(short_id)), short_id)

    async def _ask(self, client: Client, step: Ask) -> None:
        await self._embedded(client)
        answer = await call(client, "recall_memories", query=step.query, limit=len(step.finds))
        found = answer.get("memories", [])
        named = tuple(self._journal.named(each["id"]) for each in found)
        self._journal.found.append((self._session, step, named))
        for each in found:
            for newer in each.get("possibly_superseded_by", ()):
                self._journal.doubted.add((self._journal.named(each["id"]), self._journal.named(newer)))
        # The line for a memory that hardly answers counts as no access.
        whole = {self._journal.named(each["id"]) for each in found if each.get("answers") != "hardly"}
        self._shown.update(whole & self._journal.ids.keys())
        self.asked += 1

    async def _seek(self, client: Client, name: str) -> None:
        """Look for a memory by its words (among session memories, since shown memories count as read) and by its id, in
        whole answers."""
        memory_id = self._journal.ids.get(name)
        if memory_id is None:
            return
        await self._embedded(client)
        content = memories()[name][1].content
        recalled = await call(
            client, "recall_memories", query=content, scope=["session"], limit=50, include_forgotten=True
        )
        shown = await call(client, "get_memory", memory_id=memory_id)
        self._journal.sought.append((self._session, name))
        seen = json.dumps([recalled, shown], ensure_ascii=False)
        if content in seen or any(memory_id.endswith(each["id"]) for each in recalled.get("memories", ())):
            self._journal.leaks.append((self._session, name))

    async def _await_promotion(self, name: str) -> None:
        async def is_there() -> bool:
            held = read_project(self._home, self._directory).memories.get(self._journal.ids.get(name, ""))
            return held is not None and held.scope == "project"

        await self.wait(is_there, f"the promotion of {name!r} at once")
        if await is_there():
            self._journal.at_once.add(name)

    async def _supersede(self, client: Client, newer: str, older: str) -> None:
        ids = self._journal.ids
        link = {"relation": "supersedes", "target": ids.get(older, "")}
        answer = await call(client, "update_memory", memory_id=ids.get(newer, ""), add_links=[link])
        if "error" in answer:
            self._journal.trouble.append(f"{newer!r} could not supersede {older!r}: {answer}")

    async def _report(self, step: Hooks) -> None:
        """Report as the client's hooks do, with its session's id; then wait until both events are recorded."""
        about = {"session_id": self._session.id, "cwd": str(self._directory)}
        use = {"tool_name": "Bash", "tool_input": {"command": step.command}, "tool_response": {"stdout": step.output}}
        for event, given in (("UserPromptSubmit", {"prompt": step.prompt}), ("PostToolUse", use)):
            await command(
                self._home,
                "hook",
                event,
                directory=self._directory,
                stdin=json.dumps({**about, "hook_event_name": event, **given}),
                REMEMBRANCER_HOOK_CONTEXT_LENGTH="0",
            )

        async def is_recorded() -> bool:
            status = session_status(self._home, self._directory, self._session.id)
            return status is not None and status[1:] == (1, 1)

        await self.wait(is_recorded, "the record of what the hooks reported")

    async def _embedded(self, client: Client) -> None:
        async def is_done() -> bool:
            embedding = (await call(client, "get_memory_status")).get("embedding", {})
            return bool(embedding.get("pending") == 0 and embedding.get("workers"))

        await self.wait(is_done, "the vectors of all memories")
