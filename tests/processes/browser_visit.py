"""A visitor of the memory browser: signed in by a link, with what a browser sends and checks."""

import functools
import os
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx

from remembrancer.commands.runtime_client import ask_store
from remembrancer.config.project import project_of
from remembrancer.config.tokens import Tokens
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.runs import ApplyRun, Edit, ProposeMemory, ReviseMemory
from remembrancer.protocol.writes import Operation, Submit
from tests.patience import PATIENCE_S, wait_until
from tests.processes.http_door import Door


class Visit:
    """Someone with a cookie, in a project of its own; and a session there, that stores."""

    def __init__(self, door: Door, directory: Path, token: str | None = None) -> None:
        self.door = door
        self.origin = door.url.removesuffix("/mcp")
        self.base = f"{self.origin}/browser"
        self.directory = directory
        self.project = f"/p/{project_of(directory).id}"
        self.client = httpx.Client(timeout=PATIENCE_S)
        if token is None:
            link = Tokens(door.home).link(str(directory), time.time())
            self.entered = self.client.get(f"{self.base}/enter", params={"link": link})
        else:
            self.entered = self.client.post(f"{self.base}/enter", data={"token": token})

    def signed_in_by(self) -> str:
        """The name of the token behind the cookie, if nobody has signed in since."""
        return [each.name for each in Tokens(self.door.home).all() if each.name.startswith("browser ")][-1]

    @functools.cached_property
    def token(self) -> str:
        return Tokens(self.door.home).create(new_ulid(), (str(self.directory),), time.time())

    def call(self, tool: str, **given: Any) -> Any:
        return self.door.call(tool, self.token, **given)

    def stored(self, content: str, **fields: Any) -> str:
        answer = self.call("store_memory", content=content, **fields)
        assert "memory_id" in answer, answer
        return str(self.call("get_memory", memory_id=answer["memory_id"])["id"])  # whole

    def consolidated(self, *memory_ids: str) -> None:
        self._ran(*(ReviseMemory(each, "consolidated", forget="said by another") for each in memory_ids))

    def proposed(self, memory_id: str) -> None:
        self._ran(ProposeMemory(memory_id, "it is about the user"))

    def _ran(self, *edits: Edit) -> None:
        run = ApplyRun(f"run {new_ulid()}", "project", "consolidation", edits)
        project = project_of(self.directory)
        submit = Submit(Operation(new_ulid(), project, "", time.time(), run))
        ask_store(submit, environ={**os.environ, "REMEMBRANCER_HOME": str(self.door.home)})

    def status(self, path: str) -> int:
        return self.client.get(f"{self.base}{self.project}{path}").status_code

    def get(self, path: str = "/", /, **query: Any) -> str:
        answer = self.client.get(f"{self.base}{self.project}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def csrf(self, page: str) -> str:
        found = re.search(r'name="csrf" value="(\w+)"', page)
        assert found is not None
        return found[1]

    def send(self, path: str, /, *, csrf: str | None = None, headers: Any = None, **fields: Any) -> httpx.Response:
        said = {"csrf": self.csrf(self.get()) if csrf is None else csrf, **fields}
        named = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"} if headers is None else headers
        return self.client.post(f"{self.base}{self.project}{path}", data=said, headers=named)

    def do(self, path: str, /, **fields: Any) -> str:
        """Send a form that is accepted; the text of the page that follows."""
        answer = self.send(path, **fields)
        assert answer.status_code == 303, answer.text
        followed = self.client.get(f"{self.origin}{answer.headers['location']}")
        assert followed.status_code == 200, followed.text
        return followed.text

    def erase(self, memory_id: str) -> None:
        """Erase a memory. Where somebody is reading at that moment it is gone, but its last words go by themselves."""
        assert self.send(f"/memory/{memory_id}/erase", sure="yes").status_code in (303, 503)
        wait_until(lambda: self.status(f"/memory/{memory_id}") == 404)

    def undo(self, page: str) -> str:
        form = next(each for each in Page(page).forms if each.button == "undo")
        answer = self.client.post(f"{self.origin}{form.action}", data=form.fields, headers={"Origin": self.origin})
        assert answer.status_code == 303, answer.text
        return self.client.get(f"{self.origin}{answer.headers['location']}").text


class Form:
    def __init__(self, action: str) -> None:
        self.action = action
        self.fields: dict[str, list[str]] = {}
        self.button = ""


class Page(HTMLParser):
    """The elements of a page, its text, and its forms."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.forms: list[Form] = []
        self.texts: list[str] = []
        self.feed(text)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.elements.append((tag, known))
        if tag == "form":
            self.forms.append(Form(known.get("action", "")))
        elif tag == "input" and self.forms and known.get("type") == "hidden":
            self.forms[-1].fields.setdefault(known["name"], []).append(known["value"])
        elif tag == "button" and self.forms and known.get("id"):
            self.forms[-1].button = known["id"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
