"""Attempts to read, or to change, what belongs to another session or another project. Real gateway, real store.

Whatever an intruder tries, a mark of the secret must never be in any line that it is sent, and the secret must be
afterwards what it was before.
"""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from remembrancer.actors.gateway import store_access
from remembrancer.config.project import project_of
from remembrancer.config.tokens import Tokens
from remembrancer.protocol.browsing import ReadActivity
from tests.actors.gateway_rig import AWAY, RawClient, Rig, warned
from tests.cases import cases
from tests.operations import store_operation
from tests.patience import PATIENCE_S
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("waits_for_no_store")
MARK = "zq7431"
"""In every text of the secret, and in nothing that an intruder says."""
VICTIM = "session:victim"
INTRUDER = "session:intruder"
OTHER = {"bridge": "11" * 16, "session": INTRUDER}
TOOLSETS = {"REMEMBRANCER_TOOLSETS": "memory,graph,nodes,files"}


@dataclass
class House:
    rig: Rig
    mine: Path
    theirs: Path
    secrets: dict[str, str] = field(default_factory=dict)
    """The short ids of the secret memories, by scope."""
    whole_ids: dict[str, str] = field(default_factory=dict)

    def victim(self) -> Any:
        return self.rig.session(session=VICTIM, directory=str(self.mine), environment=TOOLSETS)

    def neighbour(self, _: str = INTRUDER) -> Any:
        """Another session of the same project."""
        return self.rig.session(**OTHER, directory=str(self.mine), environment=TOOLSETS)

    def stranger(self, session: str = INTRUDER) -> Any:
        """A session of another project."""
        return self.rig.session(bridge="22" * 16, session=session, directory=str(self.theirs), environment=TOOLSETS)


@asynccontextmanager
async def open_house(home: Path, tmp_path: Path, **settings: Any) -> AsyncIterator[House]:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    rig = Rig(home, msgspec.structs.replace(AWAY, **settings))
    async with rig.store(), rig.running():
        yield House(rig, mine, theirs)


@pytest.fixture
async def house(home: Path, tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(home, tmp_path) as house:
        yield house


def secret(scope: str) -> dict[str, Any]:
    """A memory that names its mark wherever it can: content, summary, tags, source, entities."""
    return {
        "content": f"The launch code of the depot is {MARK} ({scope})",
        "scope": scope,
        "type": "episodic",
        "summary": f"launch code {MARK}",
        "domain": f"domain {MARK}",
        "structured": {"code": MARK},
        "tags": [f"secret-{MARK}", "depot"],
        "source": {"tool": f"tool-{MARK}", "file": f"src/{MARK}.py"},
        "related_entities": [
            {"name": "Depot", "type": "system", "relationship": "about"},
            {"name": f"Vault {MARK}", "type": "system", "relationship": "uses"},
        ],
    }


async def hide(house: House, scope: str) -> None:
    """Have the victim store the secret, and look at it in every way, so that every cache has it."""
    async with house.victim() as victim:
        answer = await victim.call("store_memory", **secret(scope))
        house.secrets[scope] = answer["memory_id"]
        victim.heard.clear()
        for tool, arguments in QUESTIONS:
            assert "error" not in await victim.call(tool, **arguments), (tool, arguments)
        for found in (f"({scope})", f"Vault {MARK}"):
            assert found.encode() in b"".join(victim.heard), "so that the attempts mean something"
        house.whole_ids[scope] = (await victim.call("get_memory", memory_id=answer["memory_id"]))["id"]


QUESTIONS, RESOURCES = cases("isolation", "questions"), cases("isolation", "resources")


def changes_of(memory_id: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (tool, {name: memory_id if value == "ID" else value for name, value in given.items()})
        for tool, given in cases("isolation", "changes")
    ]


async def ask_everything(intruder: "RawClient | WebClient") -> None:
    for tool, arguments in QUESTIONS:
        await intruder.call(tool, **arguments)
    for uri in RESOURCES:
        await intruder.request("resources/read", uri=uri)
    await intruder.request("resources/list")


async def ask_by_id(intruder: "RawClient | WebClient", memory_id: str) -> None:
    """All that can be asked about a memory whose id has become known."""
    for identity in (memory_id, memory_id.lower(), memory_id.removeprefix("memory:")):
        found = await intruder.call("get_memory", memory_id=identity)
        assert found.get("error") in ("not_found", "memory_unavailable"), found
        read = await intruder.request("resources/read", uri=f"memory://memory/{identity}")
        assert "error" in read, read
    assert "error" in await intruder.call("get_memory", memory_id=memory_id, version=1)
    subscribed = await intruder.request("resources/subscribe", uri=f"memory://memory/{memory_id}")
    assert "error" in subscribed or found["error"] == "memory_unavailable", "nobody can know then whether it is there"


async def assert_unchangeable(intruder: "RawClient | WebClient", memory_id: str) -> None:
    for tool, arguments in changes_of(memory_id):
        answer = await intruder.call(tool, **arguments)
        assert answer.get("error") == "not_found", (tool, answer)


def assert_silent(intruder: "RawClient | WebClient", *ids: str) -> None:
    """Neither a mark nor an id (that the intruder did not name itself) was in anything that it was told."""
    for line in intruder.heard:
        for mark in (MARK, *ids):
            assert mark.encode() not in line, line


async def assert_untouched(house: House, scope: str) -> None:
    async with house.victim() as victim:
        found = await victim.call("get_memory", memory_id=house.secrets[scope], detail=True)
        assert "error" not in found, found
        assert (found["content"], found["version"]) == (secret(scope)["content"], 1)
        assert sorted(found["tags"]) == sorted(secret(scope)["tags"])
        assert found["scope"] == scope
        assert not found.get("links")
        assert not found.get("incoming")


@pytest.mark.parametrize(("scope", "who", "session"), cases("isolation", "intruders"))
async def test_a_secret_is_neither_seen_nor_changed_nor_found(house: House, scope: str, who: str, session: str) -> None:
    worker = await house.rig.peer.worker()
    await hide(house, scope)
    hidden = house.secrets[scope]
    await house.rig.peer.gateway.until_embedded(project_of(house.mine))
    async with getattr(house, who)(session) as intruder:
        await ask_everything(intruder)
        assert_silent(intruder, hidden)
        for known in (hidden, house.whole_ids[scope]):
            await ask_by_id(intruder, known)
            await assert_unchangeable(intruder, known)
        own = (await intruder.store("A memory of my own"))["memory_id"]
        for relation in ("related_to", "contradicts", "supersedes", "derived_from"):
            links = [{"relation": relation, "target": hidden}]
            answer = await intruder.call("update_memory", memory_id=own, add_links=links)
            assert "there is no memory" in answer["message"], answer
        answer = await intruder.call("invalidate", id=own, replaced_by=hidden)
        assert "there is no memory" in answer["message"], answer
        mine = (await intruder.call("create_entity", name="Mine", entity_type="system"))["id"]
        depot = {"to_id": "entity:system:Depot", "relation_type": "uses"}
        assert (await intruder.call("create_relation", from_id=mine, **depot))["error"] == "not_found"

        async with house.rig.dead_store():
            await ask_everything(intruder)
            await ask_by_id(intruder, hidden)
            for tool, arguments in changes_of(hidden):
                await intruder.call(tool, **arguments)
            assert_silent(intruder)
    await assert_untouched(house, scope)

    worker.announce()
    async with getattr(house, who)(session) as intruder:
        await intruder.call("get_memory_status")  # which of its queued changes were refused
        intruder.heard.clear()
        twin = await intruder.store(secret(scope)["content"], wait_for_embedding=True)
        await intruder.call("get_memory", memory_id=twin["memory_id"])
        await intruder.call("recall_memories", query=secret(scope)["content"], strategy="vector")
        assert hidden.encode() not in b"".join(intruder.heard), "neither as a duplicate nor as nearly one"


@pytest.mark.parametrize(("scope", "who"), [("project", "neighbour"), ("user", "neighbour"), ("user", "stranger")])
async def test_a_memory_that_is_given_away_does_not_give_its_drafts_away(house: House, scope: str, who: str) -> None:
    public = {"content": "The depot has a code", "summary": "a code", "domain": "depot"}
    async with house.victim() as victim:
        draft = await victim.call("store_memory", content=f"The code is {MARK}", scope="session", type="semantic")
        memory_id = draft["memory_id"]
        await victim.call("update_memory", memory_id=memory_id, **public)
        promoted = await victim.call("promote_memory", memory_id=memory_id, target_scope=scope)
        assert "error" not in promoted, promoted
        assert (await victim.call("get_memory", memory_id=memory_id, version=1))["content"] == f"The code is {MARK}"
    async with getattr(house, who)() as intruder:
        shown = await intruder.call("get_memory", memory_id=memory_id, detail=True)
        assert (shown["version"], [line["version"] for line in shown["history"]]) == (3, [3])
        for version in (1, 2):
            for tool in ("get_memory", "restore_memory"):
                refused = await intruder.call(tool, memory_id=memory_id, version=version)
                unknown = await intruder.call(tool, memory_id=memory_id, version=98765)
                assert refused == {**unknown, "message": unknown["message"].replace("98765", str(version))}
        assert_silent(intruder)


async def test_the_log_of_a_day_has_no_text_of_before_a_memory_was_given_to_the_user(house: House) -> None:
    async with house.victim() as victim:
        draft = await victim.call("store_memory", content=f"The code is {MARK}", scope="project", type="semantic")
        await victim.call("update_memory", memory_id=draft["memory_id"], content="The depot has a code")
        await victim.call("promote_memory", memory_id=draft["memory_id"], target_scope="user")
    request = ReadActivity(project_of(house.theirs), INTRUDER)
    changes = (await house.rig.gateway.access.ask(request, time.time())).reply.changes
    assert [(each.version, each.begins) for each in changes] == [(3, "The depot has a code")]
    request = ReadActivity(project_of(house.mine), INTRUDER)
    changes = (await house.rig.gateway.access.ask(request, time.time())).reply.changes
    assert [each.version for each in changes] == [3, 2, 1]


async def test_roots_that_come_later_do_not_move_a_session_into_another_project(house: House) -> None:
    await hide(house, "project")
    async with house.rig.client(**OTHER, directory=str(house.theirs)) as intruder:
        intruder.answers_roots = [house.theirs.as_uri()]
        await intruder.initialize(roots={"listChanged": True})
        await intruder.call("get_memory_status")
        answer = {"roots": [{"uri": house.mine.as_uri()}]}
        for asked in intruder.requests:
            await intruder.send(id=asked["id"], result=answer)
        await intruder.send(method="notifications/roots/list_changed")
        await ask_everything(intruder)
        assert_silent(intruder, house.secrets["project"])


@pytest.mark.parametrize(("scope", "who"), [("session", "neighbour"), ("project", "stranger")])
async def test_the_write_queue_gives_nothing_away(
    house: House, scope: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.victim() as victim, getattr(house, who)() as intruder:
        await victim.store("A first memory")
        async with house.rig.dead_store():
            answer = await victim.call("store_memory", **secret(scope))
            assert "queued" in warned(answer)
            house.secrets[scope] = answer["memory_id"]
            own = await intruder.store("The launch code is unknown to me")
            await ask_everything(intruder)
            await ask_by_id(intruder, house.secrets[scope])
            with monkeypatch.context() as quick:
                quick.setattr(store_access, "ERASE_S", 0.1)
                for tool, arguments in changes_of(house.secrets[scope]):
                    await intruder.call(tool, **arguments)
            assert_silent(intruder)
            assert own["memory_id"] != house.secrets[scope]
    await assert_untouched(house, scope)


async def test_the_next_gateway_gives_nothing_away_of_what_the_last_one_queued(home: Path, tmp_path: Path) -> None:
    rig = Rig(home, AWAY)
    house = {"session": VICTIM, "directory": str(tmp_path)}
    async with rig.running(), rig.session(**house) as victim:
        queued = await victim.call("store_memory", **secret("session"))
    async with rig.running(), rig.session(**OTHER, directory=str(tmp_path)) as intruder:
        await ask_everything(intruder)
        await ask_by_id(intruder, queued["memory_id"])
        assert_silent(intruder)


async def test_a_short_id_stands_for_no_private_memory_of_another_session(house: House) -> None:
    contents = {VICTIM: "What the victim keeps to itself", INTRUDER: "What the intruder keeps to itself"}
    async with house.victim() as victim, house.neighbour() as intruder:
        for number, (session, content) in enumerate(contents.items()):
            memory_id = f"memory:01ARZ3NDEKTSV4RRFFQ6{number}GABCD"
            own: dict[str, Any] = {"scope": "session", "session_id": session, "project": project_of(house.mine)}
            operation = store_operation(f"op {number}", content, memory_id=memory_id, **own)
            await house.rig.gateway.access.apply(operation, time.time())
            (found,) = (await (victim, intruder)[number].call("list_memories"))["memories"]
            assert found["content"] == content
        assert (await victim.call("get_memory", memory_id="ABCD"))["content"] == contents[VICTIM]
        assert (await intruder.call("get_memory", memory_id="ABCD"))["content"] == contents[INTRUDER]


class WebClient:
    """A session over HTTP, as `RawClient` has one on the gateway's socket."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.heard: list[bytes] = []
        self._client = client
        self._number = 0

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        response = await self._client.post("/mcp", json=body)
        self.heard.append(response.content)
        self._client.headers.setdefault("Mcp-Session-Id", response.headers.get("mcp-session-id", ""))
        lines = [line.removeprefix("data: ") for line in response.text.splitlines()]  # JSON, or an event stream
        answers: list[dict[str, Any]] = [json.loads(line) for line in lines if line.startswith("{")]
        return next(each for each in answers if "id" in each and "method" not in each)

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        answer = await self.request("tools/call", name=tool, arguments=arguments)
        found: dict[str, Any] = answer["result"]["structuredContent"]
        return found


@asynccontextmanager
async def over_http(house: House, project: Path, *, sees_user: bool) -> AsyncIterator[WebClient]:
    token = Tokens(house.rig.paths.home).create(
        f"intruder {sees_user}", (str(project),), time.time(), sees_user=sees_user
    )
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    headers["X-Remembrancer-Toolsets"] = TOOLSETS["REMEMBRANCER_TOOLSETS"]
    url = f"http://127.0.0.1:{house.rig.settings.http_port}"
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
        web = WebClient(client)
        about = {"name": "intruder", "version": "1"}
        await web.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about)
        yield web


@pytest.mark.parametrize(("scope", "where"), [("session", "mine"), ("project", "theirs"), ("user", "mine")])
async def test_a_token_opens_its_projects_alone_the_user_if_it_may(
    home: Path, tmp_path: Path, scope: str, where: str
) -> None:
    async with open_house(home, tmp_path, http_port=free_port()) as house:
        await hide(house, scope)
        hidden, project = house.secrets[scope], getattr(house, where)
        async with over_http(house, project, sees_user=False) as intruder:
            await ask_everything(intruder)
            assert_silent(intruder, hidden)
            for known in (hidden, house.whole_ids[scope]):
                await ask_by_id(intruder, known)
                await assert_unchangeable(intruder, known)
            made = await intruder.call("store_memory", content="I like the depot", scope="user")
            reflected = await intruder.call("reflect_and_consolidate")
            assert (made["error"], reflected["error"]) == ("invalid_input", "invalid_input")
            own = await intruder.call("store_memory", content="The depot is closed")
            promoted = await intruder.call(
                "promote_memory", memory_id=own["memory_id"], target_scope="user", reason="x"
            )
            assert promoted["error"] == "invalid_input"
            async with house.rig.dead_store():
                await ask_everything(intruder)
                await ask_by_id(intruder, hidden)
                assert_silent(intruder)
        await assert_untouched(house, scope)
        async with over_http(house, project, sees_user=True) as guest:
            await guest.call("recall_memories", query="launch code of the depot")
            assert (MARK.encode() in b"".join(guest.heard)) is (scope == "user")
