"""One rig for what is asked of records: `say` stores, `do` changes, `refused` is refused, `shown` and `found` read."""

import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import msgspec
import numpy as np

from remembrancer.actors.sqlite_file import SqliteFile, json_list
from remembrancer.actors.store.records.browsing import BROWSER_READS
from remembrancer.actors.store.records.found_entities import find_names
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import NO_LIMITS, Limits, Records
from remembrancer.actors.store.records.types import (
    USER,
    EmbeddedMemory,
    Filters,
    MemoryRecord,
    NearDuplicate,
    Outcome,
    WaitingWork,
)
from remembrancer.actors.store.retrieval.question import phrases_of
from remembrancer.actors.store.spaces import HomeSpaces, Lanes, scrub_spaces
from remembrancer.actors.store.write_handlers import MemoryWriter
from remembrancer.protocol.browsing import FindUndecided
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.runs import ApplyRun, Edit, RunResult
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    LinkRef,
    Operation,
    PortableMemory,
    ProjectRef,
    UpdateMemory,
)
from tests.operations import PROJECT, REQUESTED_AT, SESSION, change_operation, memory_id_of, store_operation

MODEL = "small.int8.0123456789ab.4"


def entities(*texts: str) -> tuple[EntityRef, ...]:
    """Each is `name:type:relationship`, the last two of which have defaults; the first is the subject of the others."""
    split = [(*each.split(":"), "", "")[:3] for each in texts]
    refs = [EntityRef(name, kind or "thing", relationship or "about") for name, kind, relationship in split]
    return (*refs[:1], *(msgspec.structs.replace(each, subject=refs[0].name) for each in refs[1:]))


class Clock:
    def __init__(self) -> None:
        self.now = REQUESTED_AT

    def __call__(self) -> float:
        return self.now


class RecordsRig:
    """The records of one space. A change is asked for at `at`, and recorded when the clock says."""

    def __init__(
        self, path: Path, space: str = PROJECT.id, file: SqliteFile | None = None, limits: Limits = NO_LIMITS
    ) -> None:
        self.path = path
        self.clock = Clock()
        self.records = Records(file or SqliteFile(path, MEMORY), space, self.clock, limits)
        self.lanes: Lanes = _all_in(self.records)
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.records.close()

    def beside(self, space: str) -> "RecordsRig":
        return RecordsRig(self.path, space, self.records._file.file)

    def with_user(self) -> "RecordsRig":
        """The user's space beside this one, for memories of that scope from now on."""
        user = self.beside(USER)
        self.lanes = {**self.lanes, "user": user.records}
        return user

    def apply(self, *operations: Operation) -> list[Any]:
        return _applied(self.records, self.lanes, operations)

    def at(self, time: float) -> Self:
        self.clock.now = time
        return self

    def say(self, content: str, *names: str, **fields: Any) -> str:
        """Store a memory that names entities (see `entities`); its id. Where no `requested_at` is given, it is now."""
        self._made += 1
        given = {"requested_at": self.clock.now, "related_entities": entities(*names), **fields}
        operation = store_operation(f"say {self._made}", content, **given)
        (outcome,) = self.apply(operation)
        assert isinstance(outcome, Applied), outcome
        return memory_id_of(operation)

    def try_to(
        self, change: Change, *, session: str = SESSION, at: float | None = None, project: ProjectRef = PROJECT
    ) -> Any:
        self._made += 1
        (reply,) = self.apply(
            change_operation(
                f"change {self._made}",
                change,
                session_id=session,
                project=project,
                requested_at=self.clock.now if at is None else at,
            )
        )
        return reply.result if isinstance(reply, Applied) else reply

    def do(self, change: Change, **options: Any) -> Any:
        result = self.try_to(change, **options)
        assert not isinstance(result, RemembrancerError), result
        return result

    def carry_out(self, *edits: Edit, part: int = 0, **fields: Any) -> RunResult:
        (reply,) = self.apply(run_operation(f"apply {fields.get('run_id', 'run')} {part}", *edits, **fields))
        assert isinstance(reply.result, RunResult), reply
        return reply.result

    def refused(self, change: Change, **options: Any) -> RemembrancerError:
        """The error of a change that is refused, after which nothing is different."""
        before = self.everything()
        error = self.try_to(change, **options)
        assert isinstance(error, RemembrancerError), error
        assert self.everything() == before
        return error

    def everything(self) -> list[PortableMemory | None]:
        return [
            self.records.portable(each, None) for (each,) in self.rows("SELECT id FROM memories WHERE space = @SPACE")
        ]

    def rows(self, query: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.records._file.read(query, arguments)

    def shown(self, memory_id: str, session: str | None = None) -> PortableMemory:
        memory = self.records.portable(memory_id, session)
        assert memory is not None
        return memory

    def number(self, memory_id: str) -> int:
        number = self.records.number_of(memory_id)
        assert number is not None
        return number

    def loaded(self, memory_id: str, session: str = SESSION) -> MemoryRecord:
        number = self.number(memory_id)
        return self.records.load([number], Filters(session))[number]

    def ids(self, numbers: Iterable[int], session: str = SESSION) -> list[str]:
        """The ids of memories that a session sees, in the order of their numbers' list."""
        wanted = list(numbers)
        loaded = self.records.load(wanted, Filters(session, include_forgotten=True))
        return [loaded[each].id for each in wanted]

    def found(self, query: str, filters: Filters | None = None, limit: int = 50) -> list[str]:
        filters = filters or Filters(SESSION)
        return self.ids(self.records.keyword_hits(phrases_of(query), filters, limit), filters.session_id)

    def embed(
        self, memory_id: str, *vectors: Sequence[float], text: str | None = None, model: str = MODEL
    ) -> list[int]:
        """Vectors come, one a passage, of what a memory is, or was when it was `text`."""
        number = self.number(memory_id)
        embedding = embedded(number, texts_of(self.records, [number])[number] if text is None else text, *vectors)
        return self.records.save_embeddings(model, [embedding])

    def passages(self, memory_id: str, model: str = MODEL) -> list[int]:
        return self.records.passages(model, [self.number(memory_id)]).numbers

    def find_names(self) -> None:
        while find_names(self.records.spaces.file, self.clock.now):
            pass

    def pair(self, later: str, earlier: str, cosine: float = 0.9, relation: Any = "similar_to") -> NearDuplicate:
        return NearDuplicate(self.number(later), self.number(earlier), cosine, relation=relation)

    def contradict(self, later: str, earlier: str, chance: float = 0.9) -> None:
        """It turns out that a memory replaces another with this probability."""
        self.records.link_similar([self.pair(later, earlier, chance, "contradicts")])

    def replace(self, later: str, *earlier: str, **options: Any) -> None:
        links = tuple(LinkRef("supersedes", each) for each in earlier)
        self.do(UpdateMemory(later, add_links=links), **options)

    def browse(self, request: Any) -> Any:
        return BROWSER_READS[type(request)](self.records, request)

    def undecided(self) -> list[tuple[str, str]]:
        """The pairs that wait for a decision in Review, each with the older memory first."""
        return [(each.older.id, each.newer.id) for each in self.browse(FindUndecided(PROJECT, SESSION)).pairs]

    def files_with(self, word: str) -> list[str]:
        """The names of the files in which that word is left, once nobody has them open."""
        self.close()
        return [path.name for path in self.path.parent.iterdir() if word.encode() in path.read_bytes()]


def run_operation(name: str, *edits: Edit, run_id: str = "run", at: float = REQUESTED_AT, **fields: Any) -> Operation:
    given = {"place": "project", "kind": "consolidation"} | fields
    return Operation(name, PROJECT, "", at, ApplyRun(run_id=run_id, edits=edits, **given))


def embedded(number: int, text: str, *vectors: Sequence[float]) -> EmbeddedMemory:
    """The vectors of a text, one a passage; one that is made up if none is given."""
    matrix = np.array(vectors or [[1, 0, 0, 0]], dtype=np.float32)
    return EmbeddedMemory(number, digest_of(text), tuple(Passage(n, n + 1) for n in range(len(matrix))), matrix)


def apply(records: Records, operations: Sequence[Operation]) -> list[Outcome]:
    """Apply operations as the store does, where these records have the memories of all scopes."""
    return _applied(records, _all_in(records), operations)


def _all_in(records: Records) -> Lanes:
    return {"session": records, "project": records, "user": records}


def _applied(records: Records, lanes: Lanes, operations: Sequence[Operation]) -> list[Outcome]:
    try:
        return lanes_writer(records._file.file, lanes).apply(operations)
    except RemembrancerError as error:
        return [error for _ in operations]


def lanes_writer(file: SqliteFile, lanes: Lanes) -> MemoryWriter:
    files = SimpleNamespace(database=file, lanes_of=lambda _: lanes, shared_lane=lambda _: None)
    return MemoryWriter(cast(HomeSpaces, files))


def leave_half_made(path: Path) -> None:
    """Leave a database as `kill -9` does while it is made: a page or more, and the journal that takes them back."""
    begun = path.with_name("begun.db")
    with closing(sqlite3.connect(begun, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # so that pages reach the disk before the end
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE half (made)")
        connection.executemany("INSERT INTO half VALUES (?)", [("x" * 4000,)] * 20)
        shutil.copy(begun, path)
        shutil.copy(f"{begun}-journal", f"{path}-journal")
    begun.unlink()


def leave_in_log(path: Path, statement: str) -> None:
    """Run a statement on a database, and leave that as `kill -9` does: what it wrote is in the log alone."""
    crashed = path.parent.with_name("crashed")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(statement)
        shutil.copytree(path.parent, crashed)
    shutil.rmtree(path.parent)
    crashed.rename(path.parent)


def scrub(records: Records, *memory_ids: str, quotes: Sequence[str] = ()) -> None:
    """Leave nothing of erased memories in the database of these records, nor of turns that quote them."""
    with records._edits() as edits:
        edits.drop_quotes(quotes)
    scrub_spaces(records._file.file, records._clock(), memory_ids, quotes)


def pending(texts: EmbeddedTexts, model: str | None = None) -> list[int]:
    """The numbers of the texts without vectors of a model (None: of any), oldest first."""
    of_model, arguments = ("", ()) if model is None else ("AND model = ?", (model,))
    rows = texts._file.read(
        f"""SELECT number FROM {texts._table} AS t WHERE {texts._own}
            AND NOT EXISTS (SELECT 1 FROM passages WHERE memory = t.number {of_model}) ORDER BY number""",
        arguments,
    )
    return [number for (number,) in rows]


def ids_of(records: Records) -> list[str]:
    return [memory_id for (memory_id,) in records._file.read("SELECT id FROM memories WHERE space = @SPACE")]


def is_erased(records: Records, memory_id: str) -> bool:
    return bool(records._file.read("SELECT 1 FROM erased WHERE space = @SPACE AND memory_id = ?", (memory_id,)))


def texts_of(texts: EmbeddedTexts, numbers: Iterable[int]) -> dict[int, str]:
    which = "number IN (SELECT value FROM json_each(?))"
    return dict(texts._file.read(f"SELECT number, content FROM {texts._table} WHERE {which}", (json_list(numbers),)))


def work_of(records: Records, *, score: float = 0.0) -> WaitingWork:
    return records.waiting_work(score, 200)


def near_duplicates(records: Records, number: int, session_id: str) -> tuple[str, ...]:
    found = records.load([number], Filters(session_id, include_forgotten=True)).get(number)
    return () if found is None else found.near_duplicates


def check_derived(path: Path) -> None:
    """Check that a database is whole, and that what is derived in it (words, tallies, tags) follows from its rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for (space,) in connection.execute("SELECT number FROM spaces").fetchall():
            for table, source in (("words", "memories"), ("names", "entities")):
                connection.execute(f"INSERT INTO {table}_{space} ({table}_{space}) VALUES ('integrity-check')")
                own = connection.execute(f"SELECT number FROM {source} WHERE space = ? ORDER BY 1", (space,)).fetchall()
                assert connection.execute(f"SELECT id FROM {table}_{space}_docsize ORDER BY 1").fetchall() == own
        counted = "SELECT space, scope, type, forgotten_at IS NOT NULL, count(*) FROM memories GROUP BY 1, 2, 3, 4"
        kept = "SELECT space, scope, type, forgotten, count FROM tallies WHERE count > 0"
        assert sorted(connection.execute(kept)) == sorted(connection.execute(counted))
        listed = "SELECT m.number, j.value FROM memories AS m, json_each(m.tags) AS j"
        assert sorted(connection.execute("SELECT memory, tag FROM memory_tags")) == sorted(connection.execute(listed))
        idle = "SELECT name FROM entities WHERE number NOT IN (SELECT entity FROM memory_entities)"
        assert connection.execute(idle).fetchall() == []
