"""The messages of the prompts. Those that ask about what is remembered bring along what is known at the moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from remembrancer.actors.gateway.prompts.catalogue import check_arguments, find_prompt
from remembrancer.actors.gateway.prompts.prompt_texts import (
    FOUND,
    forget_text,
    inspect_text,
    keep_text,
    knowledge_text,
    overview_text,
    recall_text,
    remember_text,
    search_text,
)
from remembrancer.actors.gateway.toolkit.tools import Answer, Call, Caller, Tool
from remembrancer.protocol.errors import RemembrancerError

SEARCHED: Final = 20
"""Memories that a search of all scopes brings along."""
OWN_TOKENS: Final = 4_000
"""Of the session's own memories, where they are looked through."""


class Prompts:
    """Makes the messages of prompts. `tools` are those that look things up."""

    def __init__(self, tools: Mapping[str, Tool[Any]]) -> None:
        self._tools = tools

    async def message(self, caller: Caller, name: str, arguments: Mapping[str, str], received_at: float) -> str:
        """What the user says with a prompt.

        Raises:
            InvalidInput: there is no such prompt, or its arguments are not what it takes.
        """
        check_arguments(find_prompt(name), arguments)
        match name:
            case "remember" | "remember-all":
                return await self._remember(caller, name, arguments, received_at)
            case "recall":
                return recall_text(arguments["topic"], await self._recall(caller, arguments["topic"], received_at))
            case "forget":
                return forget_text(arguments["query"], await self._recall(caller, arguments["query"], received_at))
            case "memory":
                return await self._memory(caller, arguments.get("action"), arguments.get("about", ""), received_at)
        subject = arguments["subject"]
        graph = await self._look_up("search_knowledge_graph", {"entity": subject}, caller, received_at)
        return knowledge_text(subject, graph, await self._recall(caller, subject, received_at))

    async def _remember(self, caller: Caller, name: str, arguments: Mapping[str, str], received_at: float) -> str:
        what = arguments.get("what")
        if what is not None:
            return remember_text(what, arguments.get("scope"), for_all=name == "remember-all")
        own = {"sections": ["session_history"], "max_tokens": OWN_TOKENS}
        block = await self._look_up("get_memory_context", own, caller, received_at)
        return keep_text(block, for_user=name == "remember-all" or arguments.get("scope") == "user")

    async def _memory(self, caller: Caller, action: str | None, about: str, received_at: float) -> str:
        if action == "search":
            return search_text(about, await self._recall(caller, about, received_at, SEARCHED))
        if action == "inspect":
            return inspect_text(await self._look_up("get_memory", {"memory_id": about}, caller, received_at))
        return overview_text(await self._look_up("get_memory_status", {}, caller, received_at))

    async def _recall(self, caller: Caller, query: str, received_at: float, limit: int = FOUND) -> Answer:
        return await self._look_up("recall_memories", {"query": query, "limit": limit}, caller, received_at)

    async def _look_up(self, name: str, arguments: dict[str, Any], caller: Caller, received_at: float) -> Answer:
        """What a tool answers; the reason if it cannot, for a prompt is of use without findings too."""
        tool = self._tools.get(name)
        if tool is None:
            return {}
        try:
            call = Call(caller, f"prompt {name}", received_at, arguments)
            return await tool.run(call, tool.decoder.decode(arguments))
        except RemembrancerError as error:
            return {"warnings": [{"code": error.code, "message": error.message}]}
