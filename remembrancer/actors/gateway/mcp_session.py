"""The session of a bridge: an MCP conversation. The SDK's server answers everything but plain tool calls."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as mcp
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from remembrancer.actors.gateway.conversations import CallContext, PlainCall, Session, as_text
from remembrancer.actors.gateway.elicitation import Asking
from remembrancer.protocol.gateway_link import PARSE_ERROR
from remembrancer.toolsets.service import Caller

STREAM: Final = "subscriptions/listen"
"""A request that stays open until the client ends it. A stop does not wait for it."""
ROOTS_WAIT_S: Final = 1.0
"""The maximum time a tool call waits for the client's list of roots."""
MAX_WAITING: Final = 64
"""The maximum number of messages queued for the SDK's server, and from it."""
MAX_CLIENT_NAME: Final = 100


class McpSession(Session):
    def __init__(self, *described: Any) -> None:
        super().__init__(*described)
        self._inbox_send, self._inbox = anyio.create_memory_object_stream[SessionMessage | Exception](MAX_WAITING)
        self._asking = Asking(self.key, self._service.questions, self._write)
        self._roots_request = f"remembrancer-roots-{self.key}"
        self._roots_known = anyio.Event()
        self._expects_roots = False
        self._has_plain_calls = False  # until a handshake; the 2026-07-28 protocol has none

    async def serve(self) -> None:
        server = self._service.server()
        outbox, outbox_receive = anyio.create_memory_object_stream[SessionMessage](MAX_WAITING)
        async with self._tasks:
            self._tasks.create_task(self._send_messages(outbox_receive))
            self._tasks.create_task(self._take_lines()).add_done_callback(lambda _: self._inbox_send.close())
            await server.run(self._inbox, outbox, server.create_initialization_options())
            self._writer.close()  # the client is gone

    async def caller(self) -> Caller:
        """Waits a moment for the client's roots, if it announced any."""
        if self._caller is None and self._expects_roots:
            with anyio.move_on_after(ROOTS_WAIT_S):
                await self._roots_known.wait()
        return await super().caller()

    # --- messages in ---

    async def _take_message(self, text: bytes, sent_ms: int) -> None:
        try:
            # Unlike `validate_json`, this accepts lone surrogates: a later check can name the field that contains them.
            message = mcp.jsonrpc_message_adapter.validate_python(json.loads(text), by_name=False)
        except (ValueError, RecursionError) as error:
            self._refuse(text, PARSE_ERROR, f"not an MCP message ({type(error).__name__})")
            return
        metadata = ServerMessageMetadata(request_context=CallContext(self, sent_ms / 1000))
        result = message.result if isinstance(message, mcp.JSONRPCResponse) else {}
        match message:
            case mcp.JSONRPCRequest(id=request_id):
                self._note_request(message)
                is_stream = message.method == STREAM
                metadata.request_context = self._open_request(request_id, sent_ms, is_stream=is_stream)
                metadata.on_request_unanswered = partial(self._forget, request_id)
            case mcp.JSONRPCResponse(id=answered) | mcp.JSONRPCError(id=answered) if self._asking.is_asked(answered):
                if (decided := self._asking.take_decision(result)) is not None:
                    self._tasks.create_task(self._settle_replacement(str(answered), decided))
                return
            case mcp.JSONRPCResponse(id=self._roots_request) | mcp.JSONRPCError(id=self._roots_request):
                self._take_roots(result)
                return
            case mcp.JSONRPCNotification(method="notifications/initialized" | "notifications/roots/list_changed") if (
                self._expects_roots
            ):
                question = {"jsonrpc": "2.0", "id": self._roots_request, "method": "roots/list"}
                self._write(msgspec.json.encode(question) + b"\n")
            case mcp.JSONRPCNotification(method="notifications/initialized"):
                self._tasks.create_task(self.caller())
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session ends
            await self._inbox_send.send(SessionMessage(message, metadata))

    def _note_request(self, request: mcp.JSONRPCRequest) -> None:
        if self.client is None:
            self.client = client_name(request.params)
        if request.method == "initialize":
            self._has_plain_calls = True
            capabilities = (request.params or {}).get("capabilities")
            self._asking.note_capabilities(capabilities)
            self._expects_roots = isinstance(capabilities, dict) and isinstance(capabilities.get("roots"), dict)

    async def _call(self, call: PlainCall, context: CallContext) -> Mapping[str, Any] | None:
        answer = await super()._call(call, context)
        self._asking.note_answer(call.params.name, call.params.arguments, answer)
        return answer

    async def _settle_replacement(self, request_id: str, arguments: dict[str, Any]) -> None:
        if "update_memory" in self.tools:
            await self._service.call_tool(CallContext(self, time.time()), request_id, "update_memory", arguments)

    def _take_roots(self, result: dict[str, Any]) -> None:
        roots = result.get("roots")
        if isinstance(roots, list):
            uris = [root.get("uri") for root in roots if isinstance(root, dict)]
            self._roots = [uri for uri in uris if isinstance(uri, str)]
        self._roots_known.set()
        # Not earlier: without the roots, the session would get the wrong project. A call waits only for a limited time.
        self._tasks.create_task(self._settle())

    async def _forget(self, request_id: int | str) -> None:
        """A cancelled request gets no answer."""
        self._open.pop(request_id, None)

    # --- messages out ---

    async def _send_messages(self, outbox: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with outbox:
            async for each in outbox:
                message = each.message
                if isinstance(message, mcp.JSONRPCResponse | mcp.JSONRPCError) and message.id is not None:
                    self._open.pop(message.id, None)
                if isinstance(message, mcp.JSONRPCResponse):
                    line = msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, "result": message.result})
                else:
                    # Unlike `model_dump_json`, this accepts lone surrogates, which an error may quote.
                    line = json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode()
                self._write(line + b"\n")
                with suppress(OSError):  # `_take_lines` notes the loss
                    await self._writer.drain()


def client_name(params: Any) -> str | None:
    """The client's name in a request's parameters: in its handshake, or (2026-07-28) in each request's envelope."""
    if not isinstance(params, dict):
        return None
    envelope, info = params.get("_meta"), params.get("clientInfo")
    if info is None and isinstance(envelope, dict):
        info = envelope.get(mcp.CLIENT_INFO_META_KEY)
    name = info.get("name") if isinstance(info, dict) else None
    return as_text(" ".join(name.split()))[:MAX_CLIENT_NAME] or None if isinstance(name, str) else None
