"""Find whether anything leaves the scope in which it was said: `python -m tests.faults.leaks FILE… [--json]`.

A FILE holds a week of use, in the form of `bench/datasets.py`. All of it is stored in its project, also what is about
the user. Each session keeps some memories to itself beside that, and hooks tell its prompts and its last answer: each
of these has an invented word in it. When the sessions have ended, every question of a project is asked in three
sessions of it, and then in the other projects. Counted is what went to the user by itself, what a project was given of
another one, and which of the invented words came up in an answer, in a context or in what the project or the user
keeps. The exit status is 1 when anything did that should not.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.client import Json, StdioClient
from bench.datasets import Week, moment
from bench.harness import Runtime, answered, drained, iso, runtime, session_in, wait_until
from bench.weeks import (
    GRACE_S,
    LIMIT,
    SETTLED_S,
    promotions_of,
    rows_of,
    settle,
)
from remembrancer.protocol.paths import RuntimePaths

ROUNDS: Final = 3
"""Sessions in which each question is asked: a fact that several use is one that could be thought to be the user's."""
KEPT: Final = 3
"""Memories that each session keeps to itself, and as many prompts of it."""
KEPT_TEXTS: Final = "SELECT content, summary, tags, metadata, structured FROM memories WHERE scope != 'session'"
LEAST_QUOTED: Final = 30
"""Characters of a sentence that is looked for: shorter ones are said in two projects by chance."""
NEW_WORDS: Final = ("ba", "du", "fi", "go", "ka", "lu", "mi", "no", "pe", "ra", "su", "ti", "vo", "ze")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")


class Leaks(msgspec.Struct):
    """The counts of one or more weeks. `promoted` and `proposed` are to the user; `right` is what is about the user.

    `elsewhere`: answers and contexts of a project that had a sentence of another one. `handed_on`: sessions' memories
    that were worth it and are the project's since. `session_words` of the other `kept` ones and `prompt_words` of what
    was `told` are invented words that came up where they do not belong.
    """

    about_user: int = 0
    promoted: int = 0
    promoted_right: int = 0
    proposed: int = 0
    proposed_right: int = 0
    asked: int = 0
    asked_elsewhere: int = 0
    elsewhere: int = 0
    handed_on: int = 0
    kept: int = 0
    session_words: int = 0
    told: int = 0
    prompt_words: int = 0

    @property
    def is_closed(self) -> bool:
        """True if nothing left its scope by itself, but what is the user's."""
        wrong = self.promoted - self.promoted_right
        return not (wrong or self.elsewhere or self.session_words or self.prompt_words)

    def __add__(self, other: Leaks) -> Leaks:
        return Leaks(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def new_words() -> Iterator[str]:
    """Words that nobody says, each once."""
    for syllables in itertools.product(NEW_WORDS, repeat=4):
        yield "x" + "".join(syllables)


class Scopes:
    """A week whose sessions have things of their own: which invented words stand in them."""

    def __init__(self, week: Week, running: Runtime) -> None:
        self._week, self._running = week, running
        self._words = new_words()
        self.directories = {project: running.home / "projects-of-the-week" / project for project in week.projects}
        self.ids: dict[str, set[str]] = {}
        self.kept: dict[str, str] = {}
        """The memory of each word that a session keeps to itself."""
        self.told: set[str] = set()
        for directory in self.directories.values():
            (directory / ".git").mkdir(parents=True)
            (directory / ".git" / "HEAD").touch()  # a root of its own, wherever the home may be

    def session(self, project: str, name: str) -> StdioClient:
        return session_in(self._running, self.directories[project], REMEMBRANCER_SESSION_ID=name)

    async def store(self) -> None:
        """Play the sessions of the file."""
        happened = self._week.happened()
        stored: dict[str, str] = {}
        for (project, name), memories in itertools.groupby(
            self._week.memories, lambda each: (each.project, each.session)
        ):
            session = f"{project}-{name}"
            asked = itertools.cycle([each.text for each in self._week.asked_in(project)])
            async with self.session(project, session) as client:
                await self._hook(project, session, "SessionStart", source="startup")
                for each in memories:
                    more = {"supersedes": stored[each.supersedes]} if each.supersedes is not None else {}
                    more |= {"kind": each.known_kind} if each.known_kind is not None else {"type": "semantic"}
                    at = iso(happened[each.id])
                    answer = await answered(
                        client, "store_memory", content=each.text, scope="project", occurred_at=at, **more
                    )
                    stored[each.id] = answer["memory_id"]
                    self.ids.setdefault(answer["memory_id"], set()).add(each.id)
                for question in itertools.islice(asked, KEPT):
                    word = next(self._words)
                    text = (
                        f"While we look at “{question}”, the scratch branch is called {word}: thrown away afterwards."
                    )
                    answer = await answered(client, "store_memory", content=text, scope="session", type="episodic")
                    self.kept[word] = answer["memory_id"]
                    await answered(client, "recall_memories", query=question)
                    await self._hook(
                        project, session, "UserPromptSubmit", prompt=f"thanks, good. {question} {self._tell()}"
                    )
                last = f"That is {next(asked)} {self._tell()}. Done."
                await self._hook(project, session, "Stop", last_assistant_message=last)
                await self._hook(project, session, "SessionEnd", reason="logout")

    def _tell(self) -> str:
        word = next(self._words)
        self.told.add(word)
        return word

    async def _hook(self, project: str, session: str, event: str, **given: Any) -> None:
        directory = str(self.directories[project])
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("remembrancer")),
            "hook",
            event,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, **self._running.environ, "REMEMBRANCER_HOME": str(self._running.home)}
            | {"CLAUDE_PROJECT_DIR": directory},
        )
        whole = {"session_id": session, "cwd": directory, "hook_event_name": event, **given}
        await process.communicate(json.dumps(whole).encode())

    async def settle(self) -> None:
        async with self.session(self._week.projects[0], "looks") as client:
            await wait_until(lambda: drained(client), SETTLED_S, 0.5)
        await settle(self._running)

    async def use(self) -> tuple[int, list[str]]:
        """Ask each question in several sessions of its project: how many answers there were, and all their texts."""
        texts: list[str] = []
        for number, project in itertools.product(range(ROUNDS), self._week.projects):
            async with self.session(project, f"asks-{project}-{number}") as client:
                for asked in self._week.asked_in(project):
                    at = iso(moment(asked.day))
                    recalled = await answered(
                        client, "recall_memories", query=asked.text, limit=LIMIT, reference_time=at
                    )
                    texts.append(all_text(recalled))
                    if number == 0:
                        texts.append(await context(client, task_description=asked.text))
                texts.append(await context(client))
        return len(texts), texts

    async def use_elsewhere(self) -> tuple[int, int]:
        """Ask each question in the other projects: how many answers there were, and how many had what is not theirs."""
        count = foreign = 0
        for project, other in itertools.permutations(self._week.projects, 2):
            mine = {each.text for each in self._week.seen_in(other)}
            strange = [
                sentence
                for each in self._week.memories
                if each.project != other and not each.about_user
                for sentence in _SENTENCE_END.split(each.text)
                if len(sentence) >= LEAST_QUOTED and not any(sentence in text for text in mine)
            ]
            async with self.session(other, f"asks-{project}-in-{other}") as client:
                texts = [await context(client)]
                for asked in self._week.asked_in(project):
                    texts.append(all_text(await answered(client, "recall_memories", query=asked.text, limit=LIMIT)))
                    texts.append(await context(client, task_description=asked.text))
                count += len(texts)
                foreign += sum(any(sentence in text for sentence in strange) for text in texts)
        return count, foreign

    def kept_texts(self) -> Iterator[str]:
        """Texts that the projects and the user keep: of memories, and what was made of them."""
        for file in self._files():
            for row in rows_of(file, KEPT_TEXTS):
                yield " ".join(filter(None, row))

    def handed_over(self) -> set[str]:
        """The memories that were a session's and went to the project by a promotion that is logged."""
        return {row[0] for file in self._files() for row in rows_of(file, "SELECT memory_id FROM promotion_log")}

    def _files(self) -> list[Path]:
        paths = RuntimePaths(self._running.home)
        return [file for file in (paths.database,) if file.exists()]


async def context(client: StdioClient, **task: str) -> str:
    """A session's context for a task, or at its start. Raises `RuntimeError`: there is no such answer."""
    answer = await client.call_or_error("get_memory_context", **task)
    if "context_block" not in answer:
        raise RuntimeError(f"get_memory_context does not answer as it should: {answer}")
    return str(answer["context_block"])


def all_text(answer: Json) -> str:
    """Every text in an answer, but names."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                yield from texts(each)

    return "\n".join(texts(answer))


def found_in(words: Iterable[str], texts: Iterable[str]) -> set[str]:
    """Those of the words that stand in a text."""
    whole = "\n".join(texts)
    return {word for word in words if word in whole}


async def play(week: Week) -> Leaks:
    """Play a week.

    Raises:
        RuntimeError: something is not stored or not answered, however often it is tried.
        TimeoutError: the vectors or the sessions' ends do not come.
    """
    async with runtime(session_grace_s=str(GRACE_S), idle_timeout_s="900") as running:
        scopes = Scopes(week, running)
        await scopes.store()
        await scopes.settle()
        asked, texts = await scopes.use()
        await scopes.settle()
        elsewhere = await scopes.use_elsewhere()
        await scopes.settle()
        to_user = await promotions_of(running, week, scopes.directories, scopes.ids)
        texts += scopes.kept_texts()
        handed_over = scopes.handed_over()
        own = [word for word, memory_id in scopes.kept.items() if memory_id not in handed_over]
        return Leaks(
            sum(each.about_user for each in week.memories),
            to_user["promoted"],
            to_user["rightly promoted"],
            to_user["proposed"],
            to_user["rightly proposed"],
            asked,
            *elsewhere,
            len(scopes.kept) - len(own),
            len(own),
            len(found_in(own, texts)),
            len(scopes.told),
            len(found_in(scopes.told, texts)),
        )


def main() -> int:
    """Print the counts of each week, and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    weeks = {file.stem: msgspec.json.decode(file.read_bytes(), type=Week) for file in given.files}
    found = {name: asyncio.run(play(week)) for name, week in weeks.items()}
    found["all"] = sum(found.values(), Leaks())
    if given.json:
        print(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        for name, each in found.items():
            print(
                f"{name}: to the user by itself {each.promoted} ({each.promoted_right} rightly), proposed "
                f"{each.proposed} ({each.proposed_right} of the {each.about_user} that are the user's); of another "
                f"project {each.elsewhere} of {each.asked_elsewhere} answers; words of sessions {each.session_words} "
                f"of {each.kept} and of prompts {each.prompt_words} of {each.told} in {each.asked} answers and in what "
                f"is kept ({each.handed_on} more memories of sessions were promoted to their project)"
            )
    return 0 if found["all"].is_closed else 1


if __name__ == "__main__":
    raise SystemExit(main())
