"""The shell commands that find and show memories. They call the tools that sessions use, over the gateway's socket."""

import os
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.markup import escape

from remembrancer.commands import exit_codes
from remembrancer.commands.gateway_client import LOOK_S, pause
from remembrancer.commands.report import Line, Report, Rows, argument, flag, option
from remembrancer.commands.selection import (
    REMEDIES,
    WITHOUT_USER,
    Answer,
    GatewayConnection,
    Where,
    as_notes,
    ask_store,
    memory_command,
    memory_id,
    short,
    warnings_of,
    with_short_ids,
)
from remembrancer.commands.terminal import notice_when_slow, styled
from remembrancer.memory.open_ends import asks_for_open_ends, last_day_asked_for
from remembrancer.memory.sentences import excerpt, one_line, says_more, without_marks
from remembrancer.memory.text import NAMELESS, count, neutralised_value, session_title, tags_in
from remembrancer.memory.times.windows import TimeWindow, time_windows
from remembrancer.protocol.browsing import MOST_PAIRS, FindUndecided, ListSessions
from remembrancer.protocol.code import ListStale
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.kinds import KINDS, OPEN_END, SCOPES, SESSION_RECORD
from remembrancer.protocol.session_life import SHELL_SESSION, author_of

MEANING_S: Final = 3.0
"""The time that a search waits for a model to load; after that, it searches by words only, and reports this."""
BEST: Final = 5
"""The number of search results shown by default."""
QUOTED_CHARACTERS: Final = 60
"""The number of characters quoted from the newer memory in a "replaced by" mark."""
LONGEST: Final = 500
"""The number of characters of a memory shown in a list at a terminal; `show` and piped lists show the whole text."""
MOST_LISTED: Final = 1000
"""The maximum number of memories that `list_memories` returns."""
NAMED_SESSIONS: Final = 200
IMPORT_UNDONE: Final = "undid: imported"
NEVER: Final = "9999-12-31"
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
COLOURS: Final = {"forgotten": "red", "expired": "red", "likely": "green"}
INCOMING: Final = {"supersedes": "replaced by", "related_to": "related to", "contradicts": "contradicted by"}
"""Relations from the point of view of their target."""


# --- the command line ---


def tags_given(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag for value in values for tag in tags_in(value) or ("",)))


def tag_option(*names: str, help: str) -> click.Option:  # noqa: A002 - as click calls it
    return option(*names, multiple=True, callback=tags_given, metavar="TAG", help=help)


def since(text: str) -> str:
    """Parse a day (2026-02-20), a time, an age (`3d`, `12h`, `2w`) or a phrase (`yesterday`, `last week`)."""
    return _edge(text, lambda window: window.start)


def until(text: str) -> str:
    """Parse the end of a period; a day means its end."""
    return _edge(text, lambda window: window.end - 1)  # an event with only a day is at the beginning of that day


def _edge(text: str, edge: Callable[[TimeWindow], float]) -> str:
    from remembrancer.toolsets.memory.answers import iso

    units = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
    now = time.time()
    if text[:-1].isdigit() and text[-1:] in units:
        return iso(now - int(text[:-1]) * units[text[-1]])
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
        if len(text) > len("2026-02-20"):
            return iso(moment.timestamp())
        start, end = (moment + timedelta(days=days) for days in (0, 1))
        return iso(edge(TimeWindow(start.timestamp(), end.timestamp(), 0)))  # may be in the future, unlike a phrase
    for phrase in (text, f"on {text}", f"in {text}"):
        for window in time_windows(phrase, now, None):
            return iso(edge(window))
    raise click.BadParameter(f"{text!r} is not a time; use 2026-02-20, 12h, 3d, 2w, yesterday, Monday or 'last week'")


NUMBER: Final = option("-n", "--number", "--limit", type=int, default=20, metavar="N", help="At most N results (20).")
MOST_ENTITIES: Final = 100
"""The number of entities from which an overview of the graph is chosen: the maximum that the tool returns."""
LISTED: Final = (*KINDS, SESSION_RECORD)
FILTERS: Final = (
    NUMBER,
    option(
        "--kind", multiple=True, type=click.Choice(LISTED, case_sensitive=False), metavar="KIND", help=", ".join(LISTED)
    ),
    tag_option("--tag", "tags", help="Only memories with one of these tags (a,b means two tags)."),
    option("--scope", multiple=True, type=click.Choice(("session", "project", "user")), help="Only this scope."),
    option(
        "--since",
        "after",
        type=since,
        metavar="WHEN",
        help="The first day: 2026-02-20, 3d, 12h, 2w (ago), yesterday, 'last week'. Applies to the day shown in lists.",
    ),
    option("--until", "before", type=until, metavar="WHEN", help="The last day (or week), in the same forms."),
)

ORDERS: Final[dict[str | None, Callable[[Answer], Any]]] = {
    "important": itemgetter("importance"),
    "forgotten": itemgetter("forgotten_at"),
    "due": lambda memory: memory.get("due", NEVER),
}
NAMED_FILTERS: Final = {"kind": "of the kind", "tags": "with the tag", "scope": "of the scope"}


def _filters(where: Where, given: Answer) -> Answer:
    if where.user and set(given["scope"]) - {"user"}:
        raise InvalidInput("--user and --scope cannot be combined; give one of them")
    filters = given | {"scope": ("user",) if where.user else given["scope"]}
    limit = filters.pop("number")
    chosen = {name: list(value) if isinstance(value, tuple) else value for name, value in filters.items() if value}
    if chosen.get("after", "") > chosen.get("before", NEVER):
        raise InvalidInput("--since must not be later than --until")
    return {"limit": limit, **chosen}


# --- lists of memories ---


@memory_command(
    argument("query", nargs=-1, metavar="QUERY...", help="A question, or words."),
    flag("--all", "shows_all", help="Show all results, not only the best five."),
    flag("--open", "is_open", help="Only open ends that are neither done nor replaced."),
    option(
        "--in",
        "sources",
        multiple=True,
        type=click.Choice(("memory", "notes", "sessions")),
        help="Where to search (default: memory and notes); sessions are transcripts, if the setting transcripts is on.",
    ),
    *FILTERS,
    flag("--forgotten", "include_forgotten", help="Include forgotten memories."),
)
def search(
    where: Where,
    query: Sequence[str],
    shows_all: bool,
    is_open: bool,
    sources: Sequence[str],
    **given: Any,
) -> Report:
    """Find memories by meaning and words, best first. Exit status 1: nothing was found. If no result seems to answer
    the question, a note on standard error says so."""
    if not query and not is_open:
        raise click.UsageError("give a question, or words")
    if (not query or asks_for_open_ends(" ".join(query))) and not (given["kind"] or sources):
        day = last_day_asked_for(" ".join(query), time.time())
        return _in_order(where, "due", given, exit_codes.FAILED, "Everything currently open, by due date:", due_by=day)
    number = given["number"]
    from remembrancer.config.reading import load_settings

    if "sessions" in sources and not load_settings(os.environ).transcripts:
        print("Transcripts are not searched: the setting transcripts is off.", file=sys.stderr)
    # Results count as shown, so only as many as will be printed are requested. Open ends may turn out to be closed.
    is_whole = shows_all or is_open or click.get_current_context().params["as_json"]
    arguments = _filters(where, given | {"kind": given["kind"] or (OPEN_END,) * is_open})
    arguments |= {"query": " ".join(query), "detail": True, "sources": list(sources) or None}
    arguments |= {} if is_whole else {"limit": min(BEST, number)}
    arguments["time_range"] = {name: arguments.pop(name) for name in ("after", "before") if name in arguments} or None
    unread = {} if where.user or where.all_projects else _read_notes(where)
    memories, warnings, total = _gather(where, "recall_memories", arguments)
    warnings |= unread
    if is_open:
        closed = [each for each in memories if each.get("done") or each.get("superseded_by") or has_ended(each)]
        memories = [each for each in memories if each.get("kind") == OPEN_END and each not in closed]
    if len(where.places) > 1:
        memories = sorted(memories, key=lambda memory: memory.get("relevance_score", 0.0), reverse=True)[:number]
    if not memories:
        return _listing(memories, warnings, note=_nothing(where, "Nothing was found."), status=exit_codes.FAILED)
    most = len(memories) if is_whole else min(BEST, len(memories))
    others = (total if is_whole else min(total, number)) - most
    how = "-n N shows up to N (at most 50)" if is_whole else "--all shows them"
    weaker = f"{count(others, 'weaker result')} ({how})" if others > 0 and not is_open else ""
    may_answer = any(memory.get("answers") != "hardly" for memory in memories)  # always true after a search by words
    is_partial = bool(set(warnings.values()) - {"project_moved"})
    nearest = "" if is_partial or may_answer else "None of these surely answers. The closest results:"
    return _listing(memories, warnings, note=nearest, most=most, more=weaker)


@memory_command(
    *FILTERS,
    flag("--important", "order", flag_value="important", help="The most important first."),
    flag("--open", "order", flag_value="due", help="Open ends that are neither done nor replaced, by due date."),
    flag("--forgotten", "order", flag_value="forgotten", help="Only forgotten memories."),
    flag("--stale", "about", flag_value="stale", help="Memories that name a file no longer in the indexed code."),
    flag("--review", "about", flag_value="review", help="Proposals and pairs that are waiting for a decision."),
    flag("--all", "shows_all", help="With --review: also the less likely pairs."),
)
def list_(where: Where, order: str | None, about: str | None, shows_all: bool, **given: Any) -> Report:
    """List memories, newest first; session records only with --kind session_record."""
    if shows_all and about != "review":
        raise InvalidInput("--all goes with --review; -n N lists up to N memories")
    if about is not None:
        source = click.get_current_context().get_parameter_source("number")
        if any((given | {"order": order, "number": source is ParameterSource.COMMANDLINE}).values()):
            raise InvalidInput(f"--{about} cannot be combined with filters, orders or -n")
        return _stale(where) if about == "stale" else _waiting(where, shows_all)
    return _in_order(where, order, given | {"include_forgotten": order == "forgotten"})


def _dated(after: str | None, before: str | None) -> str:
    since, until = (at and re.sub(" (23:59|00:00)$", "", local_time(at)) for at in (after, before))
    if since and until:
        return f" dated on {since}" if since == until else f" dated between {since} and {until}"
    return f" dated since {since}" if since else f" dated until {until}" if until else ""


def _in_order(
    where: Where,
    order: str | None,
    given: Answer,
    status_of_none: int = exit_codes.OK,
    heading: str = "",
    due_by: str = "",
) -> Report:
    """The memories that match the options. If any are due by the day `due_by`, only those are included."""
    most = given["number"]
    arguments = _filters(where, given) | {"order": order or "latest", "kind": list(given["kind"] or KINDS)}
    if 0 < most < MOST_LISTED:
        arguments["limit"] = most + 1
    memories, warnings, _ = _gather(where, "list_memories", arguments)
    is_cut = len(memories) > most or "answer_cut" in warnings.values() or len(memories) == MOST_LISTED
    older = "" if order else ", or --until DAY to show older ones"
    more = f"There are more. Use -n N to show up to N (at most {MOST_LISTED}){older}." if is_cut else ""
    memories.sort(key=ORDERS.get(order, _happened), reverse=order != "due")
    if due_by and memories:
        due = [memory for memory in memories if memory.get("due", NEVER)[:10] <= due_by]
        heading = f"Due by {due_by} ('list --open' shows all):" if due else f"Nothing is due by {due_by}. {heading}"
        memories = due or memories
    filters = [f" {phrase} {' or '.join(given[name])}" for name, phrase in NAMED_FILTERS.items() if given[name]]
    noun = {"due": "open end", "forgotten": "forgotten memory"}.get(order or "", "memory")
    none_fits = f"There is no {noun} here{''.join(filters)}{_dated(given['after'], given['before'])}."
    none_fits += " Run 'remembrancer list --forgotten' to see forgotten ones." if noun == "memory" else ""
    note = heading if memories else _nothing(where, none_fits)
    return _listing(
        memories[:most], warnings, note=note, more=more, status=exit_codes.OK if memories else status_of_none
    )


def _nothing(where: Where, otherwise: str) -> str:
    anything, *_ = _gather(where, "list_memories", {"limit": 1, "kind": list(LISTED), "include_forgotten": True})
    if anything:
        return otherwise
    elsewhere = "" if where.all_projects else ", or use --all-projects to look in all projects"
    return f"Nothing is remembered here yet. Run 'remembrancer add TEXT' to add a memory{elsewhere}."


def _read_notes(where: Where) -> dict[str, str]:
    from remembrancer.config.project import working_tree_of, workspace_root
    from remembrancer.config.reading import load_settings
    from remembrancer.toolsets.files.workspace_files import has_files

    settings = load_settings(os.environ)
    tree = working_tree_of(Path(where.places[0].directory))
    are_there = has_files(Path(workspace_root(str(tree), settings)), settings)
    try:
        if are_there or where.first().call("memory_status")["totalFiles"]:  # files that were read may be gone by now
            with notice_when_slow("Reading the notes"):
                where.first().call("memory_sync")
    except RemembrancerError as error:
        return {error.message: error.code}
    return {}


def _gather(where: Where, tool: str, arguments: Answer) -> tuple[list[Answer], dict[str, str], int]:
    from remembrancer.commands.projects import notice_of_move

    memories: dict[tuple[str, str], Answer] = {}
    warnings: dict[str, str] = {}
    total = 0
    for place, conversation in where.conversations():
        if place is not where.places[0]:  # the first returned the user's memories, and each answer counts as a use
            rest = [scope for scope in arguments.get("scope") or SCOPES if scope != "user"]
            if not rest:
                break
            arguments = {**arguments, "scope": rest}
        if tool == "recall_memories":
            with notice_when_slow("Loading the model"):
                _await_model(conversation)
        answer = conversation.call(tool, **arguments)
        warnings |= warnings_of(answer)
        total += answer.get("total_matched", 0)
        for memory in answer["memories"]:
            own = {"project": place.name, "project_name": place.label}
            own = own if place.name and memory.get("scope") != "user" else {}
            key = _place(memory), memory.get("content", "")  # short ids of two projects may be the same
            memories.setdefault(key, {"scope": memory.get("source")} | memory | own)
    if not (where.user or where.all_projects):
        warnings |= dict.fromkeys(filter(None, (notice_of_move(Path(where.places[0].directory)),)), "project_moved")
    return list(memories.values()), warnings, total


def _await_model(conversation: GatewayConnection) -> None:
    """Before a query, wait briefly for the model to load and for vectors, since each answer counts as a use."""
    if conversation.call("get_memory_status").get("embedding", {}).get("workers"):
        return
    conversation.call("list_memories", limit=1)  # unlike a status request, this wakes idle workers
    give_up_at = time.monotonic() + MEANING_S
    while time.monotonic() < give_up_at:
        pause(LOOK_S)  # there is no event for a loaded model
        embedding = conversation.call("get_memory_status").get("embedding", {})
        has_begun = embedding.get("workers") and embedding.get("pending")
        if embedding.get("error") or not (embedding.get("is_starting") or has_begun):
            return


def _listing(
    memories: list[Answer],
    warnings: dict[str, str],
    *,
    note: str = "",
    status: int = exit_codes.OK,
    most: int | None = None,
    more: str = "",
) -> Report:
    """A list of memories. Only the first `most` are printed; `more` says how many are omitted."""
    shown_warnings = [{"code": code, "message": message} for message, code in warnings.items()]
    facts = {"memories": memories, "warnings": shown_warnings}
    at_terminal = sys.stdout.isatty()
    notes = [*as_notes(warnings), *filter(None, (note, "" if at_terminal else more))]
    if not memories:
        return Report(facts, (), status, notes)
    listed: list[Line] = []
    piped, has_projects = [], any("project" in memory for memory in memories)
    for memory in memories[:most]:
        day, scope, place, marks = _day(memory), memory["scope"], _place(memory), _marks(memory)
        kind = str(memory.get("kind") or memory.get("type") or "")
        fields = [place, day, scope, kind, one_line(memory.get("summary") or memory["content"]), ", ".join(marks)]
        piped.append("\t".join(fields + [memory.get("project_name", "")] * has_projects))
        coloured = [f"[{COLOURS.get(mark.partition(' ')[0], 'dim')}]{escape(mark)}[/]" for mark in marks]
        coloured += [f"[cyan]#{escape(tag)}[/cyan]" for tag in memory.get("tags", ())]
        text = memory.get("summary") or memory["content"]
        text = escape(text if len(text) <= LONGEST else excerpt(text, LONGEST))
        about = (day, f"{scope} {memory['project_name']}" if "project" in memory else scope, kind, place)
        coloured.append(f"[dim]{escape(' · '.join(filter(None, about)))}[/dim]")
        listed.append(styled(f"{text}\n  {' · '.join(coloured)}"))
    return Report(facts, [*listed, more] if more and at_terminal else listed, notes=notes, piped=piped)


def _place(memory: Answer) -> str:
    return "{path}:{lines[0]}".format(**memory) if "path" in memory else short(memory["id"])


def _marks(memory: Answer) -> list[str]:
    newer = f"“{excerpt(memory.get('newer', ''), QUOTED_CHARACTERS)}” "
    marks = [name for name in ("expired", "done") if memory.get(name) or (name == "expired" and has_ended(memory))]
    marks += [f"made of {count(len(sources), 'memory')}"] if (sources := memory.get("derived_from")) else []
    if at := memory.get("forgotten_at"):
        marks.insert(0, f"forgotten {local_time(at)[:10]}")
    elif (changed := local_time(memory.get("updated", ""))[:10]) > _day(memory):
        marks.append(f"changed {changed}")
    if by := memory.get("superseded_by"):
        marks.append(f"replaced by {newer}({short(by[0])})")
    elif by := memory.get("possibly_superseded_by"):
        marks.append(f"outdated by {newer}({short(by[0])})?")
    if due := local_time(memory.get("due", "")):
        marks.append(f"overdue since {due}" if memory.get("overdue") else f"due {due}")
    return [*marks, "likely"] if memory.get("answers") == "likely" else marks


def has_ended(memory: Answer) -> bool:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"  # answers give times in whole seconds
    return str(memory.get("valid_until") or NEVER) <= now


def _happened(memory: Answer) -> str:
    return str(memory.get("occurred_at") or memory.get("created_at", ""))


def _day(memory: Answer) -> str:
    return local_time(_happened(memory))[:10]


def _stale(where: Where) -> Report:
    where.refuse_user("only a project's memories are about code")
    memories = [memory for place in where.places for memory in ask_store(ListStale(place.project))]
    lines = [f"{one_line(memory.content)[:160]}\n    {memory.code}  {short(memory.memory_id)}" for memory in memories]
    notes = () if memories else ("No memory here names a file that has disappeared from the indexed code.",)
    return Report({"memories": memories}, lines, notes=notes)


def _waiting(where: Where, shows_all: bool) -> Report:
    from remembrancer.toolsets.memory.answers import iso

    proposals: dict[str, Answer] = {}
    pairs: dict[tuple[str, str], tuple[str, Answer]] = {}
    pending = more = 0
    for place, conversation in where.conversations():  # the user's memories are listed in every project
        own = {"project": place.name} if place.name else {}
        status = conversation.call("get_memory_status")
        pending = max(pending, status.get("embedding", {}).get("pending", 0))
        review = ask_store(FindUndecided(place.project, SHELL_SESSION, MOST_PAIRS))
        more += review.more
        proposals = {each["memory_id"]: each | own for each in status.get("proposals", ())} | proposals
        for pair in review.pairs:
            sides = {"newer": pair.newer, "older": pair.older}
            if where.user and any(each.scope != "user" for each in sides.values()):
                continue
            about: Answer = {f"{name}_id": short(each.id) for name, each in sides.items()}
            about |= {name: each.content for name, each in sides.items()}
            about |= {f"{name}_day": local_time(iso(each.happened_at))[:10] for name, each in sides.items()}
            about |= {"if_done": f"edit {short(pair.older.id)} --done"} if pair.may_be_done else {}
            about |= {"in_part": True} if says_more(pair.older.content, pair.newer.content) else {}
            about |= {"weak": True} if pair.is_weak else {}
            name = "contradictions" if pair.relation == "contradicts" else "alike"
            pairs.setdefault((pair.newer.id, pair.older.id), (name, about | own))
    facts: Answer = {"proposals": [] if where.user else list(proposals.values())}
    facts |= {kind: [about for name, about in pairs.values() if name == kind] for kind in ("contradictions", "alike")}
    if not any(facts.values()):
        compared = f"; {count(pending, 'memory')} not compared with others yet" if pending else ""
        nothing = f"Nothing is waiting for a decision{compared}. A pair with different wording may have been missed."
        return Report(facts, nothing)
    weak = 0 if shows_all else sum("weak" in row for row in facts["contradictions"])
    rows = [
        (one_line(row["content"]), f"use it in all your projects? ({row['reason']})", short(row["memory_id"]))
        for row in facts["proposals"]
    ]
    for name, why in (("contradictions", "replaced by “{}” ({})?"), ("alike", "nearly the same as “{}” ({})")):
        for row in facts[name]:
            if weak and "weak" in row:
                continue
            is_later = row["newer_day"] != row["older_day"]
            name_of_newer = f"{row['newer_day']}, {row['newer_id']}" if is_later else row["newer_id"]
            did = "closed" if "if_done" in row else "changed in part" if "in_part" in row else "replaced"
            reason = why.replace("replaced", did).format(one_line(row["newer"]), name_of_newer)
            rows.append((one_line(row["older"]), reason, row["older_id"]))
    how = "To decide, run 'remembrancer edit ID' with --to user or project (proposal), --replaced or --both (pair)."
    how += " If only part of a memory has changed, 'remembrancer edit ID' opens it." if facts["contradictions"] else ""
    notes = [f"{count(weak, 'less likely pair')}: --all shows {'it' if weak == 1 else 'them'}"] if weak else []
    notes += [f"{count(more, 'further pair')} {'is' if more == 1 else 'are'} not listed."] if more else []
    piped = ["\t".join((bare, text, why)) for text, why, bare in rows]
    at_terminal = [(excerpt(text, LONGEST), excerpt(why, LONGEST), bare) for text, why, bare in rows]
    lines: list[Line] = [Rows(("memory", "why", "id"), at_terminal), how] if rows else []
    return Report(facts | {"more": more}, lines, notes=notes, piped=piped or None)


# --- a memory, its history, the graph ---


@memory_command(
    argument("named", nargs=-1, metavar="[ID]...", help="Ids as shown in lists; with --graph, the name of an entity."),
    option("--version", type=click.IntRange(1), metavar="N", help="Show that version."),
    flag("--history", "view", flag_value="history", help="List the changes, with their times and sessions."),
    flag(
        "--shown",
        "view",
        flag_value="shown",
        help="List each time the memory was shown to a session, with its rank; without an ID, for all memories.",
    ),
    flag("--graph", "view", flag_value="graph", help="Show an entity's relations; without a name, all entities."),
    NUMBER,
)
def show(where: Where, named: Sequence[str], version: int | None, view: str | None, number: int) -> Report:
    """Show memories in full: text, details, links, and why each is still kept."""
    if view == "graph":
        return _graph(where, " ".join(named), number)
    ids = [memory_id(name) for name in named]
    if view == "shown":
        return _showings(where, ids, number)
    if not ids:
        raise InvalidInput("name a memory by its id, as a list shows it")
    answers = [where.ask("get_memory", memory_id=memory, version=version, detail=True) for memory in ids]
    clients = clients_of(where)
    reports = [
        _changes(where, answer, clients) if view == "history" else (answer, _details(where, answer, clients))
        for answer in answers
    ]
    facts = reports[0][0] if len(reports) == 1 else {"memories": [answer_facts for answer_facts, _ in reports]}
    notes = [note for answer in answers for note in as_notes(warnings_of(answer))]
    lines = [line for place, (_, lines) in enumerate(reports) for line in (*([""] if place else []), *lines)]
    return Report(facts, lines, notes=notes)


def clients_of(where: Where) -> dict[str, str]:
    clients: dict[str, str] = {}
    with suppress(RemembrancerError):  # the ids are shown instead
        for place in where.places:
            sessions = ask_store(ListSessions(place.project, SHELL_SESSION, limit=NAMED_SESSIONS))
            clients |= {each.session_id: session_title(each.client, each.started_at) for each in sessions}
    return clients


def _details(where: Where, answer: Answer, clients: Mapping[str, str]) -> list[Line]:
    from remembrancer.commands.home_reader import first_words
    from remembrancer.commands.runtime_client import paths_here
    from remembrancer.memory.fields import DETAILS

    names = [name for name in DETAILS if name != "kind"]
    names += ["metadata", "source", "forgotten_at", "forgotten_reason"]
    own = f"{(answer.get('kind') or answer['type']).replace('_', ' ')} of the {answer['scope']}"
    tags = "".join(f"  #{tag}" for tag in answer["tags"])
    state = [answer["status"]] if answer["status"] != "active" else []
    state += _marks({name: answer[name] for name in ("valid_until", "done", "due", "overdue") if name in answer})
    lines = [answer["content"], "", f"{', '.join([own, *state])}, importance {answer['importance']:g}{tags}"]
    version = answer.get("version")
    changed = f", changed {minute(answer['updated_at'])} (version {version})" if version and version > 1 else ""
    first = next((entry for entry in answer["history"] if entry["version"] == 1), answer)
    author = author_of_change(first, clients)
    by = f" by {author}" if author else ""  # the consolidator has no session
    stored = f"stored {minute(answer['created_at'])}{by}"
    if first.get("change") == "imported":
        age = minute(answer["created_at"])  # as old as its file
        stored = f"imported {minute(first['at'])}{by}"
        stored += f", dated {age}" if age != minute(first["at"]) and "occurred_at" not in answer else ""
    lines.append(f"{stored}{changed}")
    if answer.get("access_count"):
        lines.append(f"used {count(answer['access_count'], 'time')}, last {minute(answer['last_accessed'])}")
    entities = [entity["name"] for entity in answer.get("related_entities", ())]
    named = {"about": [*entities, *answer.get("found_entities", ())], **{name: answer.get(name) for name in names}}
    lines += [f"{name.replace('_', ' ')}: {_plain(value)}" for name, value in named.items() if value]
    links = [(link["relation"], link["target"]) for link in answer.get("links", ())]
    incoming = answer.get("incoming_links", ())
    links += [(INCOMING.get(link["relation"], f"{link['relation']} (by)"), link["source"]) for link in incoming]
    settled = {other for relation, other in links if relation in ("supersedes", INCOMING["supersedes"])}
    links = [
        (relation, other)
        for relation, other in links
        if not (relation.startswith("similar_to") or (relation.startswith("contradict") and other in settled))
    ]
    alike = (other for other in answer.get("near_duplicates", ()) if isinstance(other, str))
    links += [("says nearly the same thing", other) for other in alike if other not in settled]
    links += [("copy", copy["id"]) for copy in answer.get("copies", ())]
    projects = [place.project.id for place in where.places] if links else []
    words = first_words(paths_here(), projects, [other for _, other in links])
    lines += [f"{relation}: {words.get(other, 'not here')}  {short(other)}" for relation, other in links]
    stored, session = "Stored for", f"session {answer['session_id']}"  # shown above
    whys = (why.replace(session, author) for why in answer.get("why", ()) if not why.startswith(stored))
    promote = REMEDIES["promote_memory"].format(short(answer["id"]) + where.repeated)
    lines += [f"- {with_short_ids(why).replace('promote_memory', promote)}" for why in whys]
    return [*lines, short(answer["id"])]


def _changes(where: Where, answer: Answer, clients: Mapping[str, str]) -> tuple[Answer, list[Line]]:
    from remembrancer.commands.home_reader import first_words
    from remembrancer.commands.runtime_client import paths_here
    from remembrancer.protocol.reads import GetMemory
    from remembrancer.toolsets.memory.day_log import CHANGE_WORDS
    from remembrancer.toolsets.memory.get_memory import answer_of

    states: dict[int, Answer] = {}
    for place in where.places:
        with suppress(NotFound):
            reply = ask_store(GetMemory(place.project, SHELL_SESSION, answer["id"]))
            states = {each.version: neutralised_value(answer_of(reply, each.version)) for each in reply.memory.history}
            break
    facts = {"memory_id": answer["id"], "history": answer["history"], "omitted": answer.get("history_omitted", 0)}
    rows = []
    for entry in answer["history"]:
        before, after = states.get(entry["version"] - 1), states.get(entry["version"])
        changes = []
        for name in entry.get("fields", ()):
            if name != "status":
                values = [one_line(_plain(state.get(name, "none"))) for state in (before, after) if state]
                changes.append(f"{name}: {' → '.join(values)}")
        changes += [
            f"{name}: {with_short_ids(str(entry[name]))}" for name in ("by", "other", "reason") if name in entry
        ]
        name, author = entry.get("undid") or entry["change"], author_of_change(entry, clients)
        change = ("undid: " if "undid" in entry else "") + CHANGE_WORDS.get(name, name)
        rows.append((str(entry["version"]), minute(entry["at"]), change, author, ", ".join(changes)))
    older = [link["target"] for link in answer.get("links", ()) if link["relation"] == "supersedes"]
    words = first_words(paths_here(), [place.project.id for place in where.places], older) if older else {}
    replaces = [f"replaces: {words.get(each, 'not here')}  {short(each)}" for each in older]
    table = Rows(("version", "when", "change", "by", "what"), rows)
    return facts, [excerpt(answer["content"], LONGEST), *replaces, table]


def _showings(where: Where, ids: Sequence[str], number: int) -> Report:
    from remembrancer.actors.gateway.shown_log import ShownLog
    from remembrancer.commands.home_reader import first_words
    from remembrancer.commands.runtime_client import paths_here

    log = ShownLog(paths_here().home, kept_s=0.0)
    project = "" if ids or where.user or where.all_projects else where.places[0].project.id
    entries = [row for name in ids or ("",) for row in log.read(memory_id=name, project=project, limit=number)]
    clients = clients_of(where) if entries else {}
    ids_shown = {entry.memory_id for entry in entries if entry.memory_id}
    words = first_words(paths_here(), {entry.project for entry in entries}, ids_shown) if entries else {}
    lines = []
    for (at, session, tool, question), rows in groupby(entries, attrgetter("at", "session_id", "tool", "question")):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
        author = author_of_change({"session_id": session}, clients)
        asked = f": {one_line(question)}" if question else ""
        lines.append(f"{when}  {author}, {tool.replace('_', ' ')}{asked}")
        for row in rows:
            text = words.get(row.memory_id, "not here")
            without_id = f"  {row.place}  part of a file" if row.place else "  nothing was found"
            lines.append(f"  {row.place}  {text}  {short(row.memory_id)}" if row.memory_id else without_id)
    nothing = f"{'None of these memories' if ids else 'No memory'} has been shown to a session here yet."
    return Report({"shown": [entry._asdict() for entry in entries]}, lines or nothing)


def _graph(where: Where, entity: str, number: int) -> Report:
    if where.user or where.all_projects:
        raise InvalidInput("the graph covers one project and your own memories; use --project for another project")
    from remembrancer.memory.found_names import is_proper

    limit = number if entity else max(number, MOST_ENTITIES)
    answer = where.first().call("search_knowledge_graph", limit=limit, entity=entity or None)
    notes = [*as_notes(warnings_of(answer))]
    if not entity:
        proper = [entity for entity in answer["entities"] if is_proper(entity["name"], entity["type"])]
        if hidden := len(answer["entities"]) - len(proper):
            notes.append(f"Not listed: {count(hidden, 'identifier')}. Run 'remembrancer show --graph NAME' to see one.")
        answer["entities"] = proper[:number]
    if not answer["entities"]:
        near = ", ".join(answer.get("suggestions", ()))
        search = f"No entity matches. Try 'remembrancer search {shlex.quote(entity)}'." if entity else "Nothing yet."
        return Report(answer, f"No entity matches. Did you mean {near}?" if near else search, notes=notes)
    rows = []
    for item in answer["entities"]:
        kind = "" if item["type"] == "custom" else item["type"]
        relations = "; ".join(map(_relation, item["relationships"]))
        rows.append((item["name"], kind, str(item["memory_count"]), relations))
    return Report(answer, Rows(("entity", "type", "memories", "relations"), rows), notes=notes)


def _relation(edge: Answer) -> str:
    back = "← " if edge.get("direction") == "incoming" else ""
    fields = (("from", "valid_from"), ("until", "valid_until"))
    times = " ".join(f"{name} {edge[field][:10]}" for name, field in fields if field in edge)
    return f"{edge['type']} {back}{edge['target']}" + (f" ({times})" if times else "")


def author_of_change(change: Answer, clients: Mapping[str, str]) -> str:
    session, member = str(change["session_id"]), change.get("member", "")
    client = clients.get(session, NAMELESS).replace(NAMELESS, NAMELESS.lower())
    return author_of(session, client, member) if session else ""


def minute(at: str) -> str:
    return datetime.fromisoformat(at).astimezone().isoformat(" ")[:16]


def local_time(text: str) -> str:
    """A time from an answer, in local time. A date (perhaps as midnight UTC) or any other text stays as it is."""
    text = text.removesuffix("T00:00:00Z")
    with suppress(OverflowError):  # at either end of the calendar
        return minute(text) if TIME.fullmatch(text) else text
    return text


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(item)}" for name, item in value.items()) or "none"
    return local_time(str(value))


# --- the log of a day ---


@memory_command(
    argument("day", nargs=-1, metavar="[DAY]", help="Yesterday, Tuesday, 2026-02-20 (default: today)."),
    where=WITHOUT_USER,
)
def log(where: Where, day: Sequence[str]) -> Report:
    """Show a day in chronological order: events, memories stored, changed, decided, closed or imported, and memories
    that runs summarised, promoted or archived."""
    from remembrancer.toolsets.memory.day_log import dates_in_utc, dates_of, day_of

    period = day_of(" ".join(day) or "today", time.time())  # in the local time zone
    days = dates_in_utc(period.start, period.end)
    answer, warnings = log_of(where, begins=period.start, ends=period.end, days=days)
    dates = dates_of(period.start, period.end)
    runs = {run["did"] for run in answer["runs"]}  # one line each
    undone = Counter((each["at"], each["time"]) for each in answer["changes"] if each["did"] == IMPORT_UNDONE)
    entries = [entry for entry in answer["changes"] if entry["did"] not in {*runs, IMPORT_UNDONE}]
    entries += [
        {"at": at, "time": moment, "did": IMPORT_UNDONE, "id": "", "text": count(number, "memory")}
        for (at, moment), number in undone.items()
    ]
    entries += [run | {"id": run["run_id"], "text": count(run["memories"], "memory")} for run in answer["runs"]]
    notes = (*as_notes(warnings), *(_pairs_waiting(where) if period.start <= time.time() < period.end else ()))
    if not entries:
        nothing = f"Nothing was stored or changed {'from' if ' to ' in dates else 'on'} {dates}."
        return Report(answer, notes=(*notes, nothing))
    rows, piped, words = [], [], {entry["id"]: entry["text"] for entry in answer["changes"]}
    entries.sort(key=lambda entry: (local_time(entry["at"]), entry["time"]))
    for _, together in groupby(entries, command_of):
        listed = []
        for entry in together:
            mark = next((mark for mark in ("undone", "forgotten") if mark in entry), "")
            did = entry["did"] + (f" by {short(entry['by'])}" if "by" in entry else "")
            start, name = excerpt(without_marks(entry["text"]), LONGEST), short(entry["id"])
            start += f": now “{excerpt(words[entry['by']], QUOTED_CHARACTERS)}”" if entry.get("by") in words else ""
            when = local_time(entry["at"])
            piped.append("\t".join((name, when, did, one_line(entry["text"]), mark)))
            listed.append((f"{start} ({mark})" if mark not in ("", did) else start, name))
        start, name = listed[-1]
        if len(listed) > 1 or "run_id" in entry:  # a run's id is too long for a column
            start, name = "\n".join(map("  ".join, listed)), ""
        rows.append((when, did, start, name))
    lines: list[Line] = [dates, Rows(("when", "what", "memory", "id"), rows)]
    return Report(answer, lines, notes=notes, piped=piped)


def command_of(entry: Answer) -> tuple[Any, str]:
    """The shell command that made a logged change, or else the change itself, and its effect."""
    return entry.get("command", entry), entry["did"]


def _pairs_waiting(where: Where) -> Iterator[str]:
    with suppress(RemembrancerError):
        requests = (FindUndecided(each.project, SHELL_SESSION, MOST_PAIRS, alike=False) for each in where.places)
        waiting = (pair for each in requests for pair in ask_store(each).pairs if not pair.is_weak)
        if pairs := {(pair.older.id, pair.newer.id) for pair in waiting}:
            them = f"{count(len(pairs), 'pair')} {'waits' if len(pairs) == 1 else 'wait'}"
            yield f"{them} for a decision; run 'remembrancer list --review' to see whether one replaces the other"


def log_of(where: Where, **arguments: Any) -> tuple[Answer, dict[str, str]]:
    """The merged log of all places (short ids may be shared), and the warnings. Each change names its project."""
    answer: Answer = {}
    changes: dict[tuple[str, int, float], Answer] = {}
    runs: dict[tuple[str, str], Answer] = {}
    warnings: dict[str, str] = {}
    for place, conversation in where.conversations():
        answer = conversation.call("read_log", **arguments)
        own = {"project": place.label}
        changes |= {(entry["id"], entry["version"], entry["time"]): entry | own for entry in answer["changes"]}
        runs |= {(run["run_id"], "" if run["of_user"] else place.directory): run for run in answer["runs"]}
        warnings |= warnings_of(answer)
    joined = {"changes": changes.values(), "runs": runs.values()}
    return answer | {name: sorted(entries, key=itemgetter("time")) for name, entries in joined.items()}, warnings
