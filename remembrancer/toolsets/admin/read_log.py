"""The tool `read_log`."""

from remembrancer.toolsets.memory.answers import iso
from remembrancer.toolsets.memory.day_log import read_day, verb_of
from remembrancer.toolsets.memory.fields import given
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool


@tool("What was done on a day.", read_only=True, unlisted=("include_forgotten",))
async def read_log(call: Call, day: str | None = None, include_forgotten: bool = False) -> Answer:
    """The log of a day (default: today). Raises `MemoryUnavailable` if the store is away."""
    period, changes = await read_day(call, given(day, "today"), with_forgotten=include_forgotten)
    entries = [
        {"at": iso(each.at), "did": verb_of(each), "id": each.memory_id, "text": each.begins, "version": each.version}
        | non_empty(forgotten=each.is_forgotten or None)
        for each in changes
    ]
    return {"begins": iso(period.start), "ends": iso(period.end), "changes": entries}
