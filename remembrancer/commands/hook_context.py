"""What the memory knows, asked for by a hook: as a bridge would, over the gateway's socket. Standard library only.

Every wait has the same end, so a memory that is slow, or is not there, costs the assistant's session no more than that.
"""

# ruff: noqa: PTH123
from __future__ import annotations

from remembrancer.actors.bridge.starter import Starter
from remembrancer.commands.gateway_client import GatewayClient, reach
from remembrancer.protocol.gateway_link import PROMPT

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
CLIENT = "claude-code"
"""On whose behalf it is asked."""


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
    link = reach(Starter(places, environ), until, starts=starts)
    if link is None:
        return None
    with link:
        try:
            gateway = GatewayClient(link, places, session, directory, {}, CLIENT)
            said = gateway.call("get_memory_context", arguments, until)
        except OSError:  # it went away, or is too slow
            return None
    block = said.get("context_block") if said.get("memories_used") else None
    return block if isinstance(block, str) and block.strip() else None
