"""The memory tool for Anthropic's Python SDK, backed by Remembrancer: durable, searchable memory with undo.

    client.beta.messages.run_tools(model=…, messages=[…], tools=[MemoryTool(project=".")])

Needs the `anthropic` extra.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final, Self

from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaAbstractMemoryTool
from anthropic.types.beta import BetaMemoryTool20250818Command

from remembrancer.commands.gateway_client import PROTOCOL, ask_process

_START: Final = "import sys; from remembrancer.command_line import main; sys.exit(main())"
_END_S: Final = 5.0


class MemoryTool(BetaAbstractMemoryTool):  # type: ignore[misc]  # 3,000 modules that mypy would read
    """Opens a session with the local runtime, and starts the runtime if needed. `close` ends the session.

    `/memories` holds the user's memories, `/memories/repo` those of the `project` (default: the working directory), and
    `/memories/session` those of this session. `home` overrides the default home directory. A rejected command raises
    the SDK's `ToolError`, and an unreachable runtime raises `ConnectionError`.
    """

    def __init__(self, project: str | os.PathLike[str] = ".", *, home: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        environment = {**os.environ, "REMEMBRANCER_TOOLSETS": "directory"}
        if home is not None:
            environment["REMEMBRANCER_HOME"] = str(Path(home).absolute())
        self._bridge = subprocess.Popen(
            [sys.executable, "-c", _START, "mcp", "--project", str(Path(project).absolute())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._number = 0
        self._lock = threading.Lock()
        client = {"name": "anthropic-sdk", "version": "1"}
        self._ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client})
        assert self._bridge.stdin is not None
        self._bridge.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')

    def execute(self, command: BetaMemoryTool20250818Command) -> str:
        arguments = {name: value for name, value in command.to_dict().items() if value is not None}
        result = self._ask("tools/call", {"name": "memory", "arguments": arguments})
        text: str = result["content"][0]["text"]
        if result.get("isError"):
            raise ToolError(text)
        return text

    view = create = str_replace = insert = delete = rename = execute

    def close(self) -> None:
        """End the session. May be called twice."""
        assert self._bridge.stdin is not None
        assert self._bridge.stdout is not None
        self._bridge.stdin.close()
        try:
            self._bridge.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._bridge.kill()
            self._bridge.wait()
        self._bridge.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._number += 1
            try:
                return ask_process(self._bridge, self._number, method, params)
            except ValueError as error:
                raise ConnectionError(str(error)) from error
