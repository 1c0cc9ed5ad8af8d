"""The overview pages *Projects*, *Health*, *Notes*, *Code* and *Graph*."""

import asyncio
import hashlib
import math
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from starlette.responses import Response

from remembrancer.browser.memories import done_of
from remembrancer.browser.rendering import MAX_MARKDOWN
from remembrancer.browser.view import Handler, View
from remembrancer.config.project import is_gone
from remembrancer.memory.chunks import Block, blocks_of, line_starts
from remembrancer.memory.credentials import masked
from remembrancer.memory.found_names import is_proper
from remembrancer.protocol.browsing import ReadGraph
from remembrancer.protocol.code import DescribeCode, ListCodeFiles
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.files import DescribeFiles, Files, ListFiles
from remembrancer.protocol.reads import DescribeStore, GraphFound, SearchGraph
from remembrancer.protocol.tracing import last_durations_s
from remembrancer.protocol.writes import MENTIONED_WITH
from remembrancer.toolsets.files.note_tools import read_note

NODES: Final = 2000
LISTED: Final = 100
MAX_NODES: Final = 300
FILES: Final = 200


async def projects(view: View) -> Response:
    store = await view.ask(DescribeStore(view.project, view.session))
    gone = await anyio.to_thread.run_sync(lambda: {each.id for each in view.projects if is_gone(each)})
    return await view.page("projects.html", here=store, gone=gone)


async def health(view: View) -> Response:
    (problems, status), store = await asyncio.gather(
        view.shared.service.look(None if view.is_owner else view.project),
        view.ask(DescribeStore(view.project, view.session)),
    )
    lasted_ms = [1000 * each for each in last_durations_s()] if view.is_owner else []  # of this gateway
    heights = [math.log1p(each) / math.log1p(max(lasted_ms)) for each in lasted_ms]  # logarithmic, for a slow start
    shown = status if view.is_owner else None
    return await view.page(
        "health.html", status=shown, store=store, problems=problems, lasted_ms=lasted_ms, heights=heights
    )


async def notes(view: View) -> Response:
    request = ListFiles(view.project, view.tree, view.query("after"), FILES)
    listed = await view.ask(request)
    if not listed.files:  # files are only read for connected sessions, if there are any
        with suppress(RemembrancerError):  # the page says that they have not been read
            await view.call("memory_sync")
            listed = await view.ask(request)
    about = await view.ask(DescribeFiles(view.project, view.tree))
    return await view.page("notes.html", about=about, listed=listed, more=_after(view, "/notes", listed))


async def note(view: View, refused: InvalidInput | None = None, text: str | None = None) -> Response:
    """`text` is an edited version that was refused."""
    path = view.field("path") or view.query("path")
    settings = view.shared.service.settings
    try:
        now = await anyio.to_thread.run_sync(partial(read_note, path, view.project, view.tree, settings))
    except NotFound:  # it has been deleted, and saving recreates it
        if text is None:
            raise
        now = ""
    is_secret = masked(now) != now
    return await view.page(
        "note.html",
        400 if refused else 200,
        path=path,
        passages=list(passages(masked(now))),
        text=None if is_secret else now if text is None else text,
        refused=refused and refused.message,
        is_outdated=refused is not None and refused.field == "expected",
        before=None if text is None or is_secret else now,
        digest=hashlib.sha256(now.encode()).hexdigest(),
        done=await done_of(view),
    )


def passages(text: str) -> Iterator[tuple[str, bool]]:
    """The blocks of a Markdown text, each with True if it can be remembered: it is not a heading, and not very long."""
    starts = line_starts(text)
    for block in blocks_of(text) if len(text) <= MAX_MARKDOWN else [Block(0, len(starts) - 1, level=1)]:
        yield text[starts[block.first] : starts[block.end]].strip("\r\n"), not block.level


async def save_note(view: View) -> Response:
    path, text = view.field("path"), view.raw_field("text")
    digest = view.field("digest")
    if hashlib.sha256(text.encode()).hexdigest() == digest:
        return view.redirect("/notes/file", path=path, done="nothing")
    try:
        await view.call("memory_store", path=path, content=text, mode="replace", expected=digest)
    except InvalidInput as error:
        return await note(view, error, text)
    return view.redirect("/notes/file", path=path, done="edit")


async def code(view: View) -> Response:
    trees = await view.ask(DescribeCode(view.project))
    wanted = view.query("tree") or (trees[0].id if trees else "")
    listed: Files = Files(())
    if wanted:
        listed = await view.ask(ListCodeFiles(view.project, wanted, view.query("after"), FILES))
    more = _after(view, "/code", listed, tree=wanted)
    return await view.page("code.html", trees=trees, wanted=wanted, listed=listed, more=more)


def _after(view: View, path: str, listed: Files, **query: str) -> str:
    """The URL of the next page of files; empty on the last page."""
    return view.at(path, **query, after=listed.files[-1].path) if listed.more else ""


async def graph(view: View) -> Response:
    entity = view.query("entity")
    found, hidden = await _entities(view, LISTED)
    of_entity = SearchGraph(view.project, view.session, entity=entity, depth=0, limit=LISTED)
    return await view.page(
        "graph.html",
        entity=entity,
        entities=found.entities[:LISTED],
        suggestions=found.suggestions,
        memories=(await view.ask(of_entity)).memories if entity else (),
        hidden=hidden,
    )


async def graph_data(view: View) -> Response:
    found, _ = await _entities(view, MAX_NODES)
    known = {each.name for each in found.entities}
    links: dict[tuple[str, str, str], None] = {}
    for each in found.entities:
        for edge in each.relationships:
            if edge.target in known and not edge.stale:
                ends = (each.name, edge.target) if edge.direction == "outgoing" else (edge.target, each.name)
                links[(*ends, "" if edge.type == MENTIONED_WITH else edge.type)] = None
    data = {
        "nodes": [{"id": each.name, "type": each.type, "memories": each.memory_count} for each in found.entities],
        "links": [{"source": source, "target": target, "type": kind} for source, target, kind in links],
    }
    return Response(msgspec.json.encode(data), media_type="application/json")


async def _entities(view: View, limit: int) -> tuple[GraphFound, int]:
    """The entities around the named one, or else all with proper names, and the number of others."""
    if entity := view.query("entity"):
        around = SearchGraph(view.project, view.session, entity=entity, depth=2, include_memories=False, limit=limit)
        return await view.ask(around), 0
    graph = await view.ask(ReadGraph(view.project, view.session, NODES))
    wanted = [each for each in graph.entities if view.query("all") or is_proper(each.name, each.type)]
    shown = wanted[:MAX_NODES]
    names = {each.name for each in shown}
    entities = (
        msgspec.structs.replace(each, relationships=tuple(edge for edge in each.relationships if edge.target in names))
        for each in shown
    )
    return GraphFound(tuple(entities)), len(graph.entities) - len(wanted)


PAGES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", "/projects"): projects,
    ("GET", "/health"): health,
    ("GET", "/notes"): notes,
    ("GET", "/notes/file"): note,
    ("POST", "/notes/save"): save_note,
    ("GET", "/code"): code,
    ("GET", "/graph"): graph,
    ("GET", "/graph.json"): graph_data,
}
