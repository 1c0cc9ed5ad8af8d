"""What the memory knows, asked for by a hook: as a bridge would, over the gateway's socket. Standard library only.

Every wait has the same end, so a memory that is slow, or is not there, costs the assistant's session no more than that.
"""

# ruff: noqa: PTH123
from __future__ import annotations

import json
import os
import socket
import time

from remembrancer import __version__
from remembrancer.actors.bridge.places import new_identity
from remembrancer.actors.bridge.replay import LineBuffer
from remembrancer.protocol.gateway_link import CONTROL, LINK_VERSION, MAX_LINE_BYTES, PROMPT, REFUSED, stamped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from remembrancer.actors.bridge.places import Places

VARIABLE = "REMEMBRANCER_HOOK_CONTEXT_LENGTH"
DEFAULT_TOKENS = 1000
LEAST_TOKENS, MOST_TOKENS = 100, 8000
"""The bounds of the tool that is asked."""
LONGEST_TASK = 4000
"""Characters of a prompt: no search looks at more."""
SECTIONS_OF_A_PROMPT = ["project_context", "relevant_procedures"]
"""What the user prefers was said at the session's start, and what the session did itself it knows."""
LOOK_S = 0.02
CHUNK_BYTES = 64 * 1024
PROTOCOL = "2025-06-18"
CLIENT = "claude-code"
"""On whose behalf it is asked."""
ASKED = 2


def tokens_wanted(places: Places, environ: Mapping[str, str]) -> int:
    """How long the context may be, by the setting `hook_context_length`; 0: none is wanted.

    The configuration file is only read, which costs some 50 ms, when it speaks of the setting.
    """
    named = environ.get(VARIABLE)
    if named is None and _is_in_file(places.config):
        from remembrancer.config.reading import load_settings

        return _within_bounds(load_settings(environ).hook_context_length)
    try:
        return _within_bounds(int(named or DEFAULT_TOKENS))
    except ValueError:
        return DEFAULT_TOKENS


def _is_in_file(config: str | None) -> bool:
    if config is None:
        return False
    try:
        with open(config, "rb") as file:
            return b"hook_context_length" in file.read(1024 * 1024)
    except OSError:
        return False


def _within_bounds(tokens: int) -> int:
    return 0 if tokens <= 0 else min(MOST_TOKENS, max(LEAST_TOKENS, tokens))


def question(event: str, text: str, tokens: int) -> dict[str, Any]:
    """What to ask the tool `get_memory_context`: at a prompt, for what has to do with that."""
    if event == PROMPT:
        return {"max_tokens": tokens, "task_description": text[:LONGEST_TASK], "sections": SECTIONS_OF_A_PROMPT}
    return {"max_tokens": tokens}


def ask(
    places: Places,
    environ: Mapping[str, str],
    session: str,
    directory: str,
    arguments: dict[str, Any],
    until: float,
    *,
    starts: bool,
) -> str | None:
    """The memory's context block; None when it has nothing to say, or says nothing until `until` (`time.monotonic`).

    `starts`: start a runtime when there is none. It is on its way then, even if it comes too late for this.
    """
    link = _connect(places, environ, until, starts=starts)
    if link is None:
        return None
    with link:
        try:
            link.settimeout(max(LOOK_S, until - time.monotonic()))
            link.sendall(_all_that_is_said(session, directory, arguments))
            return _block(_answer(link, until))
        except OSError:  # it went away, or is too slow
            return None


def _connect(places: Places, environ: Mapping[str, str], until: float, *, starts: bool) -> socket.socket | None:
    starter = None
    while True:
        link = _connected(places)
        if link is not None or not starts:
            return link
        if starter is None:
            from remembrancer.actors.bridge.starter import Starter

            starter = Starter(places, environ)
        now = time.monotonic()
        starter.tend(now)
        if starter.failure is not None or now + LOOK_S >= until:
            return None
        time.sleep(LOOK_S)  # a socket that is not there yet has no event to wait for


def _connected(places: Places) -> socket.socket | None:
    if not places.are_private():
        return None
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(places.gateway_socket)
    except OSError:
        link.close()
        return None
    return link


def _all_that_is_said(session: str, directory: str, arguments: dict[str, Any]) -> bytes:
    """The hello and three messages at once: there is no need to wait for the answer to any but the last."""
    now = time.time()
    hello = {
        "link": LINK_VERSION,
        "version": __version__,
        "passing": True,
        "bridge": new_identity(now).hex(),
        "session": session,
        "directory": directory,
        "project": None,
        "environment": {},
        "pid": os.getpid(),
    }
    client = {"name": CLIENT, "version": __version__}
    messages = (
        _message(
            id=1,
            method="initialize",
            params={"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client},
        ),
        _message(method="notifications/initialized"),
        _message(id=ASKED, method="tools/call", params={"name": "get_memory_context", "arguments": arguments}),
    )
    lines = b"".join(stamped(message, int(now * 1000)) for message in messages)
    return json.dumps(hello, separators=(",", ":")).encode() + b"\n" + lines


def _message(**parts: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **parts}, separators=(",", ":")).encode()


def _answer(link: socket.socket, until: float) -> dict[str, Any] | None:
    """The answer to the call. Raises `TimeoutError` when it does not come in time."""
    buffer = LineBuffer(MAX_LINE_BYTES)
    while True:
        link.settimeout(max(0.001, until - time.monotonic()))
        data = link.recv(CHUNK_BYTES)
        if not data:
            return None
        for line in buffer.feed(data):
            if line.startswith(REFUSED):
                return None
            if line.startswith(CONTROL):
                continue
            message = json.loads(line)
            if message.get("id") == ASKED and "method" not in message:
                found: dict[str, Any] = message
                return found


def _block(answer: dict[str, Any] | None) -> str | None:
    """The block in the tool's answer, when something is remembered in it."""
    result = answer.get("result") if answer else None
    said = result.get("structuredContent") if isinstance(result, dict) else None
    if not isinstance(said, dict) or not said.get("memories_used"):
        return None
    block = said.get("context_block")
    return block if isinstance(block, str) and block.strip() else None
