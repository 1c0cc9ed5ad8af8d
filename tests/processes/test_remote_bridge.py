"""A bridge to a gateway on another host: over a real runtime's HTTP, by ways that break, and to what is no gateway."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bench.client import ClientError, StdioClient
from tests import patience
from tests.patience import PATIENCE_S
from tests.ports import free_port
from tests.processes.http_door import Door
from tests.processes.runtimes import until
from tests.runtime import Runtime

pytestmark = pytest.mark.usefixtures("without_embedders")


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


class Saw:
    """A way to the server that is cut, now before a request has arrived whole, now before its answer has."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cuts = 0
        self.is_sharp = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                for one, other, cuts_here in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._carry, args=(one, other, cuts_here), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, cuts_here: bool) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                is_cut = self.is_sharp and (b"store_memory" in data or b"memory_id" in data)
                if is_cut and cuts_here is (self.cuts % 2 == 0) and self.cuts < 12:
                    self.cuts += 1
                    other.sendall(data[: len(data) // 2])
                    break
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self._listener.close()


def stored_once(door: Door, token: Path, answers: list[dict[str, Any]]) -> None:
    """Each answer was for a memory of its own, and there are no others."""
    assert not any("already_known" in each for each in answers)
    assert len({each["memory_id"] for each in answers}) == len(answers)
    own = token.read_text().strip()
    until(lambda: door.count_in_project(own) == len(answers))


async def test_a_way_that_is_cut_again_and_again_loses_and_doubles_nothing(door: Door, tmp_path: Path) -> None:
    token = token_file(door, tmp_path)
    door.start()
    saw = Saw(door.port)
    async with bridged(f"http://127.0.0.1:{saw.port}/mcp", "--token-file", str(token)) as client:
        saw.is_sharp = True
        answers = [await client.store(f"Fact number {number}") for number in range(20)]
    saw.close()
    assert saw.cuts >= 6
    stored_once(door, token, answers)


async def test_a_killed_gateway_on_the_other_host_loses_and_doubles_nothing(door: Door, tmp_path: Path) -> None:
    token = token_file(door, tmp_path)
    door.start()
    runtime = Runtime(door.home)
    async with bridged(door.url, "--token-file", str(token)) as client:
        answers = []
        for number in range(30):
            storing = asyncio.create_task(client.store(f"Fact number {number}"))
            await asyncio.sleep(0)
            if number in (5, 20):
                runtime.process("gateway").kill()
            answers.append(await storing)
    until(door.is_up)
    stored_once(door, token, answers)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a web server that is no gateway."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()


class _Other(BaseHTTPRequestHandler):
    """A web server that has never heard of MCP."""

    def do_POST(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"none")

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


class _Stopping(BaseHTTPRequestHandler):
    """A gateway that stops, and the one after it."""

    asked: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(message["id"])
        about = {"name": "remembrancer", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": about}
        stops = {"error": {"code": -32603, "message": "it stops", "data": {"retry_possible": True}}}
        is_first = len(self.asked) == 1
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **(stops if is_first else {"result": result})})
        self.send_response(503 if is_first else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if is_first:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


async def test_a_request_that_a_stopping_gateway_leaves_undone_is_asked_again_of_the_next() -> None:
    with serving(_Stopping) as url:
        client = bridged(url)
        await client.start()
        assert (await client.initialize())["serverInfo"]["name"] == "remembrancer"
        client.process.kill()
        await client.aclose()
    assert _Stopping.asked[:2] == [1, 1]


async def test_a_wrong_token_an_absent_host_and_another_server_are_told(door: Door, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("rmb_wrong\n")
    door.token("someone", "--project", str(tmp_path))
    door.start()
    with serving(_Other) as other:
        for url, arguments, said in (
            (door.url, ("--token-file", str(wrong)), "needs a token that is valid"),
            (door.url, (), "needs a token that is valid"),
            (other, (), "not as Remembrancer does"),
            (f"http://127.0.0.1:{free_port()}/mcp", (), "cannot be reached"),
            (door.url.replace("http:", "https:"), (), "SSL"),
        ):
            assert said in await refused(url, *arguments)


async def test_a_certificate_of_one_s_own_is_trusted_by_its_file_alone(
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
    until(lambda: listens(door.port))
    token = token_file(door, tmp_path)
    async with bridged(url, "--ca-file", str(certificate), "--token-file", str(token)) as client:
        assert (await client.store("It is sealed"))["memory_id"]
    assert "not trusted" in await refused(url)


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_S):
        return True
    return False
