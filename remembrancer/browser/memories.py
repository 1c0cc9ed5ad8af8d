"""The *Search* and *Memory* pages, and all changes to memories, with undo."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from remembrancer.browser.rendering import day, word_diff
from remembrancer.browser.view import Handler, View, name_of, who
from remembrancer.memory.changes import UNDONE
from remembrancer.memory.fields import tags_named
from remembrancer.memory.open_ends import asks_for_open_ends
from remembrancer.memory.promotion import named_kind
from remembrancer.memory.relevance import PERHAPS
from remembrancer.memory.sentences import excerpt
from remembrancer.memory.short_ids import WHOLE
from remembrancer.memory.text import count, harmless, tags_in, tags_text
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.kinds import KINDS, SCOPES, SESSION_KINDS
from remembrancer.protocol.reads import GetMemory, ListMemories, Order, Recall
from remembrancer.protocol.writes import HistoryEntry, PortableMemory, RecordedFields

FOUND: Final = 20
RESULTS_SHOWN: Final = 5
"""Weaker results are collapsed."""
PAGE: Final = 50
LEFT_OUT: Final = 8
VERSIONS_COMPARED: Final = 20
"""The number of latest versions that are compared with their predecessors."""
EXCERPT_CHARACTERS: Final = 80
FILTERS: Final = ("scope", "kind", "tag", "since", "until", "source", "order", "forgotten")
"""The fields in a URL that narrow or order a search."""
NAMES_NO_VALUE: Final = ("updated", "closed", "restored", "tagged", UNDONE)
"""The changes for which the changed fields are listed, with their values."""
FORMATTERS: Final[Mapping[str, Callable[[Any], str]]] = {
    **dict.fromkeys(("kind", "type", "scope"), lambda name: (name or "").replace("_", " ")),
    **dict.fromkeys(("due", "occurred_at", "valid_from", "valid_until"), day),
    **dict.fromkeys(("importance", "confidence"), "{:.2f}".format),
    "tags": tags_text,
}
"""The fields whose values before and after a change are shown, and the functions that format them."""
DAYS: Final = ("due", "occurred_at")
MOST_PAST: Final = 100_000
LAST_MOMENT_S: Final = 1e-3
"""A search up to a day ends this long before the next day."""
ORDERS: Final[tuple[Order, ...]] = ("latest", "important", "due")
DONE: Final = {
    **{"tag": "Tags changed.", "done": "Done.", "reopen": "Open again.", "forget": "Forgotten."},
    **{"restore": "Restored.", "user": "Moved.", "project": "Moved.", "refuse": "It stays in its project."},
    **{"invalidate": "Marked as no longer true.", "replace": "Replaced.", "undo": "Undone."},
    **{"both": "Both stay as they are.", "nothing": "Nothing was changed."},
    **{"edit": "Saved.", "remember": "Remembered.", "known": "Already remembered.", "erase": "Erased for good."},
    **{"run": "Everything was undone."},
}
"""The messages about the last change that a URL can select. No other text from a URL is shown."""


def filters_of(view: View) -> dict[str, Any]:
    """Read the fields of `Filters` from the URL. Raises `InvalidInput`."""
    scope, kind = view.query("scope"), view.query("kind")
    if (scope and scope not in SCOPES) or (kind and kind not in KINDS):
        raise InvalidInput("There is no such scope or kind; choose one from the list.")
    before = day_of(view.query("until"))
    return {
        "session_id": view.session,
        "scopes": (scope,) if scope else (),
        "kinds": (kind,) if kind else (),
        "tags": tags_named(tags_in(view.query("tag"))),
        "after": day_of(view.query("since")),
        "before": None if before is None else before + 86_400 - LAST_MOMENT_S,
        "include_forgotten": bool(view.query("forgotten")),
    }


async def search(view: View, refused: str = "") -> Response:
    """Show the memories that match a query (which may be an id, or a question about all open ends); without a query,
    show the latest ones. `refused` is the reason why the text under *Add a memory* was not stored."""
    question, source, filters = view.query("q"), view.query("source"), filters_of(view)
    asks_for_all = asks_for_open_ends(question) and not (filters["kinds"] or source)
    order: Order = "due" if asks_for_all else next((each for each in ORDERS if each == view.query("order")), "latest")
    values: dict[str, Any] = {
        **{"question": question, "order": order, "refused": refused},
        **{"found": None, "memories": (), "more": "", "named": None, "best": RESULTS_SHOWN, "answering": PERHAPS},
        "storable": [each for each in KINDS if each not in SESSION_KINDS],
        "narrowed": sum(bool(view.query(name)) for name in FILTERS),
    }
    if WHOLE.fullmatch(named := await view.whole_id(question)):
        with suppress(NotFound):
            values["named"] = await _now(view, named)
    if question and not asks_for_all:
        is_typed = bool(view.query("typed"))
        about = await view.whole_id(view.query("not"))
        request = Recall(
            project=view.project,
            query=question,
            strategy="keyword" if is_typed else "hybrid",  # search by meaning once typing stops
            limit=FOUND,
            sources=(source,) if source in ("memory", "notes") else (),  # type: ignore[arg-type]
            root=view.tree,
            left_out=0 if is_typed else LEFT_OUT,
            about=about,
            **filters,
        )
        asked_at = time.perf_counter()
        found = await view.ask(request)
        values |= {"found": found, "memories": found.memories, "took_ms": (time.perf_counter() - asked_at) * 1000}
        values |= {"about": about, "places": {each.id: place for place, each in enumerate(found.memories, 1)}}
    elif source != "notes" and not refused:
        past = min(number_of(view.query("past")), MOST_PAST)
        listing = ListMemories(project=view.project, order=order, limit=PAGE + 1, offset=past, **filters)
        listed = await view.ask(listing)
        values["memories"] = page = listed.memories[:PAGE]
        if len(listed.memories) > PAGE or listed.more:
            values["more"] = view.at("/", **{**view.request.query_params, "past": past + len(page)})
    return await view.page("search.html", 400 if refused else 200, **values, done=await done_of(view))


async def memory(view: View, unsaved: Mapping[str, Any] | None = None, refused: str = "") -> Response:
    """`unsaved` are the rejected edits. `refused` is the reason, or empty if the text has changed meanwhile."""
    shown = await view.ask(GetMemory(view.project, view.session, await view.whole_id(_id_of(view))))
    memory = shown.memory
    links = (*memory.links, *shown.incoming)
    others = (*(each.target for each in links), *shown.near_duplicates, *shown.copies)
    texts = await view.texts([memory.id, *others])
    settled = {each.target for each in links if memory.valid_until or each.relation == "supersedes"}
    # An invalid or forgotten memory replaces nothing.
    settled |= {each.target for each in links if each.target not in texts or texts[each.target].valid_until}
    later = texts[memory.id].possibly_superseded_by if memory.id in texts else ()
    project_names = {each.id: name_of(each) for each in view.projects}
    return await view.page(
        "memory.html",
        200 if unsaved is None else 400,
        shown=shown,
        memory=memory,
        edited=msgspec.structs.replace(memory, **(unsaved or {})),
        is_unsaved=unsaved is not None,
        refused=refused,
        versions=versions_of(memory.history),
        done=await done_of(view, with_names=False),
        given=await view.shown(memory_id=memory.id),
        texts=texts,
        settled=settled,
        later=[each for each in later if each in texts and each not in settled],
        names=dict.fromkeys([*(each.name for each in memory.related_entities), *shown.found_entities]),
        who=partial(who, sessions=await view.sessions()),
        project_name=project_names.get(memory.source_project or "", "another"),
    )


def versions_of(history: Sequence[HistoryEntry]) -> Iterator[tuple[HistoryEntry, list[str], Markup]]:
    """The versions of a memory, the latest first: each with its changed fields and the difference of its text."""
    for place in reversed(range(len(history))):
        entry, before = history[place], history[max(0, place - 1)].record
        names = entry.details.get("fields", ()) if place and entry.change in NAMES_NO_VALUE else ()
        fields = [_changed(name, before, entry.record) for name in names if name not in ("content", "status")]
        is_compared = len(history) - place <= VERSIONS_COMPARED and entry.record.content != before.content
        yield entry, fields, word_diff(before.content, entry.record.content) if is_compared else Markup("")


def _changed(field: str, before: RecordedFields, after: RecordedFields) -> str:
    name = field.replace("_", " ")
    if field not in FORMATTERS:
        return name
    values = (FORMATTERS[field](getattr(each, field)) or "none" for each in (before, after))
    return f"{name} {' → '.join(values)}"


async def edit(view: View) -> Response:
    """Change only the fields that differ from the version on the page; nothing if somebody else changed the text."""
    now = await _now(view, _id_of(view))
    before = next((each.record for each in now.history if str(each.version) == view.field("version")), now)
    shown = {"summary": before.summary or "", "kind": before.kind, "importance": round(before.importance, 2)}
    shown |= {name: day(getattr(before, name)) for name in DAYS}
    given: dict[str, Any] = {name: view.field(name) for name in ("summary", *DAYS)}
    given |= {"kind": view.field("kind") or before.kind}
    given["importance"] = round(float_of(view.field("importance") or str(before.importance)), 2)
    changes = {name: value for name, value in given.items() if value != shown[name]}
    content = view.raw_field("content")
    if content not in (before.content, now.content):
        changes["content"] = content
    tags = set(tags_in(view.field("tags")))
    typed = {**changes, "tags": sorted(tags)}
    if "content" in changes and before.content != now.content:
        kept = [each for each in now.tags if each in tags or each not in before.tags]
        return await memory(view, {**typed, "tags": (*kept, *sorted(tags.difference(before.tags, kept)))})
    if tags != set(before.tags):
        changes["tags"] = {"add": sorted(tags - set(before.tags)), "remove": sorted(set(before.tags) - tags)}
    if changes:
        allow_secrets = bool(view.field("allow_secrets"))
        try:
            await view.call("update_memory", memory_id=now.id, allow_secrets=allow_secrets, **changes)
        except InvalidInput as error:  # such as a suspected credential: the user's input is kept
            return await memory(view, typed, error.message)
    return _next(view, now.id, "edit", {now.id: await _undo_of(view, now)})


async def remember(view: View) -> Response:
    """Store a passage of a note or typed text. A text that was already stored has no undo, which would forget it."""
    path, text = view.field("path"), view.raw_field("passage")
    fields: dict[str, Any] = {
        name: view.field(name) for name in ("kind", "due", "scope", "occurred_at") if view.field(name)
    }
    fields |= {"tags": list(tags_in(view.field("tags"))), "allow_secrets": bool(view.field("allow_secrets"))}
    try:
        answer = await view.call("store_memory", content=text, **fields, **({"source": {"file": path}} if path else {}))
    except InvalidInput as error:
        if path:
            raise
        return await search(view, error.message)
    page = partial(view.redirect, "/notes/file" if path else "/", path=path)
    if answer.get("already_known"):
        return page(done="known")
    known = [each.get("memory_id") for each in answer.get("memories", ()) if each.get("already_known")]
    new = [str(each) for each in answer.get("ids", [answer.get("memory_id")]) if each not in known]
    return page(done="remember", undo=",".join([f"{await view.whole_id(each)}~undo/1" for each in new]))


async def erase(view: View) -> Response:
    if view.field("sure") != "yes":
        raise InvalidInput("Erasing cannot be undone: tick the box to confirm.")
    await view.call("erase_memory", memory_id=_id_of(view))
    return view.redirect("/", done="erase")


async def change(view: View) -> Response:
    """Make one change to all ticked memories. The URL of the next page contains the undo."""
    chosen = [value for name, value in view.form if name == "id"]
    what = view.field("what")
    if not chosen:
        raise InvalidInput("No memory is ticked. Tick some memories first.")
    if what == "replace":
        if not WHOLE.fullmatch(newer := await view.whole_id(view.field("newer"))):
            raise InvalidInput("Enter the id of the memory that replaces this one, or the address of its page.")
        what = f"replace/{newer}"
    undo: dict[str, str | None] = {}
    failures: list[RemembrancerError] = []
    for memory_id in chosen[:PAGE]:
        try:
            before = await _now(view, memory_id)
            other = await _change(view, before, view.field(memory_id) if what == "undo" else what)
            if what != "undo":
                undo[memory_id] = other or await _undo_of(view, before)
        except (InvalidInput, NotFound) as error:
            failures.append(error)
    if len(failures) == len(chosen):
        raise failures[0]
    return _next(view, chosen[0], what.partition("/")[0], undo, len(failures))


async def _change(view: View, memory: PortableMemory, what: str) -> str:
    """Carry out the action of a button. Returns the change that undoes it, unless it makes a new version."""
    call = partial(view.call, memory_id=memory.id)
    match what.split("/"):
        case ["tag"] if tags := tags_in(view.field("tags")):
            await call("tag_memory", add=list(tags))
        case ["done" | "reopen"]:
            await call("update_memory", done=what == "done")
        case ["forget"]:
            await call("forget_memory")
        case ["restore"]:
            await call("restore_memory")
        case ["restore", version]:
            await call("restore_memory", version=number_of(version))
        case ["undo", version]:
            await call("restore_memory", version=number_of(version), undo=True)
        case ["user" | "project"]:
            if memory.scope != what:
                await call("promote_memory", target_scope=what)
        case ["refuse"]:
            await call("promote_memory", target_scope="project")
            return "restore"
        case ["invalidate"]:
            await call("update_memory", valid_until=datetime.now().astimezone().isoformat())
        case ["replace", newer]:
            await view.call(
                "update_memory", memory_id=newer, add_links=[{"relation": "supersedes", "target": memory.id}]
            )
        case ["both", other]:
            await call("update_memory", add_links=[{"relation": "related_to", "target": other}])
        case _:
            raise InvalidInput("Enter the tags to add, or choose another action.")
    return ""


async def _undo_of(view: View, before: PortableMemory) -> str | None:
    """The change that undoes all changes since `before`: empty if that is impossible, None if nothing was changed."""
    now = await _now(view, before.id)
    if now.id != before.id or (before.scope == "session" and now.scope != "session"):
        return ""
    return None if now.version == before.version else f"undo/{now.version}"


async def _now(view: View, memory_id: str) -> PortableMemory:
    return (await view.ask(GetMemory(view.project, view.session, memory_id))).memory


async def done_of(view: View, *, with_names: bool = True) -> dict[str, Any]:
    """The last change's message, and the undo for each memory id. `with_names` is for pages without the memories."""
    undo = dict(each.rpartition("~")[::2] for each in view.query("undo").split(",") if "~" in each)
    said, names = DONE.get(view.query("done"), ""), ""
    if len(undo) > 1:
        names = count(len(undo), "memory")
    elif undo and said and with_names:
        with suppress(NotFound):
            now = await _now(view, *undo)
            names = f"“{excerpt(harmless(now.content), EXCERPT_CHARACTERS)}”"
            if said == DONE["remember"] and now.kind not in (None, "fact"):  # the kind may be a guess
                due = "" if now.due is None else f" due {day(now.due)}"
                said = f"Remembered, {named_kind(now.kind)}{due}."
    return {"said": said, "names": names, "undo": undo, "failed": number_of(view.query("failed"))}


def _next(view: View, memory_id: str, done: str, undo: Mapping[str, str | None], failed: int = 0) -> Response:
    if undo and all(way is None for way in undo.values()):
        done = "nothing"
    back = view.field("back") or f"/memory/{memory_id}"
    ways = ",".join(f"{each}~{way}" for each, way in undo.items() if way)
    return view.redirect(back if back.startswith("/") else "/", done=done, undo=ways, failed=failed or None)


def _id_of(view: View) -> str:
    return str(view.request.path_params["memory"])


def float_of(text: str) -> float:
    """Raises `InvalidInput`."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"Enter a number, not {text[:20]!r}.") from None


def number_of(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def day_of(text: str) -> float | None:
    """The start of a day in this machine's time zone. Raises `InvalidInput`."""
    try:
        at = datetime.fromisoformat(text) if text else None
        if at is not None and not 1970 < at.year < 9000:  # the range supported by the clocks of all systems
            raise ValueError
        return None if at is None else at.timestamp()
    except ValueError:
        raise InvalidInput("Enter a date such as 2026-11-22.") from None


PAGES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", "/"): search,
    ("GET", "/memory/{memory}"): memory,
    ("POST", "/memory/{memory}/edit"): edit,
    ("POST", "/memory/{memory}/erase"): erase,
    ("POST", "/change"): change,
    ("POST", "/remember"): remember,
}
