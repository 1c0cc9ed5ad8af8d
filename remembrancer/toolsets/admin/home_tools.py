"""Tools that list and erase anything in a home directory."""

from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta

from remembrancer.memory.fields import DETAILS
from remembrancer.memory.sentences import cut_at_word
from remembrancer.memory.times.windows import TimeWindow
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import ListedMemory, ListMemories, Order
from remembrancer.protocol.runs import IMPORT
from remembrancer.protocol.writes import EraseMemory
from remembrancer.toolsets.memory.answers import fields_of, iso, set_fields, standing_of
from remembrancer.toolsets.memory.day_log import MAX_TEXT, dates_in_utc, day_of, read_day, verb_of, with_fields
from remembrancer.toolsets.memory.fields import GivenFilters, Offset, given, seconds_of
from remembrancer.toolsets.tools import Answer, Call, cut_notice, non_empty, tool


@tool("Delete a memory for good, with its history. It cannot be restored.", destructive=True, marks_data=False)
async def erase_memory(call: Call, memory_id: str) -> Answer:
    """Delete a memory at once or raise an error; the call is never queued. The id stays on record as erased."""
    memory_id = parse_memory_id(memory_id)
    result = await call.service.erase(call.operation(EraseMemory(memory_id)))
    answer: Answer = {"memory_id": memory_id, "status": "erased"}
    answer |= non_empty(also_said_by=list(result.said_by), also_erased=list(result.also_erased))
    return answer | non_empty(already_erased=result.already, may_remain_in=result.file)


_DETAILS: Final = tuple(name for name in DETAILS if name in ListedMemory.__struct_fields__)


class ListMemoriesArguments(GivenFilters, frozen=True, forbid_unknown_fields=True):
    order: Order | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    offset: Offset = 0
    after: str | None = None
    before: str | None = None


@tool("List memories.", read_only=True)
async def list_memories(call: Call, arguments: ListMemoriesArguments) -> Answer:
    """Listing does not count as an access."""
    request = ListMemories(
        project=call.caller.project,
        session_id=call.caller.session_id,
        order=given(arguments.order, "latest"),
        limit=given(arguments.limit, 50),
        offset=arguments.offset,
        after=seconds_of(arguments.after, "after"),
        before=seconds_of(arguments.before, "before"),
        **arguments.for_request(),
    )
    return await listed(call, request, _listed)


async def listed(call: Call, request: ListMemories, shown: Callable[[ListedMemory], Answer]) -> Answer:
    reply = await call.ask(request)
    if reply.more:
        call.notices.append(cut_notice(len(reply.memories), request.offset))
    return {"memories": [shown(memory) for memory in reply.memories]}


def _listed(memory: ListedMemory) -> Answer:
    shown = {
        **fields_of(memory, "id", "content", "type", "scope", "importance", "created_at", "access_count"),
        **set_fields(memory, "tags", *_DETAILS, "derived_from", "superseded_by", "possibly_superseded_by", "newer"),
    }
    changed = {"updated": iso(memory.updated_at)} if memory.version > 1 else {}
    return shown | changed | standing_of(memory)


@tool("Open the memory browser; returns its address.", marks_data=False)
async def open_browser(call: Call) -> Answer:
    return {"url": await call.service.open_browser()}


@tool("The changes of a day.", read_only=True, unlisted=("begins", "ends", "days"))
async def read_log(
    call: Call,
    day: str | None = None,
    begins: float | None = None,
    ends: float | None = None,
    days: list[float] | None = None,
) -> Answer:
    """The log of a day (default: today), or from `begins` to `ends` (default: now), in epoch seconds, with the events
    of `days`, as in `ReadActivity`. A change's `undo_at` is the version to pass to an undo."""
    now = call.received_at
    period = day_of(given(day, "today"), now) if begins is None else TimeWindow(begins, ends or now, 0)
    of_events = dates_in_utc(period.start, period.end) if begins is None else tuple(days or ())
    changes, done = await read_day(call, period, of_events, for_people=True)
    entries = [
        # An event may have only a day.
        {"at": iso(each.at).removesuffix("T00:00:00Z" if each.change == "happened" else ""), "time": each.at}
        | {"did": with_fields(verb_of(each), each.fields), "version": each.version, "id": each.memory_id}
        | {"text": each.begins if len(each.begins) < MAX_TEXT else f"{cut_at_word(each.begins, MAX_TEXT - 1)} …"}
        | non_empty(forgotten=each.is_forgotten, member=each.member, undone=each.is_undone, command=each.command)
        | non_empty(by=each.by, undo_at=each.undo_at or None)
        for each in changes
    ]
    runs = [
        {"at": iso(each.at), "time": each.at, "run_id": each.run_id, "memories": each.changes, "of_user": each.of_user}
        | {"did": "imported" if each.kind == IMPORT else each.kind.replace("_", " ")}
        | non_empty(undone=each.undone_at is not None)
        for each in done
    ]
    return {"begins": iso(period.start), "ends": iso(period.end), "changes": entries, "runs": runs}
