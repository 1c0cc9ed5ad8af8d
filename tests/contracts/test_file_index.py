"""The indexes of files and of code: what is kept of a change, and what is found first."""

import hashlib
import logging
import os
import random
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from msgspec.structs import replace

from remembrancer.actors.indexer import workspace as workspace_module
from remembrancer.actors.indexer.workspace import BATCH_CHUNKS, WorkspaceIndexer
from remembrancer.actors.store.file_index import FileFilter, FileIndex, FileMemories
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.types import EmbeddedMemory, Filters, Phrase, is_memory
from remembrancer.code.index import CodeIndex
from remembrancer.code.read_files import read_file
from remembrancer.code.tree import Tree
from remembrancer.config.settings import Settings
from remembrancer.memory.limits import EARLIEST_S, LATEST_S
from remembrancer.protocol.code import CodeChunk
from remembrancer.protocol.errors import RecordsUnusable
from remembrancer.protocol.files import (
    FileChunk,
    FilesIndexed,
    FileState,
    FileUpdate,
    IndexFiles,
    ReadIndexed,
    SyncDone,
    SyncFiles,
    Workspace,
)
from remembrancer.protocol.sockets import Speaker
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import ProjectRef
from tests.contracts.records_rig import pending, texts_of
from tests.patience import until
from tests.spaces import full_disk, write_rows

ROOT = "/shop"
ALL = Filters("session")
MODEL = "a-model"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[FileIndex]:
    made = FileIndex(tmp_path / "index.db", "p_0.files")
    yield made
    made.file.close()


def test_an_index_of_another_release_is_made_again_without_a_warning_about_memories(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_rows(tmp_path / "index.db", "CREATE TABLE files (path TEXT)", "PRAGMA user_version = 20000")
    with caplog.at_level(logging.INFO):
        FileIndex(tmp_path / "index.db", "p_0.files").file.close()
    (record,) = [each for each in caplog.records if each.message == "a file index is rebuilt"]
    assert (record.levelname, vars(record)["reason"]) == ("INFO", "another release wrote it")


def note(path: str, *texts: str, heading: str = "", mtime_s: int = 1) -> FileUpdate:
    state = FileState(path, "notes", mtime_s * 10**9, 10, hashlib.sha256("".join(texts).encode()).digest())
    chunks = (FileChunk(10 * place + 1, 10 * place + 10, heading, text) for place, text in enumerate(texts))
    return FileUpdate(state, tuple(chunks))


def change(index: FileIndex, *updates: FileUpdate, removed: Sequence[str] = (), root: str = ROOT) -> FilesIndexed:
    return index.change(root, updates, removed)


def embed(index: FileIndex, numbers: Sequence[int]) -> None:
    """A vector for each text, of its length."""
    embedded = [
        EmbeddedMemory(
            number, digest_of(text), (Passage(0, len(text)),), np.array([[len(text), 1.0]], dtype=np.float32)
        )
        for number, text in texts_of(index, numbers).items()
    ]
    index.save_embeddings(MODEL, embedded)


def found(index: FileIndex, word: str, wanted: FileFilter | None = None, filters: Filters = ALL) -> list[str]:
    memories = FileMemories(index, FileFilter(ROOT) if wanted is None else wanted)
    hits = list(memories.keyword_hits([Phrase(word)], filters, 10))
    return [chunk.path for chunk in memories.chunks(hits, filters)]


def test_an_edit_embeds_the_chunks_that_it_changed_and_no_others(index: FileIndex) -> None:
    first = change(index, note("a.md", "one", "two", "three"))
    assert first == FilesIndexed(added=3)
    assert len(pending(index, MODEL)) == 3
    embed(index, pending(index, MODEL))
    second = change(index, note("a.md", "one", "zwei", "three", "four"))
    assert second == FilesIndexed(updated=1, added=1)
    assert set(texts_of(index, pending(index, MODEL)).values()) == {"zwei", "four"}
    assert len(index.passages(MODEL).numbers) == 2
    assert found(index, "two") == []
    assert found(index, "zwei") == ["a.md"]


def test_the_same_content_at_another_time_changes_nothing_but_that(index: FileIndex) -> None:
    change(index, note("a.md", "the lantern"))
    (state,) = index.states(ROOT)
    later = FileState(state.path, state.source, 99, 10, state.digest)
    assert change(index, FileUpdate(later)) == FilesIndexed()
    assert index.states(ROOT) == (later,)
    assert found(index, "lantern") == ["a.md"]


def test_workspaces_and_paths_and_times_are_kept_apart(index: FileIndex) -> None:
    change(index, note("memory/a.md", "a lantern"), note("memory/ab/c.md", "another lantern", mtime_s=50))
    change(index, note("memory/a.md", "a lantern elsewhere"), root="/other")
    assert found(index, "lantern") == ["memory/a.md", "memory/ab/c.md"]
    assert found(index, "elsewhere") == []
    assert found(index, "lantern", FileFilter(ROOT, path="memory/a")) == []
    assert found(index, "lantern", FileFilter(ROOT, path="./memory/ab/")) == ["memory/ab/c.md"]
    assert found(index, "lantern", FileFilter(ROOT, path="memory/a.md")) == ["memory/a.md"]
    assert found(index, "lantern", FileFilter(ROOT, sources=("sessions",))) == []
    assert found(index, "lantern", filters=Filters("session", after=20.0)) == ["memory/ab/c.md"]
    assert {source: counts.files for source, counts in index.counts(ROOT).items()} == {"notes": 2}


def test_a_damaged_index_is_made_anew_and_its_passages_have_other_numbers(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    first = FileIndex(path, "p_0.files")
    change(first, note("a.md", "the lantern"))
    embed(first, pending(first, MODEL))
    before = first.passages(MODEL).numbers
    first.file.close()
    path.write_bytes(b"this is no database" * 100)
    second = FileIndex(path, "p_0.files")
    assert second.states(ROOT) == ()
    change(second, note("a.md", "the lantern"))
    embed(second, pending(second, MODEL))
    assert not set(before) & set(second.passages(MODEL).numbers)
    second.file.close()


def test_a_zeroed_page_is_damage_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    made = FileIndex(path, "p_0.files")
    notes = (note(f"{n}.md", *(f"lantern {n} {k} " * 40 for k in range(4))) for n in range(40))
    change(made, *notes)
    embed(made, pending(made, MODEL))
    made.file.close()
    whole = path.read_bytes()
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        index = FileIndex(path, "p_0.files")
        try:
            found(index, "lantern")
            change(index, note("1.md", "the windmill"), removed=["2.md"])
            embed(index, pending(index, MODEL))
            index.passages(MODEL)
        except RecordsUnusable:
            assert index.file.damage
        index.file.close()


def test_a_recall_sees_chunks_as_memories_that_say_where_they_are(index: FileIndex) -> None:
    change(index, note("memory/a.md", "the lantern", mtime_s=50))
    memories = FileMemories(index, FileFilter(ROOT, ("notes",)))
    (hit,) = memories.keyword_hits([Phrase("lantern")], ALL, 5)
    assert not is_memory(hit)
    record = memories.load([hit], ALL)[hit]
    assert (record.content, record.origin, record.lines, record.source.file) == (
        "the lantern",
        "notes",
        (1, 10),
        "memory/a.md",
    )
    assert memories.ranking_facts([hit], ALL)[hit].happened_at == 50.0
    assert memories.ranking_facts([hit], Filters("session", after=60.0)) == {}
    assert memories.ranking_facts([hit], Filters("session", after=LATEST_S)) == {}
    assert memories.ranking_facts([hit], Filters("session", after=EARLIEST_S))
    assert memories.matching(Filters("session", scopes=("session",)), 5) == []
    assert memories.matching(ALL, 5) == memories.top(ALL, "latest", 5) == [hit]


class IndexStore(StoreClient):
    """A store for a `WorkspaceIndexer`: an index, and the messages of each reading."""

    def __init__(self, index: FileIndex) -> None:
        super().__init__("ipc:///nowhere", Speaker("indexer", "one"))
        self._index = index
        self.taken: list[str] = []
        self.left: list[int] = []
        self.told: list[SyncDone] = []

    async def ask(self, question: Any, *_: Any, **__: Any) -> Any:
        answer: object
        if isinstance(question, ReadIndexed):
            answer = self._index.states(ROOT)
        else:
            assert isinstance(question, IndexFiles)
            answer = self._index.change(ROOT, question.updates, question.removed)
            self.taken += [update.state.path for update in question.updates]
            self.left.append(question.left)
        return answer

    def tell(self, body: object) -> None:
        assert isinstance(body, SyncDone)
        self.told.append(body)


async def test_a_disk_that_is_full_in_the_middle_of_a_sync_is_told_and_what_is_left_is_read_when_there_is_room(
    index: FileIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "work"
    (root / "memory").mkdir(parents=True)
    for number in range(24):
        words = " ".join(f"word{number}x{each}" for each in range(1500))
        (root / "memory" / f"{number:02}.md").write_text(f"lantern{number}\n\n{words}\n")
        os.utime(root / "memory" / f"{number:02}.md", (1, 1))
    monkeypatch.setattr(workspace_module, "RETRY_S", 0.05)
    store = IndexStore(index)
    indexer = WorkspaceIndexer(Workspace(ProjectRef("p_0", ROOT), str(root)), store, Settings(watch=False))
    async with anyio.create_task_group() as tasks:
        with full_disk(600_000):
            tasks.start_soon(indexer.run)
            await until(lambda: store.told)
        first, before = store.told[0], list(store.taken)
        assert "no room" in (first.error or "")
        assert 0 < len(before) < 24
        assert {state.path for state in index.states(ROOT)} == set(before)
        await until(lambda: store.told[-1].error is None)
        tasks.cancel_scope.cancel()
    assert sorted(store.taken) == [f"memory/{number:02}.md" for number in range(24)], "each is taken in once"
    assert all(found(index, f"lantern{number}") == [f"memory/{number:02}.md"] for number in range(24))


async def test_the_store_is_told_how_many_changed_files_are_left(index: FileIndex, workspace: Path) -> None:
    settings, store = Settings(watch=False), IndexStore(index)
    for number in range(4):
        words = "word " * 2 * BATCH_CHUNKS * settings.chunk_tokens
        (workspace / "memory" / f"{number}.md").write_text(f"note {number} {words}")
    asked = Workspace(ProjectRef("p_0", ROOT), str(workspace))
    indexer = WorkspaceIndexer(asked, store, settings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        indexer.ask(1, SyncFiles(asked))
        await until(lambda: store.told)
        tasks.cancel_scope.cancel()
    assert store.left == [4, 3, 2, 1, 0]
    assert [done.sync_id for done in store.told] == [1]


async def test_a_workspace_that_is_replaced_is_followed_in_its_place(index: FileIndex, tmp_path: Path) -> None:
    root = tmp_path / "work"

    async def write(word: str) -> None:
        (root / "MEMORY.md").write_text(f"about the {word}\n")
        await until(lambda: found(index, word) == ["MEMORY.md"])

    root.mkdir()
    asked = Workspace(ProjectRef("p_0", ROOT), str(root))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(WorkspaceIndexer(asked, IndexStore(index), Settings(watch_quiet_s=0.05)).run)
        await write("lantern")
        await write("windmill")
        root.rename(tmp_path / "elsewhere")
        root.mkdir()
        await write("harbour")
        await write("pier")
        tasks.cancel_scope.cancel()


# --- The code_index of a tree of code: what it finds first, and what it keeps when files change.
POOL = """\
class ConnectionPool:
    \'\'\'Keeps open connections for reuse.\'\'\'

    def acquire(self):
        return 1
"""
USE = """\
from pool import ConnectionPool

POOL = ConnectionPool()
OTHER = ConnectionPool()


def work():
    return ConnectionPool().acquire()
"""
TEST = """\
from pool import ConnectionPool


def test_connection_pool_reuse():
    assert ConnectionPool().acquire()
"""
READER = """\
// Reads numbers.
export function readNumber(text: string): number {
  return Number(text);
}
"""
FILES = {"pool.py": POOL, "use.py": USE, "tests/test_pool.py": TEST, "parse/json_reader.ts": READER}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(str(tmp_path / "tree"))


@pytest.fixture
def code_index(tmp_path: Path, tree: Tree) -> CodeIndex:
    code_index = CodeIndex(tmp_path / "code.db", "make")
    code_index.take([read_file(tree.root, file) for file in tree.files()])
    return code_index


def test_a_zeroed_page_of_an_index_of_code_is_damage_wherever_it_is(tmp_path: Path) -> None:
    root, path, numbers = tmp_path / "tree", tmp_path / "code.db", random.Random(7)
    root.mkdir()
    for number in range(12):
        rows = "".join(f"        '{numbers.randbytes(60).hex()}',\n" for _ in range(120))
        (root / f"table{number}.py").write_text(f"def table{number}():\n    return [\n{rows}    ]\n")
    files = list(Tree(str(root)).files())
    with closing(CodeIndex(path, "make")) as made:
        made.take([read_file(str(root), file) for file in files])
    whole, errors = path.read_bytes(), list[type[sqlite3.Error]]()
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        with closing(CodeIndex(path)) as code_index:
            try:
                with code_index.at_one_moment():
                    code_index.search("table3", 20)
                    assert len(code_index.files("", 20)) == len(files)
            except sqlite3.DatabaseError as error:
                errors.append(type(error))
    assert set(errors) == {sqlite3.DatabaseError}
    assert len(errors) > len(whole) // 4096 // 2


def test_the_log_is_cut_among_readers(
    code_index: CodeIndex, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, most = tmp_path / "code.db-wal", 200_000
    monkeypatch.setattr("remembrancer.code.index.MOST_LOG_BYTES", most)
    is_over = threading.Event()

    def ask() -> None:
        reader = CodeIndex(tmp_path / "code.db")
        while not is_over.is_set():
            with reader.at_one_moment():
                assert len(reader.known()) == len(FILES)
        reader.close()

    lengths = []
    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(ask) for _ in range(2)]
        try:
            for _ in range(60):
                code_index.take([read_file(tree.root, file) for file in tree.files()])
                lengths.append(log.stat().st_size)
        finally:
            is_over.set()
        for each in asking:
            each.result()
    grown = sum(later - earlier for earlier, later in pairwise(lengths) if later > earlier)
    assert max(lengths) <= most < grown


def grown(code_index: CodeIndex, tree: Tree, times: int) -> None:
    """Take in a file that is new, and another one that has changed, so many times."""
    for number in range(times):
        Path(tree.root, f"part_{number}.py").write_text(f"def drain_{number}(pool):\n    return pool.acquire()\n")
        wanted = {f"part_{number}.py", "use.py"}
        code_index.take([read_file(tree.root, file) for file in tree.files() if file.path in wanted])


def answers(code_index: CodeIndex) -> list[list[CodeChunk]]:
    return [
        code_index.search(question, 100) for question in ("connection pool", "ConnectionPool", "drain_7", "acquire")
    ]


def assert_as_if_new(code_index: CodeIndex, tree: Tree, path: Path) -> None:
    """An index finds what one finds that is made now, and has the same terms."""
    fresh = CodeIndex(path, "make")
    fresh.take([read_file(tree.root, file) for file in sorted(tree.files(), key=lambda file: file.path)])
    for ours, theirs in zip(answers(code_index), answers(fresh), strict=True):
        scores = {each.file_path: each.score for each in theirs}
        assert {each.file_path: each.score for each in ours} == pytest.approx(scores, rel=1e-9), "sums of another order"
        assert {replace(each, score=0.0) for each in ours} == {replace(each, score=0.0) for each in theirs}
    terms = "SELECT term, count(*) FROM occurrences GROUP BY term"
    assert code_index._connection.execute(terms).fetchall() == fresh._connection.execute(terms).fetchall()
    fresh.close()


def test_a_tree_that_is_edited_at_random_is_as_if_read_anew(code_index: CodeIndex, tree: Tree, tmp_path: Path) -> None:
    chance = random.Random(int(os.environ["TEST_SEED"]))
    pumps = [f"def drain_{number}(pool):\n    pool.x\n\n\n" for number in range(9)]
    parts = [POOL, USE, "# about pumps\n", "import pumps\n", *pumps]
    for _ in range(40):
        name = chance.choice(("pool.py", "use.py", "pump.py"))
        Path(tree.root, name).write_text("\n".join(chance.choices(parts, k=chance.randrange(6))))
        code_index.take([read_file(tree.root, file) for file in tree.files() if file.path == name])
    assert_as_if_new(code_index, tree, tmp_path / "fresh.db")
    chunks = """SELECT path, start_line, end_line, c.kind, c.name, length, text
        FROM chunks AS c JOIN files AS f ON f.number = file ORDER BY 1, 2"""
    with closing(CodeIndex(tmp_path / "fresh.db")) as fresh:
        assert code_index._connection.execute(chunks).fetchall() == fresh._connection.execute(chunks).fetchall()


def test_a_file_that_is_no_code_is_known_and_counted(code_index: CodeIndex, tree: Tree) -> None:
    Path(tree.root, "data.py").write_bytes(b"a\0b")
    code_index.take([read_file(tree.root, file) for file in tree.files() if file.path == "data.py"])
    assert "data.py" in code_index.known()
    assert code_index.skipped() == {"binary": 1}
    assert code_index.counts()[0] == 4


def test_an_index_of_another_version_is_refused(tmp_path: Path, code_index: CodeIndex) -> None:
    code_index.close()
    write_rows(tmp_path / "code.db", "PRAGMA user_version = 999")
    with pytest.raises(sqlite3.DatabaseError):
        CodeIndex(tmp_path / "code.db")
