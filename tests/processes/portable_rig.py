"""A home with a bit of everything in it, made through a real store; and the commands that move it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio

from remembrancer.commands.runtime_client import connected_store, is_up
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import NoteAccess, Recall, Recalled
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    ForgetMemory,
    Operation,
    ProjectRef,
    PromoteMemory,
    RestoreMemory,
    Scope,
    SourceRef,
    Submit,
    TagMemory,
    UpdateMemory,
)
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION, memory_id_of, store_operation
from tests.processes.runtimes import until
from tests.runtime import done, start
from tests.spaces import rows_of

NOW = 1_700_000_000.0


def exported(home: Path, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done("backup", "export", "-", *arguments, home=home).split("\n")[1:-1]]


def exported_memories(home: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    lines = exported(home, *arguments)
    return {line["memory"]["id"]: line["memory"] for line in lines if line["line"] == "memory"}


def ask(home: Path, *requests: Request[Any], **environ: str) -> list[Any]:
    """Ask the store of a home, which is started when it is not up."""
    if not is_up(RuntimePaths(home)):
        start(home, **environ)

    async def ask_all() -> list[Any]:
        async with connected_store({**os.environ, "REMEMBRANCER_HOME": str(home), **environ}) as ask_store:
            return [await ask_store(request) for request in requests]

    return anyio.run(ask_all)


def change(name: str, what: Change, project: ProjectRef = PROJECT, session: str = SESSION) -> Submit:
    return Submit(Operation(name, project, session, NOW + 60, what))


def store(name: str, content: str, scope: Scope = "project", **fields: Any) -> Submit:
    return Submit(store_operation(name, content, scope=scope, **fields))


def id_of(name: str) -> str:
    return memory_id_of(store_operation(name, ""))


def fill(home: Path, **environ: str) -> None:
    """Make memories of all scopes, in two projects and three files, with all that can happen to them."""
    entities = (EntityRef("AuthService", "component", "about"), EntityRef("Redis", "technology", "uses"))
    requests: list[Submit | NoteAccess] = [
        store("plain", "The release is cut on Thursdays."),
        store(
            "rich",
            "AuthService keeps its sessions in Redis.",
            tags=("auth", "größe"),
            importance=0.123456789012345,
            source=SourceRef("editor", "src/auth.py", 7),
            related_entities=entities,
            occurred_at=NOW - 0.1,
        ),
        store("session", "Today the parser is debugged.", "session", type="episodic"),
        store("foreign", "Another session's note.", "session", session_id=OTHER_SESSION),
        store("user", "I prefer tabs over spaces.", "user", type="procedural"),
        store("other", "The other project speaks Rust.", project=OTHER_PROJECT),
        store("forgotten", "The password rule of last year."),
        store("back", "Deploys need two approvals."),
        store("promoted", "I write commit messages in English."),
        change("update", UpdateMemory(id_of("rich"), importance=0.7, metadata={"n": 1.1, "deep": {"x": [None, "é"]}})),
        change("rewrite", UpdateMemory(id_of("plain"), content="The release is cut on Wednesdays.")),
        change("tag", TagMemory(id_of("rich"), add=("cache",), remove=("auth",))),
        change("drop", UpdateMemory(id_of("rich"), remove_entities=("Redis",))),
        change("forget", ForgetMemory(id_of("forgotten"), "outdated")),
        change("forget-back", ForgetMemory(id_of("back"))),
        change("restore", RestoreMemory(id_of("back"))),
        change("promote", PromoteMemory(id_of("promoted"), "user", "true everywhere")),
        change("widen", PromoteMemory(id_of("session"), "project")),
        NoteAccess(PROJECT, SESSION, (id_of("plain"), id_of("user"))),
    ]
    for request, answer in zip(requests, ask(home, *requests, **environ), strict=True):
        assert isinstance(request, NoteAccess) or isinstance(answer, Applied), answer
    until(lambda: accessed(home))


def accessed(home: Path) -> bool:
    """True if the accesses have been counted, which is done after the answer."""
    return rows_of(home / "memory.db", "SELECT sum(access_count) FROM memories") != [(0,)]


def recall(home: Path, query: str, **fields: Any) -> list[str]:
    (answer,) = ask(home, Recall(SESSION, project=PROJECT, query=query, **fields))
    assert isinstance(answer, Recalled)
    return [memory.id for memory in answer.memories]
