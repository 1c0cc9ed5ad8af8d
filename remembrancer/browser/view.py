"""One visit of a page, as the handlers of pages see it."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlencode
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from remembrancer.browser.door import PREFIX, Form
from remembrancer.config.tokens import Grant
from remembrancer.memory.short_ids import part_of_id
from remembrancer.protocol import wire
from remembrancer.protocol.browsing import ListedSession, ListSessions
from remembrancer.protocol.errors import NotFound, RemembrancerError
from remembrancer.protocol.ids import MEMORY_PREFIX, new_ulid
from remembrancer.protocol.reads import FindIds, FollowLinks, LinkedMemory, Notice
from remembrancer.protocol.session_life import BROWSER_SESSION, SHELL_SESSION
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import Caller, MemoryService
from remembrancer.toolsets.tools import Answer, Call, Tool

MOST_SHOWN: Final = 2000
"""Rows of the record of showings that a page reads."""
MOST: Final = 1000
"""Changes of a day, or since a session began, that are read."""
NAMED: Final = 200
"""Sessions that pages name by their clients, the last ones: each is counted through."""
PASSING: Final = frozenset({"done", "undo", "failed", "session"})
"""Fields of an address that are not kept when a form leads back to it."""
PEOPLE: Final = {BROWSER_SESSION: "You, here", SHELL_SESSION: "You, in the shell", "": "In the background"}
ELSEWHERE: Final = "A session elsewhere"

T = TypeVar("T")


class Writes(Protocol):
    """The writes of the gateway, as far as pages need to know of them."""

    happened: anyio.Event
    """Set at the next write, and replaced by another."""


class ShownLog(Protocol):
    """The record of what was shown to whom."""

    def read(
        self, *, project: str = "", memory_id: str = "", session_id: str = "", since: float = 0.0, limit: int = 100
    ) -> Sequence[Any]:
        """The latest showings first."""

    def by_day(self, project: str, since: float) -> Mapping[int, tuple[int, int, int, int]]:
        """By day since the epoch (UTC) the recalls, those that were answered with nothing, and the memories and tokens
        that were given out."""

    def by_tool(self, project: str, since: float) -> Sequence[Any]:
        """The tools that gave answers: how many, of how many tokens, and in what time."""


@dataclass(frozen=True)
class Shared:
    """The things that all visits have in common: the way to the store, the tools that change things, the templates."""

    service: MemoryService
    tools: Mapping[str, Tool[Any]]
    templates: Environment
    csrf: Callable[[Request], str]
    holds: Callable[[Grant | None], bool]
    """True if who came with these rights still has them."""
    writes: Writes
    shown_log: ShownLog
    control_endpoint: str
    typing: WeakValueDictionary[str, anyio.Lock] = field(default_factory=WeakValueDictionary)
    """A lock for each visitor who types: one question of each is looked for at a time."""

    def render(self, template: str, **values: Any) -> str:
        """The text of a page."""
        return self.templates.get_template(template).render(values)


@dataclass
class View:
    """One visit of a page: who looks, with which rights, at which project as which session sees it."""

    shared: Shared
    request: Request
    grant: Grant | None
    project: ProjectRef
    projects: tuple[ProjectRef, ...]
    form: Form
    notices: list[Notice]

    @property
    def session(self) -> str:
        """The session whose own memories are shown beside the project's, to the owner alone."""
        return (self.is_owner and self.request.query_params.get("session")) or BROWSER_SESSION

    @property
    def name(self) -> str:
        """The name of the project: its directory."""
        return name_of(self.project)

    @property
    def tree(self) -> str:
        """The working tree in which the project's notes are."""
        return directory_of(self.project)

    @property
    def is_owner(self) -> bool:
        """True if who looks may see every project: the words of sessions are for nobody else."""
        return self.grant is None or self.grant.every_project

    async def shown(
        self, *, memory_id: str = "", session_id: str = "", since: float = 0.0, until: float = math.inf
    ) -> Sequence[Any]:
        """The showings of a memory, to a session, or in a time: to the owner everywhere, to others in this project."""
        project = "" if self.is_owner and memory_id else self.project.id
        read = self.shared.shown_log.read
        asked = partial(
            read, project=project, memory_id=memory_id, session_id=session_id, since=since, limit=MOST_SHOWN
        )
        nothing: Sequence[Any] = ()
        found = await self.logged(asked, nothing)
        return [each for each in found if each.at < until]

    async def sessions(self) -> dict[str, ListedSession]:
        """The project's last sessions by their ids."""
        listed = await self.ask(ListSessions(self.project, self.session, None, NAMED))
        return {each.session_id: each for each in listed.sessions}

    async def whole_id(self, text: str) -> str:
        """The id that a text names: whole or a part of it, also as the address of its page or without its prefix."""
        name = text.rstrip("/").rpartition("/")[2].partition("?")[0]
        if (part := part_of_id(name)) is None:
            return f"{MEMORY_PREFIX}{name}" if name and ":" not in name else name
        found = (await self.ask(FindIds(self.project, self.session, (part,)))).candidates.get(part, [])
        return found[0][0] if len(found) == 1 else name

    async def texts(self, memory_ids: Iterable[str]) -> dict[str, LinkedMemory]:
        """These memories by their ids; those that are gone or forgotten are left out."""
        wanted = tuple(dict.fromkeys(memory_ids))
        if not wanted:
            return {}
        request = FollowLinks(self.project, self.session, wanted, limit=len(wanted), counts_accesses=False)
        try:
            return {each.id: each for each in (await self.ask(request)).memories}
        except NotFound:
            return {}

    async def logged(self, read: Callable[[], T], otherwise: T) -> T:
        """The finding of `read` in the record of what was shown. If that cannot be read, the page says so."""
        try:
            return await anyio.to_thread.run_sync(read)
        except (RemembrancerError, sqlite3.Error, OSError) as error:
            self.notices.append(Notice("records_unusable", f"What was shown to whom cannot be read: {error}"))
            return otherwise

    @property
    def may_change(self) -> bool:
        """True if who looks may also change something."""
        return self.grant is None or not self.grant.read_only

    def at(self, path: str = "", /, **query: Any) -> str:
        """The address of a page of this project, as the same session sees it."""
        session = {} if self.session == BROWSER_SESSION else {"session": self.session}
        said = urlencode(
            {name: value for name, value in query.items() if value not in (None, "")} | session, doseq=True
        )
        return f"{PREFIX}/p/{self.project.id}{path}" + (f"{'&' if '?' in path else '?'}{said}" if said else "")

    @property
    def path(self) -> str:
        """The address of this page within the project."""
        return self.request.url.path.removeprefix(f"{PREFIX}/p/{self.project.id}")

    @property
    def here(self) -> str:
        """The same with its query, but for the words about the last change."""
        query = {name: value for name, value in self.request.query_params.items() if name not in PASSING}
        return f"{self.path}?{urlencode(query)}" if query else self.path

    def asked(self, name: str, default: str = "") -> str:
        """A field of the address."""
        return self.request.query_params.get(name, default).strip()

    def said(self, name: str, default: str = "") -> str:
        """A field of the form."""
        return dict(self.form).get(name, default).strip()

    def exactly(self, name: str) -> str:
        """A field of the form with its blanks."""
        return dict(self.form).get(name, "")

    async def ask(self, question: wire.Request[T]) -> T:
        """The store's answer. What it says to be missing is shown on the page."""
        asked = await self.shared.service.ask(question, time.time())
        self.notices += asked.notices
        return asked.reply

    async def call(self, tool: str, **arguments: Any) -> Answer:
        """Change something, as a session does by that tool."""
        chosen = self.shared.tools[tool]
        caller = Caller(f"browser {new_ulid()}", self.session, self.project, time.time(), self.tree)
        call = Call(tool, caller, new_ulid(), time.time(), arguments, self.shared.service)
        return await chosen.answer(call, chosen.decoder.decode(arguments))

    def page(self, template: str, status_code: int = 200, **values: Any) -> Response:
        """A page, made of its template."""
        shown = list({each.message: each for each in self.notices}.values())
        common = {"view": self, "at": self.at, "csrf": self.shared.csrf(self.request), "notices": shown}
        return HTMLResponse(self.shared.render(template, **common, **values), status_code)

    def go(self, path: str, /, **query: Any) -> Response:
        """The answer to a form: a page that can be loaded again."""
        return RedirectResponse(self.at(path, **query), 303)


Handler = Callable[[View], Awaitable[Response]]


def name_of(project: ProjectRef) -> str:
    """The name of a project: the directory that it is in."""
    return PurePath(directory_of(project)).name or project.path


def directory_of(project: ProjectRef) -> str:
    """The directory that a person works in: without the `.git` that a project is known by."""
    path = PurePath(project.path)
    return str(path.parent if path.name == ".git" else path)


def who(session_id: str, sessions: Mapping[str, ListedSession]) -> str:
    """A session as a person knows it: by its client. One that is not known is of another project, or long past."""
    known = sessions.get(session_id)
    client = ELSEWHERE if known is None else known.client or "A session"
    return PEOPLE.get(session_id) or (client.replace("-", " ").title() if client.islower() else client)
