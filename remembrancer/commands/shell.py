"""The commands for working with memories in a shell. They call the same tools as sessions, over the gateway's
socket."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from remembrancer.commands import exit_codes
from remembrancer.commands.report import Report, Rows, argument, command, confirm, count, flag, option
from remembrancer.memory.open_ends import asks_for_open_ends
from remembrancer.memory.sentences import cut_at_word
from remembrancer.memory.short_ids import LEAST, WHOLE, has_part, id_or_part
from remembrancer.protocol.errors import (
    Failure,
    InvalidInput,
    MemoryUnavailable,
    NotFound,
    RemembrancerError,
    from_failure,
)
from remembrancer.protocol.ids import MEMORY_PREFIX
from remembrancer.protocol.kinds import KINDS, MEMORY_TYPES, OPEN_END, SESSION_RECORD
from remembrancer.protocol.session_life import SHELL_SESSION

if TYPE_CHECKING:
    from remembrancer.commands.report import Line
    from remembrancer.memory.times.windows import TimeWindow
    from remembrancer.protocol.home import ProjectsDescribed

TOOLSETS: Final = {"REMEMBRANCER_TOOLSETS": "memory,files,admin"}
START_S: Final = 60.0
"""The time to wait for the runtime to start; a slow machine takes many seconds."""
ANSWER_S: Final = 60.0
LOOK_S: Final = 0.02
MEANING_S: Final = 3.0
"""The time that a search waits for a model to load; then it searches by words only, and says so."""
NARROW: Final = 110
"""The terminal width, in columns, below which a memory in a list gets lines of its own."""
BEST: Final = 5
"""The number of search results shown by default."""
SCOPES: Final = ("session", "project", "user")
RUN: Final = "run:"
"""The prefix of a run's id."""
NAMED: Final = 200
"""The number of a project's sessions, the latest ones, that are named by their clients."""
NEVER: Final = "9999-12-31"
COLOURS: Final = {"forgotten": "red", "expired": "red", "likely": "green"}
INCOMING: Final = {"supersedes": "replaced by", "related_to": "related to", "contradicts": "contradicted by"}
"""Relations from the point of view of their target."""
OWN_ADVICE: Final = {
    "pass allow_secrets: true": "say --allow-secrets",
    "set its kind to open_end as well": "say --kind open_end as well",
    "use the kind open_end, or leave out kind": "say --kind open_end",
    "limit must be": "-n must be",
    "add[0] must": "a tag must",
    "tags[0] must": "a tag must",
    "add_links[0].target is the memory itself": "it is the memory itself",
    "(restore_memory)": "('remembrancer restore ID')",
    "(forget_memory)": "('remembrancer forget ID')",
    "(promote_memory)": "('remembrancer edit ID --to project')",
}
"""The advice in messages of tools, as a person at a shell follows it."""
MOST_LISTED: Final = 1000
"""The number of memories that `list_memories` lists at most."""
ERASED: Final = "no memory with the id"
"""Part of the error message for the id of an erased memory, and not for an ending that no id has."""
LONGEST: Final = 200
"""The number of characters shown of a text that is changed."""
Answer = dict[str, Any]


class Place(NamedTuple):
    """An owner of memories: a project by its directory, and its name for lists of several projects."""

    directory: str
    name: str = ""


class Where(NamedTuple):
    """The memories that the command line selects, and the session that reads them."""

    project: str | None = None
    user: bool = False
    all_projects: bool = False
    session: str | None = None

    def places(self) -> list[Place]:
        """The selected places; the project of the working directory comes first.

        Raises:
            InvalidInput: there is no such project, or the options exclude each other.
        """
        from remembrancer.commands.runtime_client import directory_here

        if sum((self.project is not None, self.user, self.all_projects)) > 1:
            raise InvalidInput("use only one of --project, --user and --all-projects")
        directory = directory_here(self.project)
        if self.project is not None and not directory.is_dir():
            named = next((each for each in known_places() if self.project in (each.name, each.directory)), None)
            if named is None:
                raise InvalidInput(
                    f"{self.project} is no directory, and 'remembrancer admin projects' lists no such id"
                )
            return [named]
        return (known_places() if self.all_projects else []) or [Place(str(directory.absolute()))]

    @contextmanager
    def connected(self, place: Place) -> Iterator[Session]:
        """A connection for the block."""
        client = Session(place, self.session or SHELL_SESSION)
        try:
            yield client
        finally:
            client.close()

    def ask(self, tool: str, **arguments: Any) -> Answer:
        """The answer of the first place that knows the memory in the arguments."""
        missing: NotFound | None = None
        for place in self.places():
            with self.connected(place) as client:
                try:
                    return client.call(tool, **arguments)
                except NotFound as error:
                    missing = error
        assert missing is not None
        hint = "" if self.all_projects else " (in this project and among the user's; --all-projects looks everywhere)"
        raise NotFound(f"{missing.message}{hint}")

    def texts_of(self, memories: Sequence[str]) -> dict[str, str]:
        """The texts of memories that are about to be changed; none for one that was erased. Raises `NotFound` if there
        was never such a memory."""
        texts = {}
        for memory in memories:
            try:
                texts[memory] = _one_line(self.ask("get_memory", memory_id=memory)["content"])
            except NotFound as error:
                if ERASED not in error.message:
                    raise NotFound(f"{error.message}; nothing was changed") from error
        return texts


def known_places() -> list[Place]:
    """The projects of the home. Files that cannot be read are named on stderr."""
    from remembrancer.commands.runtime_client import ask_home, paths_here
    from remembrancer.protocol.home import DescribeProjects

    described: ProjectsDescribed = ask_home(paths_here(), DescribeProjects())
    for failure in described.unreadable:
        print(f"{failure.code}: {failure.message}", file=sys.stderr)
    return [Place(project.path, project.id) for project in described.projects if project.path is not None]


class Session:
    """A connection to the gateway on behalf of a place. Starts a runtime if none is up."""

    def __init__(self, place: Place, session: str) -> None:
        from remembrancer.actors.bridge.places import find_places
        from remembrancer.actors.bridge.starter import Starter
        from remembrancer.commands.gateway_client import GatewayClient, reach
        from remembrancer.commands.terminal import said_when_slow

        places = find_places(os.environ)
        starter, give_up_at = Starter(places, os.environ), time.monotonic() + START_S
        with said_when_slow("Starting the memory"):
            link = reach(starter, give_up_at)
            if link is None:
                raise MemoryUnavailable(starter.failure or f"the memory service does not start: look at {places.logs}")
            link.settimeout(ANSWER_S)
            environ = {**os.environ, **TOOLSETS}
            self._gateway = GatewayClient(link, places, session, place.directory, environ, "remembrancer shell")
            while not self._has_store() and time.monotonic() < give_up_at:
                time.sleep(LOOK_S)  # without the store, the answer would come from the cache

    def _has_store(self) -> bool:
        connection: Answer = self.call("get_memory_status")["connection"]
        return bool(connection["status"] == "connected")

    def call(self, tool: str, **arguments: Any) -> Answer:
        """The answer of a tool. Arguments that are None are left out. Raises the error that the tool returns."""
        try:
            answer = self._gateway.call(tool, _without_none(arguments))
        except OSError as error:
            raise MemoryUnavailable(f"the memory service does not answer: {error}") from error
        if "error" in answer:
            message = answer["message"]
            for advice, own in OWN_ADVICE.items():
                message = message.replace(advice, own)
            message += _hint_of_release(answer["error"])
            message = WHOLE.sub(lambda match: _bare(match[0]), message)
            raise from_failure(Failure(answer["error"], message, answer["retry_possible"]))
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._gateway.close()


def _hint_of_release(code: str) -> str:
    """A hint for an error that the running release may have caused, because it is older than this one."""
    import psutil

    from remembrancer.actors.launcher.home import read_record
    from remembrancer.commands.runtime_client import paths_here
    from remembrancer.protocol.problems import ANEW, OLDER, is_older

    record = read_record(paths_here()) if code in ("invalid_input", "internal_error") else None
    with suppress(psutil.Error):
        if record is not None and is_older(psutil.Process(record.pid).create_time()):
            return f" ({OLDER}: {ANEW})"
    return ""


# --- the command line ---


def since(text: str) -> str:
    """Parse the start of a period for the tools: a day (2026-02-20), a time, an age (`3d`, `12h`, `2w`), or a phrase as
    in a question (`yesterday`, `last week`, `Monday`)."""
    return _edge(text, lambda window: window.start)


def until(text: str) -> str:
    """Parse the end of a period; a day means its end."""
    return _edge(text, lambda window: window.end)


def _edge(text: str, edge: Callable[[TimeWindow], float]) -> str:
    from remembrancer.memory.times.windows import TimeWindow, time_windows  # the calendar takes a while to load
    from remembrancer.toolsets.memory.answers import iso

    units = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
    now = time.time()
    if text[:-1].isdigit() and text[-1:] in units:
        return iso(now - int(text[:-1]) * units[text[-1]])
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        if len(text) > len("2026-02-20"):
            return text
        start, end = (moment + timedelta(days=days) for days in (0, 1))
        return iso(edge(TimeWindow(start.timestamp(), end.timestamp(), 0, 0)))
    for phrase in (text, f"on {text}", f"in {text}"):
        for window in time_windows(phrase, now, None):
            return iso(edge(window))
    raise click.BadParameter(f"{text!r} is no time: say 2026-02-20, 12h, 3d, 2w, yesterday, Monday or last week")


def due_date(text: str) -> str:
    """Parse a due date for the tools: a day (2026-02-20), `today`, `tomorrow`, a weekday (the next one, or today), or a
    distance from today (`3d`, `2w`). The empty text of `none` clears it."""
    from remembrancer.memory.times.phrases import WEEKDAYS

    today, word = datetime.now().astimezone(), text.strip().lower()
    if word == "none":
        return ""
    near = {"yesterday": -1, "today": 0, "tomorrow": 1}
    near |= {name: (place - today.weekday()) % 7 for place, name in enumerate(WEEKDAYS)}
    if word in near:
        return f"{today + timedelta(days=near[word]):%Y-%m-%d}"
    if word[:-1].isdigit() and word[-1] in "dw":
        return f"{today + timedelta(days=int(word[:-1]) * (7 if word[-1] == 'w' else 1)):%Y-%m-%d}"
    with suppress(ValueError):
        if word:
            datetime.fromisoformat(text)
        return text
    raise click.BadParameter(f"{text!r} is no day: say 2026-02-20, today, tomorrow, Friday, 3d, 2w or none")


def memory_id(text: str) -> str:
    """A memory's id, or the end of one as lists show it."""
    try:
        return id_or_part(text)
    except InvalidInput:
        raise click.BadParameter(f"{text[:60]!r} is no memory's id: 'list' and 'search' show the ids") from None


KIND: Final = option("--kind", type=click.Choice(KINDS), metavar="KIND", help=", ".join(KINDS))
SECRETS: Final = flag("--allow-secrets", help="Allow text that looks like a credential.")
IMPORTANCE: Final = option("--importance", type=float, metavar="0-1", help="The memory's importance.")
SUMMARY: Final = option("--summary", metavar="TEXT", help="A one-line summary of a long text.")
DUE: Final = option(
    "--due",
    type=due_date,
    metavar="DATE",
    help="The due date of an open end: 2026-02-20, today, tomorrow, Friday, 3d, 2w (from today); none removes it.",
)
ID: Final = argument("memory", metavar="ID", type=memory_id, help="An id as shown in lists.")
REASON: Final = option("--reason", metavar="TEXT", help="A reason, kept in the history.")
NUMBER: Final = option("-n", "--number", type=int, default=20, metavar="N", help="The maximum number of results (20).")
LISTED: Final = (*KINDS, SESSION_RECORD)
FILTERS: Final = (
    NUMBER,
    option("--kind", multiple=True, type=click.Choice(LISTED), metavar="KIND", help=", ".join(LISTED)),
    option("--type", multiple=True, type=click.Choice(MEMORY_TYPES), metavar="TYPE", help=", ".join(MEMORY_TYPES)),
    option("--tag", multiple=True, metavar="TAG", help="Only memories with one of these tags."),
    option("--scope", multiple=True, type=click.Choice(SCOPES), help="Only this scope."),
    option("--since", type=since, metavar="WHEN", help="2026-02-20, 3d, 12h, 2w (ago), yesterday, last week."),
    option("--until", type=until, metavar="WHEN", help="Like --since; the whole day or week is included."),
    flag("--forgotten", help="Include forgotten memories."),
)
WHERE: Final = (
    option("--project", metavar="DIR", help="The directory or id of a project (default: the working directory)."),
    flag("--user", help="Only the user's own memories."),
    flag("--all-projects", help="The memories of all projects and of the user."),
    option("--session", metavar="ID", help="Include this session's private memories."),
)
COMMANDS: Final[dict[str, click.Command]] = {}


def memory_command(*params: click.Parameter, name: str) -> Callable[[Callable[..., Report]], click.Command]:
    """Declare a command that works on the memories of a place."""

    def declare(function: Callable[..., Report]) -> click.Command:
        @wraps(function)
        def placed(*, project: str | None, user: bool, all_projects: bool, session: str | None, **given: Any) -> Report:
            return function(Where(project, user, all_projects, session), **given)

        COMMANDS[name] = command(*params, *WHERE, name=name)(placed)
        return COMMANDS[name]

    return declare


# --- finding and reading ---


@memory_command(
    argument("query", nargs=-1, required=True, metavar="QUERY...", help="A question, or words."),
    option("--strategy", type=click.Choice(("hybrid", "vector", "keyword", "graph")), help="Default: hybrid."),
    flag("--all", "shows_all", help="Show all results, not only the best five."),
    flag("--open", "is_open", help="Only open ends that are not done."),
    *FILTERS,
    name="search",
)
def search(
    where: Where, query: Sequence[str], strategy: str | None, shows_all: bool, is_open: bool, **given: Any
) -> Report:
    """Find memories by meaning and words, best first. Exit status 1: nothing was found. If nothing that was found seems
    to answer, standard error says so."""
    is_open = is_open or (asks_for_open_ends(" ".join(query)) and not given["kind"])
    given["kind"] = (OPEN_END,) if is_open else given["kind"]
    # What is asked for counts as shown, so no more than is printed; of open ends some may be done.
    is_whole = shows_all or is_open or click.get_current_context().params["as_json"]
    limit = given["number"] if is_whole else min(BEST, given["number"])
    arguments = {"query": " ".join(query), "limit": limit, "detail": True, "strategy": strategy}
    times = _without_none({"after": given["since"], "before": given["until"]}) or None
    has_notes, unread = (False, {}) if where.user or where.all_projects else _read_notes(where)
    gathered = _gather(where, "recall_memories", {**arguments, **_filters(where, given), "time_range": times})
    warnings = gathered.warnings | unread | _moved(where, gathered.memories)
    memories = [memory for memory in gathered.memories if not (is_open and memory.get("done"))]
    memories = sorted(memories, key=lambda memory: memory.get("relevance_score", 0.0), reverse=True)[: given["number"]]
    if not memories:
        nothing = "Nothing was found." if has_notes else _nothing(where, "Nothing was found.")
        return _listing(memories, warnings, note=nothing, status=exit_codes.FAILED)
    most = len(memories) if shows_all else min(BEST, len(memories))
    others = len(memories) - most if is_whole else min(gathered.total, given["number"]) - most
    weaker = f"{others} weaker: --all" if others > 0 else ""
    nearest = "" if warnings or is_open or any(map(_answers, memories)) else "Nothing answers this; the nearest:"
    return _listing(memories, warnings, note=nearest, most=most, more=weaker)


@memory_command(
    *FILTERS,
    flag("--only-forgotten", help="Only forgotten memories."),
    flag("--important", "order", flag_value="important", help="The most important first."),
    flag("--open", "order", flag_value="due", help="Open ends that are not done, by their due dates."),
    flag("--stale", "about", flag_value="stale", help="Memories about code that has changed, moved or gone since."),
    flag(
        "--review",
        "about",
        flag_value="review",
        help="Proposals and pairs that wait for a decision (edit --to, --replaced).",
    ),
    name="list",
)
def list_(where: Where, order: str | None, about: str | None, only_forgotten: bool, **given: Any) -> Report:
    """List memories, newest first; records of sessions only with --kind session_record."""
    if about == "stale":
        return _stale(where)
    if about == "review":
        return _waiting(where)
    filters = {"after": given["since"], "before": given["until"]} | _filters(where, given)
    filters["kind"] = list(given["kind"] or KINDS)
    most = given["number"]
    arguments = {"order": order or "latest", **filters, "only_forgotten": only_forgotten or None}
    memories, warnings, _ = _gather(where, "list_memories", {**arguments, "limit": most})
    warnings |= _moved(where, memories)
    more = ""
    if len(memories) >= most:
        known, cut, _ = _gather(where, "list_memories", {**arguments, "limit": MOST_LISTED})
        left = max(0, len(known) - most)
        at_least = "at least " if "answer_cut" in cut.values() or len(known) >= MOST_LISTED else ""
        more = f"{at_least}{left} more; -n {most + left} lists them too" if left else ""
    if order == "due":
        memories.sort(key=lambda memory: memory.get("due", NEVER))
    else:
        memories.sort(key=lambda memory: memory["importance"] if order else _moment(memory), reverse=True)
    none_fits = "Nothing is open here." if order == "due" else "No memory here fits these options."
    nothing = "" if memories else _nothing(where, none_fits)
    return _listing(memories[:most], warnings, note=nothing, more=more)


def _nothing(where: Where, otherwise: str) -> str:
    """The line for an empty result: that nothing is stored yet and what to do, or else `otherwise`."""
    if _gather(where, "list_memories", {"limit": 1, "kind": list(LISTED), "include_forgotten": True}).memories:
        return otherwise
    elsewhere = "" if where.all_projects else "; --all-projects looks in all projects"
    return f"Nothing is remembered here yet: 'remembrancer add TEXT' adds a memory{elsewhere}."


def _moved(where: Where, memories: Sequence[Answer]) -> dict[str, str]:
    """The warning that the project seems to have been moved, if no memory of it was found."""
    if where.user or where.all_projects or any(memory["scope"] == "project" for memory in memories):
        return {}
    from remembrancer.commands.projects import notice_of_move

    [place] = where.places()
    notice = notice_of_move(Path(place.directory))
    return {notice: "project_moved"} if notice else {}


def _read_notes(where: Where) -> tuple[bool, dict[str, str]]:
    """Bring the index of the project's notes up to date. Returns True if there are any, and warnings."""
    from remembrancer.commands.terminal import said_when_slow

    [place] = where.places()
    with where.connected(place) as client:
        try:
            status = client.call("memory_status")
            if not (status["totalFiles"] or status["staleFiles"]):
                return False, {}
            with said_when_slow("Reading the notes"):
                client.call("memory_sync")
        except RemembrancerError as error:
            return True, {error.message: error.code}
        return True, {}


def _filters(where: Where, given: Answer) -> Answer:
    filters = {"kind": given["kind"], "type": given["type"], "tags": given["tag"]}
    filters["scope"] = ("user",) if where.user else given["scope"]
    return {name: list(values) or None for name, values in filters.items()} | {
        "include_forgotten": given["forgotten"] or None
    }


def _without_none(fields: Answer) -> Answer:
    return {name: value for name, value in fields.items() if value is not None}


class Gathered(NamedTuple):
    """The memories of all places without duplicates, the warnings, and the number of memories that match."""

    memories: list[Answer]
    warnings: dict[str, str]
    total: int


def _gather(where: Where, tool: str, arguments: Answer) -> Gathered:
    """The answers of a tool in all places, joined."""
    from remembrancer.commands.terminal import said_when_slow

    memories: dict[str, Answer] = {}
    warnings: dict[str, str] = {}
    total = 0
    for place in where.places():
        with where.connected(place) as client:
            answer = client.call(tool, **arguments)
            if _lacks_meaning(answer):
                with said_when_slow("Loading the model"):
                    _await_model(client)
                answer = client.call(tool, **arguments)
        warnings |= _warnings(answer)
        total += answer.get("total_matched", 0)
        for memory in answer["memories"]:
            own = {"project": place.name} if place.name and memory.get("scope") != "user" else {}
            memories.setdefault(memory.get("id") or _place(memory), {"scope": memory.get("source")} | memory | own)
    return Gathered(list(memories.values()), warnings, total)


def _lacks_meaning(answer: Answer) -> bool:
    return "embedding_starting" in _warnings(answer).values()


def _await_model(client: Session) -> None:
    """Wait a moment until a worker has the model and all memories have vectors. The query itself is not repeated,
    because each answer counts as a use of its memories."""
    give_up_at = time.monotonic() + MEANING_S
    while time.monotonic() < give_up_at:
        time.sleep(LOOK_S)  # there is no event for a loaded model
        embedding = client.call("get_memory_status").get("embedding", {})
        if embedding.get("error") or (embedding.get("workers") and not embedding.get("pending")):
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
    """A list of memories, with the text first and the id last, of which persons see `most`. `more` says how many are
    left out: at a terminal as the last line, else on standard error, as the note."""
    from rich.markup import escape

    from remembrancer.commands.terminal import Terminal, table

    facts = {
        "memories": memories,
        "warnings": [{"code": code, "message": message} for message, code in warnings.items()],
    }
    at_terminal = sys.stdout.isatty()
    notes = [*_noted(warnings), *filter(None, (note, "" if at_terminal else more))]
    if not memories:
        return Report(facts, (), status, notes)
    is_narrow = Terminal().width < NARROW
    listed = table()
    listed.show_header = not is_narrow
    listed.add_column("memory", ratio=1)
    for column in () if is_narrow else ("when", "scope", "kind", "id"):
        listed.add_column(column, no_wrap=True)
    for memory in memories[:most]:
        marks = "".join(f"[{COLOURS.get(mark, 'dim')}]{mark}[/] " for mark in _marks(memory))
        marks += "".join(f"[cyan]#{escape(tag)}[/cyan] " for tag in memory.get("tags", ()))
        scope = f"{memory['scope']} {memory['project']}" if "project" in memory else memory["scope"]
        text = escape(memory.get("summary") or memory["content"])
        about = (_day(memory), scope, _kind(memory), _place(memory))
        if is_narrow:
            listed.add_row(f"{text}\n  {marks}[dim]{escape(' · '.join(about))}[/dim]")
        else:
            listed.add_row(text + (f" {marks.rstrip()}" if marks else ""), *about)
    piped = [_tabbed(memory) for memory in memories[:most]]
    return Report(facts, [listed, more] if more and at_terminal else listed, notes=notes, piped=piped)


def _tabbed(memory: Answer) -> str:
    """A memory as a tab-separated line for `grep` and `cut`."""
    text, marks = " ".join(memory["content"].split()), " ".join(_marks(memory))
    return "\t".join((_place(memory), _day(memory), memory["scope"], _kind(memory), text, marks))


def _stale(where: Where) -> Report:
    from remembrancer.commands.runtime_client import ask_store
    from remembrancer.config.project import project_of
    from remembrancer.protocol.code import ListStale

    if where.user:
        raise InvalidInput("only memories of a project are about code: leave out --user")
    projects = [project_of(Path(place.directory)) for place in where.places()]
    memories = [memory for project in projects for memory in ask_store(ListStale(project))]
    lines = [f"{_one_line(each.content)[:160]}\n    {each.code}  {_bare(each.memory_id)}" for each in memories]
    notes = () if memories else ("No memory here is about code that has changed since.",)
    return Report({"memories": memories}, lines, notes=notes)


def _waiting(where: Where) -> Report:
    """The proposed promotions to the user, and the pairs in which the newer memory may replace the older one."""
    if where.user:
        raise InvalidInput("a project's pairs and proposals stand together with your own: leave out --user")
    waiting: dict[str, dict[tuple[str, ...], Answer]] = {"proposals": {}, "contradictions": {}}
    pending = 0
    for place in where.places():
        own = {"project": place.name} if place.name else {}
        with where.connected(place) as client:
            status = client.call("get_memory_status")
        pending = max(pending, status.get("embedding", {}).get("pending", 0))
        for name, listed in waiting.items():
            for each in status.get(name, ()):  # those of the user are named in every project
                listed.setdefault(tuple(each.values()), each | own)
    facts = {name: list(listed.values()) for name, listed in waiting.items()}
    if not any(facts.values()):
        compared = f"; {count(pending, 'memory')} not compared with others yet" if pending else ""
        return Report(facts, f"Nothing waits for a decision{compared}. A pair in other words may have been missed.")
    rows = [(_one_line(each["content"]), each["reason"], _bare(each["memory_id"])) for each in facts["proposals"]]
    for each in facts["contradictions"]:
        newer = f"replaced by {_bare(each['newer_id'])}? {_one_line(each['newer'])}"
        rows.append((_one_line(each["older"]), newer, _bare(each["older_id"])))
    how = "'remembrancer edit ID --to user' accepts, '--to project' refuses a proposal; of a pair: --replaced, --both."
    piped = ["\t".join((bare, text, why)) for text, why, bare in rows]
    return Report(facts, [Rows(("memory", "why", "id"), rows), how], piped=piped)


@memory_command(
    argument("named", nargs=-1, metavar="[ID]...", help="Ids as shown in lists; with --graph, the name of an entity."),
    option("--version", type=int, metavar="N", help="Show that version."),
    flag("--history", "view", flag_value="history", help="List the changes, with their times and sessions."),
    flag(
        "--shown",
        "view",
        flag_value="shown",
        help="List the sessions it was shown to, with their questions; without an ID, for all memories.",
    ),
    flag(
        "--graph",
        "view",
        flag_value="graph",
        help="Show an entity's relations; without a name, an overview of all entities.",
    ),
    option("--relation", metavar="TYPE", help="With --graph: only relations of this type (uses, depends_on …)."),
    option("--depth", type=click.IntRange(1, 3), metavar="1-3", help="With --graph: the number of steps (1)."),
    NUMBER,
    name="show",
)
def show(where: Where, named: Sequence[str], version: int | None, view: str | None, **given: Any) -> Report:
    """Show memories in full: text, details, links, and why each is still kept."""
    if view == "graph":
        return _graph(where, " ".join(named), **given)
    ids = [memory_id(each) for each in named]
    if view == "shown":
        return _showings(where, ids, given["number"])
    if not ids:
        raise InvalidInput("name a memory by its id, as a list shows it")
    answers = [where.ask("get_memory", memory_id=each, version=version, detail=True) for each in ids]
    clients = _clients(where)
    reports = [
        _changes(where, each, clients) if view == "history" else (each, _details(where, each, clients))
        for each in answers
    ]
    facts = reports[0][0] if len(reports) == 1 else {"memories": [each for each, _ in reports]}
    notes = [note for answer in answers for note in _noted(_warnings(answer))]
    return Report(facts, [line for _, lines in reports for line in lines], notes=notes)


def _clients(where: Where) -> dict[str, str]:
    """The names of the clients of the projects' last sessions, by the sessions' ids."""
    from remembrancer.commands.runtime_client import ask_running_home, paths_here
    from remembrancer.config.project import project_of
    from remembrancer.memory.text import client_title
    from remembrancer.protocol.browsing import ListSessions
    from remembrancer.protocol.store_client import AWAY

    clients: dict[str, str] = {}
    with suppress(*AWAY):  # the ids are shown then
        for place in where.places():
            request = ListSessions(project_of(Path(place.directory)), SHELL_SESSION, limit=NAMED)
            for each in ask_running_home(paths_here(), request).sessions:
                if each.client:
                    clients[each.session_id] = client_title(each.client)
    return clients


def _details(where: Where, answer: Answer, clients: Mapping[str, str]) -> list[Line]:
    """A memory for a person: its text, kind and dates, and the texts of linked memories."""
    from remembrancer.config.project import project_of
    from remembrancer.memory.fields import DETAILS

    names = [name for name in DETAILS if name != "kind"]
    names += ["metadata", "source", "forgotten_at", "forgotten_reason", "promotion_chain", "observed_in_projects"]
    own = f"{answer.get('kind') or answer['type']} of the {answer['scope']}"
    tags = "".join(f"  #{tag}" for tag in answer["tags"])
    state = [answer["status"]] if answer["status"] != "active" else []
    state += _marks({name: answer[name] for name in ("valid_until", "done", "due") if name in answer})
    lines = [answer["content"], "", f"{', '.join([own, *state])}, importance {answer['importance']:g}{tags}"]
    version = answer.get("version")
    changed = f", changed {_minute(answer['updated_at'])} (version {version})" if version and version > 1 else ""
    lines.append(f"stored {_minute(answer['created_at'])} by {_author(answer, clients)}{changed}")
    if answer.get("access_count"):
        lines.append(f"used {count(answer['access_count'], 'time')}, last {_minute(answer['last_accessed'])}")
    entities = [each["name"] for each in answer.get("related_entities", ())]
    for name, value in (
        ("about", ", ".join([*entities, *answer.get("found_entities", ())])),
        *((name, _plain(answer.get(name) or "")) for name in names),
    ):
        if value:
            lines.append(f"{name.replace('_', ' ')}: {value}")
    links = [(f"{each['relation']}", each["target"]) for each in answer.get("links", ())]
    links += [
        (INCOMING.get(name := each["relation"], f"{name} (by)"), each["source"])
        for each in answer.get("incoming_links", ())
    ]
    links += [("says nearly the same", each) for each in answer.get("near_duplicates", ()) if isinstance(each, str)]
    links += [("copy", each["id"]) for each in answer.get("copies", ())]
    projects = [project_of(Path(place.directory)).id for place in where.places()] if links else []
    words = words_of(projects, [other for _, other in links])
    lines += [f"{relation}: {words.get(other, 'not here')}  {_bare(other)}" for relation, other in links]
    session = f"session {answer['session_id']}"
    reasons = (why for why in answer.get("why", ()) if not why.startswith("Stored for"))  # shown above
    for why in reasons:
        reason = why.replace(session, _author(answer, clients))
        for other, text in words.items():
            reason = reason.replace(other, f"“{text}” ({_bare(other)})")
        lines.append(f"- {reason}")
    return [*lines, _bare(answer["id"])]


def words_of(projects: Iterable[str], ids: Sequence[str]) -> dict[str, str]:
    """The first words of memories in these projects or the user's, by whole ids."""
    from remembrancer.commands.runtime_client import ask_home, paths_here
    from remembrancer.protocol.home import FindMemories

    if not ids:
        return {}
    words: dict[str, str] = {}
    for project in (None, *projects):
        words |= ask_home(paths_here(), FindMemories(project, tuple(dict.fromkeys(ids)))).words
    return {each: _one_line(text) for each, text in words.items()}


def _changes(where: Where, answer: Answer, clients: Mapping[str, str]) -> tuple[Answer, list[Line]]:
    """The history of a memory, for a program and for a person."""
    versions = [each["version"] for each in answer["history"]]
    states = {each: where.ask("get_memory", memory_id=answer["id"], version=each, detail=True) for each in versions}
    facts = {"memory_id": answer["id"], "history": answer["history"], "omitted": answer.get("history_omitted", 0)}
    rows = []
    for each in answer["history"]:
        before, after = states.get(each["version"] - 1, {}), states[each["version"]]
        names = [name for name in each.get("fields", ()) if name != "status"]
        changes = [f"{name}: {_plain(before.get(name, 'none'))} → {_plain(after.get(name, 'none'))}" for name in names]
        changes += [
            f"{name}: {WHOLE.sub(lambda match: _bare(match[0]), str(each[name]))}"
            for name in ("by", "reason")
            if name in each
        ]
        what = ", ".join(changes)
        rows.append((str(each["version"]), _minute(each["at"]), each["change"], _author(each, clients), what))
    return facts, [_one_line(answer["content"]), Rows(("version", "when", "change", "by", "what"), rows)]


def _showings(where: Where, ids: Sequence[str], number: int) -> Report:
    """The answers in which memories were shown to sessions, according to the log."""
    from remembrancer.actors.gateway.shown_log import ShownLog
    from remembrancer.commands.runtime_client import paths_here

    log = ShownLog(paths_here().home, kept_s=0.0)
    entries = [
        row for each in ids or ("",) for row in log.read(memory_id=each, session_id=where.session or "", limit=number)
    ]
    clients = _clients(where) if entries else {}
    words = words_of({each.project for each in entries}, [each.memory_id for each in entries if each.memory_id])
    lines = []
    for (at, session, tool, question), rows in groupby(
        entries, key=lambda each: (each.at, each.session_id, each.tool, each.question)
    ):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
        author = _author({"session_id": session}, clients)
        lines.append(f"{when}  {author}, {tool.replace('_', ' ')}: {_one_line(question)}")
        for row in rows:
            text = words.get(row.memory_id, "not here")
            lines.append(f"  {row.place}  {text}  {_bare(row.memory_id)}" if row.memory_id else "  nothing was found")
    nothing = "None of these has been shown to a session yet." if ids else "No memory has been shown to a session yet."
    return Report({"shown": [each._asdict() for each in entries]}, lines or nothing)


def _graph(where: Where, entity: str, relation: str | None, depth: int | None, number: int) -> Report:
    if where.user or where.all_projects:
        raise InvalidInput("the graph is that of one project with your own memories: --project names another one")
    arguments = {"entity": entity or None, "depth": depth, "relationship_type": relation}
    with where.connected(where.places()[0]) as client:
        answer = client.call("search_knowledge_graph", limit=number, **arguments)
    notes = _noted(_warnings(answer))
    if not answer["entities"]:
        near = ", ".join(answer.get("suggestions", ()))
        hint = f": did you mean {near}?" if near else ""
        return Report(
            answer, (f"No entity {entity!r} is known" if entity else "No entities are known yet") + hint, notes=notes
        )
    rows = [
        (
            each["name"],
            "" if each["type"] == "custom" else each["type"],
            str(each["memory_count"]),
            "; ".join(map(_relation, each["relationships"])),
        )
        for each in answer["entities"]
    ]
    return Report(answer, Rows(("entity", "type", "memories", "relations"), rows), notes=notes)


@memory_command(argument("day", nargs=-1, metavar="[DAY]", help="today, Tuesday, yesterday, 2026-02-20."), name="log")
def log(where: Where, day: Sequence[str]) -> Report:
    """Show the changes of a day in order: stored, changed, decided, closed."""
    from remembrancer.toolsets.memory.day_log import dates_of

    answer, warnings = _log_of(where, " ".join(day) or None)
    dates = dates_of(*(datetime.fromisoformat(answer[edge]).timestamp() for edge in ("begins", "ends")))
    if not answer["changes"]:
        return Report(answer, notes=(*_noted(warnings), f"Nothing was stored or changed on {dates}."))
    rows, piped = [], []
    for each in answer["changes"]:
        minute, text, mark = _minute(each["at"]), _one_line(each["text"]), "forgotten" if "forgotten" in each else ""
        rows.append((minute, each["did"], f"{text} ({mark})" if mark else text, _bare(each["id"])))
        piped.append("\t".join((_bare(each["id"]), minute, each["did"], text, mark)))
    lines: list[Line] = [dates, Rows(("when", "what", "memory", "id"), rows)]
    return Report(answer, lines, notes=_noted(warnings), piped=piped)


def _log_of(where: Where, day: str | None) -> tuple[Answer, dict[str, str]]:
    if where.user:
        raise InvalidInput("the log has a project's changes and your own together: leave out --user")
    answer: Answer = {}
    changes: dict[tuple[str, str, str], Answer] = {}
    warnings: dict[str, str] = {}
    for place in where.places():
        with where.connected(place) as client:
            answer = client.call("read_log", day=day, include_forgotten=True)
        changes |= {(each["at"], each["id"], each["did"]): each for each in answer["changes"]}
        warnings |= _warnings(answer)
    return answer | {"changes": sorted(changes.values(), key=lambda each: str(each["at"]))}, warnings


# --- changing ---


@memory_command(
    argument("text", nargs=-1, metavar="[TEXT]...", help="- reads the input; without it, the editor is opened."),
    option("--tag", multiple=True, metavar="TAG", help="May be given several times."),
    option("--supersedes", type=memory_id, metavar="ID", help="The memory that this one replaces."),
    *(DUE, KIND, IMPORTANCE, SUMMARY, SECRETS),
    name="add",
)
def add(where: Where, text: Sequence[str], tag: Sequence[str], allow_secrets: bool, **given: Any) -> Report:
    """Remember something, for this project or (with --user) everywhere."""
    if where.all_projects:
        raise InvalidInput("a memory belongs to one project (--project), or to all as yours (--user)")
    content = " ".join(text)
    if content == "-" or (not content and not sys.stdin.isatty()):
        content = _input_text()
    content = content or (edited("").strip() if sys.stdin.isatty() else "")
    if not content:
        raise InvalidInput("there is nothing to remember: the text is empty")
    with where.connected(where.places()[0]) as client:
        answer = client.call(
            "store_memory",
            content=content,
            scope="user" if where.user else "project",
            tags=list(tag) or None,
            allow_secrets=allow_secrets or None,
            **given,
        )
    known = "Already remembered" if answer.get("already_known") else "Remembered"
    ids = map(_bare, answer["ids"] if "ids" in answer else [answer["memory_id"]])
    return _done(answer, f"{known}: {cut_at_word(_one_line(content), LONGEST)}  {', '.join(ids)}")


@memory_command(
    ID,
    argument("text", nargs=-1, metavar="[TEXT]...", help="The new text; - reads the input."),
    option("--content", metavar="TEXT", help="The new text, as an option."),
    flag("--done", help="Mark an open end as done."),
    flag("--reopen", help="Reopen an open end."),
    option(
        "--to",
        type=click.Choice(("project", "user")),
        help="Move a memory from its session to the project, or from the project to the user, or back.",
    ),
    flag(
        "--replaced",
        "pair",
        flag_value="supersedes",
        help="Settle a pair of list --review: the newer memory replaces this one.",
    ),
    flag("--both", "pair", flag_value="related_to", help="Settle such a pair: both are true."),
    option("--undecided", type=memory_id, metavar="ID", help="Put a pair that --both has settled back into review."),
    option("--supersedes", type=memory_id, metavar="ID", help="A memory that this one replaces from now on."),
    *(DUE, KIND, IMPORTANCE, SUMMARY, SECRETS, REASON),
    name="edit",
)
def edit(
    where: Where,
    memory: str,
    text: Sequence[str],
    content: str | None,
    done: bool,
    reopen: bool,
    to: str | None,
    pair: str | None,
    undecided: str | None,
    allow_secrets: bool,
    reason: str | None,
    **given: Any,
) -> Report:
    """Change a memory: edit ID "new text"; with neither text nor option, in $EDITOR. Earlier versions are kept."""
    if (done and reopen) or (text and content is not None):
        raise click.UsageError("give one of --done and --reopen, and the new text once")
    if pair is not None:
        return _settle(where, memory, pair, reason)
    if undecided is not None:
        related, doubted = ([{"relation": each, "target": undecided}] for each in ("related_to", "contradicts"))
        answer = where.ask("update_memory", memory_id=memory, remove_links=related, add_links=doubted, reason=reason)
        return _done(answer, "It waits for review again.")
    if to is not None:
        answer = where.ask("promote_memory", memory_id=memory, target_scope=to, reason=reason)
        return _done(answer, f"Moved to the {to}; 'remembrancer undo {_bare(memory)}' moves it back")
    content = content if not text else " ".join(text) if text != ("-",) else _input_text()
    changes = _without_none({"content": content, "done": done if done or reopen else None, **given})
    if not changes:
        text_before = str(where.ask("get_memory", memory_id=memory)["content"]).rstrip("\n")
        after = edited(text_before).rstrip("\n")
        if after == text_before:
            return Report({"memory_id": memory, "updated_fields": []}, notes=("Nothing was changed.",))
        changes["content"] = after
    answer = where.ask("update_memory", memory_id=memory, allow_secrets=allow_secrets or None, reason=reason, **changes)
    if set(changes) == {"supersedes"}:
        old = _bare(given["supersedes"])
        if answer.get("updated_fields") == []:
            return _done(answer, f"It replaces {old} already")
        return _done(answer, f"It replaces {old} from now on; 'remembrancer undo {old}' makes that valid again")
    changed = answer.get("updated_fields", ())
    if not changed:
        return _done(answer, "Nothing was changed: it is so already.")
    return _done(answer, f"Changed: {', '.join(changed)}; 'remembrancer undo {_bare(memory)}' undoes it")


def _settle(where: Where, memory: str, relation: str, reason: str | None) -> Report:
    """Decide whether a newer memory replaces this one."""
    for place in where.places():
        with where.connected(place) as client:
            for pair in client.call("get_memory_status").get("contradictions", ()):
                if has_part(pair["older_id"], _bare(memory)):
                    link = {"relation": relation, "target": pair["older_id"]}
                    answer = client.call("update_memory", memory_id=pair["newer_id"], add_links=[link], reason=reason)
                    newer, newer_id, older_id = (_one_line(pair[each]) for each in ("newer", "newer_id", "older_id"))
                    if relation == "supersedes":
                        return _done(answer, f"Replaced by: {newer}")
                    back = f"remembrancer edit {_bare(newer_id)} --undecided {_bare(older_id)}"
                    return _done(answer, f"Both hold, also: {newer}; '{back}' takes that back")
    raise NotFound(f"no pair in 'remembrancer list --review' has {_bare(memory)} as its older memory")


def _input_text() -> str:
    """The text on standard input. Raises `InvalidInput` if it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the input is not UTF-8: byte {error.start} is not valid") from error


def edited(text: str) -> str:
    """The text as edited by the person.

    Raises:
        InvalidInput: there is no terminal, or the editor fails.
    """
    if not sys.stdin.isatty():
        raise InvalidInput(
            "there is no terminal for an editor: give the text (add TEXT, edit ID TEXT), or - for the input"
        )
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="remembrancer-") as directory:
        file = Path(directory) / "memory.md"
        file.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*editor, str(file)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise InvalidInput(f"the editor {editor[0]} failed ({error}): EDITOR names another one") from error
        return file.read_text(encoding="utf-8")


@memory_command(
    ID,
    argument("tags", nargs=-1, metavar="[TAG]...", help="Tags to add."),
    option("--remove", multiple=True, metavar="TAG", help="A tag to remove."),
    name="tag",
)
def tag(where: Where, memory: str, tags: Sequence[str], remove: Sequence[str]) -> Report:
    """Add tags to a memory, or remove them."""
    answer = where.ask("tag_memory", memory_id=memory, add=list(tags) or None, remove=list(remove) or None)
    return _done(answer, f"Tags: {', '.join(answer.get('tags', ())) or 'none'}")


IDS: Final = argument(
    "memories", nargs=-1, required=True, metavar="ID...", type=memory_id, help="An id as shown in lists."
)
YES: Final = flag("--yes", help="Do not ask.")
UNDONE: Final = "undone"
"""The reason in the history for a change that `undo` made."""
STORING_UNDONE: Final = "its storing was undone"


@memory_command(
    IDS,
    REASON,
    flag("--copies", help="Also forget the same text in other scopes."),
    flag("--for-good", help="Delete it: content, history, vectors, full text and queued copies. Asks first."),
    YES,
    name="forget",
)
def forget(
    where: Where, memories: Sequence[str], reason: str | None, copies: bool, for_good: bool, yes: bool
) -> Report:
    """Hide memories from search. They can be restored, unless --for-good deletes them."""
    return _erase(where, memories, yes=yes) if for_good else _forget(where, memories, reason, copies=copies)


def _forget(where: Where, memories: Sequence[str], reason: str | None = None, *, copies: bool = False) -> Report:
    if len(memories) > 1:
        where.texts_of(memories)
    answers = [where.ask("forget_memory", memory_id=each, reason=reason, copies=copies or None) for each in memories]
    lines = []
    for memory, answer in zip(memories, answers, strict=True):
        also = ", ".join(_bare(each["id"]) for each in answer.get("copies", ()))
        lines.append(
            QUEUED
            if answer.get("status") == "queued"
            else f"{_bare(memory)} was forgotten before: 'remembrancer restore {_bare(memory)}' brings it back"
            if answer.get("already_forgotten")
            else f"Forgotten: 'remembrancer undo {_bare(memory)}' brings it back, 'forget --for-good' deletes it"
            + (f". Its text is also in {also} (--copies takes these too)" if also else "")
        )
    facts = answers[0] if len(answers) == 1 else {"forgotten": answers}
    return Report(facts, lines, notes=[note for each in answers for note in _noted(_warnings(each))])


def _erase(where: Where, memories: Sequence[str], *, yes: bool) -> Report:
    texts, erased = where.texts_of(memories), []
    for memory in memories:
        if memory in texts:
            confirm(f"{texts[memory][:LONGEST]}\nErase it for good, with its history?", yes=yes)
        erased.append(where.ask("erase_memory", memory_id=memory))
    lines = []
    for each in erased:
        verb = "was erased before" if each.get("already_erased") else "is erased for good"
        made = f", with {len(each['also_erased'])} that were made of it" if "also_erased" in each else ""
        also = f"; memories that may repeat it: {', '.join(each['also_said_by'])}" if "also_said_by" in each else ""
        lines.append(f"{_bare(each['memory_id'])} {verb}{made}{also}")
    return Report({"erased": erased}, [*lines, "Backups and exports that were made before still have it."])


@memory_command(IDS, name="delete")
def delete(where: Where, memories: Sequence[str]) -> Report:
    """Ask whether memories are to be forgotten, which can be undone, or deleted for good."""
    if not sys.stdin.isatty():
        raise InvalidInput(
            "say which is meant: 'remembrancer forget ID', which can be undone, or 'forget ID --for-good'"
        )
    for text in where.texts_of(memories).values():
        print(text[:LONGEST], file=sys.stderr)
    ways = click.Choice(("forget", "for-good", "neither"))
    way = click.prompt("Forget it (that can be undone), or delete it for good?", type=ways, default="forget", err=True)
    if way == "neither":
        raise click.Abort
    return _forget(where, memories) if way == "forget" else _erase(where, memories, yes=True)


@memory_command(
    ID, option("--version", type=int, metavar="N", help="The version to return to."), REASON, name="restore"
)
def restore(where: Where, memory: str, version: int | None, reason: str | None) -> Report:
    """Bring back a forgotten memory, or an earlier version of one. ('backup restore' restores a backup.)"""
    answer = where.ask("restore_memory", memory_id=memory, version=version, reason=reason)
    return _done(answer, f"Restored, as version {answer.get('version', '?')}")


@memory_command(
    argument(
        "change",
        required=False,
        metavar="[ID]",
        help="A memory, or a run of maintenance (default: the last change today).",
    ),
    YES,
    name="undo",
)
def undo(where: Where, change: str | None, yes: bool) -> Report:
    """Undo the last change of a memory, a run of maintenance, or (without an ID) the last change here today.

    Once more undoes the change before that.
    """
    if change is None:
        change = _last_change(where, yes)
    try:
        memory = id_or_part(change)
    except InvalidInput:
        if not change.startswith(RUN):
            raise
        return undo_run(where, change)
    current = where.ask("get_memory", memory_id=memory, detail=True)
    changes = _not_undone(current)
    if not changes:
        bare = _bare(memory)
        raise NotFound(
            f"there is nothing more to undo: {_one_line(current['content'])}  {bare} ('remembrancer restore {bare}' "
            "brings it back if it is forgotten)"
        )
    replaced, replaced_changes = _replaced_since(where, current, changes[-1]["at"])
    return _undo_last(where, replaced or current, replaced_changes or changes)


def undo_run(where: Where, run_id: str) -> Report:
    """Undo a run, in its project and in the user's memories. Returns the memories that were restored, and those that
    were left alone."""
    from remembrancer.config.project import project_of

    for place in where.places():
        with where.connected(place) as client, suppress(NotFound):
            answer = client.call("reflect_and_consolidate", undo=run_id)
            memories, skipped = answer.get("memories", []), answer.get("skipped", [])
            is_again = answer.get("already_undone", False)
            place_facts = {"project": project_of(Path(place.directory)), "memories": memories, "skipped": skipped}
            outcome = "it was undone before" if is_again else f"{count(len(memories), 'memory')} restored"
            lines = [f"{place.directory}: {QUEUED if answer['status'] == 'queued' else outcome}"]
            lines += [f"  {_bare(each['memory_id'])} is left alone: {each['reason']}" for each in skipped]
            return Report({"run_id": run_id, "places": [place_facts | {"already": is_again}]}, lines)
    raise InvalidInput(
        f"there is no run {run_id} here, or it is too old to be undone; --project, --user or --all-projects says where"
    )


def _last_change(where: Where, yes: bool) -> str:
    """The id of the memory of today's last change that is not undone, once the person has agreed."""
    answer, _ = _log_of(where, None)
    changes: dict[str, list[Answer]] = {}
    for each in reversed(answer["changes"]):
        memory = str(each["id"])
        if memory not in changes:
            changes[memory] = _not_undone(where.ask("get_memory", memory_id=memory, detail=True))
        if any(change["at"] == each["at"] for change in changes[memory][-1:]):
            confirm(f"Undo this? {each['did']}: {_one_line(each['text'])}", yes=yes)
            return memory
    raise NotFound("nothing of today is left to undo here: 'remembrancer undo ID' undoes an older change")


def _not_undone(memory: Answer) -> list[Answer]:
    """The changes of a memory, its storing first, without those that were undone and their undoing."""
    changes: list[Answer] = []
    for each in memory["history"]:
        if each.get("reason") in (UNDONE, STORING_UNDONE):
            del changes[-1:]
        else:
            changes.append(each)
    return changes


def _replaced_since(where: Where, memory: Answer, at: str) -> tuple[Answer, list[Answer]]:
    """A memory that this one replaced at that time or later, with its changes; empty if there is none.

    Raises:
        InvalidInput: it was changed after that.
    """
    for link in memory.get("links", ()):
        if link["relation"] == "supersedes":
            old = where.ask("get_memory", memory_id=link["target"], detail=True)
            changes = _not_undone(old)
            since = [each for each in changes if each.get("by") == memory["id"] and each["at"] >= at]
            if since and since[-1] is changes[-1]:
                return old, changes
            if since:
                text, bare = _one_line(old["content"]), _bare(old["id"])
                raise InvalidInput(
                    f"it replaced {text}  {bare}, which was changed after that: 'remembrancer undo {bare}' first"
                )
    return {}, []


def _undo_last(where: Where, memory: Answer, changes: Sequence[Answer]) -> Report:
    """Undo the last of a memory's changes."""
    last, text, bare = changes[-1], _one_line(memory["content"]), _bare(memory["id"])
    if last["change"] == "forgotten":
        answer = where.ask("restore_memory", memory_id=memory["id"], reason=UNDONE)
        return _done(answer, f"Undone, it is no longer forgotten: {text}  {bare}")
    if len(changes) == 1 or (last["change"] == "restored" and "status" in last.get("fields", ())):
        reason = STORING_UNDONE if len(changes) == 1 else UNDONE
        answer = where.ask("forget_memory", memory_id=memory["id"], reason=reason)
        return _done(answer, f"Undone, it is forgotten ('remembrancer restore {bare}' brings it back): {text}")
    if last["change"] in ("promoted", "taken back"):
        back = last.get("previous_scope", "project")
        if back == "session":
            raise InvalidInput(f"a move from a session cannot be undone: {text}  {bare}")
        answer = where.ask("promote_memory", memory_id=memory["id"], target_scope=back, reason=UNDONE)
        return _done(answer, f"Undone, it is moved back to the {back}: {text}  {bare}")
    answer = where.ask("restore_memory", memory_id=memory["id"], version=changes[-2]["version"], reason=UNDONE)
    after = where.ask("get_memory", memory_id=memory["id"], detail=True)
    what = _changed_back(answer.get("restored_fields", ()), after)
    return _done(answer, f"Undone, {what}: {_one_line(after['content'])}  {bare}")


def _changed_back(fields: Iterable[str], after: Answer) -> str:
    """The effect of undoing a change, by its fields."""
    effects = {
        "content": "it has its former text",
        "valid_until": "its former end of validity is back" if after.get("valid_until") else "it is valid again",
        "done": "it is done again" if after.get("done") else "it is open again",
    }
    names = [name.replace("_", " ") for name in fields if name not in (*effects, "invalid_reason", "status")]
    known = [effects[name] for name in fields if name in effects]
    return " and ".join([*known, f"as before: {', '.join(names)}"] if names or not known else known)


# --- texts for a person ---


QUEUED: Final = "Queued: it is done as soon as the store takes it."


def _done(answer: Answer, line: str) -> Report:
    """The report of a change, which may still be queued."""
    return Report(answer, QUEUED if answer.get("status") == "queued" else line, notes=_noted(_warnings(answer)))


def _warnings(answer: Answer) -> dict[str, str]:
    return {warning["message"]: warning["code"] for warning in answer.get("warnings", ())}


def _noted(warnings: dict[str, str]) -> tuple[str, ...]:
    """The warnings as lines, without the codes that programs get."""
    return tuple(re.sub(r" \(\w+\)$", "", message) for message in warnings)


def _bare(memory: str) -> str:
    """The short form of an id for a person: as a list has it, or of a whole one its last characters."""
    bare = memory.removeprefix(MEMORY_PREFIX)
    return bare[-LEAST:] if bare != memory else bare


def _place(memory: Answer) -> str:
    """The id of a memory in a list, or the location of a part of a file."""
    return "{path}:{lines[0]}".format(**memory) if "path" in memory else _bare(memory["id"])


def _author(change: Answer, clients: Mapping[str, str]) -> str:
    session = str(change["session_id"])
    return "you, in the shell" if session == SHELL_SESSION else clients.get(session, session)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _minute(at: str) -> str:
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(each)}" for name, each in value.items())
    return str(value)


def _marks(memory: Answer) -> list[str]:
    """The marks of a memory in a list: forgotten, no longer valid or done, its due date, and how well it answers."""
    is_past = str(memory.get("valid_until") or NEVER) <= datetime.now(UTC).isoformat()
    marks = [name for name in ("forgotten", "expired", "done") if memory.get(name) or (name == "expired" and is_past)]
    if due := memory.get("due"):
        is_late = due < f"{datetime.now().astimezone():%Y-%m-%d}" and not memory.get("done")
        marks.append(f"overdue since {due}" if is_late else f"due {due}")
    return [*marks, memory["answers"]] if "answers" in memory else marks


def _answers(memory: Answer) -> bool:
    """True if a memory may answer the query; always true after a search by words only."""
    return str(memory.get("answers")) != "hardly"


def _moment(memory: Answer) -> str:
    return str(memory.get("occurred_at") or memory.get("created_at", ""))


def _day(memory: Answer) -> str:
    """The day of a memory's last change, or else of the event that it describes."""
    return str(memory.get("updated") or _moment(memory))[:10]


def _kind(memory: Answer) -> str:
    return str(memory.get("kind") or memory.get("type") or "")


def _relation(edge: Answer) -> str:
    """A relation from the point of view of its row's entity, with its period of validity; a left arrow marks an
    incoming one."""
    back = "← " if edge.get("direction") == "incoming" else ""
    fields = (("from", "valid_from"), ("until", "valid_until"))
    times = " ".join(f"{name} {edge[field][:10]}" for name, field in fields if field in edge)
    return f"{edge['type']} {back}{edge['target']}" + (f" ({times})" if times else "")
