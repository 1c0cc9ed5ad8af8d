"""The log of a day: what was stored, changed, decided and closed, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from remembrancer.memory.text import shown
from remembrancer.memory.times.phrases import WEEKDAYS
from remembrancer.memory.times.windows import TimeWindow, read_query, time_windows
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.browsing import ActivityRead, MemoryChanged, ReadActivity
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import OPEN_END, SESSION_RECORD
from remembrancer.protocol.reads import Notice
from remembrancer.toolsets.service import Asked
from remembrancer.toolsets.tools import DATA, Answer, Call, cut_notice, short_forms_of, with_caveats

MOST: Final = 1000
"""The number of a day's changes that are read; the latest ones."""
TEXT: Final = 160
"""The number of characters shown of a memory where not all texts fit, or where it was changed again on that day."""
WHOLE: Final = 2000
"""The number of characters shown of a memory at most."""
_FIRST: Final = {"decision": "decided", OPEN_END: "opened", SESSION_RECORD: "worked"}
"""The verbs for new memories by kind; for other kinds it is "stored"."""
FORGOTTEN: Final = "forgotten"
_LATER: Final = {"superseded": "replaced", "invalidated": "ended", "superseding_undone": "restored"}


def day_of(text: str, now: float) -> TimeWindow:
    """The day that a word or a date names: "yesterday", "Tuesday" (the last one, which may be today), "2026-11-17", in
    each language that questions are understood in, in this machine's time zone.

    Raises:
        InvalidInput: the text names no day, or one that has not begun.
    """
    today = WEEKDAYS[datetime.fromtimestamp(now).weekday()]
    for phrase in (text, f"on {text}", f"el {text}"):
        if read_query(phrase).lower().removeprefix("on ").strip() == today:
            return day_of("today", now)
        for window in time_windows(phrase, now, None):
            if window.start > 0:
                return window
    message = f"day must be today or a past day, such as yesterday, Tuesday or 2026-11-17, not {shown(text)}"
    raise InvalidInput(message, field="day")


async def read_day(
    call: Call, text: str, *, with_forgotten: bool = False
) -> tuple[TimeWindow, Sequence[MemoryChanged], Asked[ActivityRead]]:
    """The day, the changes that sessions and people made on it, in order, and the store's answer that they come from.

    Of a memory that has been forgotten since, only the forgetting is listed, without its content, unless
    `with_forgotten`.

    Raises:
        InvalidInput: the text names no day.
        MemoryUnavailable: the store is away.
    """
    day = day_of(text, call.received_at)
    request = ReadActivity(call.caller.project, call.caller.session_id, day.end, MOST, day.start, WHOLE)
    response = await call.service.ask(request, call.received_at)
    changes = [
        msgspec.structs.replace(each, begins="") if each.is_forgotten and not with_forgotten else each
        for each in reversed(response.reply.changes)
        if each.change == FORGOTTEN or (each.session_id and (with_forgotten or not each.is_forgotten))
    ]
    if response.reply.more:
        cut = Notice("answer_cut", f"Only the last {MOST} changes are shown.")
        response = replace(response, notices=(*response.notices, cut))
    return day, changes, response


def verb_of(change: MemoryChanged) -> str:
    """The verb for a change."""
    if change.change == "stored":
        return _FIRST.get(change.kind, "stored")
    if "done" in change.fields:
        return "closed" if change.done else "reopened"
    if change.change in ("updated", "tagged", "stored again"):
        return f"changed ({', '.join(change.fields)})"
    return _LATER.get(change.change, change.change)


def dates_of(begins: float, ends: float) -> str:
    """The first and last day of a period, in this machine's time zone."""
    days = [f"{datetime.fromtimestamp(at).astimezone():%A %Y-%m-%d}" for at in (begins, max(begins, ends - 1))]
    return " to ".join(dict.fromkeys(days))


def clock_of(at: float, *, with_day: bool) -> str:
    """A time in this machine's time zone."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M" if with_day else "%H:%M")


async def day_block(call: Call, text: str, max_tokens: int) -> Answer:
    """The log of a day as one block of Markdown within a budget of tokens. Texts are whole if they fit, in the last
    state that they had on that day; entries that do not fit are cut from the end."""
    day, changes, response = await read_day(call, text)
    notices = response.notices
    ids = await short_forms_of(call, dict.fromkeys(each.memory_id for each in changes))
    is_long = day.end - day.start > 90_000
    lines = [f"## {dates_of(day.start, day.end)}", DATA, ""]
    last = {each.memory_id: place for place, each in enumerate(changes)}

    def entries(longest: int) -> list[str]:
        return [
            _entry(each, ids, longest if last[each.memory_id] == place else TEXT, with_day=is_long)
            for place, each in enumerate(changes)
        ]

    full_entries, room = entries(WHOLE), max_tokens - estimate_tokens("\n".join(lines))
    listed = full_entries if estimate_tokens("\n".join(full_entries)) <= room else entries(TEXT)
    for place, line in enumerate(listed):
        room -= estimate_tokens(line) + 1
        if room < 0:
            notices = (*notices, cut_notice(place, None))
            break
        lines.append(line)
    else:
        lines += [] if changes else ["Nothing was stored or changed."]
    return with_caveats({"context_block": "\n".join(lines)}, notices, degraded=response.is_old)


def _entry(change: MemoryChanged, ids: Mapping[str, str], longest: int, *, with_day: bool) -> str:
    text = f": {' '.join(change.begins.split())[:longest]}" if change.begins else ""
    memory_id = ids.get(change.memory_id, change.memory_id)
    return f"- {clock_of(change.at, with_day=with_day)} {verb_of(change)} {memory_id}{text}"
