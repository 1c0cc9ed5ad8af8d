"""The arguments of `get_memory_context`, checked and made into a message."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.actors.gateway.memory_toolset.memory_arguments import MAX_PATH
from remembrancer.actors.gateway.toolkit.text import check_text, clean_name
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.reads import GatherContext, Section
from remembrancer.protocol.writes import ProjectRef

DEFAULT_TOKENS: Final = 2000
MAX_TASK_BYTES: Final = 262_144
SEARCHED_CHARACTERS: Final = 4000
"""Of a longer task: what comes first says what it is about, and no search looks at more."""
MAX_FILES: Final = 200
TOKENS_A_MEMORY: Final = 5
"""A memory seldom has fewer: so many are fetched for each section that the budget could go to it alone."""
CHARACTERS_A_TOKEN: Final = 6
"""Prose seldom has more: with the number alone, far too much would be fetched of memories that are not so short."""
LEAST_FETCHED: Final = 20
MOST_FETCHED: Final = 400


class GetMemoryContextArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `get_memory_context` takes."""

    task_description: str | UnsetType = UNSET
    files_in_context: list[str] | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=100, le=8000, extra_json_schema={"default": DEFAULT_TOKENS})] | UnsetType = UNSET
    sections: list[Section] | UnsetType = UNSET


def budget_of(arguments: GetMemoryContextArguments) -> int:
    """The tokens that the block may have."""
    return DEFAULT_TOKENS if arguments.max_tokens is UNSET else arguments.max_tokens


def to_gather(arguments: GetMemoryContextArguments, project: ProjectRef, session_id: str) -> GatherContext:
    """The question that a call asks. A blank task is none.

    Raises:
        InvalidInput: a field is not what is allowed.
    """
    task = "" if arguments.task_description is UNSET else arguments.task_description.strip()
    if task:
        check_text(task, field="task_description", longest_bytes=MAX_TASK_BYTES)
    budget = budget_of(arguments)
    request = GatherContext(
        project,
        session_id,
        task=task[:SEARCHED_CHARACTERS],
        files=_files(arguments.files_in_context),
        limit=min(MOST_FETCHED, max(LEAST_FETCHED, budget // TOKENS_A_MEMORY)),
        characters=budget * CHARACTERS_A_TOKEN,
    )
    if arguments.sections is UNSET or not arguments.sections:
        return request
    wanted = tuple(name for name in request.sections if name in arguments.sections)
    return msgspec.structs.replace(request, sections=wanted)


def _files(files: list[str] | UnsetType) -> tuple[str, ...]:
    if files is UNSET:
        return ()
    if len(files) > MAX_FILES:
        message = f"files_in_context may have {MAX_FILES} items at most, and has {len(files)}"
        raise InvalidInput(message, field="files_in_context")
    return tuple(
        dict.fromkeys(
            clean_name(file, field=f"files_in_context[{place}]", longest=MAX_PATH) for place, file in enumerate(files)
        )
    )
