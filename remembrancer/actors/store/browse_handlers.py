"""Answers what the memory browser asks beside what sessions do: the findings of all files of a view, as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import Any

import msgspec

from remembrancer.actors.store.records.contract import GraphRows, PairRows, UsageRows
from remembrancer.actors.store.requests import Handler, RequestContext
from remembrancer.actors.store.retrieval.view import View
from remembrancer.protocol.browsing import (
    ActivityRead,
    BrowserRequest,
    FindPairs,
    GraphLink,
    GraphNode,
    GraphRead,
    ListSessions,
    Pair,
    PairsFound,
    ReadActivity,
    ReadGraph,
    ReadTurns,
    ReadUsage,
    SessionsListed,
    TurnsRead,
    UsageRead,
)
from remembrancer.protocol.reads import Filters, ListedMemory, Notice
from remembrancer.protocol.writes import ProjectRef

Answering = Callable[[ProjectRef, Callable[[View], Any]], Awaitable[tuple[Any, tuple[Notice, ...]]]]


class BrowseHandlers:
    """`answer` has work done on the view of a project, on a thread that reads."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer

    def handlers(self) -> dict[type, Handler]:
        """The handlers of the browser's questions."""
        return dict.fromkeys((ReadActivity, ListSessions, ReadTurns, FindPairs, ReadUsage, ReadGraph), self._browse)

    async def _browse(self, request: BrowserRequest, _context: RequestContext) -> Any:
        reply, notices = await self._answer(request.project, lambda view: browse(view, request))
        return msgspec.structs.replace(reply, notices=notices)


def browse(view: View, request: BrowserRequest) -> msgspec.Struct:
    """The answer to a question, from all lanes of a view."""
    lanes = view.browse(request)
    match request:
        case ReadActivity(limit=limit):
            read = [each for each in lanes if isinstance(each, ActivityRead)]
            changes = sorted((each for lane in read for each in lane.changes), key=lambda each: -each.at)
            more = len(changes) > limit or any(lane.more for lane in read)
            runs = sorted((each for lane in read for each in lane.runs), key=lambda each: -each.at)
            return ActivityRead(tuple(changes[:limit]), tuple(runs), more)
        case ListSessions(limit=limit):
            stored = Counter[str]()
            for each in lanes:
                if isinstance(each, SessionsListed):
                    stored.update({one.session_id: one.memories for one in each.sessions})
            # The user's space has sessions of other projects, too: those that stored something of the user.
            sessions = {
                one.session_id: msgspec.structs.replace(one, memories=stored[one.session_id])
                for each in view.within(("session", "project")).browse(request)
                if isinstance(each, SessionsListed)
                for one in each.sessions
            }
            latest = sorted(sessions.values(), key=lambda each: -each.last_active_at)
            return SessionsListed(tuple(latest[:limit]))
        case ReadTurns():
            told = [each for each in lanes if isinstance(each, TurnsRead)]
            return TurnsRead(
                tuple(turn for lane in told for turn in lane.turns),
                tuple(call for lane in told for call in lane.tool_calls),
                next((lane.earlier for lane in told if lane.earlier is not None), None),  # a session is in one file
            )
        case FindPairs(session_id=session_id, limit=limit):
            rows = [row for each in lanes if isinstance(each, PairRows) for row in each.pairs]
            found = view.load(
                {number: None for older, newer, *_ in rows for number in (older, newer)}, Filters(session_id)
            )
            beside = {number: ListedMemory(**record.listed()) for number, record in found.items()}
            pairs = [
                Pair(beside[older], beside[newer], relation, strength)
                for older, newer, relation, strength in rows
                if older in beside and newer in beside
            ]
            pairs.sort(key=lambda each: (each.relation, -each.strength))
            return PairsFound(tuple(pairs[:limit]))
        case ReadGraph(limit=limit):
            return _joined([each for each in lanes if isinstance(each, GraphRows)], limit)
        case ReadUsage(session_id=session_id, limit=limit):
            usage = [each for each in lanes if isinstance(each, UsageRows)]
            stored = Counter[str]()
            for each in usage:
                stored.update(each.stored)
            wanted = [number for each in usage for number in (*each.most, *each.unused)]
            loaded = view.load(wanted, Filters(session_id))
            known = [ListedMemory(**record.listed()) for record in loaded.values()]
            most = sorted((each for each in known if each.access_count), key=lambda each: -each.access_count)
            unused = sorted((each for each in known if not each.access_count), key=lambda each: each.created_at)
            return UsageRead(
                dict(sorted(stored.items())),
                tuple(most[:limit]),
                tuple(unused[:limit]),
                sum(each.never for each in usage),
                sum(each.total for each in usage),
            )


def _joined(lanes: list[GraphRows], limit: int) -> GraphRead:
    """One graph of those of several files, in which an entity is known by its key."""
    nodes: dict[str, GraphNode] = {}
    links: dict[tuple[str, str], tuple[int, str]] = {}
    for lane in lanes:
        for key, node in lane.nodes:
            if (before := nodes.get(key)) is not None:
                node = msgspec.structs.replace(before, memories=before.memories + node.memories)
            nodes[key] = node
        for source, target, memories, relation in lane.links:
            count, known = links.get((source, target), (0, ""))
            links[source, target] = (count + memories, known or relation)
    keys = sorted(nodes)
    keys.sort(key=lambda key: -nodes[key].memories)
    places = {key: place for place, key in enumerate(keys[:limit])}
    return GraphRead(
        tuple([nodes[key] for key in places]),
        tuple(
            [
                GraphLink(places[source], places[target], memories, relation)
                for (source, target), (memories, relation) in sorted(links.items(), key=itemgetter(1), reverse=True)
                if source in places and target in places
            ]
        ),
    )
