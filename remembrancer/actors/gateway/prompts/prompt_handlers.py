"""MCP's requests about prompts, and about the completion of arguments."""

from __future__ import annotations

from typing import Any

import mcp_types as mcp

from remembrancer.actors.gateway.mcp_errors import Context
from remembrancer.actors.gateway.prompts.catalogue import PROMPTS, Prompt, find_prompt
from remembrancer.actors.gateway.prompts.completion import Completion
from remembrancer.actors.gateway.prompts.prompts import Prompts
from remembrancer.actors.gateway.session import request_context
from remembrancer.actors.gateway.toolkit.tools import COMPLETE


class PromptHandlers:
    """One method a request. Each request comes with a `RequestContext` as its transport's context."""

    def __init__(self, prompts: Prompts, completion: Completion) -> None:
        self._prompts = prompts
        self._completion = completion

    async def list_prompts(self, _: Context, __: mcp.PaginatedRequestParams | None) -> Any:
        """`prompts/list`."""
        return {
            "prompts": [_listed(each) for each in PROMPTS.values()],
            "ttlMs": 0,
            "cacheScope": "private",
            **COMPLETE,
        }

    async def get(self, ctx: Context, params: mcp.GetPromptRequestParams) -> Any:
        """`prompts/get`."""
        context = request_context(ctx)
        caller = await context.session.caller()
        text = await self._prompts.message(caller, params.name, params.arguments or {}, context.received_at)
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": find_prompt(params.name).description, "messages": [message], **COMPLETE}

    async def complete(self, ctx: Context, params: mcp.CompleteRequestParams) -> Any:
        """`completion/complete`."""
        context = request_context(ctx)
        caller = await context.session.caller()
        name, value = params.argument.name, params.argument.value
        if isinstance(params.ref, mcp.PromptReference):
            found = await self._completion.of_prompt(caller, params.ref.name, name, value, context.received_at)
        else:
            found = self._completion.of_template(caller, params.ref.uri, name, value)
        completion = {
            "values": list(found.values),
            "total": found.total,
            "hasMore": found.total > len(found.values),
        }
        return {"completion": completion, **COMPLETE}


def _listed(prompt: Prompt) -> dict[str, Any]:
    """A prompt as `prompts/list` has it; what is not required does not say so."""
    arguments: list[dict[str, Any]] = []
    for each in prompt.arguments:
        required = {"required": True} if each.required else {}
        arguments.append({"name": each.name, "description": each.description, **required})
    return {"name": prompt.name, "description": prompt.description, "arguments": arguments}
