"""The pages about the past: *Today*, *Review* and *Sessions*, and the event stream that keeps pages live."""

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import anyio
from starlette.responses import HTMLResponse, Response, StreamingResponse

from remembrancer.browser.memories import MOST_PAST, day_of, done_of, float_of, number_of
from remembrancer.browser.view import MAX_CHANGES, PEOPLE, Handler, View, who
from remembrancer.memory.decay import has_ended
from remembrancer.protocol.browsing import (
    ActivityRead,
    FindUndecided,
    ListSessions,
    MemoryChanged,
    ReadActivity,
    ReadTurns,
    RunDone,
    TurnsRead,
)
from remembrancer.protocol.code import DescribeCode, ListStale
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import OPEN_END
from remembrancer.protocol.reads import DescribeSession, ListedSession, ListMemories
from remembrancer.protocol.session_life import BROWSER_SESSION, SHELL_SESSION
from remembrancer.toolsets.memory.day_log import FORGOTTEN, dates_in_utc, happened_in, stands, verb_of

PAGE: Final = 100
FEW: Final = 20
"""The number of queries of a session whose memories are shown, and of memories for each query."""
PULSE_S: Final = 10.0
"""An event is sent at least this often, so that a lost gateway or a revoked token is noticed."""
OTHER_PROJECTS: Final = "others"
"""The session id under which all sessions of other projects are grouped."""
TOGETHER_S: Final = 0.3
"""Writes within this time of each other are sent as one event."""


async def live(view: View) -> Response:
    """The event stream of an open page: a `written` event after each write."""

    async def events() -> AsyncIterator[bytes]:
        happened = view.shared.next_write()  # taken before the event is sent, since a write may follow at once
        yield b"retry: 1000\nevent: here\ndata:\n\n"
        while view.shared.access.holds(view.grant):
            with anyio.move_on_after(PULSE_S):
                await happened.wait()
            if happened.is_set():
                await anyio.sleep(TOGETHER_S)
                happened = view.shared.next_write()
                yield b"event: written\ndata:\n\n"
            else:
                yield b"event: here\ndata:\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def waiting(view: View) -> Response:
    found = await view.ask(FindUndecided(view.project, view.session, limit=0))
    number = len(found.proposals) + found.more - found.weak
    return HTMLResponse(f'<span id="waiting">{number}</span>' if number else "")


async def review(view: View) -> Response:
    return await view.page(
        "review.html",
        undecided=await view.ask(FindUndecided(view.project, view.session, PAGE)),
        stale=(await view.ask(ListStale(view.project)))[:PAGE],
        has_code=bool(await view.ask(DescribeCode(view.project))),
        done=await done_of(view),
    )


class Line(NamedTuple):
    """A memory's last change, the names of all its changes, and the undo of the last one, with its button's label."""

    change: MemoryChanged
    did: str
    undo: str
    button: str


class AnsweredQuery(NamedTuple):
    """A query with its memories, best first. `in_files` is True if parts of files were also found."""

    at: float
    question: str
    tool: str
    memory_ids: tuple[str, ...]
    in_files: bool = False


class Part(NamedTuple):
    session_id: str
    who: str
    begins: float
    ends: float
    lines: Sequence[Line]
    runs: Sequence[RunDone]
    asked: Sequence[AnsweredQuery]


async def today(view: View) -> Response:
    """One day by session, and the open ends. The default is today, or else the last day with changes."""
    wanted = view.query("day")
    current = datetime.now().astimezone().date()
    day = current if not wanted else datetime.fromtimestamp(day_of(wanted) or 0.0).astimezone().date()
    activity, log, earlier = await _done_on(view, day)
    if not wanted and earlier and not (activity.changes or activity.runs or log):
        day = earlier
        activity, log, earlier = await _done_on(view, day)
    ends = await view.ask(ListMemories(project=view.project, session_id=view.session, order="due", limit=PAGE))
    queries = asked_of(log)
    return await view.page(
        "today.html",
        day=day,
        is_today=day == current,
        parts=parts_of(activity, queries, await view.sessions()),
        totals=totals_of(activity.changes),
        texts=await view.texts(
            memory_id for several in queries.values() for each in several[:FEW] for memory_id in each.memory_ids[:FEW]
        ),
        ends=[each for each in ends.memories if each.is_open],
        happened=happened_in(activity),
        earlier=earlier and view.at("/today", day=earlier.isoformat()),
        later=day < current and view.at("/today", day=(day + timedelta(1)).isoformat()),
        more=activity.more,
        done=await done_of(view),
    )


def _start(day: date) -> float:
    return datetime(day.year, day.month, day.day).timestamp()


async def _done_on(view: View, day: date) -> tuple[ActivityRead, Sequence[Any], date | None]:
    begins, ends = _start(day), _start(day + timedelta(1))
    days = dates_in_utc(begins, ends)
    activity = await view.ask(
        ReadActivity(view.project, view.session, ends, MAX_CHANGES, begins, summarized=True, with_undo=True, days=days)
    )
    before = await view.ask(ReadActivity(view.project, view.session, begins, 1))
    earlier = max((datetime.fromtimestamp(each.at).astimezone().date() for each in before.changes), default=None)
    return activity, await view.shown(since=begins, until=ends), earlier


def totals_of(changes: Iterable[MemoryChanged]) -> dict[str, int]:
    """The number of memories by kind of change, not counting undone changes."""
    done: dict[str, set[str]] = {}
    for each in filter(stands, changes):
        done.setdefault(verb_of(each), set()).add(each.memory_id)
    return dict(sorted(((verb, len(ids)) for verb, ids in done.items()), key=lambda each: -each[1]))


def lines_of(changes: Sequence[MemoryChanged]) -> list[Line]:
    """One line for each changed memory, latest first, with one undo. Undone changes are named only without others."""
    by_memory: dict[str, list[MemoryChanged]] = {}
    for each in changes:
        by_memory.setdefault(each.memory_id, []).append(each)
    lines = []
    for several in by_memory.values():
        last, undone = several[0], max(several, key=lambda each: each.undo_at)
        undo = f"undo/{undone.undo_at}" if undone.undo_at else ""
        if last.is_forgotten:
            undo = "restore" if last.change == FORGOTTEN else ""
        named = list(filter(stands, several)) or [each for each in several if each.is_undone] or several
        verbs = list(dict.fromkeys(map(verb_of, reversed(named))))
        did = ", ".join(verbs)
        did += " (undone)" if any(each.is_undone for each in named) else ""
        did += f" by {last.member}" if last.member else ""
        button = "restore" if undo == "restore" else f"undo: {verb_of(undone)}" if len(verbs) > 1 else "undo"
        lines.append(Line(last, did, undo, button))
    return lines


def asked_of(log: Iterable[Any]) -> dict[str, list[AnsweredQuery]]:
    by_session: dict[str, list[AnsweredQuery]] = {}
    for (at, session_id, tool, question), rows in groupby(log, attrgetter("at", "session_id", "tool", "question")):
        entries = list(rows)
        given = tuple(each.memory_id for each in entries if each.memory_id)
        in_files = any(each.place and not each.memory_id for each in entries)
        by_session.setdefault(session_id, []).append(AnsweredQuery(at, question, tool, given, in_files))
    return by_session


def _author_of(change: MemoryChanged) -> tuple[str, str]:
    """The session and, for a person, the machine, since a person's session id is the same on all machines."""
    return change.session_id, change.member if change.session_id in (BROWSER_SESSION, SHELL_SESSION) else ""


def parts_of(
    activity: ActivityRead, queries: Mapping[str, list[AnsweredQuery]], sessions: Mapping[str, ListedSession]
) -> list[Part]:
    """A day by session, the most recently active first. A change belongs to the session or person that made it, and a
    background change to the session or person that last changed the memory. Changes to the user's memories by sessions
    of other projects form one part, which comes last."""
    last = dict[str, tuple[str, str]]()
    for each in activity.changes:
        if each.session_id:
            last.setdefault(each.memory_id, _author_of(each))
    by_author: dict[tuple[str, str], list[MemoryChanged]] = {}
    for each in activity.changes:
        author = _author_of(each) if each.session_id else last.get(each.memory_id, ("", ""))
        is_known = author[0] in sessions or author[0] in PEOPLE or author[0] in queries
        by_author.setdefault(author if is_known else (OTHER_PROJECTS, ""), []).append(each)
    for session_id in (*queries, *(each.session_id for each in activity.runs)):
        by_author.setdefault((session_id, ""), [])
    parts = []
    for (session_id, member), changes in by_author.items():
        runs = [each for each in activity.runs if each.session_id == session_id and not member]
        questions = [] if member else queries.get(session_id, [])
        own = [each.at for each in changes if each.session_id] or [each.at for each in changes]
        times = [*own, *(each.at for each in runs), *(each.at for each in questions)]
        name = "In other projects" if session_id == OTHER_PROJECTS else who(session_id, sessions, member)
        parts.append(Part(session_id, name, min(times), max(times), lines_of(changes), runs, questions))
    return sorted(parts, key=lambda each: (each.session_id == OTHER_PROJECTS, -each.ends))


async def undo_run(view: View) -> Response:
    if not view.field("run"):
        raise InvalidInput("No run was chosen. You can undo a run on the “Today” page.")
    await view.call("reflect_and_consolidate", undo=view.field("run"))
    return view.redirect("/today", done="run")


async def sessions(view: View) -> Response:
    """The assistants' sessions, each with the last memory that it stored or changed, forgotten ones aside."""
    before = view.query("before")
    request = ListSessions(view.project, view.session, float_of(before) if before else None, PAGE)
    listed = await view.ask(request)
    more = view.at("/sessions", before=listed[-1].last_active_at) if len(listed) == PAGE else ""
    since = min((each.started_at or each.last_active_at for each in listed), default=0.0)
    done = await view.ask(ReadActivity(view.project, view.session, limit=MAX_CHANGES, after=since))
    return await view.page(
        "sessions.html",
        sessions=[each for each in listed if each.session_id not in PEOPLE],
        more=more,
        has_turns=any(each.turns for each in listed),
        last={each.session_id: each for each in reversed(done.changes) if each.begins and not each.is_forgotten},
        who=lambda each: who(each.session_id, {each.session_id: each}),
    )


async def session(view: View) -> Response:
    name = str(view.request.path_params["name"])
    about = await view.ask(DescribeSession(view.project, name))
    turns, past = TurnsRead(), min(number_of(view.query("past")), MOST_PAST)
    if view.is_owner:
        turns = await view.ask(ReadTurns(view.project, name, past))
    own = replace(view, through=name)
    since = about.started_at or 0.0
    done = await view.ask(ReadActivity(view.project, own.session, limit=MAX_CHANGES, after=since, with_undo=True))
    lines = lines_of([each for each in done.changes if each.session_id == name])
    queries = asked_of(await view.shown(session_id=name)).get(name, [])
    opened = [each.change.memory_id for each in lines if each.change.kind == OPEN_END]
    texts = await own.texts([*opened, *(one for each in queries for one in each.memory_ids)])
    ended = {each.id for each in texts.values() if each.superseded_by or has_ended(each.valid_until, time.time())}
    transcript: list[Any] = [*turns.turns, *turns.tool_calls]
    transcript.sort(key=lambda each: each.at)
    earlier = turns.more and view.at(f"/sessions/{name}", past=past + len(transcript))
    sessions = await view.sessions()
    is_known = bool(name in PEOPLE or name in sessions or about.started_at or lines or queries or transcript)
    return await view.page(
        "session.html",
        200 if is_known else 404,
        own=own,
        is_known=is_known,
        name=name,
        who=who(name, sessions),
        is_person=name in PEOPLE,
        entry=sessions.get(name),
        about=about,
        told=transcript,
        earlier=earlier,
        lines=lines,
        asked=queries,
        texts=texts,
        open=[texts[each] for each in opened if each in texts and texts[each].is_open and each not in ended],
        done=await done_of(own),
    )


PAGES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", "/live"): live,
    ("GET", "/review"): review,
    ("GET", "/review/waiting"): waiting,
    ("GET", "/today"): today,
    ("POST", "/today/undo"): undo_run,
    ("GET", "/sessions"): sessions,
    ("GET", "/sessions/{name}"): session,
}
