"""The door of the memory browser: whom its cookies let in."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from remembrancer.browser.door import Door, Turned
from remembrancer.config.tokens import Tokens


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
