"""Prompts and their texts (`prompts.toml`). Clients offer prompts to people, often as slash commands. A prompt's
message asks the assistant to call tools, and contains no memories."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from remembrancer.memory.text import check_text, nearest, neutralised, quote
from remembrancer.protocol.errors import InvalidInput
from remembrancer.toolsets.tools import Tool

Tools = Mapping[str, Tool[Any]]
NOTES: Final = "files"
"""The toolset whose prompts are used only if no other toolset has any."""
MAX_ARGUMENT_BYTES: Final = 16_384


class Argument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`among` lists the allowed values, if they are limited."""

    name: str
    description: str
    required: bool = False
    among: tuple[str, ...] = ()


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    when: dict[str, str] = {}

    def fits(self, arguments: Mapping[str, str]) -> bool:
        return all(name in arguments and value in ("*", arguments[name]) for name, value in self.when.items())


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    description: str
    arguments: tuple[Argument, ...]
    says: tuple[Wording, ...]

    def described(self, name: str) -> dict[str, Any]:
        arguments = [
            {"name": each.name, "description": each.description} | ({"required": True} if each.required else {})
            for each in self.arguments
        ]
        return {"name": name, "description": self.description, "arguments": arguments}


class _Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fragments: dict[str, str]
    sets: dict[str, dict[str, Prompt]]


TEXTS: Final = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Texts)


def prompts_for(tools: Tools) -> dict[str, Prompt]:
    """The prompts of the `memory` toolset, or else of the first toolset that has any, with `NOTES` last."""
    families = [each.toolset for each in tools.values() if each.toolset in TEXTS.sets]
    chosen = min(families, key=lambda each: (each != "memory", each == NOTES), default=None)
    return {} if chosen is None else TEXTS.sets[chosen]


def message_of(name: str, arguments: Mapping[str, str], tools: Tools) -> tuple[str, str]:
    """A prompt's description, and its message with the arguments in quotes. Raises `InvalidInput`."""
    prompts = prompts_for(tools)
    if name not in prompts:
        raise InvalidInput(f"there is no prompt {quote(name)}{nearest(name, prompts)}", field="name")
    prompt = prompts[name]
    known = {each.name: each for each in prompt.arguments}
    for given, value in arguments.items():
        if given not in known:
            raise InvalidInput(f"{name} has no argument {quote(given)}{nearest(given, known)}", field=given[:100])
        check_text(value, field=given, longest_bytes=MAX_ARGUMENT_BYTES)
        if (among := known[given].among) and value not in among:
            raise InvalidInput(f"{given} must be one of {', '.join(among)}, not {quote(value)}", field=given)
    for each in prompt.arguments:
        if each.required and each.name not in arguments:
            raise InvalidInput(f"{each.name} is missing: {each.description.lower()}", field=each.name)
    wording = next(each for each in prompt.says if each.fits(arguments))
    quoted = {name: f'"{neutralised(value)}"' for name, value in arguments.items()}
    return prompt.description, wording.text.format_map(TEXTS.fragments | quoted)
