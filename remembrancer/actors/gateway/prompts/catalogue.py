"""Which prompts there are, and what arguments they take. Clients offer them to a person, many as slash commands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.gateway.toolkit.text import check_text, shown
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import SCOPES

ACTIONS: Final = ("search", "inspect")
"""What the prompt `memory` does with what it is about."""
MAX_ARGUMENT_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a prompt. `among`: the values that it may have, if not any text."""

    name: str
    description: str
    required: bool = False
    among: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it is listed."""

    name: str
    description: str
    arguments: tuple[Argument, ...] = ()


WHAT: Final = Argument("what", "What to remember; without it, what this session has learned")
PROMPTS: Final = {
    prompt.name: prompt
    for prompt in (
        Prompt(
            "remember",
            "Store something in long-term memory, or keep what this session has learned for the project",
            (WHAT, Argument("scope", "session, project or user", among=SCOPES)),
        ),
        Prompt("remember-all", "The same for the project, and for you in all projects", (WHAT,)),
        Prompt("recall", "Find what is remembered on a topic", (Argument("topic", "What to look for", required=True),)),
        Prompt(
            "what-do-you-know-about",
            "What is known of an entity and what it is related to",
            (Argument("subject", "The name of an entity", required=True),),
        ),
        Prompt(
            "forget",
            "Hide memories from recall; it can be undone",
            (Argument("query", "What to forget", required=True),),
        ),
        Prompt(
            "memory",
            "How much is remembered; or search it, or inspect one memory",
            (
                Argument("action", "search or inspect", among=ACTIONS),
                Argument("about", "What to search for, or a memory's id"),
            ),
        ),
    )
}


def find_prompt(name: str) -> Prompt:
    """The prompt of that name.

    Raises:
        InvalidInput: there is none; the message names the nearest.
    """
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise InvalidInput(f"there is no prompt {shown(name)}{nearest(name, PROMPTS)}", field="name")
    return prompt


def check_arguments(prompt: Prompt, arguments: Mapping[str, str]) -> None:
    """Refuse arguments that a prompt cannot do with.

    Raises:
        InvalidInput: one is unknown, missing, or has a value that is not allowed.
    """
    known = [argument.name for argument in prompt.arguments]
    for name in arguments:
        if name not in known:
            raise InvalidInput(f"{prompt.name} has no argument {shown(name)}{nearest(name, known)}", field=name[:100])
    for argument in prompt.arguments:
        value = arguments.get(argument.name)
        if value is not None:
            check_text(value, field=argument.name, longest_bytes=MAX_ARGUMENT_BYTES)
        elif argument.required:
            raise InvalidInput(f"{argument.name} is missing: {argument.description.lower()}", field=argument.name)
        if value is not None and argument.among and value not in argument.among:
            allowed = ", ".join(argument.among)
            raise InvalidInput(f"{argument.name} must be one of {allowed}, not {shown(value)}", field=argument.name)
    if prompt.name == "remember" and "what" not in arguments and arguments.get("scope") == "session":
        raise InvalidInput("what is missing: this session's memories are kept in the session anyway", field="what")
    if prompt.name == "memory" and ("action" in arguments) != ("about" in arguments):
        missing, given = ("about", "action") if "action" in arguments else ("action", "about")
        raise InvalidInput(f"{missing} is missing: it goes with {given}", field=missing)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is none of the known ones."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f": did you mean {near[0]}? (known are {', '.join(names)})" if near else f": known are {', '.join(names)}"
