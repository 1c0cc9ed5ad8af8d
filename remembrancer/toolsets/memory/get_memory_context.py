"""The tool `get_memory_context`: what a session should know for its task, as one block of text of a promised size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Final, Literal

import anyio.to_thread
import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.memory.limits import MAX_PATH, check_count
from remembrancer.memory.text import check_text, clean_name
from remembrancer.memory.tokens import estimate_tokens, truncate
from remembrancer.protocol.reads import ContextGathered, ContextSection, GatherContext, RecalledMemory, Section
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.memory.context_block import Away, build_block
from remembrancer.toolsets.memory.day_log import day_block
from remembrancer.toolsets.memory.fields import given
from remembrancer.toolsets.tools import WHOLE, Answer, Call, answer_text, tool, with_caveats

DEFAULT_TOKENS: Final = 2000
MAX_TASK_BYTES: Final = 262_144
SEARCHED_CHARACTERS: Final = 4000
"""Of a longer task or memory: what comes first says what it is about, and no search looks at more."""
MAX_FILES: Final = 200
TOKENS_A_MEMORY: Final = 5
"""A memory seldom has fewer: so many are fetched for each section that the budget could go to it alone."""
CHARACTERS_A_TOKEN: Final = 6
"""Prose seldom has more: with the number alone, far too much would be fetched of memories that are not so short."""
LEAST_FETCHED: Final = 20
MOST_FETCHED: Final = 400
KNOWN: Final = "Only what is known without the store was gathered: there may be more."
LEAST_LETTERS: Final = 4
"""Shorter words ("the", "for") speak for nothing; not so in scripts whose words are short."""
STEM: Final = 6
"""Words that begin with the same so many letters count as one."""
_WORD: Final = re.compile(r"\w+")


class GetMemoryContextArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task_description: str | UnsetType = UNSET
    files_in_context: list[str] | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=100, le=8000, extra_json_schema={"default": DEFAULT_TOKENS})] | UnsetType = UNSET
    sections: list[Section | Literal["day"]] | UnsetType = UNSET
    detail: bool | UnsetType = UNSET
    day: Annotated[str, Meta(description="For section day: Tuesday, 2026-11-17")] | UnsetType = UNSET


@tool("What to know for a task, as Markdown.", read_only=True, marks_data=False)
async def get_memory_context(call: Call, arguments: GetMemoryContextArguments) -> Answer:
    """The block, with what is in it; what was shown counts as accessed."""
    caller, service = call.caller, call.service
    if arguments.day is not UNSET or "day" in given(arguments.sections, ()):
        return await day_block(call, given(arguments.day, "today"), given(arguments.max_tokens, DEFAULT_TOKENS))
    request = to_gather(arguments, caller.project, caller.session_id)
    asked = await service.ask(request, call.received_at)
    reply, notices = asked.reply, asked.notices
    assert isinstance(reply, ContextGathered | None)
    is_away = reply is None or asked.from_cache
    away: Away | None = None
    if is_away:
        away = "starting" if service.store_health.is_starting else "unavailable"
    sections: Sequence[ContextSection] = () if reply is None else reply.sections
    if is_away:
        known = service.known(caller.project, caller.session_id)
        sections = await anyio.to_thread.run_sync(known_sections, request, sections, known)
        if reply is None and asked.away is not None and any(section.memories for section in sections):
            notices = (service.explain(asked.away, KNOWN),)
    elif reply is not None:
        notices = (*reply.notices, *notices)
    if request.task and "preferences" not in request.sections:
        # What only concerns the task, as with a prompt. Without the store it is not known how likely anything is.
        sections = () if is_away else likely_alone(sections, service.settings.prompt_probability)
    # In a thread: long memories take their time to be counted.
    budget = given(arguments.max_tokens, DEFAULT_TOKENS)
    frame: Answer = {"context_block": "", "memories_used": 100, "tokens_used": 8000, "truncated": False}
    frame = with_caveats(
        frame, [*notices, *call.take_notices()], degraded=any(notice.code not in WHOLE for notice in notices)
    )
    around = estimate_tokens(answer_text(frame))
    block = await anyio.to_thread.run_sync(
        partial(build_block, sections, budget - around, _sent_tokens, truncate, away=away)
    )
    service.shown(caller, block.memory_ids, count=True, tool=call.tool, question=request.task)
    answer = frame | {
        "context_block": block.text,
        "memories_used": len(block.memory_ids),
        "tokens_used": block.tokens + around,
        "truncated": block.truncated,
    }
    if arguments.detail is True:
        answer["memory_ids"] = list(block.memory_ids)
    return answer


def _sent_tokens(text: str) -> int:
    """The tokens of a text as it stands in an answer, where a line break is two characters."""
    return estimate_tokens(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))


def to_gather(arguments: GetMemoryContextArguments, project: ProjectRef, session_id: str) -> GatherContext:
    """The question that a call asks. A blank task is none. Raises `InvalidInput`: a field is not what is allowed."""
    task = given(arguments.task_description, "").strip()
    if task:
        check_text(task, field="task_description", longest_bytes=MAX_TASK_BYTES)
    files = given(arguments.files_in_context, ())
    check_count(files, field="files_in_context", most=MAX_FILES)
    cleaned = (
        clean_name(file, field=f"files_in_context[{place}]", longest=MAX_PATH) for place, file in enumerate(files)
    )
    budget = given(arguments.max_tokens, DEFAULT_TOKENS)
    request = GatherContext(
        project,
        session_id,
        task=task[:SEARCHED_CHARACTERS],
        files=tuple(dict.fromkeys(cleaned)),
        limit=min(MOST_FETCHED, max(LEAST_FETCHED, budget // TOKENS_A_MEMORY)),
        characters=budget * CHARACTERS_A_TOKEN,
    )
    if arguments.sections is UNSET or not arguments.sections:
        return request
    wanted = tuple(name for name in request.sections if name in arguments.sections)
    return msgspec.structs.replace(request, sections=wanted)


def likely_alone(sections: Sequence[ContextSection], least: float) -> tuple[ContextSection, ...]:
    """Of the sections what answers the task with at least that probability."""
    likely = {
        section.name: tuple(memory for memory in section.memories if memory.scores.relevance >= least)
        for section in sections
    }
    return tuple(ContextSection(name, memories) for name, memories in likely.items() if memories)


def known_sections(
    request: GatherContext, earlier: Sequence[ContextSection], known: Iterable[RecalledMemory]
) -> tuple[ContextSection, ...]:
    """The sections without the store: what an earlier answer had, then what else is known here and belongs there.

    The rules are the store's, with words for meaning.
    """
    had = {section.name: section for section in earlier}
    placed = {memory.id for section in earlier for memory in section.memories}
    task = _stems(request.task)
    more: dict[Section, list[tuple[float, RecalledMemory]]] = {name: [] for name in request.sections}
    for memory in known:
        match = len(task & _stems(memory.content)) / len(task) if task else 0.0
        name = _section_of(memory, match, request)
        if name is not None and memory.id not in placed:
            placed.add(memory.id)
            more[name].append((match, memory))
    return tuple(_joined(name, had.get(name), more[name], request.limit) for name in request.sections)


def _joined(
    name: Section, had: ContextSection | None, more: list[tuple[float, RecalledMemory]], limit: int
) -> ContextSection:
    more.sort(key=_latest if name == "session_history" else _useful, reverse=True)
    memories = (*(had.memories if had is not None else ()), *(memory for _, memory in more))
    is_more = had is not None and had.more
    return ContextSection(name, memories[:limit], more=is_more or len(memories) > limit)


def _section_of(memory: RecalledMemory, match: float, request: GatherContext) -> Section | None:
    """The section of a memory, among those that are asked for; None where nothing speaks for it."""
    wanted = request.sections
    if memory.status == "archived" or memory.done:
        return None
    if memory.is_open and "open_ends" in wanted:
        return "open_ends"
    if memory.scope == "session":
        return "session_history" if "session_history" in wanted else None
    if memory.type == "procedural" and "relevant_procedures" in wanted:
        is_left_to_preferences = memory.scope == "user" and "preferences" in wanted
        if match > 0.0 or (not request.task and not is_left_to_preferences):
            return "relevant_procedures"
    if memory.scope == "user":
        return "preferences" if memory.type != "episodic" and "preferences" in wanted else None
    return "project_context" if "project_context" in wanted and (match > 0.0 or not request.task) else None


def _useful(found: tuple[float, RecalledMemory]) -> tuple[float, float]:
    match, memory = found
    return match + memory.importance, memory.happened_at


def _latest(found: tuple[float, RecalledMemory]) -> tuple[bool, float]:
    _, memory = found
    return memory.type == "episodic", memory.happened_at


def _stems(text: str) -> set[str]:
    words = _WORD.findall(text[:SEARCHED_CHARACTERS].casefold())
    return {word[:STEM] for word in words if len(word) >= LEAST_LETTERS or not word.isascii()}
