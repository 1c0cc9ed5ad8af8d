"""Tools and toolsets: what a tool is, which ones a session has, and the one place where its errors become answers."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

import msgspec

from remembrancer.actors.gateway.toolkit.arguments import ArgumentDecoder
from remembrancer.actors.gateway.toolkit.text import shown
from remembrancer.protocol.errors import InternalError, InvalidInput, RemembrancerError
from remembrancer.protocol.reads import Notice
from remembrancer.protocol.tracing import current
from remembrancer.protocol.writes import ProjectRef

DEFAULT_TOOLSETS: Final = ("memory",)
MOST_SERIOUS: Final = (
    *("memory_unavailable", "query_timeout", "records_unusable", "schema_too_new"),
    *("embedding_failed", "queued_rejected", "queued"),
)
"""Codes of warnings in the order of their weight; those of others weigh less."""
COMPLETE: Final = {"resultType": "complete"}
"""What a result of the 2026-07-28 protocol has to say; the SDK takes it out for older clients."""

T = TypeVar("T", bound=msgspec.Struct)
Answer = dict[str, Any]
logger = logging.getLogger(__name__)
_json = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as a tool sees it. `bridge` names the one connection that request ids belong to."""

    bridge: str
    session_id: str
    project: ProjectRef
    started_at: float


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool. `received_at` is when the client made it (seconds since the epoch)."""

    caller: Caller
    request_id: int | str
    received_at: float
    raw_arguments: dict[str, Any]
    take_notices: Callable[[], Sequence[Notice]] = tuple
    """Notices that are added to the answer, each once: for a tool whose answer must have a certain size with them."""


@dataclass(frozen=True)
class Tool(Generic[T]):
    """A tool: how it is described, and what carries it out.

    `destructive`: it may hide or replace what is remembered. `idempotent`: to call it again with the same arguments
    changes nothing more.
    """

    name: str
    description: str
    arguments: type[T]
    run: Callable[[Call, T], Awaitable[Answer]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    decoder: ArgumentDecoder[T] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", ArgumentDecoder(self.arguments))


@dataclass(frozen=True)
class Toolset:
    """Tools that a client has together or not at all."""

    name: str
    tools: tuple[Tool[Any], ...]


class Toolbox:
    """Every toolset there is, and the calls of their tools."""

    def __init__(self, toolsets: Sequence[Toolset]) -> None:
        self._toolsets = {toolset.name: toolset for toolset in toolsets}

    def choose(self, wanted: str | None) -> tuple[dict[str, Tool[Any]], list[Notice]]:
        """The tools of a comma-separated list of toolsets (None: the default), and a notice for each unknown name."""
        names = (
            DEFAULT_TOOLSETS if wanted is None else tuple(each.strip() for each in wanted.split(",") if each.strip())
        )
        notices = [
            Notice("unknown_toolset", f"there is no toolset {shown(name)}: known are {', '.join(self._toolsets)}")
            for name in names
            if name not in self._toolsets
        ]
        known = [name for name in names if name in self._toolsets] or list(DEFAULT_TOOLSETS)
        return {tool.name: tool for name in known for tool in self._toolsets[name].tools}, notices


async def call_tool(
    tools: dict[str, Tool[Any]],
    name: str,
    make_call: Callable[[], Awaitable[Call]],
    take_notices: Callable[[], Sequence[Notice]],
    is_degraded: Callable[[], bool],
) -> dict[str, Any]:
    """Carry out a call; every outcome is an MCP result. The notices are added to the warnings of a good answer."""
    try:
        tool = tools.get(name)
        if tool is None:
            raise InvalidInput(unknown_tool(name, list(tools)), field="name")
        call = replace(await make_call(), take_notices=take_notices)
        arguments = tool.decoder.decode(call.raw_arguments)
        current().mark("arguments checked")
        answer = await tool.run(call, arguments)
    except RemembrancerError as error:
        return error_result(error, degraded=is_degraded())
    except Exception:
        logger.exception("a tool failed", extra={"tool": name})
        failure = InternalError("the memory service failed on this call: see gateway.log")
        return error_result(failure, degraded=is_degraded())
    notices = take_notices()
    if notices:
        answer["warnings"] = [*answer.get("warnings", ()), *warnings_of(notices)]
    return result(with_seed_forms(answer))


def with_seed_forms(answer: Answer) -> Answer:
    """A good answer as it is sent: its most serious warning's code as `warning`, and in a degraded one the
    text of it as `message`. The `warnings` come in that order."""
    if not answer.get("warnings"):
        return answer
    warnings = sorted(answer["warnings"], key=lambda warning: _weight_of(warning["code"]))
    formed = {**answer, "warnings": warnings, "warning": warnings[0]["code"]}
    if answer.get("degraded"):
        formed["message"] = warnings[0]["message"]
    return formed


def _weight_of(code: str) -> int:
    return MOST_SERIOUS.index(code) if code in MOST_SERIOUS else len(MOST_SERIOUS)


def result(answer: Answer, *, is_error: bool = False) -> dict[str, Any]:
    """An MCP result: the answer as structured content, and the same as compact JSON text."""
    return {
        "content": [{"type": "text", "text": answer_text(answer)}],
        "structuredContent": answer,
        "isError": is_error,
        **COMPLETE,
    }


def answer_text(answer: Answer) -> str:
    """An answer as the compact JSON text that is sent."""
    return _json.encode(answer).decode()


def error_result(error: RemembrancerError, *, degraded: bool) -> dict[str, Any]:
    """The error envelope, with the field at fault and further facts where there are any."""
    envelope: Answer = {
        "error": error.code,
        "message": error.message,
        "degraded": degraded,
        "retry_possible": error.retry_possible,
        **error.details,
    }
    if error.field is not None:
        envelope["field"] = error.field
    return result(envelope, is_error=True)


def warnings_of(notices: Sequence[Notice]) -> list[dict[str, str]]:
    """Notices as an answer's `warnings`."""
    return [{"code": notice.code, "message": notice.message} for notice in notices]


def unknown_tool(name: str, known: list[str]) -> str:
    """A message about a tool that is none of the known ones, with the nearest of them."""
    listed = f"known are {', '.join(known)}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"there is no tool {shown(name)}: " + (f"did you mean {near[0]}? ({listed})" if near else listed)
