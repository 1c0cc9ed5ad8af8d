"""The index of a tree of code: what it finds first, and what it keeps when files change."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from remembrancer.actors.store.code_anchors import ProjectAnchors
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.code.index import CodeIndex, FoundCode
from remembrancer.code.read_files import read_files
from remembrancer.code.tree import Tree
from remembrancer.protocol.code import CodeTree
from remembrancer.protocol.writes import EraseMemory
from tests.cases import cases
from tests.operations import change_operation, memory_id_of, store_operation

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
def index(tmp_path: Path, tree: Tree) -> CodeIndex:
    index = CodeIndex(tmp_path / "code.db", "make")
    index.take(read_files(tree.root, list(tree.files())))
    return index


def test_a_zeroed_page_is_damage_wherever_it_is_and_has_the_index_deleted(tmp_path: Path) -> None:
    root, path, numbers = tmp_path / "tree", tmp_path / "code.db", random.Random(7)
    root.mkdir()
    for number in range(12):
        rows = "".join(f"        '{numbers.randbytes(60).hex()}',\n" for _ in range(120))
        (root / f"table{number}.py").write_text(f"def table{number}():\n    return [\n{rows}    ]\n")
    files = list(Tree(str(root)).files())
    with closing(CodeIndex(path, "make")) as made:
        made.take(read_files(str(root), files))
    whole, deleted = path.read_bytes(), 0
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        with closing(CodeIndex(path)) as index:
            try:
                with index.at_one_moment():
                    index.search("table3", 20)
                    assert all(index.chunk_at(file.path, 2) for file in files)
                    assert all(len(index.symbols_named(f"table{number}")) == 1 for number in range(12))
            except sqlite3.DatabaseError:
                assert not path.exists()
                deleted += 1
    assert deleted > len(whole) // 4096 // 2


def test_a_memory_that_has_the_row_number_of_an_erased_one_is_anchored_all_the_same(
    tmp_path: Path, tree: Tree, index: CodeIndex
) -> None:
    index.note(status="ready")
    code = CodeTree("t_1", tree.root, str(tmp_path / "code.db"))
    records = Records(SqliteFile(tmp_path / "memory.db"), "project", time.time)
    anchors, numbers = ProjectAnchors(tmp_path / "anchors"), set()
    for text in ("`ConnectionPool` is small", "`ConnectionPool` is kept small"):
        stored = store_operation(text, text)
        records.apply([stored])
        list(anchors.look(records, [code]))
        assert anchors.all_of(memory_id_of(stored)), text
        numbers.add(records.number_of(memory_id_of(stored)))
        records.apply([change_operation(f"erase {text}", EraseMemory(memory_id_of(stored)))])
    assert len(numbers) == 1
    records.close()


def _paths(index: CodeIndex, question: str) -> list[str]:
    return [found.path for found in index.search(question, 10)]


def test_a_definition_comes_before_uses_and_tests_later(index: CodeIndex) -> None:
    assert _paths(index, "ConnectionPool") == ["pool.py", "use.py", "tests/test_pool.py"]


CONSTANTS = dict(cases("code_index", "constants"))


@pytest.mark.parametrize("file", CONSTANTS)
def test_a_constant_is_found_where_it_has_its_value(tmp_path: Path, file: str) -> None:
    root = tmp_path / "limited"
    root.mkdir()
    (root / file).write_text(CONSTANTS[file])
    (root / "uses.py").write_text("import limits\n\nlimits.MOST_BYTES == read(limits.MOST_BYTES)\n")
    index = CodeIndex(tmp_path / "limited.db", "make")
    index.take(read_files(str(root), list(Tree(str(root)).files())))
    (best, *_) = index.search("MOST_BYTES", 10)
    assert (best.path, best.kind) == (file, "block")
    assert re.search("MOST_BYTES.*=", best.text)


def test_tests_come_first_where_they_are_asked_for(index: CodeIndex) -> None:
    assert _paths(index, "test of connection pool reuse")[0] == "tests/test_pool.py"


def test_a_question_in_words_finds_names_by_their_parts(index: CodeIndex) -> None:
    (best, *_) = index.search("how numbers are read from json", 10)
    assert (best.path, best.name, best.kind, best.language) == (
        *("parse/json_reader.ts", "readNumber", "function", "typescript"),
    )
    assert (best.start_line, best.end_line) == (1, 4)


def test_nothing_is_found_for_words_that_nothing_has(index: CodeIndex) -> None:
    assert index.search("kubernetes operator", 10) == []
    assert index.search("", 10) == []


def test_a_changed_file_is_found_as_it_is_now(index: CodeIndex, tree: Tree, tmp_path: Path) -> None:
    reader = CodeIndex(tmp_path / "code.db")
    assert _paths(reader, "acquire")
    Path(tree.root, "pool.py").write_text("class Basin:\n    def draw(self):\n        return 1\n")
    changed = [file for file in tree.files() if file.path == "pool.py"]
    index.take(read_files(tree.root, changed), removed=["use.py"])
    assert _paths(reader, "Basin") == ["pool.py"]
    assert _paths(reader, "acquire") == ["tests/test_pool.py"]
    assert set(index.known()) == {"pool.py", "tests/test_pool.py", "parse/json_reader.ts"}
    assert index.counts()[0] == 3


def test_a_reader_that_follows_changes_finds_what_a_new_one_finds(index: CodeIndex, tree: Tree, tmp_path: Path) -> None:
    chance = random.Random(int(os.environ["TEST_SEED"]))
    always, seldom = CodeIndex(tmp_path / "code.db"), CodeIndex(tmp_path / "code.db")
    for step in range(60):
        path = Path(tree.root, f"{chance.choice(('pump', 'valve', 'test_pump'))}_{chance.randrange(9)}.py")
        if path.exists() and chance.random() < 0.5:
            path.unlink()
            index.take((), [path.name])
        else:
            path.write_text(
                f"def drain_{chance.randrange(9)}(pool):\n    return pool.acquire()\n" * chance.randrange(3)
            )
            index.take(read_files(tree.root, [file for file in tree.files() if file.path == path.name]))
        new = CodeIndex(tmp_path / "code.db")
        for reader in (always, seldom) if step % 10 == 9 else (always,):
            for question in ("how pumps drain", "drain_7", "test of valve 3", "connection pool"):
                assert reader.search(question, 100) == new.search(question, 100)
        new.close()
    always.close()
    seldom.close()


def test_the_log_is_cut_while_somebody_always_reads(
    index: CodeIndex, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
                index.take(read_files(tree.root, list(tree.files())))
                lengths.append(log.stat().st_size)
        finally:
            is_over.set()
        for each in asking:
            each.result()
    grown = sum(later - earlier for earlier, later in pairwise(lengths) if later > earlier)
    assert max(lengths) <= most < grown


def grown(index: CodeIndex, tree: Tree, times: int) -> None:
    """Take in a file that is new, and another one that has changed, so many times."""
    for number in range(times):
        Path(tree.root, f"part_{number}.py").write_text(f"def drain_{number}(pool):\n    return pool.acquire()\n")
        wanted = {f"part_{number}.py", "use.py"}
        index.take(read_files(tree.root, [file for file in tree.files() if file.path in wanted]))


def answers(index: CodeIndex) -> list[list[FoundCode]]:
    return [index.search(question, 100) for question in ("connection pool", "ConnectionPool", "drain_7", "acquire")]


def assert_as_if_new(index: CodeIndex, tree: Tree, path: Path) -> None:
    """An index finds what one finds that is made now, and has the same terms."""
    fresh = CodeIndex(path, "make")
    fresh.take(read_files(tree.root, sorted(tree.files(), key=lambda file: file.path)))
    for ours, theirs in zip(answers(index), answers(fresh), strict=True):
        scores = {each.path: each.score for each in theirs}
        assert {each.path: each.score for each in ours} == pytest.approx(scores, rel=1e-9), "sums of another order"
        assert {each._replace(score=0.0) for each in ours} == {each._replace(score=0.0) for each in theirs}
    terms = "SELECT term, count(*) FROM occurrences GROUP BY term"
    assert index._connection.execute(terms).fetchall() == fresh._connection.execute(terms).fetchall()
    fresh.close()


def test_a_change_is_written_in_one_place(index: CodeIndex, tree: Tree, tmp_path: Path) -> None:
    for number in range(800):
        words = "\n".join(f"    valve_{word} = {word}" for word in range(40 * number, 40 * number + 40))
        Path(tree.root, f"part_{number}.py").write_text(f"def part_{number}():\n{words}\n")
    index.take(read_files(tree.root, list(tree.files())))
    index.checkpoint()
    size, log = (tmp_path / "code.db").stat().st_size, tmp_path / "code.db-wal"
    Path(tree.root, "use.py").write_text("".join(f"valve_{word} = 1\n" for word in range(0, 32_000, 80)))
    index.take(read_files(tree.root, [file for file in tree.files() if file.path == "use.py"]))
    assert log.stat().st_size < size / 10


def test_a_tree_that_is_edited_at_random_is_as_if_read_anew(index: CodeIndex, tree: Tree, tmp_path: Path) -> None:
    chance = random.Random(int(os.environ["TEST_SEED"]))
    pumps = [f"def drain_{number}(pool):\n    pool.x\n\n\n" for number in range(9)]
    parts = [POOL, USE, "# about pumps\n", "import pumps\n", *pumps]
    for _ in range(40):
        name = chance.choice(("pool.py", "use.py", "pump.py"))
        Path(tree.root, name).write_text("\n".join(chance.choices(parts, k=chance.randrange(6))))
        index.take(read_files(tree.root, [file for file in tree.files() if file.path == name]))
    assert_as_if_new(index, tree, tmp_path / "fresh.db")
    chunks = """SELECT path, start_line, end_line, c.kind, c.name, signature, length, text
        FROM chunks AS c JOIN files AS f ON f.number = file ORDER BY 1, 2"""
    symbols = """SELECT path, s.start_line, s.end_line, s.kind, s.name, s.digest, s.pieces
        FROM symbols AS s JOIN files AS f ON f.number = file ORDER BY 1, 2, 3, 5"""
    with closing(CodeIndex(tmp_path / "fresh.db")) as fresh:
        for rows in (chunks, symbols):
            assert index._connection.execute(rows).fetchall() == fresh._connection.execute(rows).fetchall()


def test_a_stored_fact_has_no_reader_load_the_chunks_again(index: CodeIndex, tmp_path: Path) -> None:
    with closing(CodeIndex(tmp_path / "code.db")) as reader:
        reader.search("pool", 10)
        loaded = reader._loaded
        index.note(status="ready")
        reader.search("pool", 10)
        assert reader._loaded.corpus is loaded.corpus


def test_a_file_that_is_no_code_is_known_and_counted(index: CodeIndex, tree: Tree) -> None:
    Path(tree.root, "data.py").write_bytes(b"a\0b")
    index.take(read_files(tree.root, [file for file in tree.files() if file.path == "data.py"]))
    assert "data.py" in index.known()
    assert index.skipped() == {"binary": 1}
    assert index.counts()[0] == 4


def test_a_name_is_looked_up_without_reading_all_chunks(index: CodeIndex, tmp_path: Path) -> None:
    statements: list[str] = []
    index._connection.set_trace_callback(statements.append)
    index.search("ConnectionPool", 10)
    (lookup,) = [each for each in statements if "last_name = " in each]
    with sqlite3.connect(tmp_path / "code.db") as connection:
        plan = str(connection.execute(f"EXPLAIN QUERY PLAN {lookup}").fetchall())
    connection.close()
    assert "chunks_by_name" in plan


def test_an_index_of_another_version_is_refused(tmp_path: Path, index: CodeIndex) -> None:
    index.close()
    with sqlite3.connect(tmp_path / "code.db") as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(sqlite3.DatabaseError):
        CodeIndex(tmp_path / "code.db")
