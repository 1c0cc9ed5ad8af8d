from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from remembrancer.memory.changes import with_subjects
from remembrancer.memory.credentials import refuse_credentials
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.likely_kind import is_appointment, likely_kind
from remembrancer.memory.limits import MAX_LINKS, check_count
from remembrancer.memory.open_ends import due_of_open_end, is_list_of_open_ends, open_ends_in
from remembrancer.memory.promotion import is_others_wish
from remembrancer.memory.sentences import first_words
from remembrancer.memory.text import check_text, quote
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.kinds import OPEN_END, SESSION_KINDS, GivenKind, Kind, kind_of_type, type_of_kind
from remembrancer.protocol.writes import EntityRef, MemoryType, Scope, SourceRef, StoredResult, StoreMemory
from remembrancer.toolsets.memory.answers import SUPERSEDED, iso, near_of
from remembrancer.toolsets.memory.fields import UNLISTED, GivenFields, cleaned
from remembrancer.toolsets.tools import LISTED, Answer, Call, Queued, non_empty, tool

MOST_AT_ONCE: Final = 50
USUAL_KINDS: Final = ["convention", "decision", "error_fix", "fact", "open_end", "preference", "procedure"]
DEFAULT_CONFIDENCE: Final = 0.8
PENDING: Final = "The vector is still being computed: until then, the memory is found by its words only."
BECOMES_OPEN: Final = "A fact with a due date is an open end, until it is marked as done."
SPLIT: Final = "Each open end in the list is stored as its own memory, in order."
DEFAULT_IMPORTANCE: Final[dict[Kind, float]] = dict.fromkeys(
    ("architecture", "convention", "decision", "error_fix", "open_end", "pattern", "preference", "procedure"), 0.7
)


class MemoryArguments(GivenFields, frozen=True, forbid_unknown_fields=True):
    """One memory to store."""

    content: Annotated[str, Meta(description="About 40 words; procedures, incidents whole; no preamble")] | None = None
    scope: Annotated[Scope, Meta(description="Personal: everywhere", extra_json_schema={LISTED: ["user"]})] | None = (
        None
    )
    kind: Annotated[GivenKind, Meta(extra_json_schema={LISTED: USUAL_KINDS})] | None = None
    type: MemoryType | None = None
    tags: list[str] | None = None
    source: SourceRef | None = None
    related_entities: list[EntityRef] | None = None
    session_id: str | None = None
    wait_for_embedding: bool | None = None
    due: str | None = None
    supersedes: list[str] | None = None


class StoreMemoryArguments(MemoryArguments, frozen=True, forbid_unknown_fields=True, kw_only=True):
    memories: Annotated[list[MemoryArguments], Meta(description="Several, with these fields")] | None = None


@tool(
    "Remember for later sessions.",
    aliases={"memory_type": "type"},
    marks_data=False,
    unlisted=("type", "source", "related_entities", "session_id", "wait_for_embedding", *UNLISTED),
)
async def store_memory(call: Call, arguments: StoreMemoryArguments) -> Answer:
    """Returns once the memory is durable. A retry, or the same text in the same scope, yields the same memory. With
    `memories`, all are checked before the first is stored. If the store rejects one, the answer contains its error."""
    session_id, limit = call.caller.session_id, call.service.settings.content_limit_bytes
    changes = changes_of(arguments, session_id, limit, call.received_at)
    stores: list[tuple[MemoryArguments, StoreMemory]] = []
    for memory, change in changes:
        if change.kind == OPEN_END:
            for text in open_ends_in(change.content):
                due = due_of_open_end(text, call.received_at) if change.due is None else change.due
                stores.append((memory, msgspec.structs.replace(change, content=text, due=due)))
        else:
            stores.append((memory, change))
    if len(stores) > len(changes):
        call.warn("list_split", SPLIT)
    if len(stores) > 1:
        for memory, change in stores:
            if memory.allow_secrets is not True:
                refuse_credentials(change)  # before the first of them is stored
    answers: list[Answer] = []
    for place, (memory, change) in enumerate(stores):
        try:
            answers.append(await _store(call, memory, change, str(place) if place else ""))
        except Queued as queued:
            answers.append(queued.answer)
        except RemembrancerError as error:
            if arguments.memories is None:
                raise
            answers.append({"content": first_words(change.content, 5), "error": error.code, "message": error.message})
    answer = answers[0] if len(answers) == 1 and arguments.memories is None else _together(answers)
    if any(change.supersedes for _, change in stores):
        answer |= SUPERSEDED
    if not call.near:
        call.near += await call.next_near()
    only = [answer["memory_id"]] if "memory_id" in answer else []  # with several memories, the answer says which one
    return answer | near_of(call.near, only)


def changes_of(
    arguments: StoreMemoryArguments, session_id: str, content_limit_bytes: int, at: float
) -> list[tuple[MemoryArguments, StoreMemory]]:
    """A field given alongside `memories` applies to each memory that lacks it. Raises `InvalidInput`."""
    changes: list[tuple[MemoryArguments, StoreMemory]] = []
    if arguments.memories is None or arguments.content is not None:
        changes.append((arguments, to_change(arguments, session_id, content_limit_bytes, at)))
    elif not arguments.memories:
        raise InvalidInput("memories must not be empty", field="memories")
    memories = arguments.memories or ()
    check_count(memories, field="memories", most=MOST_AT_ONCE)
    shared = [name for name in MemoryArguments.__struct_fields__ if name != "content"]
    for place, memory in enumerate(memories):
        unset = {name: getattr(arguments, name) for name in shared if getattr(memory, name) is None}
        whole = msgspec.structs.replace(memory, **unset)
        try:
            changes.append((whole, to_change(whole, session_id, content_limit_bytes, at)))
        except InvalidInput as error:
            error.message = f"nothing was stored: memories[{place}]: {error.message}"
            error.field = f"memories[{place}].{error.field}"
            raise
    return changes


def _together(answers: Sequence[Answer]) -> Answer:
    """One answer for several memories: their ids, the fields common to all, and the memories with other fields."""
    ids = [answer["memory_id"] for answer in answers if "memory_id" in answer]
    alike = {name: value for name, value in answers[0].items() if all(each.get(name) == value for each in answers)}
    alike.pop("memory_id", None)
    others = [{name: value for name, value in each.items() if name not in alike} for each in answers]
    more = [each for each in others if each.keys() - {"memory_id"}]
    return {"ids": ids} | non_empty(**alike, memories=more)


async def _store(call: Call, arguments: MemoryArguments, change: StoreMemory, part: str) -> Answer:
    memory_id = call.memory_id(part)  # not earlier: an id can only be derived from checked arguments
    change = msgspec.structs.replace(change, memory_id=memory_id)
    given_scope = arguments.scope or change.scope
    result = await call.write(change, StoredResult, part=part, allow_secrets=arguments.allow_secrets is True)
    if result.moved_to is not None:
        change = msgspec.structs.replace(change, kind=OPEN_END, due=result.moved_to)
    answer: Answer = {"memory_id": result.memory_id}
    if change.scope != given_scope:
        text = f"A {change.kind} belongs only to its session: it has the scope session, not {given_scope}."
        call.warn("scope_changed", text)
    if change.kind != (arguments.kind or change.kind):
        call.warn("kind_changed", BECOMES_OPEN)
    if arguments.wait_for_embedding:  # without waiting, there would never be a vector yet
        state = await call.service.await_embedding(call.caller, result.memory_id, call.received_at)
        call.embedding_error = None if state.embedded else state.error or call.embedding_error
        if not state.embedded and call.embedding_error is None:
            call.warn("embedding_pending", PENDING)
        call.near += state.near
        answer["embedding_generated"] = state.embedded
        answer |= non_empty(near_duplicates=list(state.near_duplicates))
    return answer | non_empty(
        graph_edges_created=result.graph_edges_created or None,
        scope=result.scope if result.scope != (arguments.scope or "project") else None,
        due=iso(change.due)[:10] if change.due is not None and arguments.due is None else None,
        kind=change.kind if change.kind != arguments.kind else None,
        already_known=result.already_known,
        duplicates=list(result.duplicates),
    )


def project_memory(call: Call, content: str, **fields: Any) -> StoreMemory:
    """A memory as other toolsets store it, pinned so that it is never archived."""
    usual: dict[str, Any] = {"type": "semantic", "scope": "project", "confidence": DEFAULT_CONFIDENCE, "pinned": True}
    session_id = call.caller.session_id
    return StoreMemory(memory_id=call.memory_id(), content=content, session_id=session_id, **usual, **fields)


def to_change(arguments: MemoryArguments, session_id: str, content_limit_bytes: int, at: float) -> StoreMemory:
    if arguments.content is None:
        raise InvalidInput("content is missing: it must be a string", field="content")
    check_text(arguments.content, field="content", longest_bytes=content_limit_bytes)
    scope, memory_type, kind = _scope_and_kind(arguments, arguments.content, at)
    fields = cleaned(arguments)
    if scope == "session" and fields.get("session_id", session_id) != session_id:
        message = (
            f"session_id must be the current session's ({session_id}) or left out, not {quote(arguments.session_id)}: "
            "a session's memories are private to it. With the scope project or user, session_id names the origin"
        )
        raise InvalidInput(message, field="session_id")
    weighed = kind or kind_of_type(memory_type)
    if scope == "session" and arguments.kind is arguments.due is None:  # a guessed kind is not a reason for promotion
        weighed = kind_of_type(arguments.type or "semantic")
    importance = DEFAULT_IMPORTANCE.get(weighed, 0.5)
    usual: dict[str, Any] = {"session_id": session_id, "importance": importance, "confidence": DEFAULT_CONFIDENCE}
    entities = with_subjects(fields.pop("related_entities", ()))
    superseded = arguments.supersedes or ()
    check_count(superseded, field="supersedes", most=MAX_LINKS)
    ids = tuple(dict.fromkeys(parse_memory_id(each, field="supersedes") for each in superseded))
    return StoreMemory(
        memory_id="",
        content=arguments.content,
        type=memory_type,
        scope=scope,
        kind=kind,
        related_entities=entities,
        supersedes=ids[0] if len(ids) == 1 else ids or None,  # a single id without a list, as in earlier versions
        **usual | fields,
    )


def _scope_and_kind(arguments: MemoryArguments, content: str, at: float) -> tuple[Scope, MemoryType, Kind | None]:
    """The wording suggests a kind, unless that contradicts a given type. A kind determines the type."""
    scope: Scope = arguments.scope or "project"
    if arguments.due is not None and arguments.kind not in (None, OPEN_END, "fact"):  # a fact about a coming event
        raise InvalidInput("only an open end has a due date", field="due", remedy=f"kind: {OPEN_END}")
    if arguments.due is not None:
        return scope, type_of_kind(OPEN_END), OPEN_END
    if arguments.kind is None and arguments.type is not None:
        likely = kind_of(content, at)
        return scope, arguments.type, likely if type_of_kind(likely) == arguments.type and likely != "fact" else None
    kind = arguments.kind or kind_of(content, at)
    if kind == OPEN_END != arguments.kind and arguments.occurred_at is not None and is_appointment(content):
        kind = "fact"  # it records the past
    return "session" if kind in SESSION_KINDS else scope, type_of_kind(kind), kind


def kind_of(content: str, at: float) -> Kind:
    """The kind suggested by the wording of a memory written at `at`, or else `fact`."""
    if is_list_of_open_ends(content):
        return OPEN_END
    kind = likely_kind(content)
    if kind == OPEN_END:
        due = due_of_open_end(content, at)
        return "fact" if due is not None and due <= at - DAY_S else OPEN_END
    return "fact" if kind == "preference" and is_others_wish(content) else kind
