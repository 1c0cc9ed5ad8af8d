"""Anchors: what a memory is about in the code, and what has become of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remembrancer.code.anchors import Anchor, anchors_of, described, judged, mentions_of, worst_of
from remembrancer.code.chunks import parsed
from remembrancer.code.index import CodeIndex
from remembrancer.code.read_files import read_files
from remembrancer.code.symbols import symbols_of
from remembrancer.code.tree import Tree
from remembrancer.memory.found_names import found_names

POOL = '''\
"""Connections."""

from queue import Queue

LIMIT = 8


class Pool:
    """Keeps connections."""

    size = LIMIT

    def acquire(self, timeout):
        """Waits for one."""
        # the oldest first
        connection = self.free.get(timeout=timeout, block=True)
        if connection.is_broken():
            connection = self.opened()
        return connection

    def close(self):
        pass


class Basin:
    def close(self):
        pass


def opened_at(host, port):
    address = f"{host}:{port}"
    connection = connect(address, retries=3)
    connection.greet("hello", 'you')
    return connection
'''


class Repository:
    """A tree of files and its index."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "tree"
        self.root.mkdir()
        self.index = CodeIndex(tmp_path / "code.db", "make")

    def write(self, **files: str | None) -> None:
        """Files by their names without the ending; None: it goes."""
        for name, text in files.items():
            path = self.root / f"{name}.py"
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        tree = Tree(str(self.root))
        found = list(tree.files())
        gone = self.index.known().keys() - {file.path for file in found}
        self.index.take((), sorted(gone))
        self.index.take(read_files(tree.root, found))

    def anchors(self, text: str, file: str | None = None) -> list[Anchor]:
        return anchors_of(mentions_of(found_names(text), file, [str(self.root)]), "tree", self.index)

    def verdict(self, anchor: Anchor) -> tuple[str, str, str]:
        now = judged(anchor, self.index, "3f2a1b9")
        return now.verdict, now.place, now.name


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Repository]:
    repository = Repository(tmp_path)
    repository.write(pool=POOL, use="from pool import Pool\n\n\ndef use_pool():\n    return Pool().acquire(1)\n")
    yield repository
    repository.index.close()


@pytest.mark.parametrize(
    ("text", "file", "places"),
    [
        ("`opened_at` retries three times", None, [("pool.py", "opened_at")]),
        ("opened_at() retries three times", None, [("pool.py", "opened_at")]),
        ("`Pool.acquire` waits for the oldest", None, [("pool.py", "Pool.acquire")]),
        ("The method Pool.acquire waits for the oldest.", None, [("pool.py", "Pool.acquire")]),
        ("`pool.Basin` is not used", None, [("pool.py", "Basin")]),
        ("We pool connections", "pool.py", [("pool.py", "")]),
        ("opened_at() retries three times", "pool.py", [("pool.py", "opened_at")]),
        ("See pool.py", None, [("pool.py", "")]),
        ("`close` does nothing", None, []),  # of two classes
        ("Pool is full on Mondays", None, []),  # a word of every day
        ("We keep `missing_name` and nowhere.py", None, []),
    ],
)
def test_a_memory_is_about_what_it_names_without_doubt(
    code: Repository, text: str, file: str | None, places: list[tuple[str, str]]
) -> None:
    assert [(each.path, each.was.name) for each in code.anchors(text, file)] == places


FORMATTED = '''\
from queue import Queue

LIMIT = 8  # connections


class Pool:
    size = LIMIT

    def acquire(
        self,
        timeout,
    ):
        connection = (
            self.free.get(
                timeout=timeout,
                block=True,
            )
        )
        if (connection.is_broken()):
            connection = self.opened()

        return connection

    def close(self): pass
class Basin:
    def close(self): pass

def opened_at(host, port):
  """Opens one."""
  address = f'{host}:{port}'
  connection = connect(
      address, retries=3
  )
  connection.greet('hel' 'lo', "you")
  return connection
'''


def test_a_formatters_run_changes_no_verdict(code: Repository) -> None:
    anchors = code.anchors("`Pool.acquire`, `opened_at`, `Basin` in pool.py") + code.anchors("", "pool.py")
    assert len(anchors) == 4
    code.write(pool=FORMATTED)
    assert {code.verdict(each)[0] for each in anchors} == {"fresh"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("retries=3", "retries=4"),
        ("host, port", "host, port, retries"),
        ('"hello"', '"hallo"'),
        ("connect(address, retries=3)", "connect(address, retries=3) or None"),
    ],
)
def test_what_says_something_else_has_changed(code: Repository, old: str, new: str) -> None:
    (anchor,) = code.anchors("opened_at() retries")
    assert old in POOL
    code.write(pool=POOL.replace(old, new))
    now = judged(anchor, code.index, "3f2a1b9")
    assert (now.verdict, now.since) == ("changed", "3f2a1b9")
    assert 0 <= now.share < 1
    assert described(now).startswith("changed since 3f2a1b9, ")
    code.write(pool=POOL)
    assert judged(now, code.index, "aaaaaaa").verdict == "fresh"


def test_what_moves_is_followed_and_what_comes_back_is_fresh(code: Repository) -> None:
    anchors = code.anchors("`Pool.acquire` and `opened_at`")
    code.write(pool=None, basin=f"import os\n\n{POOL}")
    moved = [judged(each, code.index, "") for each in anchors]
    assert [(each.verdict, each.place, each.name) for each in moved] == [
        ("moved", "basin.py", "Pool.acquire"),
        ("moved", "basin.py", "opened_at"),
    ]
    assert described(moved[1]) == "moved from pool.py opened_at: basin.py:32 opened_at"
    code.write(basin=POOL.replace("retries=3", "retries=5"))
    assert code.verdict(moved[1]) == ("changed", "basin.py", "opened_at")
    assert code.verdict(moved[0]) == ("moved", "basin.py", "Pool.acquire")
    code.write(pool=POOL, basin=None)
    assert [code.verdict(each) for each in moved] == [
        ("fresh", "pool.py", "Pool.acquire"),
        ("fresh", "pool.py", "opened_at"),
    ]


def test_a_rename_is_a_move_and_a_deletion_is_said(code: Repository) -> None:
    (anchor,) = code.anchors("opened_at() retries")
    code.write(pool=POOL.replace("opened_at", "dialled"))
    assert code.verdict(anchor) == ("moved", "pool.py", "dialled")
    code.write(pool=POOL[: POOL.index("def opened_at")])
    gone = judged(anchor, code.index, "3f2a1b9")
    assert described(gone) == "gone since 3f2a1b9: pool.py:30 opened_at"
    (tiny,) = code.anchors("`Basin.close` does nothing")
    code.write(pool=POOL[: POOL.index("class Basin")])
    assert code.verdict(tiny)[0] == "gone"  # what says the same by chance is another


def test_what_comes_into_a_class_or_a_file_changes_neither(code: Repository) -> None:
    anchors = code.anchors("`pool.Pool` pools") + code.anchors("", "pool.py")
    more = POOL.replace("    def close", "    def count(self):\n        return 1\n\n    def close", 1)
    code.write(pool=f"{more}\n\ndef last():\n    return LIMIT\n")
    assert {code.verdict(each)[0] for each in anchors} == {"fresh"}
    code.write(pool=POOL.replace("def acquire(self, timeout)", "def acquire(self)"))
    assert [code.verdict(each)[0] for each in anchors] == ["changed", "fresh"]


def test_a_memory_is_gone_when_all_that_it_is_about_is(code: Repository) -> None:
    anchors = code.anchors("`Pool.acquire` and `opened_at`")
    code.write(pool=POOL[: POOL.index("def opened_at")])
    now = [judged(each, code.index, "") for each in anchors]
    assert worst_of(now).verdict == "changed"
    code.write(pool="LIMIT = 8\n")
    assert worst_of([judged(each, code.index, "") for each in now]).verdict == "gone"


@pytest.mark.parametrize(
    ("language", "one", "other", "is_same"),
    [
        ("javascript", "function f(a) { return a + 1; }", "// adds\nfunction f(a) {\n  return a + 1\n}\n", True),
        ("typescript", "const f = (a: number) => 'x' + a", 'const f = (\n  a: number,\n) => "x" + a;', True),
        ("go", "func f(a int) int { return a }", "// f\nfunc f(a int) int {\n\treturn a // same\n}\n", True),
        ("rust", "fn f(a: i32) -> i32 { a * 2 }", "fn f(a: i32) -> i32 {\n    (a * 2) /* x */\n}", True),
        ("rust", "fn f(a: i32) -> i32 { a * 2 }", "fn f(a: i32) -> i32 { a * 3 }", False),
        ("python", "def f(a, b):\n  return (a + b) * 2", "def f(a, b):\n  return a + b * 2", False),
        ("python", "def f(a):\n  if a:\n    g()\n    h()", "def f(a):\n  if a:\n    g()\n  h()", False),
    ],
)
def test_digests_are_of_the_syntax(language: str, one: str, other: str, is_same: bool) -> None:
    first, second = ({each.name: each.digest for each in symbols_of(parsed(t, language), t)} for t in (one, other))
    assert (first["f"] == second["f"]) == is_same
