"""The pages about what happened: *Review*, *Timeline* and *Sessions*, and the stream that keeps pages live."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import groupby
from typing import Any, Final

import anyio
import anyio.to_thread
from starlette.responses import Response, StreamingResponse

from remembrancer.browser.memories import done_of, float_of
from remembrancer.browser.rendering import word_diff
from remembrancer.browser.view import Handler, View
from remembrancer.protocol.browsing import (
    ActivityRead,
    FindPairs,
    ListSessions,
    PairsFound,
    ReadActivity,
    ReadTurns,
    SessionsListed,
    TurnsRead,
)
from remembrancer.protocol.code import ListStale, StaleListed
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.reads import (
    DescribeSession,
    DescribeStore,
    GetMemory,
    Listed,
    ListMemories,
    MemoryShown,
    SessionDescription,
    StoreDescription,
)

PAGE: Final = 100
PULSE_S: Final = 10.0
"""At least so often something is sent: a gateway that is gone is noticed, and a token that was revoked."""
TOGETHER_S: Final = 0.3
"""Writes that follow each other so closely are one piece of news."""


async def live(view: View) -> Response:
    """Events as long as the page is open: `written` whenever something was written, by whomever."""

    async def events() -> AsyncIterator[bytes]:
        yield b"retry: 1000\nevent: here\ndata:\n\n"
        while view.shared.holds(view.grant):
            happened = view.shared.writes.happened
            with anyio.move_on_after(PULSE_S):
                await happened.wait()
            if happened.is_set():
                await anyio.sleep(TOGETHER_S)
                yield b"event: written\ndata:\n\n"
            else:
                yield b"event: here\ndata:\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def review(view: View) -> Response:
    """The things that wait for a person."""
    store = await view.ask(DescribeStore(view.project, view.session), StoreDescription)
    found = await view.ask(FindPairs(view.project, view.session), PairsFound)
    stale = await view.ask(ListStale(view.project, anew=False), StaleListed)
    waiting = [each for each in store.proposals if each.refused_at is None]
    about_code = stale.memories[:PAGE]

    def render() -> Response:
        pairs = [(each, word_diff(each.older.content, each.newer.content)) for each in found.pairs]
        return view.page(
            "review.html",
            proposals=waiting,
            pairs=pairs,
            uncompared=store.embedding.pending,
            about_code=about_code,
            done=done_of(view),
        )

    return await anyio.to_thread.run_sync(render)  # long texts take their time


async def decide(view: View) -> Response:
    """Accept or refuse a proposal: the memory goes to the user, or stays in its project."""
    target = "user" if view.said("accept") else "project"
    await view.call("promote_memory", memory_id=view.said("id"), target_scope=target)
    done, way_back = ("refused", "restore") if target == "project" else ("promoted", "project")
    return view.go("/review", done=done, undo=f"{view.said('id')}~{way_back}")


async def replace(view: View) -> Response:
    """Say that one memory replaces another: that one ends, and names it."""
    kept, gone = view.said("kept"), view.said("gone")
    before = (await view.ask(GetMemory(view.project, view.session, gone), MemoryShown)).memory
    link = {"relation": "supersedes", "target": gone}
    await view.call("update_memory", memory_id=kept, add_links=[link])
    return view.go("/review", done="replaced", undo=f"{gone}~{before.version}")


async def keep_both(view: View) -> Response:
    """Say that two memories both hold: they are linked, and no longer wait."""
    one, other = view.said("one"), view.said("other")
    await view.call("update_memory", memory_id=one, add_links=[{"relation": "related_to", "target": other}])
    return view.go("/review", done="both hold")


async def timeline(view: View) -> Response:
    """The changes of memories and the runs, by day and session."""
    before = view.asked("before")
    asked = ReadActivity(view.project, view.session, float_of(before) if before else None, PAGE)
    found = await view.ask(asked, ActivityRead)
    everything: list[tuple[float, str, Any]] = [(each.at, each.session_id, each) for each in found.changes]
    everything += [(each.at, each.session_id, each) for each in found.runs]
    everything.sort(key=lambda each: -each[0])
    days = [
        (day, [(session, [one for *_, one in group]) for session, group in groupby(its, key=lambda each: each[1])])
        for day, its in groupby(everything, key=lambda each: datetime.fromtimestamp(each[0]).astimezone().date())
    ]
    more = view.at("/timeline", before=found.changes[-1].at) if found.more else ""
    return view.page("timeline.html", days=days, more=more, done=done_of(view))


async def undo_run(view: View) -> Response:
    """Undo what the consolidator did at once."""
    if not view.said("run"):
        raise InvalidInput("No run is named.")
    await view.call("reflect_and_consolidate", undo=view.said("run"))
    return view.go("/timeline", done="run")


async def sessions(view: View) -> Response:
    """The project's sessions."""
    before = view.asked("before")
    asked = ListSessions(view.project, view.session, float_of(before) if before else None, PAGE)
    found = (await view.ask(asked, SessionsListed)).sessions
    more = view.at("/sessions", before=found[-1].last_active_at) if len(found) == PAGE else ""
    return view.page("sessions.html", sessions=found, more=more)


async def session(view: View) -> Response:
    """One session: what was said, done, stored and shown in it."""
    name = str(view.request.path_params["name"])
    about = await view.ask(DescribeSession(view.project, name), SessionDescription)
    turns = TurnsRead()
    if view.is_owner:
        numbers = re.fullmatch(r"(\d{1,18})-(\d{1,18})", view.asked("before"))
        before = (int(numbers[1]), int(numbers[2])) if numbers else None
        turns = await view.ask(ReadTurns(view.project, name, before), TurnsRead)
    own = ListMemories(
        project=view.project, session_id=name if view.is_owner else view.session, scopes=("session",), limit=PAGE + 1
    )
    memories = (await view.ask(own, Listed)).memories
    told: list[tuple[float, Any]] = [(each.at, each) for each in turns.turns]
    told += [(each.at, each) for each in turns.tool_calls]
    earlier = turns.earlier and view.at(f"/sessions/{name}", before=f"{turns.earlier[0]}-{turns.earlier[1]}")
    return view.page(
        "session.html",
        name=name,
        about=about,
        told=[each for _, each in sorted(told, key=lambda each: each[0])],
        earlier=earlier,
        own=memories[:PAGE],
        more=len(memories) > PAGE,
        given=await view.shown(session_id=name),
    )


PAGES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", "/live"): live,
    ("GET", "/review"): review,
    ("POST", "/review/proposal"): decide,
    ("POST", "/review/replace"): replace,
    ("POST", "/review/both"): keep_both,
    ("GET", "/timeline"): timeline,
    ("POST", "/timeline/undo"): undo_run,
    ("GET", "/sessions"): sessions,
    ("GET", "/sessions/{name}"): session,
}
