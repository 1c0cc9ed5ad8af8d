"""Plays weeks of use through real sessions.

`python -m bench.weeks FILE…`

FILE is an invented week (`bench/datasets.py`). Each session of the file is a stdio session that ends when the next
one begins; memories `about_user` have the scope `user`. When the consolidator has processed all sessions, each question
is one `recall_memories` in its project, with one session for consecutive questions of a project; and, at the end, the
task of a `get_memory_context`. Four baselines answer over the same texts with the same model.
"""

import argparse
import asyncio
import itertools
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.baselines import PassageVectors, WordIndex, rank_all, rows_of
from bench.client import Json
from bench.datasets import Asked, Memory, Week, moment, read_json
from bench.harness import Runtime, answered, drained, iso, runtime, wait_until
from bench.measures import calibration_error
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.protocol.paths import RuntimePaths

LIMIT: Final = 10
SETTLED_S: Final = 300.0
PACKED: Final = 350
"""The length limit of a baseline's passage, unless a single sentence is longer."""
OURS: Final = "remembrancer"
CONTEXT: Final = "its context for the question as a task"
ACTIVE: Final = """SELECT 1 FROM sessions AS s JOIN spaces ON spaces.number = s.space
    WHERE s.status = 'active' AND spaces.name != 'user'"""
"""The running sessions of projects: those that stored something for the user have a row there as well."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")


class Shown(msgspec.Struct, frozen=True):
    """A result: the ids in the file of the memory and those that it represents, and its probability."""

    ids: frozenset[str]
    probability: float | None = None


Answered = tuple[Asked, Sequence[Shown]]


class Played(msgspec.Struct):
    """The outcome of a week."""

    answers: dict[str, list[Answered]]
    leaks: int = 0


def figures_of(answers: Sequence[Answered]) -> dict[str, float | None]:
    """Return the figures of a system, as `bench/weeks.py` prints them; shares are in per cent.

    `stale first`: the share of the questions with a past state where one ranked above every present one. `shown` and
    `irrelevant` are about the questions that have an answer.
    """
    real = [(asked, shown) for asked, shown in answers if asked.wanted]
    ranks = [_ranks(shown, asked.wanted) for asked, shown in real]
    changed = [
        (min(_ranks(shown, asked.stale), default=LIMIT), min(_ranks(shown, asked.wanted), default=LIMIT))
        for asked, shown in real
        if asked.stale
    ]
    found = [
        len(asked.wanted & frozenset().union(*(each.ids for each in shown))) / len(asked.wanted)
        for asked, shown in real
    ]
    shown_in_all = sum(len(shown) for _, shown in real)
    wrong = shown_in_all - sum(map(len, ranks))
    error = calibration_error(
        (each.probability, bool(each.ids & asked.wanted))
        for asked, shown in answers
        for each in shown
        if each.probability is not None
    )
    return {
        "questions": len(real),
        "first": sum(0 in each for each in ranks),
        "five": sum(min(each, default=LIMIT) < 5 for each in ranks),
        "never": sum(not each for each in ranks),
        "recall@10": round(100 * statistics.fmean(found), 1) if found else None,
        "changed": len(changed),
        "stale first": sum(stale < wanted for stale, wanted in changed),
        "shown": shown_in_all,
        "irrelevant": round(100 * wrong / shown_in_all, 1) if shown_in_all else None,
        "unanswerable": len(answers) - len(real),
        "empty for nothing": sum(not shown for asked, shown in answers if not asked.wanted),
        "calibration error": None if error is None else round(error, 3),
    }


def _ranks(shown: Sequence[Shown], wanted: frozenset[str]) -> list[int]:
    return [rank for rank, each in enumerate(shown) if each.ids & wanted]


# --- Baselines.


def packed(text: str) -> list[str]:
    """Group the sentences of a text into passages of at most `PACKED` characters."""
    passages: list[str] = []
    for sentence in filter(None, _SENTENCE_END.split(text)):
        if passages and len(passages[-1]) + 1 + len(sentence) <= PACKED:
            passages[-1] += f" {sentence}"
        else:
            passages.append(sentence)
    return passages


def baselines(week: Week, engine: Engine) -> dict[str, list[Answered]]:
    """Return the first results of each baseline."""
    found: dict[str, list[Answered]] = defaultdict(list)
    for project in week.projects:
        memories = week.seen_in(project)
        words = WordIndex([each.text for each in memories])
        passages = [(place, text) for place, each in enumerate(memories) for text in packed(each.text)]
        owners = np.array([place for place, _ in passages], dtype=np.int64)
        vectors = PassageVectors(engine.embed_passages([text for _, text in passages]), owners, len(memories))
        for asked in week.asked_in(project):
            rankings = rank_all(asked.text, engine.embed_questions([asked.text])[0], words, vectors)
            for name, ranking in rankings.items():
                found[name].append((asked, [Shown(frozenset((memories[place].id,))) for place in ranking[:LIMIT]]))
        words.close()
    return found


# --- The system, through real sessions.


async def play(week: Week) -> Played:
    """Store, let the sessions end, and ask.

    Raises:
        RuntimeError: something is not stored or not answered, however often it is tried.
        TimeoutError: the vectors or the sessions' ends do not come.
    """
    ids: dict[str, set[str]] = {}
    happened = week.happened()
    stored: dict[str, str] = {}
    async with runtime(idle_timeout_s="900") as running:
        directories = {project: running.home / "projects-of-the-week" / project for project in week.projects}
        for directory in directories.values():
            (directory / ".git").mkdir(parents=True)
            (directory / ".git" / "HEAD").touch()  # makes the directory a project root, wherever the home is
        for (project, _), memories in itertools.groupby(week.memories, lambda each: (each.project, each.session)):
            async with running.client(directories[project]) as client:
                for each in memories:
                    answer = await answered(client, "store_memory", **_arguments(each, happened[each.id], stored))
                    whole = (await client.call("get_memory", memory_id=answer["memory_id"]))["id"]
                    stored[each.id] = whole
                    for name in (whole, answer["memory_id"]):
                        ids.setdefault(name, set()).add(each.id)
        async with running.client(directories[week.projects[0]]) as client:
            await wait_until(lambda: drained(client), SETTLED_S, 0.5)
        await settle(running)
        answers: list[Answered] = []
        for (project, day), questions in itertools.groupby(week.asked, lambda each: (each.project, each.day)):
            async with running.client(directories[project]) as client:
                for asked in questions:
                    at = iso(moment(day))
                    given = await answered(client, "recall_memories", query=asked.text, limit=LIMIT, reference_time=at)
                    answers.append((asked, [_shown(each, ids) for each in given["memories"]]))
        await settle(running)
        contexts: list[Answered] = []
        for project, questions in itertools.groupby(week.asked, lambda each: each.project):
            async with running.client(directories[project]) as client:
                for asked in questions:
                    given = await client.call("get_memory_context", task_description=asked.text, detail=True)
                    contexts.append((asked, [Shown(frozenset(ids.get(each, ()))) for each in given["memory_ids"]]))
    return Played({OURS: answers, CONTEXT: contexts}, leaks_of(week, [*answers, *contexts]))


def _arguments(memory: Memory, happened: float, stored: dict[str, str]) -> Json:
    """Return the arguments of `store_memory`."""
    arguments: Json = {
        "content": memory.text,
        "scope": "user" if memory.about_user else "project",
        "occurred_at": iso(happened),
    }
    if (kind := memory.known_kind) is not None:
        arguments["kind"] = kind
    if memory.supersedes is not None:
        arguments["supersedes"] = stored[memory.supersedes]
    return arguments


def _shown(memory: Json, ids: dict[str, set[str]]) -> Shown:
    own = (memory["id"], *memory.get("stands_for", ()))
    return Shown(frozenset().union(*(ids.get(each, ()) for each in own)), memory.get("relevance_score"))


async def settle(running: Runtime) -> None:
    """Wait until all sessions have ended and the consolidator has processed them."""
    database = RuntimePaths(running.home).database

    async def settled() -> bool:
        if rows_of(database, ACTIVE):
            return False
        return (await running.status())["consolidator"]["job"] is None

    await wait_until(settled, SETTLED_S, 2.0)


def leaks_of(week: Week, answers: Iterable[Answered]) -> int:
    """Return the number of results that are memories of another project and not about the user."""
    seen = {project: {each.id for each in week.seen_in(project)} for project in week.projects}
    return sum(bool(each.ids) and not each.ids & seen[asked.project] for asked, shown in answers for each in shown)


# --- Common parts.


def print_tables(played: dict[str, Played]) -> None:
    """Print the figures of each week, and of `all` if there are several."""
    each_week = list(played.values())
    if len(each_week) > 1:
        played["all"] = Played(
            {system: [one for each in each_week for one in each.answers[system]] for system in each_week[0].answers},
            sum(each.leaks for each in each_week),
        )
    console = Console(width=140)
    for name, week in played.items():
        measured = {system: figures_of(answers) for system, answers in week.answers.items()}
        table = Table(name, *measured[OURS])
        for system, figures in measured.items():
            table.add_row(system, *("–" if value is None else f"{value:g}" for value in figures.values()))
        console.print(table)
        console.print(f"given of another project: {week.leaks}")


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    given = parser.parse_args()
    engine = load_engine(Settings(), 2)
    played: dict[str, Played] = {}
    for file in given.files:
        week = msgspec.convert(read_json(file), Week)
        played[file.stem] = asyncio.run(play(week))
        played[file.stem].answers |= baselines(week, engine)
    print_tables(played)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
