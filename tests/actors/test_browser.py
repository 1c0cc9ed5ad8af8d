"""Pages that are open in a browser: whom its cookies let in, questions that come letter by letter, news of writes."""

import socket
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from remembrancer.actors.gateway import actor
from remembrancer.actors.gateway.store_access import WriteNews
from remembrancer.browser.app import Browser
from remembrancer.browser.door import Door, Turned
from remembrancer.browser.history import live
from remembrancer.browser.view import View, Writes, who
from remembrancer.config.tokens import Tokens
from remembrancer.protocol.errors import MemoryUnavailable
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import Recall, Recalled
from remembrancer.protocol.session_life import BROWSER_SESSION, SHELL_SESSION
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import Asked, MemoryService
from tests.actors.gateway_rig import PATIENT, Rig
from tests.operations import store_operation
from tests.patience import PATIENCE_S


class SlowService:
    def __init__(self) -> None:
        self.questions: list[str] = []
        self.is_asked, self.may_answer = anyio.Event(), anyio.Event()

    async def ask(self, question: Any, _received_at: float) -> Asked[Any]:
        if not isinstance(question, Recall):
            return Asked((ProjectRef("p_1", "/work/harbour"),))
        self.questions.append(question.query)
        self.is_asked.set()
        await self.may_answer.wait()
        return Asked(Recalled((), 0, 0, "keyword", 0.0))


class Typist:
    """A browser that asks for what is typed so far, and leaves a question when another letter follows."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.statuses: dict[str, int] = {}

    async def ask(self, question: str, *, leaves: bool) -> None:
        scope = {
            **{"type": "http", "method": "GET", "path": "/p/p_1/", "root_path": "", "scheme": "http"},
            **{"query_string": f"q={question}&typed=1".encode(), "headers": [], "server": ("127.0.0.1", 80)},
        }

        async def receive() -> Message:
            if not leaves:
                await anyio.sleep_forever()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.statuses[question] = message["status"]

        await self._browser(scope, receive, send)


async def test_a_letter_that_another_has_overtaken_is_not_looked_for(tmp_path: Path) -> None:
    service = SlowService()
    browser = Browser(
        RuntimePaths(tmp_path),
        cast(MemoryService, service),
        {},
        cast(Writes, None),
        lambda **_: (),
        no_token=True,
    )
    typist = Typist(browser)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for question in ("l", "la", "lam", "lamp"):
                tasks.start_soon(partial(typist.ask, question, leaves=question in ("la", "lam")))
                await service.is_asked.wait()
            await anyio.wait_all_tasks_blocked()
            assert service.questions == ["l"], "one at a time"
            service.may_answer.set()
    assert service.questions == ["l", "lamp"]
    assert typist.statuses == {"l": 200, "la": 204, "lam": 204, "lamp": 200}


async def test_two_that_open_the_browser_get_one_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(home, PATIENT)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(actor, "BROWSER_PORTS", (port,))
        async with rig.running() as gateway:
            with pytest.raises(MemoryUnavailable):
                await gateway.access.open_browser()
            monkeypatch.setattr(actor, "BROWSER_PORTS", (port, 0))
            urls: list[str] = []

            async def browse() -> None:
                urls.append(await gateway.access.open_browser())

            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(browse)
            assert len({httpx.URL(url).port for url in urls}) == 1


async def test_an_open_page_hears_of_a_write_that_follows_its_first_event_at_once() -> None:
    writes = WriteNews()
    shared = SimpleNamespace(writes=writes, holds=lambda _grant: True)
    response = await live(cast(View, SimpleNamespace(shared=shared, grant=None)))
    events = cast(AsyncIterator[bytes], response.body_iterator)  # type: ignore[attr-defined]
    for event in (b"event: here", b"event: written", b"event: written"):
        assert event in await anext(events)
        writes.note(store_operation("gate", "The gate opens at seven"))


class Doorway:
    """A home, whose door lets in by a link, says who may look, and lets out again."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.tokens = Tokens(home)
        self._door = Door(home, no_token=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer: Response = PlainTextResponse("in")
        if link := request.query_params.get("link"):
            self._door.enter(request, answer, link=link)
        else:
            try:
                grant = self._door.grant(request)
                if request.url.path.endswith("/leave"):
                    self._door.leave(request, answer, grant)
            except Turned as turned:
                answer = PlainTextResponse("out", turned.status)
        await answer(scope, receive, send)


async def test_homes_on_one_machine_do_not_sign_each_other_s_visitors_out(tmp_path: Path) -> None:
    first, second = (Doorway(tmp_path / name) for name in ("first", "second"))
    ports = {"8080": first, "8081": second, "8082": first}  # the first one has found its port taken, and has another
    mounts = {f"http://127.0.0.1:{port}": httpx.ASGITransport(way) for port, way in ports.items()}
    async with httpx.AsyncClient(mounts=mounts) as browser:

        async def look(port: str, path: str = "/", **query: str) -> str:
            return (await browser.get(f"http://127.0.0.1:{port}/browser{path}", params=query)).text

        for port in ("8080", "8081"):
            await look(port, link=ports[port].tokens.link("/work", time.time()))
        assert [await look(port) for port in ports] == ["in", "in", "in"]
        await look("8081", "/leave")
        assert [await look(port) for port in ports] == ["in", "out", "in"]


@pytest.mark.parametrize(
    ("session_id", "member", "name"),
    [
        (SHELL_SESSION, "", "You, in the shell"),
        (SHELL_SESSION, "laptop", "laptop, in the shell"),
        (BROWSER_SESSION, "laptop", "laptop, in the browser"),
        ("session:other", "laptop", "A session on laptop"),
    ],
)
def test_a_change_of_another_machine_has_that_machine_s_name(session_id: str, member: str, name: str) -> None:
    assert who(session_id, {}, member) == name
