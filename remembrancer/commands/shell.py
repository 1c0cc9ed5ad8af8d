"""The commands by which a person works with memories in a shell: search, list, show, add, edit, forget, restore, tag,
promote, review, history, graph, erase. Each command calls the tools that sessions call, over the gateway's socket."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.markup import escape
from rich.table import Table

from remembrancer.actors.bridge.places import find_places
from remembrancer.actors.bridge.starter import Starter
from remembrancer.commands import exit_codes
from remembrancer.commands.gateway_client import LOOK_S, GatewayClient, reach
from remembrancer.commands.projects import known_projects
from remembrancer.commands.runtime_client import directory_here, paths_here
from remembrancer.commands.terminal import Terminal, said_when_slow, table
from remembrancer.memory.short_ids import has_part, id_or_part
from remembrancer.protocol.errors import Failure, InvalidInput, MemoryUnavailable, NotFound, from_failure
from remembrancer.protocol.ids import MEMORY_PREFIX
from remembrancer.protocol.kinds import KINDS, MEMORY_TYPES, SESSION_RECORD
from remembrancer.protocol.session_life import SHELL_SESSION
from remembrancer.toolsets.memory.answers import iso

if TYPE_CHECKING:
    from remembrancer.memory.times.windows import TimeWindow

TOOLSETS: Final = {"REMEMBRANCER_TOOLSETS": "memory,admin"}
START_S: Final = 60.0
"""The time that the runtime may take to start before a command gives up; a slow machine takes many seconds."""
ANSWER_S: Final = 60.0
MEANING_S: Final = 3.0
"""The time that a search waits for a model that is being loaded; then it is by words, and says so."""
NARROW: Final = 110
"""Columns of a terminal below which a memory has lines of its own in a list."""
SCOPES: Final = ("session", "project", "user")
Answer = dict[str, Any]


class Place(NamedTuple):
    """Whose memories are meant: a project by its directory, and what it is called when several are."""

    directory: str
    name: str = ""


# --- the gateway ---


class Session:
    """A connection to the gateway on behalf of a place. A runtime is started when none is up."""

    def __init__(self, place: Place, session: str) -> None:
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
                time.sleep(LOOK_S)  # without the store, an answer would be made of what is remembered of answers

    def _has_store(self) -> bool:
        connection: Answer = self.call("get_memory_status")["connection"]
        return bool(connection["status"] == "connected")

    def call(self, tool: str, **arguments: Any) -> Answer:
        """The answer of a tool. Arguments that are None are left out. Raises the error that it is refused with."""
        try:
            answer = self._gateway.call(tool, _without_none(arguments))
        except OSError as error:
            raise MemoryUnavailable(f"the memory service does not answer: {error}") from error
        if "error" in answer:
            message = answer["message"].replace("pass allow_secrets: true", "say --allow-secrets")
            raise from_failure(Failure(answer["error"], message, answer["retry_possible"]))
        return answer

    def close(self) -> None:
        """End the connection."""
        self._gateway.close()


@contextmanager
def connected(place: Place, asked: argparse.Namespace) -> Iterator[Session]:
    """A connection for the block."""
    client = Session(place, asked.session or SHELL_SESSION)
    try:
        yield client
    finally:
        client.close()


def places_of(asked: argparse.Namespace) -> list[Place]:
    """The places that the command line means: of several, the project of the working directory first.

    Raises:
        InvalidInput: the project is none.
    """
    directory = directory_here(asked.project)
    if asked.project is not None and not directory.is_dir():
        named = next((project for project in _projects() if asked.project in (project.name, project.directory)), None)
        if named is None:
            raise InvalidInput(
                f"{asked.project} is no directory, and 'remembrancer projects' has no project of that id"
            )
        return [named]
    here = Place(str(directory.absolute()))
    return (_projects() if asked.all_projects else []) or [here]


def _projects() -> list[Place]:
    described = known_projects(paths_here())
    _warn({failure.message: failure.code for failure in described.unreadable})
    return [Place(project.path, project.id) for project in described.projects if project.path is not None]


def in_one_of(asked: argparse.Namespace, tool: str, **arguments: Any) -> Answer:
    """The answer of the first place that knows the memory which the arguments name."""
    missing: NotFound | None = None
    for place in places_of(asked):
        with connected(place, asked) as client:
            try:
                return client.call(tool, **arguments)
            except NotFound as error:
                missing = error
    assert missing is not None
    hint = "" if asked.all_projects else " (in this project and among the user's; --all-projects looks everywhere)"
    raise NotFound(f"{missing.message}{hint}")


# --- the command line ---


def since(text: str) -> str:
    """The beginning of a time, as the tools take it: a day (2026-02-20), a time, how long ago (`3d`, `12h`, `2w`), or a
    phrase that a question might have (`yesterday`, `last week`, `Monday`)."""
    return _said(text, lambda window: window.start)


def until(text: str) -> str:
    """The end of a time; a day in figures is its beginning, as the tools take it."""
    return _said(text, lambda window: window.end)


def _said(text: str, edge: Callable[[TimeWindow], float]) -> str:
    from remembrancer.memory.times.windows import time_windows  # the calendar takes a while to load

    units = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
    now = time.time()
    if text[:-1].isdigit() and text[-1:] in units:
        return iso(now - int(text[:-1]) * units[text[-1]])
    with suppress(ValueError):
        datetime.fromisoformat(text)
        return text
    for phrase in (text, f"on {text}", f"in {text}"):
        for window in time_windows(phrase, now, None):
            return iso(edge(window))
    raise argparse.ArgumentTypeError(
        f"{text!r} is no time: say 2026-02-20, 12h, 3d, 2w, yesterday, Monday or last week"
    )


def _memory_id(text: str) -> str:
    try:
        return id_or_part(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(error.message) from error


Option = tuple[tuple[str, ...], dict[str, Any]]


def _option(*names: str, **settings: Any) -> Option:
    """An argument or an option, as `argparse` takes it."""
    return names, settings


_ID: Final = _option("id", metavar="ID", type=_memory_id, help="as a list shows it")
_REASON: Final = _option("--reason", metavar="TEXT", help="goes into the history")
_NUMBER: Final = _option("-n", "--number", type=int, default=20, metavar="N", help="at most so many")
_WRITTEN: Final = (
    _option("--kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS)),
    _option("--importance", type=float, metavar="0-1", help="how much it matters"),
    _option("--summary", metavar="TEXT", help="a line that stands for a long text"),
    _option("--allow-secrets", action="store_true", help="also what looks like a credential"),
)
_DUE: Final = _option("--due", metavar="DATE", help="of an open end")
_LISTED: Final = (*KINDS, SESSION_RECORD)
_FILTERS: Final = (
    _NUMBER,
    _option("--kind", action="append", choices=_LISTED, metavar="KIND", help=", ".join(_LISTED)),
    _option("--type", action="append", choices=MEMORY_TYPES, metavar="TYPE", help=", ".join(MEMORY_TYPES)),
    _option("--tag", action="append", metavar="TAG", help="any of these"),
    _option("--scope", action="append", choices=SCOPES, metavar="SCOPE", help=", ".join(SCOPES)),
    _option("--since", type=since, metavar="WHEN", help="2026-02-20, 3d, 12h, 2w (ago), yesterday, last week"),
    _option("--until", type=until, metavar="WHEN", help="the same: until it ends"),
    _option("--forgotten", action="store_true", help="forgotten ones, too"),
)
_EVERYWHERE: Final = (
    _option("--json", action="store_true", help="for a program: one JSON object"),
    _option("--session", metavar="ID", help="see what this session keeps to itself, too"),
)
_WHERE: Final = (
    _option("--project", metavar="DIR", help="of this project (or its id; default: of the working directory)"),
    _option("--user", action="store_true", help="the user's own memories alone"),
    _option("--all-projects", action="store_true", help="of every project, and the user's"),
)
Handler = Callable[[argparse.Namespace], int]
_COMMANDS: Final[dict[str, tuple[Handler, tuple[Option, ...]]]] = {}


def _command(name: str, *options: Option) -> Callable[[Handler], Handler]:
    """Register what carries out the command of that name, which its docstring describes."""

    def register(handler: Handler) -> Handler:
        _COMMANDS[name] = handler, options
        return handler

    return register


BEST: Final = 5
"""Results of a search that a person is shown at first."""


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one of the commands."""
    parser = argparse.ArgumentParser(
        prog=f"remembrancer {name}",
        description=_COMMANDS[name][0].__doc__,
        epilog="exit status: 0 done, 1 nothing found or not confirmed, 2 wrong command line, 8 refused, 9 no answer",
    )
    add_arguments(name, parser)
    return parser


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of one of the commands to its parser."""
    for names, settings in [*_COMMANDS[name][1], *_EVERYWHERE]:
        parser.add_argument(*names, **settings)
    where = parser.add_mutually_exclusive_group()
    for names, settings in _WHERE:
        where.add_argument(*names, **settings)


def run(name: str, argv: list[str]) -> int:
    """Carry out one of the commands; returns the exit status."""
    asked = parser_of(name).parse_args(argv)
    try:
        return _COMMANDS[name][0](asked)
    except NotFound as error:
        print(f"remembrancer {name}: {error.message}", file=sys.stderr)
        return exit_codes.FAILED
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exit_codes.OK


# --- the commands ---


@_command(
    "search",
    _option("query", nargs="+", metavar="QUERY", help="a question, or words"),
    _option("--strategy", choices=("hybrid", "vector", "keyword", "graph"), help="hybrid"),
    _option("--all", action="store_true", help="on a terminal: not the best five alone"),
    *_FILTERS,
)
def search(asked: argparse.Namespace) -> int:
    """Find memories by meaning and words, best first."""
    arguments = {"query": " ".join(asked.query), "limit": asked.number, "detail": True, "strategy": asked.strategy}
    filters = {**_filters(asked), "time_range": _without_none({"after": asked.since, "before": asked.until}) or None}
    return _show_found(asked, "recall_memories", arguments | filters, "relevance_score")


@_command(
    "list",
    *_FILTERS,
    _option("--important", action="store_true", help="the most important first"),
    _option("--open", action="store_true", help="open ends that are not done, by their due dates"),
)
def list_(asked: argparse.Namespace) -> int:
    """List memories, newest first; records of sessions only with --kind session_record."""
    order = "due" if asked.open else "important" if asked.important else "latest"
    arguments = {"order": order, "limit": asked.number, "after": asked.since, "before": asked.until}
    arguments |= _filters(asked) | {"kind": asked.kind or KINDS}
    return _show_found(asked, "list_memories", arguments, {"important": "importance", "due": "due"}.get(order))


def _filters(asked: argparse.Namespace) -> Answer:
    scopes = ["user"] if asked.user else asked.scope
    found = {"scope": scopes, "kind": asked.kind, "type": asked.type, "tags": asked.tag}
    return found | {"include_forgotten": asked.forgotten or None}


def _without_none(fields: Answer) -> Answer:
    return {name: value for name, value in fields.items() if value is not None}


def _lacks_meaning(answer: Answer) -> bool:
    return any(warning["code"] == "embedding_starting" for warning in answer.get("warnings", ()))


def _await_model(client: Session) -> None:
    """Wait a moment until a worker has the model. The question is not repeated meanwhile: each answer is a use of
    what it shows."""
    give_up_at = time.monotonic() + MEANING_S
    while time.monotonic() < give_up_at:
        time.sleep(LOOK_S)  # nobody tells when the model is loaded
        embedding = client.call("get_memory_status").get("embedding", {})
        if embedding.get("workers") or embedding.get("error"):
            return


def _show_found(asked: argparse.Namespace, tool: str, arguments: Answer, sort: str | None) -> int:
    """Ask each place, and show what was found together."""
    memories: list[Answer] = []
    warnings: dict[str, str] = {}
    for place in places_of(asked):
        with connected(place, asked) as client:
            answer = client.call(tool, **arguments)
            if _lacks_meaning(answer):
                with said_when_slow("Loading the model"):
                    _await_model(client)
                answer = client.call(tool, **arguments)
        warnings |= {warning["message"]: warning["code"] for warning in answer.get("warnings", ())}
        name = {"project": place.name} if place.name else {}
        known = {memory["id"] for memory in memories}
        memories += [
            memory | (name if memory["scope"] != "user" else {})
            for memory in answer["memories"]
            if memory["id"] not in known
        ]
    key = (
        (lambda memory: memory.get(sort, 0.0))
        if sort
        else (lambda memory: memory.get("occurred_at") or memory["created_at"])
    )
    if sort == "due":
        memories = sorted(memories, key=lambda memory: memory.get("due", NEVER))[: asked.number]
    else:
        memories = sorted(memories, key=key, reverse=True)[: asked.number]
    if asked.json:
        said = [{"code": code, "message": message} for message, code in warnings.items()]
        print(json.dumps({"memories": memories, "warnings": said}, ensure_ascii=False))
        return exit_codes.OK
    _warn(warnings)
    is_search = tool == "recall_memories"
    if not memories:
        print("Nothing was found." if is_search else "Nothing of the kind is remembered here.", file=sys.stderr)
        return exit_codes.FAILED if is_search else exit_codes.OK
    out = Terminal(soft_wrap=False)
    if not out.is_terminal:  # for grep and cut
        for each in memories:
            text = " ".join(each["content"].split())
            print(
                "\t".join(
                    (
                        each["id"].removeprefix(MEMORY_PREFIX),
                        _day(each),
                        each["scope"],
                        _kind(each),
                        text,
                        " ".join(_marks(each)),
                    )
                )
            )
        return exit_codes.OK
    is_narrow = out.width < NARROW
    shown = table()
    shown.show_header = not is_narrow
    shown.add_column("memory", ratio=1)
    for column in () if is_narrow else ("when", "scope", "kind", "id"):
        shown.add_column(column, no_wrap=True)
    best = memories if not is_search or asked.all else memories[:BEST]
    for each in best:
        marks = "".join(f"[{_COLOURS.get(mark, 'dim')}]{mark}[/] " for mark in _marks(each))
        marks += "".join(f"[cyan]#{escape(tag)}[/cyan] " for tag in each.get("tags", ()))
        scope = f"{each['scope']} {each['project']}" if "project" in each else each["scope"]
        text = each.get("summary") or each["content"]
        about = (_day(each), scope, _kind(each), each["id"].removeprefix(MEMORY_PREFIX))
        if is_narrow:
            shown.add_row(f"{marks}{escape(text)}\n[dim]{escape('  '.join(about))}[/dim]")
        else:
            shown.add_row(marks + escape(text), *about)
    _paged(out, shown)
    if len(best) < len(memories):
        print(f"{len(memories) - len(best)} weaker: --all")
    return exit_codes.OK


@_command("log", _option("day", nargs="*", metavar="DAY", help="today, Tuesday, yesterday, 2026-02-20"))
def log(asked: argparse.Namespace) -> int:
    """Show what was stored, changed, decided and closed on a day, in order."""
    answer: Answer = {"changes": []}
    for place in places_of(asked):
        with connected(place, asked) as client:
            found = client.call("read_log", day=" ".join(asked.day) or None)
        known = {(each["at"], each["id"]) for each in answer["changes"]}
        changes = [each for each in found["changes"] if (each["at"], each["id"]) not in known]
        answer = found | {"changes": sorted([*answer["changes"], *changes], key=lambda each: each["at"])}
    shown = table("when", "what", "id", "memory", overflow="fold")
    for each in answer["changes"]:
        at = datetime.fromisoformat(each["at"]).astimezone()
        shown.add_row(f"{at:%a %H:%M}", each["did"], each["id"], escape(" ".join(each["text"].split())))
    return _print_answer(asked, answer, shown if answer["changes"] else "Nothing was stored or changed.")


@_command("show", _ID, _option("--version", type=int, metavar="N", help="as it was then"))
def show(asked: argparse.Namespace) -> int:
    """Show a memory whole."""
    answer = in_one_of(asked, "get_memory", memory_id=asked.id, version=asked.version)
    return _print_answer(asked, answer, _as_grid(answer))


@_command("history", _ID)
def history(asked: argparse.Namespace) -> int:
    """Show what was done to a memory, and when."""
    answer = in_one_of(asked, "get_memory", memory_id=asked.id)
    said = {"memory_id": answer["id"], "history": answer["history"], "omitted": answer.get("history_omitted", 0)}
    shown = table("version", "when", "change", "by", "what", overflow="fold")
    for each in answer["history"]:
        more = {name: value for name, value in each.items() if name not in ("version", "at", "change", "session_id")}
        what = ", ".join(f"{name}: {_plain(value)}" for name, value in more.items())
        cells = (str(each["version"]), each["at"][:16].replace("T", " "), each["change"], each["session_id"], what)
        shown.add_row(*map(escape, cells))
    return _print_answer(asked, said, shown)


@_command(
    "add",
    _option("text", nargs="*", metavar="TEXT", help="- reads the input; without it, the editor is opened"),
    _option("--tag", action="append", metavar="TAG", help="may be given several times"),
    _option("--supersedes", type=_memory_id, metavar="ID", help="the memory that this one replaces"),
    _DUE,
    *_WRITTEN,
)
def add(asked: argparse.Namespace) -> int:
    """Remember something, for this project or (with --user) everywhere."""
    content = " ".join(asked.text)
    if content == "-" or (not content and not sys.stdin.isatty()):
        content = sys.stdin.read().strip()
    content = content or edited("").strip()
    if not content:
        raise InvalidInput("there is nothing to remember: the text is empty")
    place, *_ = places_of(asked)
    with connected(place, asked) as client:
        answer = client.call(
            "store_memory",
            content=content,
            scope="user" if asked.user else "project",
            kind=asked.kind,
            tags=asked.tag,
            importance=asked.importance,
            summary=asked.summary,
            due=asked.due,
            supersedes=asked.supersedes,
            allow_secrets=asked.allow_secrets or None,
        )
    known = "It was known already" if answer.get("already_known") else "Remembered"
    ids = ", ".join(answer.get("ids", [answer["memory_id"]]))
    return _print_answer(asked, answer, f"{known}: {escape(ids)}")


@_command(
    "edit",
    _ID,
    _option("--content", metavar="TEXT", help="another text"),
    _option("--done", action="store_const", const=True, help="of an open end: it is done"),
    _option("--reopen", dest="done", action="store_const", const=False, help="it is not done after all"),
    _DUE,
    *_WRITTEN,
)
def edit(asked: argparse.Namespace) -> int:
    """Change a memory; without an option, its text in $EDITOR. Earlier versions are kept."""
    changes: Answer = {"kind": asked.kind, "importance": asked.importance, "summary": asked.summary}
    changes |= {
        "content": asked.content,
        "due": asked.due,
        "done": asked.done,
        "allow_secrets": asked.allow_secrets or None,
    }
    if not any(value is not None for name, value in changes.items() if name != "allow_secrets"):
        before = in_one_of(asked, "get_memory", memory_id=asked.id)["content"]
        after = edited(before)
        if after.rstrip("\n") == before.rstrip("\n"):
            print("Nothing was changed.", file=sys.stderr)
            return exit_codes.OK
        changes["content"] = after.rstrip("\n")
    answer = in_one_of(asked, "update_memory", memory_id=asked.id, **changes)
    fields = ", ".join(answer["updated_fields"]) or "nothing"
    before = answer.get("version", 1) - 1 if answer["updated_fields"] else 0  # one that is queued has no version yet
    short = asked.id.removeprefix(MEMORY_PREFIX)
    undo = f"; 'remembrancer restore {short} --version {before}' undoes it" if before else ""
    return _print_answer(asked, answer, f"Changed: {escape(fields)}{undo}")


def edited(text: str) -> str:
    """The text as the person leaves it in the editor.

    Raises:
        InvalidInput: there is no terminal, or the editor fails.
    """
    if not sys.stdin.isatty():
        raise InvalidInput(
            "there is no terminal for an editor: give the text (add TEXT, edit ID --content TEXT), or - for the input"
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


@_command("forget", _ID, _REASON, _option("--copies", action="store_true", help="the same text in other scopes, too"))
def forget(asked: argparse.Namespace) -> int:
    """Hide a memory from search. It can be restored."""
    answer = in_one_of(asked, "forget_memory", memory_id=asked.id, reason=asked.reason, copies=asked.copies or None)
    bare = asked.id.removeprefix(MEMORY_PREFIX)
    said = f"Forgotten: 'remembrancer restore {bare}' brings it back, 'remembrancer erase' deletes for good"
    if answer.get("copies"):
        said += f". Its text is also in {', '.join(each['id'] for each in answer['copies'])} (--copies takes these too)"
    return _print_answer(asked, answer, said)


def restore(argv: list[str]) -> int:
    """Undo a forgetting or a change, or, with a file, put a backup in place."""
    parser = argparse.ArgumentParser(prog="remembrancer restore", add_help=False)
    for name in ("--version", "--reason", "--project", "--session", "--home"):
        parser.add_argument(name)
    parser.add_argument("named", nargs="?", default="")
    named = parser.parse_known_args(argv)[0].named
    try:
        id_or_part(named)
        is_file = Path(named).exists()
    except InvalidInput:
        is_file = bool(named)
    if is_file:
        from remembrancer.commands.backup import restore_main

        return restore_main(argv)
    return run("restore", argv)


@_command("restore", _ID, _option("--version", type=int, metavar="N", help="the version to return to"), _REASON)
def restore_memory(asked: argparse.Namespace) -> int:
    """Undo a forgetting, or return to an earlier version of a memory. (With a file: put back a backup.)"""
    answer = in_one_of(asked, "restore_memory", memory_id=asked.id, version=asked.version, reason=asked.reason)
    return _print_answer(asked, answer, f"Restored, as version {answer.get('version', '?')}")


@_command(
    "tag",
    _ID,
    _option("tags", nargs="*", metavar="TAG", help="tags to add"),
    _option("--remove", action="append", metavar="TAG", help="a tag to take away"),
)
def tag(asked: argparse.Namespace) -> int:
    """Give a memory tags, and take tags away."""
    answer = in_one_of(asked, "tag_memory", memory_id=asked.id, add=asked.tags or None, remove=asked.remove or None)
    return _print_answer(asked, answer, f"Tags: {escape(', '.join(answer.get('tags', ())) or 'none')}")


@_command("promote", _ID, _option("--to", choices=("project", "user"), default="user", help="user"), _REASON)
def promote(asked: argparse.Namespace) -> int:
    """Give a session's memory to its project, or a project's to the user; or (--to project) take it back from there."""
    answer = in_one_of(asked, "promote_memory", memory_id=asked.id, target_scope=asked.to, reason=asked.reason)
    return _print_answer(asked, answer, f"It is the {asked.to}'s from now on")


@_command(
    "review",
    _option("--accept", action="append", metavar="ID", type=_memory_id, help="give it to the user"),
    _option(
        "--refuse",
        action="append",
        metavar="ID",
        type=_memory_id,
        help="it stays in its project: restore takes that back",
    ),
    _option("--replaced", action="append", metavar="ID", type=_memory_id, help="the newer of its pair replaces it"),
    _option("--both", action="append", metavar="ID", type=_memory_id, help="it holds, as the newer of its pair does"),
)
def review(asked: argparse.Namespace) -> int:
    """Show what waits for a decision: memories that are proposed to go from a project to the user, and why; and pairs
    of which the newer may replace the older."""
    for chosen, target in ((asked.accept, "user"), (asked.refuse, "project")):
        for memory_id in chosen or ():
            in_one_of(asked, "promote_memory", memory_id=memory_id, target_scope=target)
    proposals: list[Answer] = []
    pairs: list[Answer] = []
    for place in places_of(asked):
        own = {"project": place.name} if place.name else {}
        with connected(place, asked) as client:
            for chosen, relation in ((asked.replaced, "supersedes"), (asked.both, "related_to")):
                for pair in client.call("get_memory_status").get("contradictions", ()) if chosen else ():
                    if any(has_part(pair["older_id"], each.removeprefix(MEMORY_PREFIX)) for each in chosen):
                        link = {"relation": relation, "target": pair["older_id"]}
                        client.call("update_memory", memory_id=pair["newer_id"], add_links=[link])
            found = client.call("get_memory_status")
        proposals += [each | own for each in found.get("proposals", ())]
        pairs += [each | own for each in found.get("contradictions", ())]
    shown = table("id", "memory", "why", overflow="fold")
    for each in proposals:
        shown.add_row(
            each["memory_id"].removeprefix(MEMORY_PREFIX),
            escape(" ".join(each["content"].split())),
            escape(each["reason"]),
        )
    for each in pairs:
        shown.add_row(
            each["older_id"].removeprefix(MEMORY_PREFIX),
            escape(" ".join(each["older"].split())),
            escape(f"replaced? {' '.join(each['newer'].split())}"),
        )
    nothing = "Nothing is proposed to go to the user, and no two memories wait for a decision."
    answer = {"proposals": proposals, "contradictions": pairs}
    return _print_answer(asked, answer, shown if proposals or pairs else nothing)


@_command(
    "graph",
    _option("entity", nargs="*", metavar="ENTITY", help="its name"),
    _option("--relation", metavar="TYPE", help="only such relations: uses, depends_on …"),
    _option("--depth", type=int, choices=(1, 2, 3), help="how many steps (1)"),
    _NUMBER,
)
def graph(asked: argparse.Namespace) -> int:
    """Show the relations of an entity; without one, the graph at a glance."""
    arguments = {"entity": " ".join(asked.entity) or None, "depth": asked.depth, "relationship_type": asked.relation}
    place, *_ = places_of(asked)
    with connected(place, asked) as client:
        answer = client.call("search_knowledge_graph", limit=asked.number, **arguments)
    shown = table("entity", "type", "memories", "is related with", overflow="fold")
    for each in answer["entities"]:
        edges = [_relation(edge) for edge in each["relationships"]]
        shown.add_row(*map(escape, (each["name"], each["type"], str(each["memory_count"]), "; ".join(edges))))
    if not answer["entities"]:
        near = ", ".join(answer.get("suggestions", ()))
        hint = f": did you mean {escape(near)}?" if near else ""
        said = "Nothing is known of it" if asked.entity else "No entities are known yet"
        return _print_answer(asked, answer, said + hint)
    return _print_answer(asked, answer, shown)


@_command(
    "erase",
    _option("id", nargs="+", metavar="ID", type=_memory_id, help="as a list shows it"),
    _option("--yes", action="store_true", help="do not ask"),
)
def erase(asked: argparse.Namespace) -> int:
    """Delete memories for good: content, history, vectors, full text and queued copies. Asks first."""
    erased: list[Answer] = []
    for memory_id in asked.id:
        if not asked.yes:
            memory = in_one_of(asked, "get_memory", memory_id=memory_id)
            if not sys.stdin.isatty():
                raise InvalidInput("there is no terminal to ask on: say --yes to erase")
            print(f"{memory_id}: {' '.join(memory['content'].split())[:200]}", file=sys.stderr)
            print("Erase it for good, with its history? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
                print("Nothing was erased.", file=sys.stderr)
                return exit_codes.FAILED
        erased.append(in_one_of(asked, "erase_memory", memory_id=memory_id))
    lines = []
    for each in erased:
        said = "was erased before" if each.get("already_erased") else "is erased for good"
        also = f"; memories that may repeat it: {', '.join(each['also_said_by'])}" if "also_said_by" in each else ""
        made = f", with {len(each['also_erased'])} that were made of it" if "also_erased" in each else ""
        lines.append(f"{each['memory_id']} {said}{made}{also}")
    lines.append("Backups and exports that were made before still have it.")
    return _print_answer(asked, {"erased": erased}, escape("\n".join(lines)))


# --- what a person sees ---


def _print_answer(asked: argparse.Namespace, answer: Answer, shown: str | Table) -> int:
    if asked.json:
        print(json.dumps(answer, ensure_ascii=False))
        return exit_codes.OK
    _warn({warning["message"]: warning["code"] for warning in answer.get("warnings", ())})
    out = Terminal()
    if isinstance(shown, str):
        out.print(shown)
    else:
        _paged(out, shown)
    return exit_codes.OK


def _warn(warnings: Mapping[str, str]) -> None:
    for message, code in warnings.items():
        print(f"{code}: {message}", file=sys.stderr)


def _paged(out: Terminal, shown: Table) -> None:
    """Through a pager where it is longer than the screen."""
    if not out.is_terminal:
        out.width = 200
        with out.capture() as captured:
            out.print(shown)
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))
        return
    if not sys.stdin.isatty() or len(out.render_lines(shown, pad=False)) < out.height:
        out.print(shown)
        return
    os.environ.setdefault("LESS", "-FRX")
    with out.pager(styles=True):
        out.print(shown)


def _as_grid(answer: Answer) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in answer.items():
        if value not in (None, [], {}, "") and name not in ("history", "warnings", "warning", "degraded"):
            grid.add_row(name.replace("_", " "), escape(_plain(value)))
    return grid


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ("\n" if any(" " in each for each in value) else ", ").join(value)
    if isinstance(value, list):
        return "\n".join(_plain(each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(each)}" for name, each in value.items())
    return json.dumps(value)


NEVER: Final = "9999-12-31"
_COLOURS: Final = {"forgotten": "red", "expired": "red", "likely": "green"}


def _marks(memory: Answer) -> list[str]:
    """The marks of a memory in a list: that it is forgotten, over or done, when it is due, and how surely it
    answers."""
    marks = ["forgotten"] if memory.get("forgotten") else []
    marks += ["expired"] if memory.get("expired") else []
    marks += ["done"] if memory.get("done") else []
    marks += [f"due {memory['due']}"] if "due" in memory else []
    return [*marks, memory["answers"]] if "answers" in memory else marks


def _moment(memory: Answer) -> str:
    return str(memory.get("occurred_at") or memory["created_at"])


def _day(memory: Answer) -> str:
    """The day of a memory's last change, or else of what it tells."""
    return str(memory.get("updated") or _moment(memory))[:10]


def _relation(edge: Answer) -> str:
    """A relation as the entity of its row has it; an arrow back says that it comes from the other one."""
    back = "← " if edge.get("direction") == "incoming" else ""
    return f"{edge['type']} {back}{edge['target']}{_validity(edge)}"


def _validity(edge: Answer) -> str:
    """The time in which a relation is true, where that is known."""
    times = [
        f"{name} {edge[field][:10]}"
        for name, field in (("from", "valid_from"), ("until", "valid_until"))
        if field in edge
    ]
    return f" ({' '.join(times)})" if times else ""


def _kind(memory: Answer) -> str:
    return str(memory.get("kind") or memory.get("type") or "")


commands: Final[dict[str, Callable[[list[str]], int]]] = {name: partial(run, name) for name in _COMMANDS}
"""Each as the entry point calls it."""
