"""Questions that come letter by letter: those that another letter has overtaken are not looked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from starlette.types import Message

from remembrancer.browser.app import Browser
from remembrancer.browser.view import ShownLog, Writes
from remembrancer.protocol.consolidation import ProjectsRead
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import Recall, Recalled
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import MemoryService
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.anyio


class Asked:
    def __init__(self, reply: Any) -> None:
        self.reply, self.notices = reply, ()


class SlowService:
    """A store that answers a question when it may."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.is_asked, self.may_answer = anyio.Event(), anyio.Event()

    async def ask(self, _request: Any, _received_at: float) -> Asked:
        return Asked(ProjectsRead((ProjectRef("p_1", "/work/harbour"),)))

    async def recall(self, request: Recall, _received_at: float) -> tuple[Recalled, bool]:
        self.questions.append(request.query)
        self.is_asked.set()
        await self.may_answer.wait()
        return Recalled((), 0, 0, "keyword", 0.0), False


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
        cast(ShownLog, None),
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
