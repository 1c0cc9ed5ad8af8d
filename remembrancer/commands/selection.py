"""The projects selected on a command line, and the connections over which a command calls tools in each of them."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partialmethod, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from remembrancer.actors.bridge.places import find_places
from remembrancer.actors.bridge.starter import Starter
from remembrancer.commands.gateway_client import LOOK_S, GatewayClient, pause, reach
from remembrancer.commands.report import Report, command, flag, option
from remembrancer.commands.terminal import notice_when_slow
from remembrancer.config.project import directory_here, directory_of, project_of
from remembrancer.memory.short_ids import LEAST, WHOLE, id_or_part, only_one, part_of_id
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    Failure,
    FileLocked,
    InvalidInput,
    MemoryUnavailable,
    NotFound,
    RecordsUnusable,
    from_failure,
)
from remembrancer.protocol.ids import MEMORY_PREFIX
from remembrancer.protocol.session_life import SHELL_SESSION
from remembrancer.protocol.writes import ProjectRef

if TYPE_CHECKING:
    from remembrancer.protocol.wire import Request

TOOLSETS: Final = {"REMEMBRANCER_TOOLSETS": "memory,files,admin"}
WAIT_S: Final = 60.0
"""The time to wait for an answer, or for the runtime to start, which takes many seconds on a slow machine."""
AGAIN_S: Final = 0.5
"""The pause before a request is repeated."""
ARGUMENTS: Final = {
    **{"content": "the text", "add": "a tag", "remove": "a tag", "tags": "a tag", "limit": "-n", "add_links": "it"},
    **{name: f"--{name}" for name in ("due", "importance", "kind", "reason", "summary", "supersedes")},
}
REMEDIES: Final = {
    "allow_secrets": "use --allow-secrets to store it anyway",
    "kind": "use --kind open_end to make it one",
    "restore_memory": "'remembrancer restore {}'",
    "forget_memory": "'remembrancer forget {}'",
    "promote_memory": "'remembrancer edit {} --to user' or '--to project'",
}
Answer = dict[str, Any]
T = TypeVar("T")


class Place(NamedTuple):
    """A project, given by its directory. A project of the home also has its id (`name`), and is named in lists."""

    directory: str
    name: str = ""

    @property
    def project(self) -> ProjectRef:
        return ProjectRef(self.name, self.directory) if self.name else project_of(Path(self.directory))

    @property
    def label(self) -> str:
        return Path(directory_of(self.project.path)).name or self.directory


def ask_store(question: Request[T]) -> T:
    from remembrancer.commands import runtime_client  # takes 50 ms, which only some commands need

    return runtime_client.ask_store(question)


def known_places() -> list[Place]:
    from remembrancer.commands.home_reader import known_projects
    from remembrancer.commands.runtime_client import paths_here

    known = known_projects(paths_here())
    return [Place(project.path, project.id) for project in known if project.path is not None]


@dataclass
class Where:
    project: str | None = None
    user: bool = False
    all_projects: bool = False
    _open: dict[Place, GatewayConnection] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sum((self.project is not None, self.user, self.all_projects)) > 1:
            raise InvalidInput("use only one of --project, --user and --all-projects")

    @cached_property
    def places(self) -> list[Place]:
        """The project of the working directory comes first. Raises `InvalidInput` if there is no such project."""
        directory = directory_here(self.project)
        if self.project is not None and not directory.is_dir():
            known = known_places()
            named = [place for place in known if self.project in (place.name, place.directory)]
            named = named or [place for place in known if self.project == place.label]
            if len(named) != 1:
                listed = "several projects with this name" if named else "no such id or name"
                raise InvalidInput(
                    f"{self.project} is not a directory, and 'remembrancer admin projects' lists {listed}"
                )
            return named
        return (known_places() if self.all_projects else []) or [Place(str(directory.absolute()))]

    def conversations(self) -> Iterator[tuple[Place, GatewayConnection]]:
        """The connections stay open until `close`."""
        for place in self.places:
            if place not in self._open:
                self._open[place] = GatewayConnection(place, self.repeated)
            yield place, self._open[place]

    def first(self) -> GatewayConnection:
        return next(self.conversations())[1]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def whole_id(self, memory: str) -> str:
        """With all projects, resolves part of an id to the full id. Raises `InvalidInput` if it matches several."""
        if not self.all_projects or part_of_id(memory) is None:
            return memory
        from remembrancer.protocol.reads import FindIds

        found: dict[str, str] = {}
        for place in self.places:
            candidates = ask_store(FindIds(place.project, SHELL_SESSION, (memory,))).candidates[memory]
            found = {whole: f"{words}, in {place.label}" for whole, words in candidates} | found
        return only_one(memory, found.items(), "memory_id") if found else memory

    def ask(self, tool: str, **arguments: Any) -> Answer:
        if "memory_id" in arguments:
            arguments["memory_id"] = self.whole_id(arguments["memory_id"])
        missing: NotFound | None = None
        for _, conversation in self.conversations():
            try:
                return conversation.call(tool, **arguments)
            except NotFound as error:
                missing = error
        assert missing is not None
        elsewhere = "" if self.all_projects else ", or is in another project (--all-projects looks everywhere)"
        raise NotFound(f"{missing.message}: perhaps it was erased{elsewhere}")

    @property
    def repeated(self) -> str:
        named = "" if self.project is None else f" --project {shlex.quote(self.project)}"
        return " --all-projects" if self.all_projects else named

    def command(self, words: str, memory: str) -> str:
        """A command to copy: "edit {} --done" becomes "'remembrancer edit C5MJ --done'"."""
        return f"'remembrancer {words.format(short(memory) + self.repeated)}'"

    undo = partialmethod(command, "undo {}")

    def refuse_user(self, subject: str) -> None:
        if self.user:
            raise InvalidInput(f"{subject}; leave out --user")


class GatewayConnection:
    """Starts a runtime if none is up. Commands in errors end with the `options` that select the place."""

    def __init__(self, place: Place, options: str = "") -> None:
        self._options = options
        places = find_places(os.environ)
        starter, give_up_at = Starter(places, os.environ), time.monotonic() + WAIT_S
        with notice_when_slow("Starting the memory"):
            link = reach(starter, give_up_at)
            if link is None:
                from remembrancer.commands.runtime_client import not_started

                raise not_started(starter, places)
            environ = {**os.environ, **TOOLSETS}
            named = {"id": place.name, "path": place.directory} if place.name else None
            try:
                self._gateway = GatewayClient(
                    link, places, SHELL_SESSION, place.directory, environ, "remembrancer shell", named
                )
            except OSError as error:
                raise _no_answer(error) from error
            self.close = self._gateway.close
            self.embeds_soon = False
            """True if a worker is free to embed newly stored texts."""
            while not self._has_store() and time.monotonic() < give_up_at:
                pause(LOOK_S)  # without the store, the answer would come from the cache

    def _has_store(self) -> bool:
        try:
            status = self._asked("get_memory_status", {})
        except (RecordsUnusable, FileLocked):
            return True  # the store is running, but cannot read its file: writes are queued
        embedding = status.get("embedding", {})
        self.embeds_soon = bool(embedding.get("workers") and not embedding.get("pending"))
        return bool(status["connection"]["status"] == "connected")

    def call(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool, and wait while the memory is busy or being upgraded. Raises the tool's error."""
        from remembrancer.protocol.problems import OPENING

        give_up_at = time.monotonic() + WAIT_S
        with notice_when_slow("Waiting: the memory is busy, or is being upgraded from an older release"):
            while True:
                try:
                    return self._asked(tool, arguments)
                except FileLocked as error:  # the call has changed nothing: a write would have been queued
                    if OPENING not in error.message:
                        raise
                except DeadlineExceeded:
                    if time.monotonic() >= give_up_at:
                        raise
                pause(AGAIN_S)

    def _asked(self, tool: str, arguments: Answer) -> Answer:
        try:
            answer = self._gateway.call(tool, without_none(arguments), time.monotonic() + WAIT_S)
        except OSError as error:
            raise _no_answer(error, tool) from error
        if "error" in answer:
            raise from_failure(Failure(answer["error"], shell_message(answer, self._options), answer["retry_possible"]))
        return answer


def _no_answer(error: OSError, tool: str = "") -> MemoryUnavailable:
    lost = "the connection was lost" if error.errno else error
    again = "the text may have been stored; if you run the same command again, it is not stored twice"
    again = again if tool == "store_memory" else "try again in a moment"
    return MemoryUnavailable(f"the memory service does not answer: {lost}; {again}")


def shell_message(failure: Answer, options: str) -> str:
    message, argument, remedy = (str(failure.get(name, "")) for name in ("message", "field", "remedy"))
    own = ARGUMENTS.get(re.split(r"[.[]", argument)[0])
    message = re.sub(rf"(?<!\w){re.escape(argument)}(?!\w)", own, message, count=1) if own else message
    memory = f"{(WHOLE.search(message) or ['ID'])[0]}{options}"
    message += f" ({REMEDIES.get(remedy.partition(':')[0], remedy).format(memory)})" if remedy else ""
    return with_short_ids(message)


def memory_id(text: str) -> str:
    """A memory's id, or the end of an id as shown in lists."""
    try:
        return id_or_part(text)
    except InvalidInput:
        raise click.BadParameter(f"{text[:60]!r} is not a memory's id: 'list' and 'search' show the ids") from None


_PROJECT: Final = option(
    "--project", metavar="DIR", help="The directory, id or name of a project (default: the working directory)."
)
_USER: Final = flag("--user", help="Only the user's own memories, which belong to all projects.")
_ALL_PROJECTS: Final = flag("--all-projects", help="The memories of all projects and of the user.")
WHERE: Final = (_PROJECT, _USER, _ALL_PROJECTS)
WITHOUT_USER: Final = (_PROJECT, _ALL_PROJECTS)


def memory_command(
    *params: click.Parameter, where: Sequence[click.Parameter] = WHERE
) -> Callable[[Callable[..., Report]], click.Command]:
    """Declare a command on the memories of a place, which is passed as the function's first argument."""

    def declare(function: Callable[..., Report]) -> click.Command:
        @wraps(function)
        def placed(*, project: str | None, all_projects: bool, user: bool = False, **given: Any) -> Report:
            where = Where(project, user, all_projects)
            try:
                return function(where, **given)
            finally:
                where.close()

        return command(*params, *where)(placed)

    return declare


def without_none(fields: Answer) -> Answer:
    return {name: value for name, value in fields.items() if value is not None}


def warnings_of(answer: Answer) -> dict[str, str]:
    """Map the message of each warning in an answer to its code."""
    return {warning["message"]: warning["code"] for warning in answer.get("warnings", ())}


def as_notes(warnings: dict[str, str]) -> Sequence[str]:
    unsaid = ("queued", "embedding_pending")
    return [re.sub(r" \(\w+\)$", "", message) for message, code in warnings.items() if code not in unsaid]


def with_short_ids(text: str) -> str:
    return WHOLE.sub(lambda match: short(match[0]), text)


def short(memory: str) -> str:
    bare = memory.removeprefix(MEMORY_PREFIX)
    return bare[-LEAST:] if bare != memory else bare
