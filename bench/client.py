"""A small MCP client over stdio with concurrent requests and little overhead of its own."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

LINE_LIMIT_BYTES: Final = 32 * 1024 * 1024
PROTOCOL: Final = "2025-11-25"

Json = dict[str, Any]
CLOSED: Final[Json] = {"code": 0, "message": "the server closed its output"}


class ClientError(Exception):
    """Raised when the server answers with a JSON-RPC error (`error` is its object), or closes its output."""

    def __init__(self, error: Json) -> None:
        super().__init__(json.dumps(error))
        self.error = error

    def as_envelope(self) -> Json:
        """Return the error in the form of a tool's error."""
        data = self.error.get("data") or {}
        retry_possible = bool(data.get("retry_possible"))
        return {"error": self.error["code"], "message": self.error["message"], "retry_possible": retry_possible}


class StdioClient:
    """One session: `remembrancer mcp` as a child process. `environ` is merged into this process's environment."""

    def __init__(
        self,
        home: Path,
        *,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._arguments = arguments
        inherited = {name: value for name, value in os.environ.items() if name != "CLAUDE_CODE_SESSION_ID"}
        self._environ = {**inherited, "REMEMBRANCER_HOME": str(home), **(environ or {})}
        self._cwd = cwd or home
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._reader: asyncio.Task[None] | None = None
        self.process: asyncio.subprocess.Process
        self.strays: list[bytes] = []
        """Lines on the server's standard output that are not JSON-RPC."""
        self.notifications: list[Json] = []

    async def __aenter__(self) -> StdioClient:
        await self.start()
        try:
            await self.initialize()
        except BaseException:  # an orphaned bridge would restart the runtime
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start the bridge."""
        self.process = await asyncio.create_subprocess_exec(
            *command_line(),
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environ,
            cwd=self._cwd,
            limit=LINE_LIMIT_BYTES,
        )
        self._reader = asyncio.create_task(self._read())

    async def initialize(self) -> Json:
        """Perform the MCP handshake."""
        answer = await self.request(
            "initialize",
            {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
        )
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def aclose(self) -> float:
        """Close the input and wait for the bridge to exit. Returns the time in seconds."""
        began = time.perf_counter()
        if self.process.returncode is None and self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.wait()
        took = time.perf_counter() - began
        if self._reader is not None:
            await self._reader
        return took

    async def send(self, message: Json) -> None:
        """Send one line."""
        await self.send_raw(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def send_raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def request(self, method: str, params: Json | None = None) -> Json:
        """Send a request and return its result. Raises `ClientError` for a JSON-RPC error or if the server is gone."""
        if self._reader is None or self._reader.done():
            raise ClientError(CLOSED)
        request_id = next(self._ids)
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        message: Json = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        with suppress(OSError):  # its output ends as well
            await self.send(message)
        answer = await future
        if "error" in answer:
            raise ClientError(answer["error"])
        result: Json = answer["result"]
        return result

    async def call(self, tool: str, /, **arguments: Any) -> Json:
        """Call a tool and return its structured content. A tool's error is under `error`."""
        result = await self.request("tools/call", {"name": tool, "arguments": arguments})
        content: Json = result["structuredContent"]
        return content

    async def call_or_error(self, tool: str, /, **arguments: Any) -> Json:
        """Like `call`; a JSON-RPC error is returned like a tool's: `{"error", "message", "retry_possible"}`."""
        try:
            return await self.call(tool, **arguments)
        except ClientError as error:
            return error.as_envelope()

    async def request_or_error(self, method: str, params: Json | None = None) -> Json:
        """Like `request`; a JSON-RPC error is returned as `{"error", "message", "retry_possible"}`."""
        try:
            return await self.request(method, params)
        except ClientError as error:
            return error.as_envelope()

    async def store(self, content: str, **more: Any) -> Json:
        """Call `store_memory`, by default with a semantic memory for the project."""
        return await self.call("store_memory", **{"content": content, "type": "semantic", "scope": "project", **more})

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                self.strays.append(line)
                continue
            if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
                self.strays.append(line)
            elif "method" in message:
                self.notifications.append(message)
            elif message.get("id") in self._waiting:
                future = self._waiting.pop(message["id"])
                if not future.done():
                    future.set_result(message)
            else:
                self.strays.append(line)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClientError(CLOSED))


def command_line() -> list[str]:
    """Return the command with which clients start a session: the one installed next to this Python."""
    return [str(Path(sys.executable).with_name("remembrancer")), "mcp"]
