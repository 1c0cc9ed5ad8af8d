"""One page request, as seen by page handlers."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import anyio
import anyio.to_thread
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from remembrancer.browser.access import PREFIX, Form, VisitorAccess
from remembrancer.config.project import directory_of
from remembrancer.config.tokens import Grant
from remembrancer.memory.short_ids import part_of_id
from remembrancer.memory.text import NAMELESS, session_title
from remembrancer.protocol import wire
from remembrancer.protocol.browsing import ListSessions
from remembrancer.protocol.errors import NotFound, RemembrancerError
from remembrancer.protocol.ids import MEMORY_PREFIX, new_ulid
from remembrancer.protocol.reads import FindIds, FollowLinks, LinkedMemory, ListedSession
from remembrancer.protocol.session_life import BROWSER_SESSION, SHELL_SESSION, author_of
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import Caller, MemoryService
from remembrancer.toolsets.tools import Answer, Call, Tool

MAX_SHOWN_ROWS: Final = 2000
MAX_CHANGES: Final = 1000
"""The maximum number of changes read for a day or a session."""
MAX_SESSIONS: Final = 200
"""The number of latest sessions that pages name by their clients: counting each session's records takes time."""
ONE_TIME_FIELDS: Final = frozenset({"done", "undo", "failed", "session", "typed"})
"""Query fields that are dropped when a form leads back to its page."""
PEOPLE: Final = {BROWSER_SESSION: "You", SHELL_SESSION: "You, in the shell", "": "In the background"}

T = TypeVar("T")


@dataclass(frozen=True)
class Shared:
    service: MemoryService
    tools: Mapping[str, Tool[Any]]
    templates: Environment
    access: VisitorAccess
    next_write: Callable[[], asyncio.Event]
    """An event that is set at the next write."""
    shown: Callable[..., Sequence[Any]]
    """Reads the log of shown memories, the latest entries first."""

    def render(self, template: str, **values: Any) -> str:
        return self.templates.get_template(template).render(values)


@dataclass
class View:
    shared: Shared
    request: Request
    grant: Grant | None
    project: ProjectRef
    projects: tuple[ProjectRef, ...]
    form: Form
    notices: list[Notice]
    through: str = ""

    @property
    def session(self) -> str:
        """The session whose own memories the owner sees along with the project's."""
        return (self.is_owner and (self.through or self.request.query_params.get("session"))) or BROWSER_SESSION

    @property
    def tree(self) -> str:
        return directory_of(self.project.path)

    @property
    def is_owner(self) -> bool:
        """The owner may see every project, and what was said in sessions."""
        return self.grant is None or self.grant.every_project

    async def shown(
        self, *, memory_id: str = "", session_id: str = "", since: float = 0.0, until: float = math.inf
    ) -> Sequence[Any]:
        """The log of shown memories, for the owner in all projects. If it cannot be read, the page says so."""
        project = "" if self.is_owner and memory_id else self.project.id
        read = partial(self.shared.shown, project=project, memory_id=memory_id, session_id=session_id, since=since)
        try:
            rows = await anyio.to_thread.run_sync(partial(read, limit=MAX_SHOWN_ROWS))
        except (RemembrancerError, OSError) as error:
            self.notices.append(Notice("records_unusable", f"The log of shown memories cannot be read: {error}"))
            return ()
        return [each for each in rows if each.at < until]

    async def sessions(self) -> dict[str, ListedSession]:
        listed = await self.ask(ListSessions(self.project, self.session, None, MAX_SESSIONS))
        return {each.session_id: each for each in listed}

    async def whole_id(self, text: str) -> str:
        """Resolve a memory's id, a part of it, or the URL of its page to the full id."""
        name = text.rstrip("/").rpartition("/")[2].partition("?")[0]
        if (part := part_of_id(name)) is None:
            return f"{MEMORY_PREFIX}{name}" if name and ":" not in name else name
        candidates = (await self.ask(FindIds(self.project, self.session, (part,)))).candidates.get(part, [])
        return candidates[0][0] if len(candidates) == 1 else name

    async def texts(self, memory_ids: Iterable[str]) -> dict[str, LinkedMemory]:
        """The memories by id. Deleted and forgotten ones are missing."""
        wanted = tuple(dict.fromkeys(memory_ids))
        if not wanted:
            return {}
        request = FollowLinks(self.project, self.session, wanted, limit=len(wanted))
        try:
            return {each.id: each for each in (await self.ask(request)).memories}
        except NotFound:
            return {}

    @property
    def may_change(self) -> bool:
        return self.grant is None or not self.grant.read_only

    def at(self, path: str = "", /, **query: Any) -> str:
        """The URL of a page of this project, seen through the same session."""
        session = None if self.session in PEOPLE else self.session
        given = {**query, "session": session}
        fields = urlencode({name: value for name, value in given.items() if value not in (None, "")}, doseq=True)
        return f"{PREFIX}/p/{self.project.id}{path}" + (f"{'&' if '?' in path else '?'}{fields}" if fields else "")

    @property
    def path(self) -> str:
        return self.request.url.path.removeprefix(f"{PREFIX}/p/{self.project.id}")

    @property
    def here(self) -> str:
        """The URL of this page with its query, but without the message about the last change."""
        query = {name: value for name, value in self.request.query_params.items() if name not in ONE_TIME_FIELDS}
        return f"{self.path}?{urlencode(query)}" if query else self.path

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "").strip()

    def field(self, name: str) -> str:
        return self.raw_field(name).strip()

    def raw_field(self, name: str) -> str:
        """A field of the form, with its whitespace, and with the line endings of a stored text."""
        return dict(self.form).get(name, "").replace("\r\n", "\n")

    async def ask(self, question: wire.Request[T]) -> T:
        """Return the store's answer. The page shows its notices."""
        response = await self.shared.service.ask(question, time.time())
        self.notices += response.notices
        return response.reply

    async def call(self, tool: str, **arguments: Any) -> Answer:
        chosen = self.shared.tools[tool]
        caller = Caller(f"browser {new_ulid()}", self.session, self.project, time.time(), self.tree)
        call = Call(tool, caller, new_ulid(), time.time(), arguments, self.shared.service)
        return await chosen.answer(call, chosen.decoder.decode(arguments))

    async def page(self, template: str, status_code: int = 200, **values: Any) -> Response:
        """Render a page, in a thread because long texts take a while."""
        notices = list({each.message: each for each in self.notices}.values())
        common = {"view": self, "at": self.at, "csrf": self.shared.access.csrf(self.request), "notices": notices}
        render = partial(self.shared.render, template, **common, **values)
        return HTMLResponse(await anyio.to_thread.run_sync(render), status_code)

    def redirect(self, path: str, /, **query: Any) -> Response:
        return RedirectResponse(self.at(path, **query), 303)


Handler = Callable[[View], Awaitable[Response]]


def name_of(project: ProjectRef) -> str:
    return PurePath(directory_of(project.path)).name or project.path


def names_of(projects: Sequence[ProjectRef]) -> dict[str, str]:
    """The display names of projects by id. Projects with the same name also get their parent directory's name."""
    names = {each.id: name_of(each) for each in projects}
    alike = Counter(names.values())
    return names | {
        each.id: "/".join(PurePath(directory_of(each.path)).parts[-2:])
        for each in projects
        if alike[names[each.id]] > 1
    }


def who(session_id: str, sessions: Mapping[str, ListedSession], member: str = "") -> str:
    """A readable name for a session: its client or its start time and, for a change in a shared project, the member's
    machine. An unknown session belongs to another project or ended long ago."""
    known = sessions.get(session_id)
    elsewhere = NAMELESS if member else "A session elsewhere"
    name = session_title(known.client, known.started_at) if known else elsewhere
    name = PEOPLE.get(session_id, name)
    return author_of(session_id, name, member) if member else name
