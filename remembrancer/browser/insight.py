"""The overview pages: *Projects*, *Health*, *Notes*, *Code* and *Graph*."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
from starlette.responses import Response

from remembrancer.browser.memories import done_of
from remembrancer.browser.rendering import MAX_MARKDOWN, blocks_of, word_diff
from remembrancer.browser.view import Handler, View
from remembrancer.memory.credentials import masked
from remembrancer.memory.found_names import is_proper
from remembrancer.protocol.browsing import GraphLink, GraphNode, GraphRead, ReadGraph
from remembrancer.protocol.code import DescribeCode, ListCodeFiles
from remembrancer.protocol.control import AskStatus, RuntimeStatus, from_launcher
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.files import DescribeFiles, Files, ListedFile, ListFiles, Workspace
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.problems import find_problems, of_embedding
from remembrancer.protocol.reads import DescribeStore, GraphFound, SearchGraph
from remembrancer.protocol.sockets import Dealer, Speaker
from remembrancer.protocol.tracing import last_durations_s
from remembrancer.protocol.writes import MENTIONED_WITH
from remembrancer.toolsets.files.memory_read import read_note

DAY_S: Final = 86_400.0
NODES: Final = 2000
LISTED: Final = 100
DRAWN: Final = 300
"""The number of entities that are drawn, the most important ones."""
FILES: Final = 200
CONTROL_S: Final = 2.0


async def projects(view: View) -> Response:
    """The projects that the visitor may see, and the contents of this one."""
    store = await view.ask(DescribeStore(view.project, view.session))
    return view.page("projects.html", here=store)


async def health(view: View) -> Response:
    """The problems of the processes, the queue and the embedding, and the latency of the last calls."""
    asked_of_store = view.ask(DescribeStore(view.project, view.session))
    (status, why), store = await asyncio.gather(_running(view), asked_of_store)
    problems = [why] if why else []
    if status is not None:
        problems += [*status.warnings, *map(str, find_problems(status))]
    else:
        problems += map(str, of_embedding(store.embedding))
    lasted = last_durations_s() if view.is_owner else []  # of this gateway
    latency = [(place, round(each * 1000, 2)) for place, each in enumerate(lasted, 1)]
    latencies = json.dumps(latency)
    return view.page("health.html", status=status, store=store, problems=problems, latency=latencies, calls=latency)


async def _running(view: View) -> tuple[RuntimeStatus | None, str]:
    """The state of the processes, for the owner only, or the reason why it is unknown."""
    if not view.is_owner:
        return None, ""
    try:
        async with Dealer(view.shared.control_endpoint, Speaker("command", new_ulid()), from_launcher) as launcher:
            await launcher.wait_connected(CONTROL_S)
            return await launcher.request(AskStatus(), timeout_s=CONTROL_S), ""
    except RemembrancerError as error:
        return None, error.message


async def notes(view: View) -> Response:
    """The notes of the working tree: the files, and whether their index is up to date."""
    workspace = Workspace(view.project, view.tree)
    about = await view.ask(DescribeFiles(workspace))
    listed = await view.ask(ListFiles(workspace, view.asked("after"), FILES))
    return view.page("notes.html", about=about, listed=listed, more=_after(view, "/notes", listed))


async def note(view: View) -> Response:
    """A note, passage by passage, and its source for editing."""
    return await _note_page(view, view.asked("path"))


async def _note_page(view: View, path: str, said: str = "", text: str | None = None) -> Response:
    """The page of a note; `text` is an edited version that was not saved, for the reason `said`."""
    settings = view.shared.service.settings
    now = await anyio.to_thread.run_sync(partial(read_note, path, view.tree, settings))
    is_secret = masked(now) != now
    return view.page(
        "note.html",
        400 if said else 200,
        path=path,
        passages=list(passages(masked(now))),
        text=None if is_secret else now if text is None else text,
        said=said,
        diff=word_diff(now, text) if text is not None and not is_secret else "",
        digest=hashlib.sha256(now.encode()).hexdigest(),
        done=done_of(view),
    )


def passages(text: str) -> Iterator[tuple[str, str]]:
    """The blocks of a Markdown text, each with its heading; a heading itself has none."""
    lines, heading = text.split("\n"), ""
    if len(text) > MAX_MARKDOWN:
        yield text, ""
        return
    for first, end, is_heading in blocks_of(text):
        block = "\n".join(lines[first:end]).strip("\r\n")
        heading = block.lstrip("# ") if is_heading else heading
        yield block, "" if is_heading else heading or block


async def save_note(view: View) -> Response:
    """Save an edited note, if the file has not changed since it was loaded."""
    path, text = view.said("path"), view.exactly("text").replace("\r\n", "\n")
    try:
        await view.call("memory_store", path=path, content=text, mode="replace", expected=view.said("digest"))
    except InvalidInput as error:
        return await _note_page(view, path, error.message, text)
    return view.go("/notes/file", path=path, done="edit")


async def remember(view: View) -> Response:
    """Store a passage of a note as a memory."""
    path = view.said("path")
    answer = await view.call("store_memory", content=view.exactly("passage"), source={"file": path})
    memory_id = await view.whole_id(str(answer["memory_id"]))
    return view.go("/notes/file", path=path, done="remember", undo=f"{memory_id}~forget")


async def code(view: View) -> Response:
    """The indexed trees of code, and the files of one of them."""
    trees = await view.ask(DescribeCode(view.project))
    wanted = view.asked("tree") or (trees[0].id if trees else "")
    listed: Files[ListedFile] = Files(())
    if wanted:
        listed = await view.ask(ListCodeFiles(view.project, wanted, view.asked("after"), FILES))
    more = _after(view, "/code", listed, tree=wanted)
    return view.page("code.html", trees=trees, wanted=wanted, listed=listed, more=more)


def _after(view: View, path: str, listed: Files[ListedFile], **query: str) -> str:
    """The address of the next page of files; empty on the last page."""
    return view.at(path, **query, after=listed.files[-1].path) if listed.more else ""


async def graph(view: View) -> Response:
    """The entities and their relations; as a list without scripts."""
    entity = view.asked("entity")
    if entity:
        answer = await _around(view, entity, LISTED)
        return view.page(
            "graph.html", entity=entity, entities=answer.entities, suggestions=answer.suggestions, hidden=0
        )
    graph, hidden = await _overview(view)
    related: dict[str, dict[str, dict[str, str]]] = {}
    for link in graph.links:
        source, target = graph.nodes[link.source].name, graph.nodes[link.target].name
        for here, there, direction in ((source, target, "outgoing"), (target, source, "incoming")):
            edge = {"type": link.type, "target": there, "direction": direction}
            related.setdefault(here, {}).setdefault(there, edge)
    entities = [
        {
            "name": each.name,
            "type": each.type,
            "memory_count": each.memories,
            "relationships": list(related.get(each.name, {}).values()),
        }
        for each in graph.nodes[:LISTED]
    ]
    return view.page("graph.html", entity="", entities=entities, suggestions=(), hidden=hidden)


async def _overview(view: View) -> tuple[GraphRead, int]:
    """The most important entities worth showing, or all of them with `all`, and the number of entities left out."""
    graph = await view.ask(ReadGraph(view.project, view.session, NODES))
    wanted = [place for place, each in enumerate(graph.nodes) if view.asked("all") or is_proper(each.name, each.type)]
    whole = {} if view.asked("all") else _whole_names([graph.nodes[place] for place in wanted])
    names = dict.fromkeys(whole.get(graph.nodes[place].name, graph.nodes[place].name) for place in wanted)
    nodes = [each for each in graph.nodes if each.name in names and each.name not in whole][:DRAWN]
    places = {each.name: place for place, each in enumerate(nodes)}
    links: dict[tuple[int, int, str], GraphLink] = {}
    for each in graph.links:
        source, target = (
            places.get(whole.get(name := graph.nodes[end].name, name)) for end in (each.source, each.target)
        )
        if source is not None and target is not None and source != target:
            links.setdefault((source, target, each.type), GraphLink(source, target, each.memories, each.type))
    return GraphRead(tuple(nodes), tuple(links.values())), len(graph.nodes) - len(wanted)


def _whole_names(nodes: Sequence[GraphNode]) -> dict[str, str]:
    """The whole name of each person of whom a text also gives the last name alone: Anna Lindqvist for Lindqvist."""
    people = [each for each in nodes if each.type == "person" and " " in each.name]
    last_names: dict[str, list[str]] = {}
    for each in people:
        last_names.setdefault(each.name.rpartition(" ")[2], []).append(each.name)
    return {each.name: last_names[each.name][0] for each in nodes if len(last_names.get(each.name, ())) == 1}


async def graph_data(view: View) -> Response:
    """The data for the drawing of the graph."""
    if not (entity := view.asked("entity")):
        graph, _ = await _overview(view)
        names = [each.name for each in graph.nodes]
        return _json(
            [{"id": each.name, "type": each.type, "memories": each.memories} for each in graph.nodes],
            [{"source": names[each.source], "target": names[each.target], "type": each.type} for each in graph.links],
        )
    answer = await _around(view, entity, DRAWN)
    known = {each.name for each in answer.entities}
    links: dict[tuple[str, str, str], None] = {}
    for each in answer.entities:
        for edge in each.relationships:
            if edge.target in known and not edge.stale:
                ends = (each.name, edge.target) if edge.direction == "outgoing" else (edge.target, each.name)
                links[(*ends, "" if edge.type == MENTIONED_WITH else edge.type)] = None
    nodes: list[dict[str, Any]] = [
        {"id": each.name, "type": each.type, "memories": each.memory_count} for each in answer.entities
    ]
    return _json(nodes, [{"source": a, "target": b, "type": kind} for a, b, kind in links])


def _json(nodes: list[dict[str, Any]], links: list[dict[str, Any]]) -> Response:
    return Response(msgspec.json.encode({"nodes": nodes, "links": links}), media_type="application/json")


async def _around(view: View, entity: str, limit: int) -> GraphFound:
    question = SearchGraph(view.project, view.session, entity=entity, depth=2, include_memories=False, limit=limit)
    return await view.ask(question)


PAGES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", "/projects"): projects,
    ("GET", "/health"): health,
    ("GET", "/notes"): notes,
    ("GET", "/notes/file"): note,
    ("POST", "/notes/save"): save_note,
    ("POST", "/notes/remember"): remember,
    ("GET", "/code"): code,
    ("GET", "/graph"): graph,
    ("GET", "/graph.json"): graph_data,
}
