"""Errors of what is no tool: they travel as errors of JSON-RPC, and this is the one place where they become such."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from remembrancer.protocol.errors import InternalError, InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.gateway_link import UNAVAILABLE

RESOURCE_NOT_FOUND: Final = -32002
"""What the handshake protocols say; that of 2026-07-28 has `INVALID_PARAMS` in its place."""

P = TypeVar("P")
Context = ServerRequestContext[Any, Any]
Handler = Callable[[Context, P], Awaitable[Any]]
logger = logging.getLogger(__name__)


def guarded(handler: Handler[P], is_degraded: Callable[[], bool]) -> Handler[P]:
    """A handler whose errors reach the client with a code, a message and `data`, and never as the text of a fault."""

    async def run(ctx: Context, params: P) -> Any:
        try:
            return await handler(ctx, params)
        except MCPError:
            raise
        except RemembrancerError as error:
            raise as_mcp(error, ctx.protocol_version, degraded=is_degraded()) from error
        except Exception as error:
            logger.exception("a request failed", extra={"method": ctx.method})
            failure = InternalError("the memory service failed on this request: see gateway.log")
            raise as_mcp(failure, ctx.protocol_version, degraded=is_degraded()) from error

    return run


def as_mcp(error: RemembrancerError, protocol_version: str, *, degraded: bool) -> MCPError:
    """The error as JSON-RPC has it. `data` is the error envelope without its message."""
    data: dict[str, Any] = {
        "error": error.code,
        "degraded": degraded,
        "retry_possible": error.retry_possible,
        **error.details,
    }
    if error.field is not None:
        data["field"] = error.field
    if isinstance(error, InvalidInput):
        code = INVALID_PARAMS
    elif isinstance(error, NotFound):
        code = INVALID_PARAMS if protocol_version in MODERN_PROTOCOL_VERSIONS else RESOURCE_NOT_FOUND
    elif isinstance(error, InternalError) or not error.retry_possible:
        code = INTERNAL_ERROR
    else:
        code = UNAVAILABLE
    return MCPError(code, error.message, data)
