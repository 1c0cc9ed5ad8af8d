"""Tools and toolsets: what a tool is, how it registers itself, and what its answers and errors are to a client.

A tool is a function in a module of its own, `toolsets/<family>/<tool>.py`, under the decorator `tool`. That registers
it under its own name in the toolset of its folder; its schema comes from the type of its second parameter.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.to_thread
import msgspec

from remembrancer import toolsets
from remembrancer.memory.credentials import refuse_credentials, texts_of
from remembrancer.memory.text import shown
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.ids import derive_operation_id
from remembrancer.protocol.reads import Notice
from remembrancer.protocol.writes import Change, Operation
from remembrancer.toolsets.arguments import ArgumentDecoder
from remembrancer.toolsets.service import Caller, MemoryService, Written

DEFAULT_TOOLSETS: Final = ("memory",)
MOST_SERIOUS: Final = (
    *("memory_unavailable", "query_timeout", "records_unusable", "schema_too_new", "file_locked"),
    *("embedding_failed", "queued_rejected", "queued"),
)
"""Codes of warnings in the order of their weight; those of others weigh less."""
COMPLETE: Final = {"resultType": "complete"}
"""What a result of the 2026-07-28 protocol has to say; the SDK takes it out for older clients."""
LONG_TEXT: Final = 20_000
"""Characters from which on credentials are looked for in a thread: a quarter of a megabyte takes some tens of ms."""

T = TypeVar("T", bound=msgspec.Struct)
Answer = dict[str, Any]
_json = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Call:
    """The context of one call of a tool. `received_at` is when the client made it (seconds since the epoch)."""

    tool: str
    caller: Caller
    request_id: int | str
    received_at: float
    raw_arguments: dict[str, Any]
    service: MemoryService
    take_notices: Callable[[], Sequence[Notice]] = tuple
    """Notices that are added to the answer, each once: for a tool whose answer must have a certain size with them."""

    def operation_id(self, part: str = "") -> str:
        """The id of the write that this call asks for: the same for a retry. `part` tells several of one call apart."""
        return derive_operation_id(self.caller.bridge, self.request_id, self.tool + part, self.raw_arguments)

    async def submit(self, change: Change, *, part: str = "", allow_secrets: bool = False) -> Written:
        """Make a change durable; a retry of the same request changes nothing more.

        Raises:
            InvalidInput: it seems to hold a credential, and is not allowed to.
            RemembrancerError: it is refused, or can be written nowhere.
        """
        if not allow_secrets:
            texts = list(texts_of(change))
            if sum(len(text) for _, text in texts) < LONG_TEXT:
                refuse_credentials(change, texts)
            else:
                await anyio.to_thread.run_sync(refuse_credentials, change, texts)
        operation = Operation(
            operation_id=self.operation_id(part),
            project=self.caller.project,
            session_id=self.caller.session_id,
            requested_at=self.received_at,
            change=change,
        )
        with anyio.CancelScope(shield=True):  # a client that leaves must not leave a write half-way
            written = await self.service.apply(operation, self.received_at)
        return written  # noqa: RET504 - to the type checker, the scope may swallow an exception


Handler = Callable[[Call, T], Awaitable[Answer]]


@dataclass(frozen=True)
class Tool(Generic[T]):
    """A tool: how it is described, and what carries it out."""

    name: str
    toolset: str
    description: str
    decoder: ArgumentDecoder[T]
    run: Handler[T]
    read_only: bool = False
    destructive: bool = False
    is_short_form: bool = False
    """Where another toolset that is asked for has the tool whole, which takes these arguments too, that one is it."""

    def described(self) -> dict[str, Any]:
        """As `tools/list` has it. Every character is paid for in every session: no hint repeats its default.

        Codex has a person approve what is not said to be neither destructive nor open to the world.
        """
        hints: dict[str, bool] = {"readOnlyHint": True} if self.read_only else {}
        if not (self.read_only or self.destructive):
            hints |= {"destructiveHint": False, "openWorldHint": False}
        described = {"name": self.name, "description": self.description, "inputSchema": self.decoder.schema}
        return {**described, "annotations": hints} if hints else described


def saying(**fields: Any) -> Answer:
    """Those of the fields of an answer that say something: nothing empty, absent or untrue. 0 is a figure."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {}) and value is not False}


def whole(short: msgspec.Struct, arguments: type[T], **names: str) -> T:
    """The arguments of a tool from those of its short form; `names` are of fields that are called otherwise there."""
    return arguments(**{names.get(name, name): getattr(short, name) for name in short.__struct_fields__})


_registered: Final[dict[tuple[str, str], Tool[Any]]] = {}
"""By toolset and name."""


def tool(
    description: str,
    *,
    read_only: bool = False,
    destructive: bool = False,
    is_short_form: bool = False,
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Handler[T]], Handler[T]]:
    """Register a function as the tool of its name, in the toolset of the folder that it is in.

    `destructive`: it may hide or replace what is remembered. `aliases` are other names of its arguments.

    Raises:
        ValueError: there is a tool of that name in the toolset already.
    """

    def register(run: Handler[T]) -> Handler[T]:
        name: str = run.__name__
        toolset = run.__module__.split(".")[-2]
        if (toolset, name) in _registered:
            raise ValueError(f"two tools of the toolset {toolset} have the name {name}: see {run.__module__}")
        _, arguments, *_ = typing.get_type_hints(run).values()
        decoder: ArgumentDecoder[T] = ArgumentDecoder(arguments, aliases)
        _registered[toolset, name] = Tool(
            name, toolset, description, decoder, run, read_only, destructive, is_short_form
        )
        return run

    return register


def load_tools() -> list[Tool[Any]]:
    """Every tool of every toolset, in the order of their names: their modules are imported, and so register them.

    Raises:
        ValueError: two tools of a toolset have one name.
    """
    for family in pkgutil.iter_modules(toolsets.__path__, f"{toolsets.__name__}."):
        if family.ispkg:
            for module in pkgutil.iter_modules(importlib.import_module(family.name).__path__, f"{family.name}."):
                importlib.import_module(module.name)
    return [_registered[key] for key in sorted(_registered)]


def choose_tools(tools: Iterable[Tool[Any]], wanted: str | None) -> tuple[dict[str, Tool[Any]], list[Notice]]:
    """The tools of a comma-separated list of toolsets (None: the default), and a notice for each unknown name.

    Of two tools of one name it is that of the toolset that is named first, unless it is a short form of the other.
    """
    families: dict[str, dict[str, Tool[Any]]] = {}
    for each in tools:
        families.setdefault(each.toolset, {})[each.name] = each
    names = DEFAULT_TOOLSETS if wanted is None else [each.strip() for each in wanted.split(",") if each.strip()]
    notices = [
        Notice("unknown_toolset", f"there is no toolset {shown(name)}: known are {', '.join(families)}")
        for name in names
        if name not in families
    ]
    chosen = [name for name in names if name in families] or DEFAULT_TOOLSETS
    found: dict[str, Tool[Any]] = {}
    for family in reversed(chosen):
        for name, each in families[family].items():
            if name not in found or found[name].is_short_form or not each.is_short_form:
                found[name] = each
    return found, notices


def with_caveats(answer: Answer, notices: Iterable[Notice], *, degraded: bool = False) -> Answer:
    """The answer with notices among its warnings, the most serious first, and marked if it is degraded."""
    if degraded:
        answer["degraded"] = True
    added = [{"code": notice.code, "message": notice.message} for notice in notices]
    if added:
        warnings = [*answer.get("warnings", ()), *added]
        answer["warnings"] = sorted(warnings, key=lambda warning: _weight_of(warning["code"]))
    return answer


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


def unknown_tool(name: str, known: list[str]) -> str:
    """A message about a tool that is none of the known ones, with the nearest of them."""
    listed = f"known are {', '.join(known)}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"there is no tool {shown(name)}: " + (f"did you mean {near[0]}? ({listed})" if near else listed)
