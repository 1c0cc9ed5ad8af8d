"""Answers what commands ask about all that a home holds: its projects, a copy, an export, the state of its files.

It reads each file as of one moment and owns none of them, so it works in the store, on a thread for which nobody waits,
and in a command's own process while no store runs. All moments are one: the projects' come before those of shared lanes
and the user's, as a memory that is promoted is written there before it is deleted here, and where one has moved between
two moments they are taken anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import resource
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar, cast

import msgspec

from remembrancer.actors.migrations import Schema, release_of, releases_in
from remembrancer.actors.snapshots import (
    DAMAGE,
    PRIMARY_CODE,
    Snapshot,
    copy_snapshot,
    opened,
    take_snapshot,
    unreadable,
)
from remembrancer.actors.store.records import catalog
from remembrancer.actors.store.records.contract import USER
from remembrancer.actors.store.records.schema import RECORDS
from remembrancer.actors.store.records.sessions import read_sessions
from remembrancer.actors.store.records.sqlite_file import query_of
from remembrancer.actors.store.records.transfer import read_portable
from remembrancer.actors.store.requests import Handler, LoadGate, RequestContext
from remembrancer.memory.export_format import (
    EndLine,
    Line,
    MemoryLine,
    ProjectLine,
    SessionLine,
    encode_header,
    encode_line,
)
from remembrancer.protocol.errors import (
    FileUnusable,
    InvalidInput,
    MemoryUnavailable,
    RecordsUnusable,
    RemembrancerError,
    SchemaTooNew,
    SchemaTooOld,
    is_disk_full,
)
from remembrancer.protocol.home import (
    CopiedFile,
    CopyRecords,
    DescribeProjects,
    DescribeReleases,
    ExaminedFile,
    ExamineFiles,
    ExportWritten,
    FilesExamined,
    FileState,
    FindMemories,
    HomeRequest,
    KnownProject,
    MemoriesFound,
    ProjectsDescribed,
    RecordsCopied,
    ReleasesDescribed,
    WriteExport,
)
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.wire import Request

CATALOG: Final = "catalog.db"
USER_RECORDS: Final = "user/memory.db"
PROJECT_RECORDS: Final = re.compile(r"projects/(p_[0-9a-f]{12})/memory\.db")
LANE_RECORDS: Final = re.compile(r"lanes/(l_[0-9a-f]{12})\.db")
SHARED: Final = "lanes/projects.json"
"""The file that says which project shares which lane, and under `user` which one the user does."""
TRIES: Final = 5
T = TypeVar("T")
OPEN_FILES: Final = 65_536
CHECK_LIMIT_S: Final = 30.0
"""For one file: quick_check reads all of it."""
FAULTS: Final = 5
WORDS: Final = 80
"""Characters of a memory that tell a person which one it is."""
GIVE_WAY_S: Final = 0.02
"""The longest pause for clients, so that one who never rests does not hold a long work up for ever."""
LOOK_S: Final = 0.005
BETWEEN_PAUSES: Final = 20
"""Memories of an export: some milliseconds of work."""
GIT_DIRECTORY: Final = ".git"
_decode_lanes: Final = msgspec.json.Decoder(dict[str, str]).decode
COUNTED: Final = {CATALOG: {"projects": "SELECT count(*) FROM projects"}}
COUNTED_IN_RECORDS: Final = {"memories": "SELECT count(*) FROM memories"}


def project_of_file(name: str) -> str | None:
    """The id of the project whose records the file of that name in a home has; None for any other file."""
    match = PROJECT_RECORDS.fullmatch(name)
    return match[1] if match else None


def lane_of_file(name: str) -> str | None:
    """The shared lane whose records the file of that name in a home has; None for any other file."""
    match = LANE_RECORDS.fullmatch(name)
    return match[1] if match else None


def lanes_of_projects(path: Path) -> dict[str, str]:
    """The lane of each project that shares one, by the file `SHARED` of a home. Raises `FileUnusable` for a damaged
    one."""
    try:
        return decode_shared(path.read_bytes()) if os.path.lexists(path) else {}
    except (OSError, msgspec.DecodeError) as error:
        raise FileUnusable(f"{path} cannot be read ({error}): put back a backup of it") from error


def decode_shared(content: bytes) -> dict[str, str]:
    """The content of the file `SHARED`. Raises `msgspec.DecodeError`."""
    return _decode_lanes(content)


def schema_of(name: str) -> Schema:
    """The schema of the file of that name."""
    return catalog.SCHEMA if name == CATALOG else RECORDS


def names_in(paths: RuntimePaths) -> list[str]:
    """The files of records that a home has, and its catalogue, in the order in which they have to be read."""
    projects = sorted(path.parent.name for path in paths.projects.glob("p_*/memory.db"))
    lanes = sorted(f"lanes/{path.name}" for path in paths.lanes.glob("l_*.db"))
    of_projects = filter(project_of_file, (f"projects/{project}/memory.db" for project in projects))
    names = [*of_projects, *filter(lane_of_file, lanes), USER_RECORDS, CATALOG]
    return [name for name in names if os.path.lexists(paths.home / name)]


def refuse_unfinished(paths: RuntimePaths) -> None:
    """Raises `FileUnusable` when a restore of this home was interrupted."""
    if paths.restore_mark.exists():
        raise FileUnusable(
            f"a restore of {paths.home} was interrupted while it replaced files ({paths.restore_mark} says which): "
            "run 'remembrancer backup restore' again"
        )


class HomeReader:
    """Answers a `HomeRequest`. In the store it gives way to clients (`gate`) between two pieces of a long work."""

    def __init__(self, paths: RuntimePaths, gate: LoadGate | None = None) -> None:
        self._paths = paths
        self._gate = gate
        self._closed = False
        self._thread: ThreadPoolExecutor | None = None

    def handlers(self) -> dict[type, Handler]:
        """The store's handlers. Requests are answered one after the other."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="home")
        requests = DescribeProjects, FindMemories, ExamineFiles, DescribeReleases, CopyRecords, WriteExport
        return dict.fromkeys(requests, self._handle)

    async def _handle(self, request: HomeRequest, _context: RequestContext) -> msgspec.Struct:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.answer, request)

    def close(self) -> None:
        """Begin nothing more, and end what is under way: who asked does it himself."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _pause(self) -> None:
        """Raises `MemoryUnavailable` once this is closed."""
        give_up_at = time.monotonic() + GIVE_WAY_S
        while self._gate is not None and self._gate.is_serving(now := time.monotonic()) and now < give_up_at:
            time.sleep(LOOK_S)
        if self._closed:
            raise MemoryUnavailable("the store is stopping")

    def answer(self, request: Request[T]) -> T:
        """The answer to a request.

        Raises:
            FileUnusable: an interrupted restore has left the home in pieces, or a file for a person cannot be written.
            InvalidInput: a project that is wanted is not there.
            SchemaTooNew, SchemaTooOld, RecordsUnusable, FileLocked, StorageFull: a file of the home cannot be read.
        """
        return cast(T, self._answer(request))

    def _answer(self, request: Request[Any]) -> object:
        match request:
            case ExamineFiles():
                return self._examine()
            case DescribeReleases():
                return ReleasesDescribed(releases_in(self._paths.home))
            case DescribeProjects():
                refuse_unfinished(self._paths)
                return self._describe()
            case FindMemories():
                return self._find(request)
            case CopyRecords():
                return self._copy(Path(request.directory))
            case WriteExport():
                return self._export(request)
        raise TypeError(f"{type(request).__name__} is no question about a home")

    @contextmanager
    def _moment(self, wanted: Callable[[str], bool] = bool) -> Iterator[dict[str, Snapshot]]:
        """The files of those names that are `wanted`, in order, all as of one moment; without those that are empty."""
        refuse_unfinished(self._paths)
        _allow_many_files()
        for last in (False,) * (TRIES - 1) + (True,):
            with ExitStack() as stack:
                files: dict[str, Snapshot] = {}
                names = list(filter(wanted, names_in(self._paths)))
                users: set[str] = set()
                of_user = self._users_files()
                for name in of_user.intersection(names[1:]):
                    with self._snapshot(name) as before:
                        users |= _ids(before) if before is not None else set()
                for name in names:
                    file = take_snapshot(self._paths.home / name, schema_of(name))
                    stack.callback(file.connection.close)
                    if file.version > 0:
                        files[name] = file
                if last or not _has_moved(users, files, of_user):
                    yield files
                    return

    def _users_files(self) -> set[str]:
        """The names of the files that have memories of the user: his own, and that of a lane which he shares."""
        lane = lanes_of_projects(self._paths.home / SHARED).get(USER)
        return {USER_RECORDS} if lane is None else {USER_RECORDS, f"lanes/{lane}.db"}

    def _describe(self) -> ProjectsDescribed:
        known: dict[str, tuple[str, str | None, float, float]] = {}
        projects: list[KnownProject] = []
        shared = lanes_of_projects(self._paths.home / SHARED)
        in_lanes: dict[str, tuple[int, int]] = {}
        troubles: list[RemembrancerError] = []
        for name in reversed(names_in(self._paths)):  # the catalogue first
            project_id, lane = project_of_file(name), lane_of_file(name)
            if name == USER_RECORDS:
                continue
            try:
                with self._snapshot(name) as file:
                    if file is None:
                        continue
                    if name == CATALOG:
                        rows = file.rows("SELECT id, path, directory, created_at, last_used_at FROM projects")
                        known = {project: (path, directory, *times) for project, path, directory, *times in rows}
                    if project_id is None and lane is None:
                        continue
                    ((memories, forgotten),) = file.rows(
                        "SELECT count(*) FILTER (WHERE forgotten_at IS NULL), count(forgotten_at) FROM memories"
                    )
                    if lane is not None:
                        in_lanes[lane] = memories, forgotten
                    if project_id is None:
                        continue
                    ((sessions,),) = file.rows("SELECT count(*) FROM sessions")
            except RemembrancerError as error:
                troubles.append(error)
                if project_id is None:
                    continue
                memories = forgotten = sessions = 0
            path, directory, created_at, used_at = known.get(project_id, (None, None, None, None))
            if directory is None and path is not None:
                directory = _working_tree(path)
            lane = shared.get(project_id)
            more, more_forgotten = in_lanes.get(lane or "", (0, 0))
            counts = memories + more, forgotten + more_forgotten, sessions
            projects.append(KnownProject(project_id, path, directory, created_at, used_at, *counts, lane))
        return ProjectsDescribed(
            tuple(sorted(projects, key=lambda project: (-(project.last_used_at or 0.0), project.id))),
            tuple(error.to_failure() for error in troubles),
            self._paths.user_database.exists(),
        )

    @contextmanager
    def _snapshot(self, name: str) -> Iterator[Snapshot | None]:
        """One file by itself; None for one that is empty yet."""
        file = take_snapshot(self._paths.home / name, schema_of(name))
        try:
            yield file if file.version > 0 else None
        finally:
            file.connection.close()

    def _find(self, request: FindMemories) -> MemoriesFound:
        names = sorted(self._users_files())
        if request.project_id is not None:
            lane = lanes_of_projects(self._paths.home / SHARED).get(request.project_id)
            names = [f"projects/{request.project_id}/memory.db", *([] if lane is None else [f"lanes/{lane}.db"])]
        found: dict[str, str] = {}
        for name in names:
            is_ours = name == USER_RECORDS or project_of_file(name) or lane_of_file(name)
            if not request.memory_ids or not is_ours or not (self._paths.home / name).is_file():
                continue
            with self._snapshot(name) as file:
                if file is None:
                    continue
                for memory_id in request.memory_ids:
                    for (content,) in file.rows("SELECT content FROM memories WHERE id = ?", (memory_id,)):
                        found[memory_id] = " ".join(content.split())[:WORDS]
        return MemoriesFound(found)

    # --- the state of the files ---

    def _examine(self) -> FilesExamined:
        registered: tuple[str, ...] = ()
        models: bytes | None = None
        if self._paths.catalog.exists():
            with suppress(sqlite3.Error), opened(self._paths.catalog) as connection:  # its own examination says why not
                registered = tuple(str(row[0]) for row in connection.execute("SELECT name FROM files"))
                row = connection.execute("SELECT state FROM models").fetchone()
                models = None if row is None else bytes(row[0])
        return FilesExamined(tuple(map(self._examine_file, names_in(self._paths))), registered, models)

    def _examine_file(self, name: str) -> ExaminedFile:
        path, schema = self._paths.home / name, schema_of(name)
        found = examine_file(path, schema)
        # A store may have moved the pages while they were being read: bad news is looked at again.
        return found if found.state in ("whole", "older") else examine_file(path, schema)

    # --- copies ---

    def _copy(self, directory: Path) -> RecordsCopied:
        with self._moment() as files:
            if not any(name != CATALOG for name in files):
                return RecordsCopied(())
            copies = []
            for name, file in files.items():
                copied = copy_snapshot(file, directory / name, COUNTED.get(name, COUNTED_IN_RECORDS))
                copies.append(CopiedFile(name, copied.sha256, copied.size_bytes, file.version, copied.counts))
                self._pause()
        if shared := lanes_of_projects(self._paths.home / SHARED):
            content = msgspec.json.encode(shared)
            _write(directory / SHARED, content)
            copies.append(CopiedFile(SHARED, hashlib.sha256(content).hexdigest(), len(content), 0, {}))
        return RecordsCopied(tuple(copies))

    # --- an export ---

    def _export(self, request: WriteExport) -> ExportWritten:
        known = [project for name in names_in(self._paths) if (project := project_of_file(name))]
        missing = sorted(set(request.projects or ()).difference(known))
        if missing:
            raise InvalidInput(
                f"this home has no memories of {', '.join(missing)}: known are {', '.join(known) or '-'}"
            )

        shared = lanes_of_projects(self._paths.home / SHARED)
        sharer = {lane: project for project, lane in shared.items()}

        of_user = self._users_files()

        def wanted(name: str) -> bool:
            if name == CATALOG or name in of_user:
                return name == CATALOG or request.of_user
            project = project_of_file(name) or sharer.get(lane_of_file(name) or "")
            is_chosen = project is not None and (request.projects is None or project in request.projects)
            return is_chosen and bool(request.in_projects)

        counted: Counter[str] = Counter()
        with self._moment(wanted) as files:
            holding = sum(name != CATALOG for name in files)
            if not holding:
                return ExportWritten(0)
            try:
                with Path(request.path).open("wb") as output:
                    output.write(encode_header(time.time()))
                    for line in export_lines(files, request, shared, counted):
                        output.write(encode_line(line))
                        if (counted["memories"] + counted["sessions"]) % BETWEEN_PAUSES == 0:
                            self._pause()
            except OSError as error:
                raise FileUnusable(f"{request.path} cannot be written: {error.strerror or error}") from error
        return ExportWritten(holding, **counted)


def export_lines(
    files: dict[str, Snapshot], request: WriteExport, shared: Mapping[str, str], counted: Counter[str]
) -> Iterator[Line]:
    """The lines after the header: of a project that shares a lane, with those of the lane (`shared`, by project).

    `counted` is kept up to date: projects, memories, forgotten ones, sessions.
    """
    catalog, user = files.get(CATALOG), files.get(USER_RECORDS)
    paths = dict(catalog.rows("SELECT id, path FROM projects")) if catalog is not None else {}
    users = [file for file in (user, files.get(f"lanes/{shared.get(USER)}.db")) if file is not None]
    promoted = {memory_id for file in users for memory_id in _ids(file)}
    lines_of = partial(_lines_of, forgotten=request.forgotten, counted=counted)
    for name, file in files.items():
        project_id = project_of_file(name)
        if project_id is not None:
            counted["projects"] += 1
            yield ProjectLine(project_id, paths.get(project_id, ""))
            lane = files.get(f"lanes/{shared[project_id]}.db") if project_id in shared else None
            in_lane = set() if lane is None else _ids(lane)
            yield from lines_of(file, project_id, request.in_projects, promoted | in_lane)
            if lane is not None:
                yield from lines_of(lane, project_id, request.in_projects, promoted, sessions=False)
    in_lane = set() if len(users) < 2 else _ids(users[1])
    for file in users if request.of_user else ():
        is_lane = file is not user
        yield from lines_of(file, None, ("user",), () if is_lane else in_lane, sessions=not is_lane)
    yield EndLine(counted["projects"], counted["memories"], counted["sessions"])


def _lines_of(
    file: Snapshot,
    project: str | None,
    scopes: Container[Scope],
    elsewhere: Container[str],
    *,
    forgotten: bool,
    counted: Counter[str],
    sessions: bool = True,
) -> Iterator[Line]:
    """The sessions (but of a lane, which has no more than their ids) and the memories of one file, without those that
    are `elsewhere` already."""
    condition = "" if forgotten else "WHERE forgotten_at IS NULL"
    try:
        with _of_this_release(file) as connection:
            query = query_of(connection)
            for session in read_sessions(query) if sessions else ():
                counted["sessions"] += 1
                yield SessionLine(session, project)
            ids = connection.execute(f"SELECT id, scope FROM memories {condition} ORDER BY number")  # noqa: S608 - fixed
            for memory_id, scope in ids:
                wanted = scope in scopes and memory_id not in elsewhere
                memory = read_portable(query, memory_id, None) if wanted else None
                if memory is not None:
                    counted["memories"] += 1
                    counted["forgotten"] += memory.forgotten_at is not None
                    yield MemoryLine(memory, project)
    except sqlite3.Error as error:
        raise unreadable(file.path, error) from error
    except ValueError as error:  # what the store wrote as JSON does not decode
        raise RecordsUnusable(f"{file.path} is damaged ({error}): put back a backup of it") from error


def examine_file(path: Path, schema: Schema) -> ExaminedFile:
    """Read one file of SQLite whole."""
    size = path.stat().st_size if path.exists() else 0
    try:
        with opened(path, limit_s=CHECK_LIMIT_S) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            try:
                schema.refuse(path, version)
            except (SchemaTooNew, SchemaTooOld) as error:
                state: FileState = "newer" if isinstance(error, SchemaTooNew) else "too_old"
                return ExaminedFile(str(path), state, size, release_of(version))
            said = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({FAULTS})")]
            dangling = len(connection.execute("PRAGMA foreign_key_check").fetchall())
            languages = _languages(connection)
    except (sqlite3.Error, OSError) as error:
        return ExaminedFile(str(path), _trouble(path, error), size, str(error))
    if said != ["ok"]:
        return ExaminedFile(str(path), "damaged", size, f"{said[0]} (and {len(said) - 1} more)")
    if dangling:
        return ExaminedFile(str(path), "dangling", size, f"{dangling} rows refer to rows that are gone", languages)
    release = release_of(version) if version else ""
    is_older = 0 < version < schema.latest
    reason = release if is_older else ""
    return ExaminedFile(str(path), "older" if is_older else "whole", size, reason, languages, release)


def _trouble(path: Path, error: sqlite3.Error | OSError) -> FileState:
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_INTERRUPT:
        return "too_large"
    if code & PRIMARY_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "locked"
    return "no_room" if code & PRIMARY_CODE not in DAMAGE and is_disk_full(path) else "unreadable"


def _languages(connection: sqlite3.Connection) -> dict[str, int]:
    """The memories of each language that is known; nothing of a file that has none, or does not say."""
    query = "SELECT language, count(*) FROM memories WHERE language IS NOT NULL AND forgotten_at IS NULL GROUP BY 1"
    with suppress(sqlite3.OperationalError):
        return dict(connection.execute(query).fetchall())
    return {}


@contextmanager
def _of_this_release(file: Snapshot) -> Iterator[sqlite3.Connection]:
    """The file, or a migrated copy of it when an older release wrote it and no runtime has opened it since."""
    if file.version == RECORDS.latest:
        yield file.connection
        return
    with (
        TemporaryDirectory(prefix="remembrancer-export-") as directory,
        closing(sqlite3.connect(Path(directory) / "memory.db", isolation_level=None)) as copy,
    ):
        file.connection.backup(copy)
        RECORDS.migrate(copy, None)
        yield copy


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise FileUnusable(f"{path} cannot be written: {error.strerror or error}") from error


def _ids(file: Snapshot) -> set[str]:
    """The ids of the memories in a file of records."""
    return {row[0] for row in file.rows("SELECT id FROM memories")}


def _has_moved(users: set[str], files: Mapping[str, Snapshot], of_user: Container[str]) -> bool:
    """True if a memory has moved between the moments of two files, so that it is in both of them, or in neither.

    `users`: the memories that the user's files (`of_user`) had before the first of these moments.
    """
    now = {each for name, file in files.items() if name in of_user for each in _ids(file)}
    if not users and not now:
        return False
    elsewhere = (file for name, file in files.items() if name != CATALOG and name not in of_user)
    in_projects = {each for file in elsewhere for each in _ids(file)}
    return bool(now & in_projects or users - now - in_projects)


def _working_tree(path: str) -> str | None:
    """The directory where a project most likely is that no session has named since: beside its git directory. None: it
    has none (a bare repository with worktrees)."""
    place = PurePath(path)
    if place.name == GIT_DIRECTORY:
        return str(place.parent)
    return None if place.suffix == GIT_DIRECTORY else path


def _allow_many_files() -> None:
    """An open database takes three descriptors, and a home may have hundreds of projects."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
