"""The memory's knowledge, asked for by a hook: as a bridge would, over the gateway's socket. Standard library only.

Every wait has the same end, so a memory that is slow, or is not there, costs the assistant's session no more than that.
"""

from __future__ import annotations

import time

from remembrancer.actors.bridge.starter import Starter
from remembrancer.commands.gateway_client import GatewayClient, pause, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from remembrancer.actors.bridge.places import Places

LENGTH, WAIT = "hook_context_length", "hook_wait_s"
DEFAULT_TOKENS = 3000
LEAST_TOKENS, MOST_TOKENS = 100, 8000
"""The bounds of the tool that is asked."""
DEFAULT_WAIT_S, LATER_WAIT_S = 1.5, 0.3
"""The time for the first prompt's context, which may have to wait for the runtime, and at most for those after it."""
MOST_WAIT_S = 10.0
LONGEST_TASK = 4000
"""Characters of a prompt: no search looks at more."""
SECTIONS_OF_A_PROMPT = ["preferences", "project_context", "relevant_procedures", "open_ends"]
"""The sections for a later prompt: the session knows what it did itself."""
AGAIN_S = 0.1
CLIENT = "remembrancer hook"
"""On whose behalf it is asked."""


def wanted(places: Places, environ: Mapping[str, str]) -> tuple[int, float, float]:
    """The length of the context in tokens, 0: none is wanted; and the seconds from the start of a hook in which it has
    to come, with the first prompt and with a later one.

    The configuration file is only read, which costs some 50 ms, when it speaks of one of them.
    """
    length, wait = (environ.get(f"REMEMBRANCER_{name.upper()}") for name in (LENGTH, WAIT))
    if (length is None or wait is None) and _is_in_file(places.config):
        from remembrancer.config.reading import load_settings

        settings = load_settings(environ)
        tokens, wait_s = settings.hook_context_length, settings.hook_wait_s
    else:
        tokens, wait_s = int(_number(length, DEFAULT_TOKENS)), min(MOST_WAIT_S, _number(wait, DEFAULT_WAIT_S))
    return _within_bounds(tokens), wait_s, min(LATER_WAIT_S, wait_s)


def _number(named: str | None, otherwise: float) -> float:
    try:
        return float(named or otherwise)
    except ValueError:
        return otherwise


def _is_in_file(config: str | None) -> bool:
    if config is None:
        return False
    try:
        from remembrancer.protocol.paths import read_file

        content = read_file(config)
    except OSError:
        return False
    return any(name.encode() in content for name in (LENGTH, WAIT))


def _within_bounds(tokens: int) -> int:
    return 0 if tokens <= 0 else min(MOST_TOKENS, max(LEAST_TOKENS, tokens))


def question(text: str, tokens: int, *, is_first: bool, is_again: bool) -> dict[str, Any]:
    """The arguments for the tool `get_memory_context`, for a prompt: with the first, all that a session should know.

    `text` is empty where a session goes on without a prompt; `is_again`: its conversation has lost what it was given.
    """
    arguments: dict[str, Any] = {"max_tokens": tokens, "detail": True}
    if text:
        arguments["task_description"] = text[:LONGEST_TASK]
    if not is_again:
        arguments["unseen"] = True
    return arguments if is_first else {**arguments, "sections": SECTIONS_OF_A_PROMPT}


def start(places: Places, environ: Mapping[str, str]) -> None:
    """Start a runtime if none is up, and do not wait for it."""
    link = reach(Starter(places, environ), time.monotonic())
    if link is not None:
        link.close()


def ask(
    places: Places, environ: Mapping[str, str], session: str, directory: str, arguments: dict[str, Any], until: float
) -> dict[str, Any] | None:
    """The memory's answer with the ids of its memories; None when it does not come until `until` (`time.monotonic`).

    A runtime is started when there is none. It is on its way then, even if it comes too late for this.
    """
    link = reach(Starter(places, environ), until)
    if link is None:
        return None
    with link:
        try:
            gateway = GatewayClient(link, places, session, directory, {}, CLIENT)
            said = gateway.call("get_memory_context", arguments, until)
            while said.get("degraded") and not said["memory_ids"] and time.monotonic() + AGAIN_S < until:
                pause(AGAIN_S)  # the gateway is up before the store is
                said = gateway.call("get_memory_context", arguments, until)
        except OSError:  # it went away, or is too slow
            return None
    return said
