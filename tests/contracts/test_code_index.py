"""The index of a tree of code: what it finds first, and what it keeps when files change."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from remembrancer.code.index import CodeIndex, FoundCode
from remembrancer.code.read_files import read_files
from remembrancer.code.tree import Tree
from tests.cases import cases

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
                    assert len(index.files("", 20)) == len(files)
            except sqlite3.DatabaseError:
                assert not path.exists()
                deleted += 1
    assert deleted > len(whole) // 4096 // 2


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
    with closing(CodeIndex(tmp_path / "fresh.db")) as fresh:
        assert index._connection.execute(chunks).fetchall() == fresh._connection.execute(chunks).fetchall()


def test_a_file_that_is_no_code_is_known_and_counted(index: CodeIndex, tree: Tree) -> None:
    Path(tree.root, "data.py").write_bytes(b"a\0b")
    index.take(read_files(tree.root, [file for file in tree.files() if file.path == "data.py"]))
    assert "data.py" in index.known()
    assert index.skipped() == {"binary": 1}
    assert index.counts()[0] == 4


def test_an_index_of_another_version_is_refused(tmp_path: Path, index: CodeIndex) -> None:
    index.close()
    with sqlite3.connect(tmp_path / "code.db") as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(sqlite3.DatabaseError):
        CodeIndex(tmp_path / "code.db")
