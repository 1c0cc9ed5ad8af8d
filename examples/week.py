"""`python -m examples.week`: plays ten sessions of two small projects in a home of its own, and shows what becomes of
each memory next to the prediction of docs/memory-model.md. Exit status 0: all predictions came true.

Real sessions talk to a real runtime. It is down while days pass, and all times in the records are set back. `week.toml`
has the script and the predictions.
"""

import asyncio
import sqlite3
import sys
import tomllib
from collections import Counter
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.client import Json, StdioClient
from bench.harness import Runtime, drained, runtime, wait_until
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.paths import RuntimePaths

STORY: Final[Json] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WAIT_S: Final = 30.0
"""The time allowed for background work of a second or two."""
NO_TIMES: Final = frozenset({"importance", "confidence", "strength", "score", "until"})
"""The columns of real numbers that are not times."""
WAYS: Final = {"promotion": "at once", "session_end": "at the end"}


class Week:
    """The week in a runtime's home. Memories have their names from the story."""

    def __init__(self, running: Runtime, console: Console) -> None:
        self._running = running
        self._paths = RuntimePaths(running.home)
        self._console = console
        self._ids: dict[str, str] = {}
        self._read_by: Counter[str] = Counter()
        """The number of sessions that read each memory, by its name."""

    async def play(self) -> dict[str, str]:
        """Play the whole week, and return what has become of each memory. The runtime is down afterwards."""
        days = [
            (day, list(sessions))
            for day, sessions in groupby(enumerate(STORY["sessions"], 1), key=lambda each: each[1]["day"])
        ]
        following = [*(day for day, _ in days[1:]), days[-1][0] + STORY["holiday_days"]]
        for (day, sessions), next_day in zip(days, following, strict=True):
            self._console.print(f"[bold]day {day}[/]")
            async with asyncio.TaskGroup() as tasks:
                last: asyncio.Task[None] | None = None
                for number, session in sessions:
                    last = tasks.create_task(self._session(number, session, last))
            await self._running.stop()
            self._let_pass((next_day - day) * DAY_S)
        ways = {name: self._way(memory_id) for name, memory_id in self._ids.items()}
        self._console.print(f"[bold]{STORY['holiday_days']} days later[/], after remembrancer admin maintain --all")
        await self._running.command("admin", "maintain", "--all")
        await self._running.stop()
        fates = {}
        for name, memory_id in self._ids.items():
            (memory,) = self._rows("SELECT * FROM memories WHERE id = ?", memory_id)
            superseded = [] if memory["valid_until"] is None else ["superseded"]
            fates[name] = ", ".join((*ways[name], *superseded, f"{memory['scope']} {memory['status']}"))
        return fates

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(f"{self._paths.database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(query, values).fetchall()

    def _let_pass(self, seconds: float) -> None:
        """Set all times back, as if these `seconds` had passed."""
        for path in (self._paths.database, self._paths.write_queue):
            with closing(sqlite3.connect(path)) as connection, connection:
                tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
                for (table,) in tables:
                    columns = connection.execute(f"SELECT name, type FROM pragma_table_info('{table}')")
                    times = [name for name, kind in columns if kind == "REAL" and name not in NO_TIMES]
                    if times:
                        connection.execute(
                            f"UPDATE {table} SET {', '.join(f'{each} = {each} - {seconds!r}' for each in times)}"
                        )

    def _way(self, memory_id: str) -> list[str]:
        """Say how a memory was promoted or merged in the week, with the score."""
        steps = self._rows(
            """SELECT p.*, r.kind AS run FROM promotion_log AS p LEFT JOIN runs AS r USING (run_id, space)
               WHERE p.memory_id = ? ORDER BY p.sequence""",
            memory_id,
        )
        told = [
            f"merged into {self._named(step['merged_into'])}"
            if step["merged_into"]
            else f"promoted {WAYS.get(step['run'], 'to the user')} with {step['score']:.3f}"
            for step in steps
        ]
        summed_up = self._rows(
            """SELECT 1 FROM memory_links AS l JOIN memories AS source ON source.number = l.target
               JOIN memories AS made ON made.number = l.source
               WHERE l.relation = 'derived_from' AND made.kind = 'fact' AND source.id = ?""",
            memory_id,
        )
        return [*told, "summed up"] if summed_up else told

    def _named(self, memory_id: str) -> str:
        """The story's name for a memory, by its id or the ending of its id."""
        return next((name for name, known in self._ids.items() if known.endswith(memory_id)), memory_id)

    # --- a session ---

    async def _session(self, number: int, session: Json, other: asyncio.Task[None] | None) -> None:
        """Play a session. It ends after the `other` session of its day, whose preferences it may share."""
        directory, session_id = self._running.home / "work" / session["project"], f"week-{number}"
        directory.mkdir(parents=True, exist_ok=True)
        read: set[str] = set()
        async with self._running.client(directory, REMEMBRANCER_SESSION_ID=session_id) as client:
            for step in session["steps"]:
                read |= await self._step(client, number, step)
            self._read_by.update(read)

            async def is_counted() -> bool:  # after the answers, once a second
                counts = {row["id"]: row["access_count"] for row in self._rows("SELECT id, access_count FROM memories")}
                return all(counts[self._ids[name]] >= self._read_by[name] for name in read)

            await wait_until(is_counted, WAIT_S)
            if other is not None:
                await other

        query = """SELECT 1 FROM sessions JOIN spaces ON spaces.number = space
                   WHERE session_id = ? AND status != 'active' AND spaces.name != 'user'"""

        async def is_over() -> bool:
            return bool(self._rows(query, session_id))

        await wait_until(is_over, WAIT_S)
        self._console.print(f"  {number:>2} [cyan]{session['project']}[/], {session['about']}", soft_wrap=True)

    async def _step(self, client: StdioClient, number: int, step: Json) -> set[str]:
        """Do a step of a session, and return the memories that were read in full."""
        match step:
            case {"keep": name}:
                await self._keep(client, name, step)
            case {"ask": query, "finds": names}:
                await wait_until(lambda: drained(client), WAIT_S)
                answer = await client.call("recall_memories", query=query, limit=len(names))
                found = {self._named(each["id"]): each for each in answer.get("memories", ())}
                if found.keys() != set(names):
                    raise RuntimeError(f"session {number}: {query} finds {sorted(found)}")
                return {name for name, memory in found.items() if "answers" in memory and name in self._ids}
            case {"supersede": newer, "older": older}:
                link = {"relation": "supersedes", "target": self._ids[older]}
                await client.call("update_memory", memory_id=self._ids[newer], add_links=[link])
        return set()

    async def _keep(self, client: StdioClient, name: str, step: Json) -> None:
        about = [
            {"name": each, "type": kind, "relationship": "concerns"} for each, kind in step.get("about", {}).items()
        ]
        fields: dict[str, Any] = {key: step[key] for key in ("content", "kind", "importance", "confidence")}
        fields |= {"related_entities": about} if about else {}
        answer = await client.call("store_memory", scope=step.get("scope", "session"), **fields)
        ((memory_id,),) = self._rows("SELECT id FROM memories WHERE id LIKE ?", f"%{answer['memory_id']}")
        self._ids[name] = memory_id

        async def is_promoted() -> bool:
            return bool(self._way(memory_id))

        if "at once" in STORY["fates"][name]:  # before the session ends, since its end promotes, too
            await wait_until(is_promoted, WAIT_S)


async def show_week(console: Console) -> bool:
    """Play the week in a home of its own and show it. Returns whether it went as predicted."""
    console.rule("[bold]A week of ten sessions in two projects")
    console.print("  tidewatch is the API of a small harbour, slipway its web front end.")
    async with runtime(call_budget_s="40", bridge_budget_s="60") as running:  # no call fails if it stalls for seconds
        fates = await Week(running, console).play()
    table, wrong = Table("", "memory", "predicted", "happened", show_lines=True), 0
    for name, predicted in STORY["fates"].items():
        kept = fates.get(name) == predicted
        wrong += not kept
        happened = "[dim]the same" if kept else f"[red]{escape(fates.get(name, 'was not stored'))}"
        table.add_row("[green]✓" if kept else "[red]✗", name, escape(predicted), happened)
    console.print(table)
    if not wrong:
        console.print("[green]All predictions came about.[/] docs/memory-model.md explains them.")
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(show_week(Console())) else 1)
