"""The tools, resources and prompts that the conformance suite asks for by name, behind the gateway's own HTTP transport
and sessions."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast
from unittest import mock

import anyio
import mcp_types as mcp
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from starlette.routing import Router

from remembrancer.actors.gateway import http_server as http_module
from remembrancer.actors.gateway.conversations import CallTool, McpService
from remembrancer.actors.gateway.http_server import HttpServer
from remembrancer.actors.gateway.session_registry import SessionRegistry
from remembrancer.config.settings import Settings
from remembrancer.toolsets.tools import CallResult, load_tools
from tests.cases import cases

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]
STEP_S: Final = 0.05
"""Between two messages of a tool: the suite wants to see that they come one by one."""


STATIC: Final[dict[str, list[Json]]] = cases("conformance", "static")
FORMS: Final[dict[str, Json]] = cases("conformance", "forms")
SCHEMA: Final[Json] = cases("conformance", "schema")
RESOURCES: Final[dict[str, Json]] = cases("conformance", "resources")
PROMPTS: Final[dict[str, Json]] = cases("conformance", "prompts")


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


async def _log(ctx: Context, _: Json) -> str:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
        await anyio.sleep(STEP_S)
    return "logged"


async def _progress(ctx: Context, _: Json) -> str:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await anyio.sleep(STEP_S)
    return "done"


async def _sample(ctx: Context, given: Json) -> str:
    asked = [mcp.SamplingMessage(role="user", content=mcp.TextContent(type="text", text=given["prompt"]))]
    said = await ctx.session.create_message(asked, max_tokens=100, related_request_id=ctx.request_id)
    assert isinstance(said.content, mcp.TextContent)
    return f"LLM response: {said.content.text}"


async def _reconnect(ctx: Context, _: Json) -> str:
    """The suite closes nothing itself: it wants to be cut off, and to find the answer when it comes again."""
    if ctx.close_sse_stream is not None:  # by the protocol of the request, its client can come again
        await ctx.close_sse_stream()
    await anyio.sleep(2 * STEP_S)
    return "reconnected"


async def _fail(_: Context, __: Json) -> str:
    raise ValueError("This tool intentionally returns an error for testing")


DOING: Final[dict[str, Callable[[Context, Json], Awaitable[str]]]] = {
    "test_tool_with_logging": _log,
    "test_tool_with_progress": _progress,
    "test_sampling": _sample,
    "test_reconnection": _reconnect,
    "test_error_handling": _fail,
}


async def _list_tools(_: Context, __: Any) -> Any:
    def described(name: str) -> Json:
        schema = SCHEMA if name == "json_schema_2020_12_tool" else {"type": "object", "properties": {}}
        return {"name": name, "description": f"Answers {name}", "inputSchema": schema}

    return {"tools": [described(name) for name in (*STATIC, *FORMS, *DOING)]}


async def _call_tool(ctx: Context, params: mcp.CallToolRequestParams) -> Any:
    given = params.arguments or {}
    if params.name in STATIC:
        return {"content": STATIC[params.name]}
    if params.name in FORMS:
        form = {"type": "object", "properties": FORMS[params.name], "required": list(FORMS[params.name])}
        answer = await ctx.session.elicit_form(given.get("message", "Please say"), form, ctx.request_id)
        said = f"action={answer.action}, content={json.dumps(answer.content)}"
        before = "User response" if params.name == "test_elicitation" else "Elicitation completed"
        return {"content": [_text(f"{before}: {said}")]}
    try:
        return {"content": [_text(await DOING[params.name](ctx, given))]}
    except ValueError as error:
        return {"content": [_text(str(error))], "isError": True}


async def _list_resources(_: Context, __: Any) -> Any:
    about = [{"uri": uri, "name": uri, "mimeType": each["mimeType"]} for uri, each in RESOURCES.items()]
    return {"resources": about}


async def _read_resource(_: Context, params: mcp.ReadResourceRequestParams) -> Any:
    uri = str(params.uri)
    made = uri.removeprefix("test://template/").partition("/")[0]
    data = {"id": made, "templateTest": True, "data": f"Data for ID: {made}"}
    content = RESOURCES.get(uri) or {"mimeType": "application/json", "text": json.dumps(data)}
    return {"contents": [{"uri": uri, **content}]}


async def _list_templates(_: Context, __: Any) -> Any:
    return {"resourceTemplates": [{"uriTemplate": "test://template/{id}/data", "name": "template"}]}


async def _list_prompts(_: Context, __: Any) -> Any:
    def described(name: str) -> Json:
        arguments = [{"name": each, "required": True} for each in PROMPTS[name]["arguments"]]
        return {"name": name, "description": name, "arguments": arguments}

    return {"prompts": [described(name) for name in PROMPTS]}


async def _get_prompt(_: Context, params: mcp.GetPromptRequestParams) -> Any:
    contents = json.dumps(PROMPTS[params.name]["contents"])
    for name, value in (params.arguments or {}).items():
        contents = contents.replace(f"{{{name}}}", value)
    return {"messages": [{"role": "user", "content": each} for each in json.loads(contents)]}


async def _complete(_: Context, __: mcp.CompleteRequestParams) -> Any:
    return {"completion": {"values": [], "total": 0, "hasMore": False}}


async def _take(_: Context, __: Any) -> Any:
    return mcp.EmptyResult()


def build() -> Server[Any]:
    """A server of everything that the suite has a scenario for."""
    return Server(
        "conformance",
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
        on_subscribe_resource=_take,
        on_unsubscribe_resource=_take,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        on_completion=_complete,
        on_set_logging_level=_take,
    )


class _NoRecords:
    """There is no store that wants to know of sessions."""

    def known(self, _: object, __: object) -> None: ...

    def left(self, _: object) -> None: ...


async def _no_call(*_: object) -> CallResult:
    raise AssertionError("the SDK's server answers the suite's calls")


def http_server(home: Path, call_tool: CallTool = _no_call, settings: Settings | None = None) -> HttpServer:
    settings = msgspec.structs.replace(settings or Settings(), http_port=0)
    registry = cast("SessionRegistry", _NoRecords())
    service = McpService("conformance", build, call_tool, load_tools(), registry)
    return HttpServer(home, settings, service, no_token=True, open_browser=Router)


@asynccontextmanager
async def served(home: Path, settings: Settings | None = None) -> AsyncIterator[str]:
    door = http_server(home, settings=settings)
    with mock.patch.object(http_module, "plain_call_in", return_value=None):
        async with anyio.create_task_group() as tasks:
            await tasks.start(door.serve)
            assert door.url is not None
            yield door.url
            tasks.cancel_scope.cancel()
