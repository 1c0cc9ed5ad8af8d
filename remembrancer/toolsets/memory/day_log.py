"""The log of a day: events, and memories stored, changed, decided and closed, in chronological order."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from remembrancer.memory.changes import UNDONE
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.open_ends import with_iso_dates
from remembrancer.memory.text import quote
from remembrancer.memory.times.phrases import WEEKDAYS
from remembrancer.memory.times.windows import TimeWindow, read_query, time_windows
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.browsing import ActivityRead, MemoryChanged, ReadActivity, RunDone
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import OPEN_END, SESSION_RECORD, type_of_kind
from remembrancer.toolsets.memory.fields import NOT_PAST
from remembrancer.toolsets.tools import DATA, Answer, Call, short_forms_of

MAX_CHANGES: Final = 1000
SHORT_TEXT: Final = 160
MAX_TEXT: Final = 2000
_FIRST: Final = {"decision": "decided", OPEN_END: "opened", SESSION_RECORD: "worked"}
"""The verbs for new memories and events by kind. Others are "stored" or, with a day, "happened" or "noted"."""
FORGOTTEN, PROMOTED, ARCHIVED = "forgotten", "promoted", "archived"
CHANGE_WORDS: Final = {
    **{"superseded": "replaced", "invalidated": "ended", "superseding_undone": "restored"},
    **{"both hold": "kept alongside another", "consolidated": "summarised", "superseding": "replaced another"},
}
# Fields with an empty name change only along with others.
FIELD_NAMES: Final = {"occurred_at": "day", "valid_until": "its end", "type": "", "status": "", "invalid_reason": ""}


def day_of(text: str, now: float) -> TimeWindow:
    """Parse a local day: "yesterday", "2026-11-17" or "Tuesday" (the last). Raises `InvalidInput` for a future day."""
    today, text = WEEKDAYS[datetime.fromtimestamp(now).weekday()], with_iso_dates(text)
    for phrase in (text, f"on {text}", f"el {text}"):
        if read_query(phrase).lower().removeprefix("on ").strip() == today:
            return day_of("today", now)
        for window in time_windows(phrase, now, None):
            if window.start > 0:
                return window
    raise InvalidInput(NOT_PAST.format(day=quote(text)), field="day")


def dates_in_utc(begins: float, ends: float) -> tuple[float, float]:
    """The first day of a local period and the day after its last, as midnights in UTC, for the `days` of events."""
    first, last = (datetime.fromtimestamp(at).date() for at in (begins, ends - 1))
    days = (datetime(day.year, day.month, day.day, tzinfo=UTC) for day in (first, last + timedelta(1)))
    return next(days).timestamp(), next(days).timestamp()


def happened_in(activity: ActivityRead) -> list[MemoryChanged]:
    """The events that were not stored on the day they happened."""
    stored = {(each.memory_id, date_of(each)) for each in activity.changes if each.change == "stored"}
    return [each for each in activity.happened if (each.memory_id, date_of(each)) not in stored]


async def read_day(
    call: Call, day: TimeWindow, days: tuple[float, ...], *, for_people: bool = False
) -> tuple[Sequence[MemoryChanged], Sequence[RunDone]]:
    """Return a day's events and the changes by sessions and people, in chronological order, and the day's runs and
    imports that can be undone here. A memory that has since been forgotten is listed only as forgotten, without its
    content, and undone changes are omitted. `for_people` includes all of these, and archived memories."""
    request = ReadActivity(
        *call.caller.viewer, day.end, MAX_CHANGES, day.start, MAX_TEXT, for_people, with_undo=True, days=days
    )
    reply = await call.ask(request)
    own = (FORGOTTEN, PROMOTED, ARCHIVED) if for_people else (FORGOTTEN, PROMOTED)
    changes = [each for each in reversed(reply.changes) if each.session_id or each.change in own]
    if not for_people:
        changes = [
            msgspec.structs.replace(each, begins="", changed_later=False) if each.is_forgotten else each
            for each in changes
            if stands(each) and (each.change == FORGOTTEN or not each.is_forgotten)
        ]
    if reply.more:
        call.warn("answer_cut", f"Only the last {MAX_CHANGES} changes are shown.")
    runs = [each for each in reversed(reply.runs) if not each.of_another]
    return sorted((*happened_in(reply), *changes), key=_shown_at), runs


def stands(change: MemoryChanged) -> bool:
    return not (change.is_undone or change.undid or change.change == UNDONE)


def verb_of(change: MemoryChanged) -> str:
    if change.undid:
        before = msgspec.structs.replace(change, change=change.undid, undid="", done=not change.done)
        return f"undid: {verb_of(before)}"
    if change.change in ("stored", "happened"):
        is_event = change.kind == "fact" or type_of_kind(change.kind) == "episodic"
        return _FIRST.get(change.kind, change.change if change.change == "stored" or is_event else "noted")
    word = word_of(change.change, change.fields, done=change.done)
    return "changed" if word in ("tagged", "stored again") else word


def word_of(change: str, fields: Sequence[str], *, done: bool) -> str:
    """`done` is True if the change left the memory done."""
    if "done" in fields and "kind" not in fields:
        return "closed" if done else "reopened"
    return "changed" if change == "updated" else CHANGE_WORDS.get(change, change)


def with_fields(word: str, fields: Iterable[str]) -> str:
    """Name the fields if the word only says that something changed."""
    names = ", ".join(filter(None, (FIELD_NAMES.get(name, name.replace("_", " ")) for name in dict.fromkeys(fields))))
    return f"{word} ({names})" if names and word.endswith("changed") else word


def dates_of(begins: float, ends: float) -> str:
    days = [f"{datetime.fromtimestamp(at).astimezone():%A %Y-%m-%d}" for at in (begins, max(begins, ends - 1))]
    return " to ".join(dict.fromkeys(days))


def date_of(change: MemoryChanged) -> str:
    return dates_of(_shown_at(change), 0.0)


def _shown_at(change: MemoryChanged) -> float:
    """An event with only a day (midnight UTC) is shown at the start of that day in local time."""
    if change.change != "happened" or change.at % DAY_S:
        return change.at
    return datetime.fromtimestamp(change.at, UTC).replace(tzinfo=None).timestamp()


async def day_block(call: Call, text: str, max_tokens: int) -> Answer:
    """The log of a day as Markdown, with one line per memory in the order of their first changes. A longer period has a
    list per day. Texts are those at the end of that day, and in full if all of them fit."""
    day = day_of(text, call.received_at)
    changes, _ = await read_day(call, day, dates_in_utc(day.start, day.end))
    ids = await short_forms_of(call, dict.fromkeys(name for each in changes for name in (each.memory_id, each.by)))
    heading = dates_of(day.start, day.end)
    lines = [f"## {heading}", *([DATA] if call.service.is_first_data_for(call.caller) else []), ""]
    groups: dict[tuple[str, str], list[MemoryChanged]] = {}
    for each in changes:
        groups.setdefault((date_of(each), each.memory_id), []).append(each)

    def entries(longest: int) -> list[str]:
        return [_entry(group, ids, longest) for group in groups.values()]

    room = max_tokens - estimate_tokens("\n".join(lines))
    listed = entries(MAX_TEXT)
    if are_whole := estimate_tokens("\n".join(listed)) <= room:
        last = {each.memory_id: each for each in changes}
        present = [name for name, each in last.items() if 0 < len(each.begins) < MAX_TEXT and not each.changed_later]
        call.service.shown(call.caller, present, tool=call.tool)
    by_date: dict[str, list[str]] = {}
    for place, ((date, _), line) in enumerate(
        reversed([*zip(groups, listed if are_whole else entries(SHORT_TEXT), strict=True)])
    ):
        added = [line] if date == heading or date in by_date else [f"### {date}", line]  # one day needs no heading
        room -= estimate_tokens("\n".join(added)) + 1
        if room < 0:
            call.warn("answer_cut", f"Only the last {place} are shown: a larger max_tokens shows more.")
            break
        by_date.setdefault(date, []).append(line)
    for date, latest_first in reversed(by_date.items()):
        lines += [*([] if date == heading else [f"### {date}"]), *reversed(latest_first)]
    return {"context_block": "\n".join(lines if changes else [*lines, "Nothing was stored or changed."])}


def _entry(changes: Sequence[MemoryChanged], ids: Mapping[str, str], longest: int) -> str:
    fields = [name for each in changes if verb_of(each) == "changed" for name in each.fields]
    fields = [] if "content" in fields else fields
    by = {verb_of(each): f" (by {ids.get(each.by, each.by)})" for each in changes if each.by}
    verbs = ", ".join(with_fields(verb, fields) + by.get(verb, "") for verb in dict.fromkeys(map(verb_of, changes)))
    text = " ".join(changes[-1].begins.split())[:longest]
    later = " | changed later" if changes[-1].changed_later else ""
    name = changes[0].memory_id
    return f"- {verbs} {ids.get(name, name)}{': ' if text else ''}{text}{later}"
