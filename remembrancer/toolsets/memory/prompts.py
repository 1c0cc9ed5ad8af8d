"""Prompts, their texts (`prompts.toml`), and the completion of arguments. Clients offer prompts to a person, often as
slash commands.

Memories are put into a data block that their content cannot close, after a line that says it is data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from remembrancer.memory.text import check_text, nearest, shown
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.ids import MEMORY_PREFIX
from remembrancer.protocol.kinds import SCOPES
from remembrancer.protocol.reads import Suggest, Suggestions
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.writes import SourceRef
from remembrancer.toolsets.memory.context_block import render
from remembrancer.toolsets.memory.resources import MEMORY_TEMPLATE, RecallCounts, list_item, one_line
from remembrancer.toolsets.service import Caller, MemoryService
from remembrancer.toolsets.tools import Answer, Call, Tool, families_of

Tools = Mapping[str, Tool[Any]]
"""The tools of a session, by name."""
NOTES: Final = "files"
"""The set of prompts for a session with no other set."""
MAX_ARGUMENT_BYTES: Final = 16_384
FOUND: Final = 10
"""The number of memories and entities that a prompt includes."""
SEARCHED: Final = 20
"""The number of memories that a search of all scopes includes."""
OWN_TOKENS: Final = 4_000
"""The budget for the session's own memories when they are reviewed."""
MAX_CONTENT: Final = 1_000
"""The number of characters that a prompt shows of one memory."""
MAX_INSPECTED: Final = 16_000
"""The number of characters in a report on one memory."""
_TAG: Final = re.compile("memory-data", re.IGNORECASE)
MAX_VALUES: Final = 100
"""The largest number of values that the protocol allows in one answer."""
MAX_PREFIX: Final = 200
"""No name is this long, so a longer prefix matches nothing."""
NOTHING: Final = Suggestions((), 0)


class Argument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An argument of a prompt. `among` lists the allowed values; without it any text is allowed."""

    name: str
    description: str
    required: bool = False
    among: tuple[str, ...] = ()


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a message, the name of what it shows, and the arguments with which it is used."""

    text: str
    shows: str
    when: dict[str, str] = {}

    def fits(self, arguments: Mapping[str, str]) -> bool:
        """True if all arguments of `when` were given with these values."""
        return all(name in arguments and value in ("*", arguments[name]) for name, value in self.when.items())


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt as `prompts/list` shows it, and the wordings of its message."""

    description: str
    arguments: tuple[Argument, ...]
    says: tuple[Wording, ...]

    def described(self, name: str) -> dict[str, Any]:
        """The entry for `prompts/list`; optional arguments are not marked."""
        arguments: list[dict[str, Any]] = []
        for each in self.arguments:
            required = {"required": True} if each.required else {}
            arguments.append({"name": each.name, "description": each.description, **required})
        return {"name": name, "description": self.description, "arguments": arguments}


class _Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fragments: dict[str, str]
    sets: dict[str, dict[str, Prompt]]


TEXTS: Final = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Texts)


def prompts_for(tools: Tools) -> dict[str, Prompt]:
    """The prompts for a session with these tools: those of the toolset `memory`, or of the first one that has some;
    those for notes come last."""
    families = [each for each in families_of(tools) if each in TEXTS.sets]
    chosen = min(families, key=lambda each: (each != "memory", each == NOTES), default=None)
    return {} if chosen is None else TEXTS.sets[chosen]


def find_prompt(name: str, tools: Tools) -> Prompt:
    """The prompt of that name, for a session with these tools.

    Raises:
        InvalidInput: there is none; the message suggests the nearest name.
    """
    prompts = prompts_for(tools)
    if name not in prompts:
        raise InvalidInput(f"there is no prompt {shown(name)}{nearest(name, prompts)}", field="name")
    return prompts[name]


def check_arguments(name: str, prompt: Prompt, arguments: Mapping[str, str]) -> None:
    """Check the arguments of a prompt.

    Raises:
        InvalidInput: an argument is unknown, missing, or has a value that is not allowed.
    """
    known = [argument.name for argument in prompt.arguments]
    for other in arguments:
        if other not in known:
            raise InvalidInput(f"{name} has no argument {shown(other)}{nearest(other, known)}", field=other[:100])
    for argument in prompt.arguments:
        value = arguments.get(argument.name)
        if value is not None:
            check_text(value, field=argument.name, longest_bytes=MAX_ARGUMENT_BYTES)
        elif argument.required:
            raise InvalidInput(f"{argument.name} is missing: {argument.description.lower()}", field=argument.name)
        if value is not None and argument.among and value not in argument.among:
            allowed = ", ".join(argument.among)
            raise InvalidInput(f"{argument.name} must be one of {allowed}, not {shown(value)}", field=argument.name)
    if name == "remember" and "what" not in arguments and arguments.get("scope") == "session":
        raise InvalidInput("what is missing: this session's memories are kept in the session anyway", field="what")
    if name == "memory" and ("action" in arguments) != ("about" in arguments):
        missing, given = ("about", "action") if "action" in arguments else ("action", "about")
        raise InvalidInput(f"{missing} is missing: it goes with {given}", field=missing)


def message_of(text: str, arguments: Mapping[str, str], lines: Sequence[str]) -> str:
    """The message of a prompt: its text with the arguments in quotes, and a data block that its content cannot
    close."""
    quoted = {name: f'"{one_line(value)}"' for name, value in arguments.items()}
    inside = _TAG.sub("memory_data", "\n".join(lines))
    said = text.format_map(TEXTS.fragments | quoted)
    return f"{said}\n\n<memory-data>\n{inside}\n</memory-data>"


def memory_lines(answer: Answer) -> list[str]:
    """The memories of an answer as list items."""
    return [*(_items(answer["memories"]) if answer.get("memories") else NONE_FOUND), *_warnings(answer)]


def scope_lines(answer: Answer) -> list[str]:
    """The memories of an answer, separately for each of the three scopes."""
    lines = []
    for scope in SCOPES:
        items = _items(each for each in answer.get("memories", ()) if each["scope"] == scope)
        lines += [f"In the scope {scope}:", *(items or NONE_FOUND), ""]
    return [*lines, *_warnings(answer)]


def note_lines(answer: Answer) -> list[str]:
    """The passages of notes in an answer."""
    lines = []
    for each in answer.get("results", ()):
        place = f"{each['path']}, lines {each['startLine']} to {each['endLine']}"
        lines += [f"- {one_line(place)}:", each["snippet"][:MAX_CONTENT], ""]
    return [*(lines or NONE_FOUND), *_warnings(answer)]


def entity_lines(graph: Answer, memories: Answer) -> list[str]:
    """The entities of a graph, and the memories about them. Memories that the graph names go first."""
    by_id = {memory["id"]: memory for answer in (graph, memories) for memory in answer.get("memories", ())}
    together = {**memories, "memories": list(by_id.values())[:FOUND]}
    lines = []
    for entity in graph.get("entities", ()):
        edges = [
            f"{one_line(edge['type'])} {'→' if edge['direction'] == 'outgoing' else '←'} {one_line(edge['target'])}"
            + (" (no longer valid)" if edge.get("stale") else "")
            for edge in entity["relationships"][:FOUND]
        ]
        lines.append(f"- {one_line(entity['name'])} ({one_line(entity['type'])}): {', '.join(edges) or 'no edges'}")
    near = ", ".join(one_line(name) for name in graph.get("suggestions", ()))
    lines = lines or [f"- none of that name{f'; similar names: {near}' if near else ''}"]
    lines += _warnings(graph)
    return ["Entities and their relationships:", *lines, "", "Memories:", *memory_lines(together)]


def session_lines(block: Answer) -> list[str]:
    """A context of the session's own memories, with their ids."""
    ids = [f"- {memory_id}" for memory_id in block.get("memory_ids", ())] or ["- none"]
    return [block.get("context_block", ""), "", "Their ids, in this order:", *ids, *_warnings(block)]


def json_lines(answer: Answer) -> list[str]:
    """An answer as it is, up to a length."""
    text = json.dumps(answer, ensure_ascii=False, indent=1)
    return [text if len(text) <= MAX_INSPECTED else f"{text[:MAX_INSPECTED]}…"]


NONE_FOUND: Final = ("- nothing was found",)


def _items(memories: Iterable[dict[str, Any]]) -> list[str]:
    lines = []
    for memory in memories:
        content: str = memory["content"]
        cut = content if len(content) <= MAX_CONTENT else f"{content[:MAX_CONTENT]}…"
        source = SourceRef(memory.get("source", {}).get("tool"), memory.get("source", {}).get("file"))
        day = memory.get("occurred_at", memory.get("created_at", ""))[:10]
        lines.append(list_item(cut, source, [memory["id"], memory["scope"], day]))
    return lines


def _warnings(answer: Answer) -> list[str]:
    return [f"- (warning: {one_line(warning['message'])})" for warning in answer.get("warnings", ())]


class Prompts:
    """Makes the messages of prompts and completes arguments, using `tools` for lookups."""

    def __init__(self, tools: Mapping[str, Tool[Any]], service: MemoryService, counts: RecallCounts) -> None:
        self._tools = tools
        self._service = service
        self._counts = counts

    async def message(
        self, caller: Caller, name: str, arguments: Mapping[str, str], received_at: float, tools: Tools
    ) -> str:
        """The user message of a prompt, in a session with these tools.

        Raises:
            InvalidInput: there is no such prompt, or its arguments are invalid.
        """
        prompt = find_prompt(name, tools)
        check_arguments(name, prompt, arguments)
        wording = next(each for each in prompt.says if each.fits(arguments))
        about = "".join(arguments.get(each.name, "") for each in prompt.arguments if not each.among)
        lines = await self._lines(wording.shows, about, caller, received_at)
        return message_of(wording.text, arguments, lines)

    async def _lines(self, shows: str, about: str, caller: Caller, received_at: float) -> list[str]:
        """The lines for what a message shows."""

        async def ask(name: str, **given: Any) -> Answer:
            """The answer of a tool, or the reason why there is none: the prompt is useful without it, too."""
            tool = self._tools.get(name)
            if tool is None:
                return {}
            try:
                call = Call(name, caller, f"prompt {name}", received_at, given, self._service)
                return await tool.answer(call, tool.decoder.decode(given))
            except RemembrancerError as error:
                return {"warnings": [{"code": error.code, "message": error.message}]}

        async def recall(limit: int = FOUND) -> Answer:
            return await ask("recall_memories", query=about, limit=limit, detail=True, sources=["memory"])

        match shows:
            case "memories":
                return memory_lines(await recall())
            case "scopes":
                return scope_lines(await recall(SEARCHED))
            case "entity":
                return entity_lines(await ask("search_knowledge_graph", entity=about), await recall())
            case "notes":
                return note_lines(await ask("memory_search", query=about, maxResults=FOUND))
            case "session":
                own = {"sections": ["session_history"], "max_tokens": OWN_TOKENS, "detail": True}
                return session_lines(await ask("get_memory_context", **own))
            case "memory":
                return json_lines(await ask("get_memory", memory_id=about, detail=True))
            case "status":
                return json_lines(await ask("get_memory_status"))
        return [render(about, SourceRef())]

    # --- completion: values that a caller may see. Without the store the list is empty, which is no error ---

    async def complete(
        self, caller: Caller, prompt: str, argument: str, value: str, received_at: float, tools: Tools
    ) -> Suggestions:
        """The values for an argument of a prompt that begin with `value`.

        Raises:
            InvalidInput: there is no such prompt, or it has no such argument.
        """
        arguments = {each.name: each for each in find_prompt(prompt, tools).arguments}
        if argument not in arguments:
            message = f"{prompt} has no argument {shown(argument)}{nearest(argument, arguments)}"
            raise InvalidInput(message, field="name")
        if arguments[argument].among:
            return _among(arguments[argument].among, value)
        match argument:
            case "subject":
                return await self._names(caller, "entity", value, received_at)
            case "topic" | "query" | "about":
                if argument == "about" and value.casefold().startswith(MEMORY_PREFIX):
                    return self._ids(caller, value)
                entities = await self._names(caller, "entity", value, received_at)
                tags = await self._names(caller, "tag", value, received_at)
                values = tuple(dict.fromkeys((*entities.values, *tags.values)))
                return Suggestions(values[:MAX_VALUES], max(len(values), entities.total + tags.total))
        return NOTHING

    def complete_template(self, caller: Caller, template: str, argument: str, value: str) -> Suggestions:
        """The values for a variable of a resource template: the memories that the session was shown last.

        Raises:
            InvalidInput: there is no such template, or it has no such variable.
        """
        if template != MEMORY_TEMPLATE:
            message = f"there is no template {shown(template)}{nearest(template, (MEMORY_TEMPLATE,))}"
            raise InvalidInput(message, field="uri")
        if argument != "id":
            raise InvalidInput(f"the template has no variable {shown(argument)}: it has id", field="name")
        return self._ids(caller, value)

    def _ids(self, caller: Caller, value: str) -> Suggestions:
        ids = self._counts.last_shown(caller.project.id, caller.session_id)
        if not value.startswith(MEMORY_PREFIX[: len(value)]):
            value = MEMORY_PREFIX + value.upper()
        return _among(ids, value)

    async def _names(
        self, caller: Caller, kind: Literal["entity", "tag"], prefix: str, received_at: float
    ) -> Suggestions:
        if len(prefix) > MAX_PREFIX:
            return NOTHING
        question = Suggest(caller.project, caller.session_id, kind, prefix, limit=MAX_VALUES)
        try:
            return (await self._service.ask(question, received_at)).reply
        except AWAY:
            return NOTHING


def _among(known: tuple[str, ...] | list[str], value: str) -> Suggestions:
    values = tuple(each for each in known if each.startswith(value))
    return Suggestions(values[:MAX_VALUES], len(values))
