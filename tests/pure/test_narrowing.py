"""Which memories an expression is scored among, against a real FTS5 table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from remembrancer.actors.store.records.search import ROWS, TIMES, WIDE_ROWS, expression_of, narrowed
from remembrancer.actors.store.records.types import Phrase


@pytest.fixture
def table() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5 (content, tokenize = 'porter unicode61')")
        texts = (
            f"common {'often ' * (n % 3)}{'rare words ' * (n % 7 == 0)}{'scarce ' * (n % 11 == 0)}{'x ' * (n % 5)}"
            for n in range(300)
        )
        connection.executemany("INSERT INTO t (content) VALUES (?)", [(text,) for text in texts])
        yield connection


def scores(table: sqlite3.Connection, expression: str) -> dict[int, float]:
    return dict(table.execute("SELECT rowid, -bm25(t) FROM t WHERE t MATCH ?", (expression,)))


def counted(**counts: int) -> dict[Phrase, int]:
    return {Phrase(words.replace("_", " ")): count for words, count in counts.items()}


def test_a_question_of_rare_words_is_left_as_it_is() -> None:
    assert narrowed(counted(a=1, b=1), counted(a=ROWS - 1, b=1)) is None
    assert narrowed(counted(a=1), counted(a=10 * ROWS)) is None
    assert narrowed(counted(a=1, none=1), counted(a=10 * ROWS, none=0)) is None


@pytest.mark.parametrize(
    "rows", [counted(a=5, b=ROWS - 5, c=9 * ROWS, d=0), counted(a=5, b=WIDE_ROWS - 5, c=WIDE_ROWS)]
)
def test_rare_words_are_required_of_which_the_second_may_be_in_more_memories_and_common_ones_count_for_what_has_one(
    rows: dict[Phrase, int],
) -> None:
    assert narrowed(dict.fromkeys(rows, 1), rows) == '("a" OR "b") AND ("a" OR "b" OR "c" OR "c")'


def test_a_memory_has_the_same_score_in_the_narrower_expression(table: sqlite3.Connection) -> None:
    phrases = counted(rare_words=3, scarce=1, often=2, common=1)
    rows = counted(rare_words=43, scarce=28, often=5 * ROWS, common=6 * ROWS)
    expression = expression_of(phrase for phrase, times in phrases.items() for _ in range(times))
    narrower = narrowed(phrases, rows)
    assert narrower is not None
    every, few = scores(table, expression), scores(table, narrower)
    assert set(few) == set(scores(table, '"rare words" OR "scarce"'))
    assert {number: score / TIMES for number, score in few.items()} == pytest.approx({n: every[n] for n in few})
