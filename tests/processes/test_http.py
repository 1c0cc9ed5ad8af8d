"""MCP over HTTP, also by a bridge: who may come, whose memory it is, and what a killed gateway or a cut line costs."""

import asyncio
import json
import os
import re
import socket
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from mcp import Client

from bench.client import ClientError, StdioClient
from remembrancer.commands import exit_codes
from tests import patience
from tests.forked import start_command
from tests.links import Link
from tests.patience import PATIENCE_S, wait_until
from tests.ports import QuietHandler, free_port, serving
from tests.processes.http_door import VERSION, Door
from tests.runtime import ERAS, Runtime, done, files_with

pytestmark = pytest.mark.usefixtures("without_embedders")
LISTED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture
def projects(tmp_path: Path) -> list[Path]:
    directories = [tmp_path / "mine", tmp_path / "theirs"]
    for each in directories:
        each.mkdir()
    return directories


async def test_the_sdk_s_client_works_over_http_in_both_eras(door: Door) -> None:
    door.start(no_token=True)
    for era in ERAS:
        await works_in(era, door)


async def works_in(era: str, door: Door) -> None:
    async with Client(door.url, mode=era, cache=None) as client:
        listed = await client.list_tools()
        a_day_ms = 86_400_000 if era == ERAS[-1] else 0
        assert (len(listed.tools), listed.ttl_ms) == (12, a_day_ms)
        stored = (await client.call_tool("store_memory", {"content": "The gate opens at seven"})).structured_content
        assert stored is not None
        found = (await client.call_tool("recall_memories", {"query": "gate opens"})).structured_content
        assert found is not None
        assert [each["id"] for each in found["memories"]] == [stored["memory_id"]]
        (content,) = (await client.read_resource(f"memory://memory/{stored['memory_id']}")).contents
        assert "opens at seven" in str(content)
        prompt = await client.get_prompt("recall", {"topic": "gate"})
        assert "recall_memories" in str(prompt.messages[0].content)
        wrong = await client.call_tool("store_memory", {"content": ""})
        assert wrong.is_error


def test_a_client_gets_the_instructions_of_its_tools_and_what_is_wrong_is_told_in_a_sentence(door: Door) -> None:
    reader = door.token("reader", "--project", str(door.home), "--read-only")
    door.start()
    about = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    accepted = {"accept": "application/json, text/event-stream"}
    usual = door.post(begin, **accepted).text
    assert "store_memory at once what matters later" in usual
    assert "search_code" in door.post(begin, **accepted, x_remembrancer_toolsets="memory,code").text
    assert "search_code" not in usual
    assert ["can only read" in door.post(begin, token, **accepted).text for token in (None, reader)] == [False, True]
    assert door.call("store_memory", content="The well is deep")["kind"] == "fact"
    (found,) = door.call("recall_memories", query="deep well")["memories"]
    assert found["content"] == "The well is deep"
    stream = door.post(LISTED, accept="application/json, text/event-stream")
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert '"recall_memories"' in stream.text
    for answer, status, said in (
        (door.client.get(door.url.replace("/mcp", "/other")), 404, "nothing at this path"),
        (door.post(LISTED, host="rebound.example"), 400, "not known as 'rebound.example'; see the setting http_hosts"),
        (door.post(LISTED, host="localhost@rebound.example"), 400, "http_hosts"),
        (door.post(LISTED, host="rebound.example:80]localhost"), 400, "http_hosts"),
        (door.post(LISTED, origin="https://evil.example"), 403, "http_origins"),
        (door.post(b"{" * 100), 400, "Parse error"),
        (door.post(b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}'), 400, "must be a string or an integer"),
        (door.post(b" " * (4 * 1024 * 1024 + 1)), 413, "may have at most"),
        (door.post(LISTED, mcp_session_id="made.up"), 404, "initialize"),
        (door.post(LISTED, x_remembrancer_project="relative"), 400, "absolute path"),
        (door.client.put(door.url, headers={"Authorization": f"Bearer {door.own_token}"}), 405, "Method"),
    ):
        assert answer.status_code == status, answer.text
        assert said in answer.text
    page = {"Origin": "http://localhost:5173", "Access-Control-Request-Method": "POST"}
    for host in ("localhost", "LocalHost:80", "[::1]:80", "127.0.0.1"):
        assert door.post(LISTED, host=host).status_code == 200, host
    allowed = door.client.options(door.url, headers=page)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "http://localhost:5173"
    assert "x-remembrancer-toolsets" in allowed.headers["access-control-allow-headers"]


def test_a_token_reads_code_of_its_projects_alone(door: Door, projects: list[Path]) -> None:
    mine, theirs = projects
    for each in projects:
        (each / "src").mkdir()
        (each / "src" / f"{each.name}.py").write_text(f"def open_vault():\n    return {each.name!r}\n")
    (mine / "link").symlink_to(theirs)
    both = door.token("both", "--project", str(mine), "--project", str(theirs))
    narrow = door.token("narrow", "--project", str(mine))
    door.start()
    code = {"x_remembrancer_toolsets": "memory,code"}

    def ask(tool: str, token: str, **given: Any) -> Any:
        return door.call(tool, token, headers=code, **given)

    outside = ("/", "/etc", str(theirs), "../theirs", "link", str(door.home), f"{door.home}/keys", "/no/such/place")
    refused = {path: ask("index_project", narrow, path=path) for path in outside}
    assert {path: answer.get("error") for path, answer in refused.items()} == dict.fromkeys(outside, "invalid_input")
    assert all("is not in this project" in answer["message"] for answer in refused.values())
    assert ask("index_project", narrow, path="src")["path"] == str(mine / "src")
    foreign = ask("index_project", both, path=str(theirs))["project_id"]  # in the project of `mine`

    def roots(token: str) -> list[str]:
        listed = ask("list_projects", token)["projects"]
        return [each["path"] for each in listed if each["status"] == "ready"]

    def named(token: str) -> list[str]:
        """The projects whose code is in each of two answers."""
        query = {"query": "open_vault"}
        found = ask("search_code", token, **query), ask("recall_memories", token, sources=["code"], **query)
        return [" ".join(name for name in ("mine.py", "theirs.py") if name in json.dumps(each)) for each in found]

    wait_until(lambda: roots(both) == [str(mine / "src"), str(theirs)])
    assert roots(narrow) == [str(mine / "src")]
    assert named(both) == ["mine.py theirs.py"] * 2
    assert named(narrow) == ["mine.py"] * 2
    for tool in ("get_index_status", "delete_project", "search_code"):
        query = {"query": "open_vault"} if tool == "search_code" else {}
        assert ask(tool, narrow, project_id=foreign, **query)["error"] == "not_found"


def test_a_token_opens_its_projects_alone_and_nothing_when_it_is_revoked(door: Door, projects: list[Path]) -> None:
    mine, theirs = projects
    ana, ben = door.token("ana", "--project", str(mine)), door.token("ben", "--project", str(theirs))
    reader = door.token("reader", "--project", str(mine), "--read-only")
    (books := mine.with_name("Bücher")).mkdir()
    librarian = door.token("librarian", "--project", str(books))
    short = door.token("short", "--expires", "1h")
    path = door.home / "tokens.json"
    path.write_text(re.sub(r'("expires_at": )(\d)', r"\1-\2", path.read_text()))
    done("token", "create", "ana", home=door.home, status=exit_codes.USAGE)  # there is one of that name
    door.start()
    for wrong in ("", "rmb_wrong", short):
        assert door.post(LISTED, wrong).status_code == 401
    assert "Bearer" in door.post(LISTED, "").headers["www-authenticate"]

    door.call("store_memory", ana, content="The key is under the mat")
    found = [len(door.call("recall_memories", each, query="key mat")["memories"]) for each in (ana, reader, ben)]
    assert found == [1, 1, 0]
    refused = door.call("store_memory", reader, content="no")
    assert (refused["error"], "read-only" in refused["message"]) == ("invalid_input", True)
    assert door.post(LISTED, ben, x_remembrancer_project=str(mine)).status_code == 403
    for coding in ("utf-8", "latin-1"):
        assert door.post(LISTED, librarian, x_remembrancer_project=str(books).encode(coding)).status_code == 200
    hidden = door.token("hidden", "--project", str(mine), "--no-user")
    assert "the user's memories" in door.call("store_memory", hidden, content="Tea", scope="user")["message"]

    session = door.open_session(ana)
    assert door.post(LISTED, ana, **session).status_code == 200
    assert door.post(LISTED, ben, **session).status_code == 404, "it is another's"
    headers = {**session, "Accept": "text/event-stream", "Authorization": f"Bearer {ana}"}
    with httpx.stream("GET", door.url, headers=headers, timeout=PATIENCE_S) as stream:
        done("token", "revoke", "ana", home=door.home)
        assert door.post(LISTED, ana).status_code == 401
        give_up_at = time.monotonic() + PATIENCE_S
        with suppress(httpx.RemoteProtocolError):  # it is cut off
            for _ in stream.iter_lines():
                assert time.monotonic() < give_up_at, "an open stream goes on"
    names = [each["name"] for each in json.loads(done("token", "list", "--json", home=door.home))["tokens"]]
    assert names == ["ben", "reader", "librarian", "short", "hidden"]
    for token in (ana, ben, reader):
        assert files_with(door.home, token.encode()) == []


def test_a_session_ends_with_its_gateway_and_a_retry_by_its_key_is_answered_as_before(door: Door) -> None:
    door.start()
    session, ended = door.open_session(), door.open_session()
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    gone = door.client.delete(door.url, headers={**ended, "Authorization": f"Bearer {door.own_token}"})
    assert gone.status_code in (200, 204)
    assert [door.post(ping, **each).status_code for each in (session, ended)] == [200, 404]
    key = {"idempotency-key": "a store"}
    kept = door.call("store_memory", number=7, headers=key, content="The bridge is red")
    door.kill_gateway()
    assert door.post(ping, **session).status_code == 404
    assert door.post(ping, **door.open_session()).status_code == 200
    again = door.call("store_memory", number=7, headers=key, content="The bridge is red")
    for answer in (kept, again):
        for name in ("warnings", "searchable_by"):  # that nothing is embedded is known some seconds after the start
            answer.pop(name, None)
    assert again == kept
    assert "already_known" not in kept
    assert door.call("store_memory", content="The bridge is red")["already_known"]


def test_taking_the_last_token_away_opens_nothing(door: Door, projects: list[Path]) -> None:
    mine, theirs = projects
    token = door.token("ana", "--project", str(mine))
    door.start()
    to_theirs = {"x_remembrancer_project": str(theirs), "x_remembrancer_toolsets": "admin"}

    def answers() -> set[int]:
        tokens = ("", token, "rmb_no")
        return {door.post(LISTED, each, **more).status_code for each in tokens for more in ({}, to_theirs)}

    assert door.post(LISTED, token).status_code == 200
    assert door.post(LISTED, token, **to_theirs).status_code == 403
    done("token", "revoke", "ana", home=door.home)
    assert answers() == {401}
    (door.home / "tokens.json").unlink()
    assert answers() == {401}
    (door.home / "tokens.json").write_text("")
    assert answers() == {401, 503}
    (door.home / "tokens.json").write_text("[]")
    door.kill_gateway()
    assert answers() == {401}


def test_without_a_token_it_answers_only_where_that_was_said_at_the_start(door: Door) -> None:
    door.start(no_token=True)
    assert door.post(LISTED, "").status_code == 200
    assert door.post(LISTED, "rmb_wrong").status_code == 401, "who shows a token has to show a good one"
    elsewhere, own = "http://localhost:5173", f"http://127.0.0.1:{door.port}"
    answers = [door.post(LISTED, token, origin=page) for page in (elsewhere, own) for token in ("", None)]
    assert [answer.status_code for answer in answers] == [403, 403, 200, 200], "no stranger's page of a port"
    page = {"Origin": elsewhere, "Access-Control-Request-Method": "POST"}
    assert door.client.options(door.url, headers=page).status_code == 400
    door.kill_gateway()
    assert door.post(LISTED, "").status_code == 200
    done("down", home=door.home)
    door.start()
    assert door.post(LISTED, "").status_code == 401


def test_the_variables_of_another_server_give_address_and_token(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMEMBRANCER_HTTP_PORT")
    another = {"HOST": "localhost", "PORT": str(door.port), "AUTH_TOKEN": "sesame"}
    environ = os.environ | {f"FLOOD_MEMORY_{name}": value for name, value in another.items()}
    door.opened = start_command("up", "--http", environ=environ, printed=Path(os.devnull))
    wait_until(door.is_up)
    assert [door.post(LISTED, token).status_code for token in ("", "rmb_wrong", "sesame")] == [401, 401, 200]
    assert files_with(door.home, b"sesame") == []


def test_up_refuses_an_address_at_which_it_cannot_listen(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = done("up", "--no-token", "--http", str(port), home=home, status=exit_codes.USAGE)
    assert f"port {port}: the port is in use" in refused
    assert not Runtime(home).pid("gateway")


def bridged(url: str, *arguments: str) -> StdioClient:
    return StdioClient(Path(os.environ["REMEMBRANCER_HOME"]), arguments=("--url", url, *arguments))


async def refused(url: str, *arguments: str) -> str:
    with pytest.raises(ClientError) as raised:
        async with bridged(url, *arguments):
            pass
    return str(raised.value.error["message"])


def token_file(door: Door, directory: Path, *arguments: str) -> Path:
    path = directory / "token"
    path.write_text(door.token("remote", "--project", str(directory), *arguments) + "\n")
    return path


async def test_a_client_on_stdio_has_the_memory_of_another_host_and_hears_its_news(door: Door, tmp_path: Path) -> None:
    token = token_file(door, tmp_path)
    door.start()
    async with bridged(door.url, "--token-file", str(token)) as client:
        preferences = {"uri": "memory://user/preferences"}
        await client.request("resources/subscribe", preferences)
        stored = await client.store("Prefers short answers", scope="user", kind="preference")
        found = await client.call("recall_memories", query="short answers")
        assert [each["id"] for each in found["memories"]] == [stored["memory_id"]]
        news = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": preferences}
        await patience.until(lambda: news in client.notifications)
        with pytest.raises(ClientError, match="-32601"):
            await client.request("no/such")


class Saw(Link):
    """A way to the server that is cut, now before a request has arrived whole, now before its answer has."""

    cuts = 0
    is_sharp = False

    def passed(self, data: bytes, *, is_answer: bool) -> bytes:
        is_cut = self.is_sharp and (b"store_memory" in data or b"memory_id" in data)
        if not is_cut or is_answer is (self.cuts % 2 == 1) or self.cuts == 12:
            return data
        self.cuts += 1
        return data[: len(data) // 2]


async def test_a_way_that_is_cut_and_a_killed_gateway_lose_and_double_nothing(door: Door, tmp_path: Path) -> None:
    token = token_file(door, tmp_path)
    door.start()
    runtime, saw = Runtime(door.home), Saw(door.port)
    by_token = ("--token-file", str(token))
    async with saw.listening() as port, bridged(f"http://127.0.0.1:{port}/mcp", *by_token) as client:
        saw.is_sharp = True
        answers = [await client.store(f"Fact number {number}") for number in range(20)]
    assert saw.cuts >= 6
    async with bridged(door.url, *by_token) as client:
        for number in range(20, 50):
            storing = asyncio.create_task(client.store(f"Fact number {number}"))
            await asyncio.sleep(0)
            if number in (25, 40):
                runtime.kill("gateway")
            answers.append(await storing)
    wait_until(door.is_up)
    assert not any("already_known" in each for each in answers), "each has a memory of its own"
    assert len({each["memory_id"] for each in answers}) == len(answers)
    own = token.read_text().strip()
    # A store that has said nothing yet has no counts.
    counts = partial(door.call, "get_memory_status", own)
    wait_until(lambda: counts().get("counts", {}).get("by_scope", {}).get("project") == len(answers))


class _Other(QuietHandler):
    """A web server that has never heard of MCP."""

    def answer(self) -> None:
        self.send_error(404)


class _Stopping(QuietHandler):
    """A gateway that stops, and the one after it."""

    ids: ClassVar[list[Any]] = []

    def answer(self) -> None:
        self.ids.append(self.asked()["id"])
        about = {"name": "remembrancer", "version": "1"}
        result = {"protocolVersion": VERSION, "capabilities": {}, "serverInfo": about}
        stops = {"code": -32603, "message": "it stops", "data": {"retry_possible": True}}
        is_first = len(self.ids) == 1
        said = {"error": stops} if is_first else {"result": result}
        body = json.dumps({"jsonrpc": "2.0", "id": self.ids[-1], **said}).encode()
        self.reply(503 if is_first else 200, body, **({"Retry-After": "1"} if is_first else {}))


async def test_a_request_that_a_stopping_gateway_leaves_undone_is_asked_again_of_the_next() -> None:
    with serving(_Stopping) as url:
        client = bridged(f"{url}/mcp")
        await client.start()
        assert (await client.initialize())["serverInfo"]["name"] == "remembrancer"
        client.process.kill()
        await client.aclose()
    assert _Stopping.ids[:2] == [1, 1]


async def test_a_wrong_token_an_absent_host_and_another_server_are_told(door: Door, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("rmb_wrong\n")
    door.token("someone", "--project", str(tmp_path))
    door.start()
    with serving(_Other) as other:
        said = await asyncio.gather(
            refused(door.url, "--token-file", str(wrong)),
            refused(door.url),
            refused(f"{other}/mcp"),
            refused(f"http://127.0.0.1:{free_port()}/mcp"),
            refused(door.url.replace("http:", "https:")),
        )
    reasons = ("needs a valid token", "needs a valid token", "is not Remembrancer", "cannot be reached", "SSL")
    assert [reason in each for reason, each in zip(reasons, said, strict=True)] == [True] * 5, said


async def test_a_certificate_is_trusted_by_its_file(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    request += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*request, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    monkeypatch.setenv("REMEMBRANCER_HTTP_CERTIFICATE", str(both))
    url = door.url.replace("http:", "https:")
    door.start(wait=False)
    wait_until(lambda: listens(door.port))
    token = token_file(door, tmp_path)
    async with bridged(url, "--ca-file", str(certificate), "--token-file", str(token)) as client:
        assert (await client.store("It is sealed"))["memory_id"]
    assert "not trusted" in await refused(url)


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_S):
        return True
    return False
