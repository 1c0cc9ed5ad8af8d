"""MCP's sampling: the client's own model, where the client has one to offer.

It is a request of the server's to the client, which there is in the handshake protocols alone: in that of 2026-07-28 a
server cannot ask (a tool would have to answer that it needs input, and be called again), so no model is offered there.
"""

from __future__ import annotations

import logging

import mcp_types as mcp
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from remembrancer.actors.gateway.mcp_errors import Context
from remembrancer.actors.gateway.toolkit.client_model import ClientModel, SamplingFailed

CUT_OFF = "maxTokens"

logger = logging.getLogger(__name__)


def client_model(ctx: Context) -> ClientModel | None:
    """The model of the client that a request came from; None when it has none to offer, or cannot be asked."""
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None or not ctx.session.can_send_request:
        return None
    assert ctx.request_id is not None
    return SampledModel(ctx.session, ctx.request_id)


class SampledModel:
    """Asks the client of a session while a request of it is being answered."""

    def __init__(self, session: ServerSession, request_id: int | str) -> None:
        self._session = session
        self._request_id = request_id

    async def write(self, instruction: str, prompt: str, max_tokens: int) -> str:
        """See `ClientModel`."""
        request = mcp.CreateMessageRequest(
            params=mcp.CreateMessageRequestParams(
                messages=[mcp.SamplingMessage(role="user", content=mcp.TextContent(text=prompt))],
                system_prompt=instruction,
                include_context="none",
                max_tokens=max_tokens,
            )
        )
        metadata = ServerMessageMetadata(related_request_id=self._request_id)
        try:
            answer = await self._session.send_request(request, mcp.CreateMessageResult, metadata=metadata)
        except MCPError as error:
            logger.info("the client did not let its model answer", extra={"code": error.error.code})
            raise SamplingFailed("the client refused") from error
        except ValidationError as error:
            logger.warning("the client's answer to a sampling request is malformed")
            raise SamplingFailed("an answer was malformed") from error
        if answer.stop_reason == CUT_OFF:
            raise SamplingFailed("an answer was cut off")
        if not isinstance(answer.content, mcp.TextContent):
            raise SamplingFailed("an answer was no text")
        return answer.content.text
