import time
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Final, Literal

import anyio.to_thread
import msgspec
from msgspec import Meta, structs

from remembrancer.code.actions import terms_of
from remembrancer.config.project import workspace_root
from remembrancer.memory.contexts import AROUND
from remembrancer.memory.decay import has_ended
from remembrancer.memory.limits import MAX_QUERY_BYTES
from remembrancer.memory.open_ends import asks_about_open_ends, asks_for_open_ends, last_day_asked_for
from remembrancer.memory.promotion import used_in
from remembrancer.memory.relevance import LIKELY, is_given_whole, is_question
from remembrancer.memory.replacement import replaced_among
from remembrancer.memory.sentences import excerpt
from remembrancer.memory.text import check_text, neutralised
from remembrancer.memory.tokens import CHARACTERS_A_TOKEN, beginning_within, estimate_tokens
from remembrancer.protocol.browsing import MOST_PAIRS, FindUndecided
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import OPEN_END, STANDING
from remembrancer.protocol.reads import (
    Filters,
    GatherContext,
    ListedMemory,
    ListMemories,
    ProfileName,
    Ranking,
    Recall,
    Recalled,
    RecalledMemory,
    Strategy,
)
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.writes import ProjectRef, Scope
from remembrancer.toolsets.code.code_tools import LEAST_TOKENS, MOST_TOKENS, find_code, within
from remembrancer.toolsets.memory.answers import iso, line_of, memory_of, near_of, standing_line, with_lines
from remembrancer.toolsets.memory.fields import GivenFilters, given, seconds_of
from remembrancer.toolsets.tools import DATA, Answer, Call, answer_text, non_empty, tool

HINT: Final = "An excerpt is cut off: get_memory shows the full memory."
DISPENSABLE: Final = ("hint", "profile", "query_time_ms", "strategy_used")
"""Fields dropped from an answer before any memory is."""
MEMORY_ONLY: Final = ("type", "kind", "domain", "tags", "min_importance")
"""Arguments that do not apply to files."""
Source = Literal["memory", "notes", "sessions", "code"]
NOTHING_OPEN: Final = "Nothing is open."
DUE_ONLY: Final = "Of {number} open ends, only those due by {day} are listed."
NONE_DUE: Final = "Nothing is due by {day}. All open ends are listed."
NOTHING_FOUND: Final = "Nothing was found. Try other words, fewer filters or include_forgotten."
TO_SETTLE: Final = (
    "update_memory(possibly_superseded_by, supersedes=[id]) if it is replaced, "
    "add_links=[{relation: related_to, target: id}] if both are true"
)
NEAREST: Final = "No memory surely answers the query; these are the closest."
STANDING_NOTE: Final = (
    "No memory surely answers the query. If it is a task, the entries without “answers” are rules for it."
)
LEAST_ROOM: Final = 10
"""A lower `limit` leaves no room for memories that apply to every task."""
STANDING_TOKENS: Final = 800
"""The maximum tokens in one answer for memories that apply to every task."""
MOST_STANDING: Final = 100
MOST_NEAR: Final = 5
"""The number of memories for every task in an answer, if there are more than `MOST_STANDING`."""
CODE: Final = "code"
CODE_SHARE: Final = 3
"""Code gets at most `max_tokens` divided by this."""
NOTHING: Final = Recalled((), 0, 0, "hybrid")


class TimeRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None = None
    before: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None = None


class RecallMemoriesArguments(GivenFilters, frozen=True, forbid_unknown_fields=True, kw_only=True):
    query: str
    strategy: Strategy = "hybrid"
    limit: Annotated[int, Meta(ge=1, le=50, extra_json_schema={"default": 10})] | None = None
    time_range: TimeRange | None = None
    profile: ProfileName | None = None
    ranking: Ranking = "fitted"
    reference_time: str | None = None
    max_tokens: Annotated[int, Meta(ge=LEAST_TOKENS, le=MOST_TOKENS)] | None = None
    detail: bool = False
    sources: tuple[Source, ...] = ()


@tool(
    "Search memories and notes.",
    read_only=True,
    marks_data=False,
    always_loaded=True,
    unlisted=tuple(name for name in RecallMemoriesArguments.__struct_fields__ if name != "query"),
)
async def recall_memories(call: Call, arguments: RecallMemoriesArguments) -> Answer:
    """Return likely and possible answers in full, or else the nearest memory, in one line if the session has seen it.
    Other memories get one line if they are new to the session, or if it stored them and they contain half of the
    query's words. With `detail`, a named ranking or a degraded answer, all are in full; the last two are not judged."""
    started = time.perf_counter()
    root = workspace_root(call.caller.directory, call.service.settings)
    request = to_recall(arguments, call.caller.project, call.caller.session_id, root)
    asked_for = arguments.sources
    recalled = NOTHING
    if not asked_for or request.sources:
        recalled = await call.ask(request, is_search=True)
    places: list[Answer] = []
    if CODE in asked_for:
        places = await find_code(call, arguments.query, request.limit)
        if arguments.max_tokens is not None:
            places = places[: within(places, arguments.max_tokens // CODE_SHARE, least=0)]
    detail, is_unjudged = arguments.detail, call.degraded or arguments.ranking != "fitted"
    memories, full = list(recalled.memories), {each.id for each in recalled.memories}
    terms, total = terms_of(arguments.query), recalled.total_matched
    open_ends = {each.id for each in memories if each.is_open} if asks_about_open_ends(arguments.query) else set()
    asks_for_all = not (detail or is_unjudged) and _asks_for_open_ends(request, arguments.limit)
    standing, about_due = dict[str, ListedMemory](), ""
    none_answers = not (asks_for_all or open_ends or any(is_given_whole(each) for each in memories))
    if not (detail or is_unjudged):
        own = [each for each in memories if each.id in call.session.seen - call.session.served]
        looked_for = {each.id for each in own if 2 * len(terms & terms_of(each.content)) >= len(terms)}
        is_news = none_answers and not (memories and memories[0].id in call.session.seen)
        full = given_whole(memories, with_nearest=is_news) | open_ends
        memories = with_lines(memories, full, arguments.limit, call.session.seen - looked_for)
        if asks_for_all:
            found = await _open_ends(call)
            open_ends = {each.id for each in found}
            others = [each for each in memories if each.id in full - open_ends]
            if found and (day := last_day_asked_for(request.query, call.received_at)):
                due = [each for each in found if each.due is not None and iso(each.due)[:10] <= day]
                about_due = (DUE_ONLY if due else NONE_DUE).format(day=day, number=len(found))
                found = due or found
            memories = [*found, *others]
            full, total, memories = full | open_ends, len(memories), memories[: arguments.limit]
        is_answered = asks_for_all or open_ends or any(each.scores.relevance >= LIKELY for each in memories)
        is_narrowed = request.filters != Filters(request.session_id) or arguments.max_tokens is not None
        has_room = given(arguments.limit, LEAST_ROOM) >= LEAST_ROOM  # a caller that asks for a few gets no more
        may_be_task = not is_question(request.query) and len(request.query.split()) > 2
        if has_room and may_be_task and not (is_answered or is_narrowed):
            standing = {each.id: each for each in await _standing(recalled.memories, call) if each.id not in full}
    memories = [each for each in memories if standing.keys().isdisjoint((each.id, *each.superseded_by))]
    shown = {each.id for each in memories}

    def entry_of(memory: RecalledMemory) -> Answer:
        if not (detail or shown.isdisjoint((*memory.superseded_by, *memory.possibly_superseded_by))):
            memory = structs.replace(memory, newer=None)
        if memory.id in full:
            # Each open end is an answer to a question about all open ends, whatever it says.
            return memory_of(memory, detail=detail, is_judged=not is_unjudged and memory.id not in open_ends)
        return line_of(memory, terms) | ({"answers": "hardly"} if standing else {})

    hint = None
    if standing:
        hint = STANDING_NOTE
    elif asks_for_all:
        hint = about_due if open_ends else NOTHING_OPEN
    elif none_answers and not (is_unjudged or places):
        hint = NEAREST if memories else NOTHING_FOUND
    answer: Answer = {
        "memories": [*map(entry_of, memories), *map(standing_line, standing.values())],
        "total_matched": max(total, len(memories) + len(standing)),
    }
    answer |= non_empty(
        code=places,
        strategy_used=recalled.strategy_used if detail or recalled.strategy_used != request.strategy else None,
        query_time_ms=round((time.perf_counter() - started) * 1000, 1) if detail else None,
        profile=arguments.profile if detail else None,
        note=DATA if recalled.memories or places else None,
        below_threshold=recalled.below_threshold if detail or not recalled.memories else None,
        hint=hint,
    )
    if arguments.max_tokens is None and not detail:  # a question by the assistant itself
        in_full = full | standing.keys()
        doubts = ((each.id, each.possibly_superseded_by) for each in (*memories, *standing.values()))
        in_doubt = any(newer and not in_full.isdisjoint((older, *newer)) for older, newer in doubts)
        answer |= near_of(await call.next_near(), ()) or non_empty(to_settle=TO_SETTLE if in_doubt else None)
    if arguments.max_tokens is not None:
        # In a thread, because counting the tokens of long memories takes a while.
        answer = await anyio.to_thread.run_sync(within_budget, call.with_caveats(answer), arguments.max_tokens)
    full |= standing.keys()
    given_ids = [memory["id"] for memory in answer["memories"] if memory.get("id") in full]
    answering = [each.id for each in recalled.memories if each.id in given_ids and is_given_whole(each)]
    counted = () if call.is_old else answering
    used = [each for each in used_in(recalled.memories) if each in given_ids]
    listed = [memory.get("id", "") for memory in (*answer["memories"], *answer.get("code", ()))]  # "": part of a file
    call.service.shown(
        call.caller, given_ids, counted=counted, used=used, tool=call.tool, question=request.query, listed=listed
    )
    return answer


def given_whole(memories: Sequence[RecalledMemory], *, with_nearest: bool) -> set[str]:
    """The ids of likely and possible answers, or of the nearest memory, and of memories that probably replace them."""
    chosen = [each for place, each in enumerate(memories) if is_given_whole(each) or (with_nearest and not place)]
    return {each.id for each in chosen} | {newer for each in chosen for newer in each.possibly_superseded_by}


async def _standing(nearest: Sequence[RecalledMemory], call: Call) -> list[ListedMemory]:
    """The memories that apply to every task and are new to the session, nearest first (if many, only the nearest). A
    query that is not a question and has no likely answer may be a task, and conventions do not resemble their tasks."""
    session_id, project = call.caller.session_id, call.caller.project
    scopes: tuple[Scope, ...] = ("project", "user")
    most = MOST_STANDING + 1
    request = ListMemories(session_id, scopes, kinds=STANDING, project=project, order="important", limit=most)
    try:
        # Not `ask`: without the store, it would return the memories last shown to the session.
        answer = await call.service.require(request, call.service.settings.read_budget_s)
    except AWAY:
        return []
    listed: Sequence[ListedMemory] = answer.memories
    if answer.more or len(listed) == most:
        listed = [each for each in nearest if each.kind in STANDING][:MOST_NEAR]
    listed = [each for each in listed if not (each.superseded_by or each.status in ("consolidated", "promoted"))]
    valid = {each.id: each for each in listed if not has_ended(each.valid_until, call.received_at)}
    seen, places = call.session.seen, {each.id: place for place, each in enumerate(nearest)}
    left_out = replaced_among(valid.values()) | frozenset(seen)
    unseen = [each for key, each in valid.items() if key not in left_out]
    unseen.sort(key=lambda each: places.get(each.id, len(places)))
    tokens = accumulate(estimate_tokens(each.content) + AROUND for each in unseen)
    given = [each for each, used in zip(unseen, tokens, strict=True) if used <= STANDING_TOKENS]
    if given:  # lists do not mark all pairs in Review
        review = await call.ask(FindUndecided(*call.caller.viewer, MOST_PAIRS, alike=False))
        later = {each.older.id: each.newer for each in reversed(review.pairs)}
        doubts = {of: {"possibly_superseded_by": (by.id,), "newer": excerpt(by.content)} for of, by in later.items()}
        given = [structs.replace(each, **doubts.get(each.id, {})) for each in given]
    return given


def _asks_for_open_ends(request: Recall, limit: int | None) -> bool:
    is_of_kind = request.filters == Filters(request.session_id, kinds=(OPEN_END,))
    asks = asks_for_open_ends(request.query) and (is_of_kind or request.filters == Filters(request.session_id))
    return asks or (is_of_kind and limit is None)


async def _open_ends(call: Call) -> list[RecalledMemory]:
    request = GatherContext(
        *call.caller.viewer, sections=("open_ends",), tokens=MOST_TOKENS, part_tokens=MOST_TOKENS, with_subjects=False
    )
    return list((await call.service.ask(request, call.received_at)).reply.memories)


def to_recall(arguments: RecallMemoriesArguments, project: ProjectRef, session_id: str, root: str = "") -> Recall:
    check_text(arguments.query, field="query", longest_bytes=MAX_QUERY_BYTES)
    times = arguments.time_range or TimeRange()
    after, before = seconds_of(times.after, "time_range.after"), seconds_of(times.before, "time_range.before")
    if after is not None and before is not None and after > before:
        raise InvalidInput("time_range.after must not be later than time_range.before", field="time_range.after")
    request = Recall(
        project=project,
        session_id=session_id,
        query=arguments.query,
        strategy=arguments.strategy,
        limit=given(arguments.limit, 10),
        after=after,
        before=before,
        profile=arguments.profile,
        ranking=arguments.ranking,
        reference_time=seconds_of(arguments.reference_time, "reference_time"),
        sources=tuple(dict.fromkeys(each for each in arguments.sources if each != CODE)),
        root=root,
        **arguments.for_request(),
    )
    narrowing = [name for name in MEMORY_ONLY if getattr(arguments, name)]
    if request.sources and "memory" not in request.sources and narrowing:
        raise InvalidInput(
            f"{', '.join(narrowing)} applies to memories only; leave it out when searching notes", field=narrowing[0]
        )
    return request


def within_budget(answer: Answer, max_tokens: int) -> Answer:
    """Cut an answer to the best memories that fit, and the beginning of the next. `omitted` is the number left out."""
    if _fits(answer, max_tokens):
        return answer
    memories = answer["memories"]
    bare = {name: value for name, value in answer.items() if name not in DISPENSABLE}

    def with_first(number: int, beginning: str | None = None) -> Answer:
        excerpts = [] if beginning is None else [{**memories[number], "content": f"{beginning} …", "excerpt": True}]
        kept = [*memories[:number], *excerpts]
        omitted = len(memories) - len(kept)
        return bare | {"memories": kept} | non_empty(omitted=omitted or None, hint=HINT if excerpts else None)

    number = bisect_left(range(len(memories)), True, key=lambda place: not _fits(with_first(place + 1), max_tokens))
    if number < len(memories):
        beginning = beginning_within(
            memories[number]["content"], max_tokens, lambda text: answer_text(with_first(number, text)), count_sent
        )
        if beginning is not None:
            return with_first(number, beginning)
    fitted = with_first(number)
    if (warnings := fitted.get("warnings")) and not _fits(fitted, max_tokens):
        fitted["warnings"] = [{"code": warnings[0]["code"]}]
    return fitted


def count_sent(text: str) -> int:
    return estimate_tokens(neutralised(text))


def _fits(answer: Answer, max_tokens: int) -> bool:
    text = answer_text(answer)
    return len(text) <= max_tokens * CHARACTERS_A_TOKEN and (
        len(text.encode()) <= max_tokens or count_sent(text) <= max_tokens
    )
