"""The application: routing, choosing the visitor's project, and error responses."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from remembrancer.browser import history, memories, overviews
from remembrancer.browser.access import HEADERS, PREFIX, Form, VisitorAccess, read_form
from remembrancer.browser.rendering import HERE, environment
from remembrancer.browser.view import Handler, Shared, View, name_of, names_of
from remembrancer.config.project import directory_of, project_of
from remembrancer.config.tokens import Grant, as_granted
from remembrancer.protocol.consolidation import ReadProjects
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.ids import PROJECT_ID
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import MemoryService
from remembrancer.toolsets.tools import Tool

ASSETS: Final = HERE / "assets"
ASSET_AGE_S: Final = 31_536_000
PAGES: Final = (memories, history, overviews)
"""The modules with pages. Each has a table `PAGES` that maps a method and a path to a handler."""


class Assets(StaticFiles):
    """The files that pages load. Their URLs contain a digest of all the files, so they may be cached forever."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = f"public, max-age={ASSET_AGE_S}, immutable"
        return response


class Browser:
    """The ASGI application, to be mounted at `PREFIX`. It reads through `service`, and writes through tools."""

    def __init__(
        self,
        paths: RuntimePaths,
        service: MemoryService,
        tools: Mapping[str, Tool[Any]],
        next_write: Callable[[], asyncio.Event],
        shown: Callable[..., Sequence[Any]],
        *,
        no_token: bool = False,
    ) -> None:
        self._access = VisitorAccess(paths.home, no_token=no_token)
        templates = environment()
        self._shared = Shared(service, tools, templates, self._access, next_write, shown)
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(ASSETS.iterdir()))).hexdigest()[:12]
        templates.globals |= {"prefix": PREFIX, "assets": f"{PREFIX}/assets/{digest}"}
        templates.globals |= {"name_of": name_of, "names_of": names_of, "directory_of": directory_of}
        routes = [
            Mount("/assets/{digest}", Assets(directory=ASSETS)),
            Route("/enter", self._enter, methods=["GET", "POST"]),
            Route("/leave", self._leave, methods=["POST"]),
            Route("/", self._first),
        ]
        for module in PAGES:
            routes += [self._route(method, path, handler) for (method, path), handler in module.PAGES.items()]
        self._router = Router(routes, default=self._sorry(404, "There is no such page."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                has = {name for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *(each for each in more if each[0] not in has)]}
            await send(message)

        try:
            await self._router(scope, receive, sending)
        except HTTPException as error:
            if error.status_code == 401 and request.method == "GET":
                enter = f"{PREFIX}/enter"
                is_part = "HX-Request" in request.headers
                answer = Response(headers={"HX-Redirect": enter}) if is_part else RedirectResponse(enter, 303)
                await answer(scope, receive, sending)
            else:
                await self._sorry(error.status_code, error.detail)(scope, receive, sending)

    def _sorry(self, status: int, message: str) -> Response:
        return HTMLResponse(self._shared.render("sorry.html", said=message), status)

    def _route(self, method: str, path: str, handler: Handler) -> Route:
        async def answer(request: Request) -> Response:
            grant = self._access.grant(request)
            form: Form = []
            if method == "POST":
                if grant is not None and grant.read_only:
                    raise HTTPException(403, "Your token is read-only: you cannot change anything.")
                form = await read_form(request)
                self._access.check_change(request, form)
            view = None
            try:
                project, projects = await self._places(request.path_params["project"], grant)
                view = View(self._shared, request, grant, project, projects, form, [])
                return await handler(view)
            except RemembrancerError as error:
                status = 404 if isinstance(error, NotFound) else 400 if isinstance(error, InvalidInput) else 503
                if view is None:
                    return self._sorry(status, error.message)
                return await view.page("sorry_here.html", status, said=error.message, back=view.field("back"))

        return Route(f"/p/{{project}}{path}", answer, methods=[method])

    async def _places(self, wanted: str, grant: Grant | None) -> tuple[ProjectRef, tuple[ProjectRef, ...]]:
        """The requested project (default: the first), and all that the visitor may see. Raises `HTTPException`."""
        sees_all = grant is None or grant.every_project
        directories = [Path(each) for each in grant.projects] if grant is not None else []

        def named() -> list[ProjectRef]:  # a directory that has been moved is not a separate project
            return [project_of(each) for each in directories if each.is_dir() or not sees_all]

        projects = await anyio.to_thread.run_sync(named)
        if sees_all:
            everywhere = ReadProjects(ProjectRef("", ""))
            with suppress(*AWAY):
                projects += (await self._shared.service.ask(everywhere, time.time())).reply
        by_id: dict[str, ProjectRef] = {}
        for each in projects:
            by_id.setdefault(each.id, each)
        places = tuple(by_id.values())
        project = by_id.get(wanted) if wanted else next(iter(places), None)
        if project is None:
            raise HTTPException(404, "There is no such project, or you may not see it.")
        if grant is not None:
            project = await anyio.to_thread.run_sync(as_granted, project, grant)
        return project, places

    async def _first(self, request: Request) -> Response:
        project, _ = await self._places("", self._access.grant(request))
        return RedirectResponse(f"{PREFIX}/p/{project.id}/today", 303)

    async def _enter(self, request: Request) -> Response:
        """Sign in, with a link from `remembrancer ui`, or with a token in a form."""
        # A page instead of a redirect, because a SameSite cookie is not sent after a click on another site.
        project = PROJECT_ID.fullmatch(request.query_params.get("project", ""))
        first = f"/p/{project[0]}/today" if project else "/"
        welcome = HTMLResponse(self._shared.render("enter.html", is_in=True, said="", first=first))
        if request.method == "POST":
            self._access.check_origin(request)
            form = dict(await read_form(request))
            if self._access.enter(request, welcome, token=form.get("token", "")):
                return welcome
            return HTMLResponse(self._shared.render("enter.html", is_in=False, said="This token is not valid."), 401)
        link = request.query_params.get("link", "") if request.method == "GET" else ""  # HEAD must not use up the link
        if link and self._access.enter(request, welcome, link=link):
            return welcome
        if link:
            with suppress(HTTPException):  # a visitor who is signed in already may click a link twice
                self._access.grant(request)
                return welcome
        message = "This link has expired or was already used. Run 'remembrancer ui' to get a new one." if link else ""
        return HTMLResponse(self._shared.render("enter.html", is_in=False, said=message), 401 if link else 200)

    async def _leave(self, request: Request) -> Response:
        grant = self._access.grant(request)
        self._access.check_change(request, await read_form(request))
        response = RedirectResponse(f"{PREFIX}/enter", 303)
        self._access.leave(response, grant)
        return response
