"""From a question to a full-text expression, against a real FTS5 table with the tokenizer of the records."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from remembrancer.actors.store.retrieval.keywords import MAX_TERMS, match_expression

DOCUMENTS = (
    "The retry budget of src/net/retry_policy.py is 3; see ECONNRESET-104.",
    "Übergrößenträger: the Zürich office prefers café crème.",
    "parse_http2_frame() returns std::optional<Frame> since v2.4.1",
    "John's editor is Vim. What a nice day it is!",
    "🦀 Rust and C++ and C# meet in the build",
)


@pytest.fixture(scope="module")
def table() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5 (content, tokenize = 'porter unicode61')")
    connection.executemany("INSERT INTO t (rowid, content) VALUES (?, ?)", enumerate(DOCUMENTS))
    yield connection
    connection.close()


def found(table: sqlite3.Connection, query: str) -> list[int]:
    """Rows that match a query, the best first."""
    expression = match_expression(query)
    if expression is None:
        return []
    return [row[0] for row in table.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t)", (expression,))]


operators = st.lists(
    st.sampled_from([*"\"'*^(){}:+-,.;\0\n\\%_", "AND", "OR", "NOT", "NEAR(a b, 2)", "content:", "a*", "🦀", "''"]),
    max_size=30,
).map(" ".join)


@given(st.text(max_size=200) | operators | st.text(st.sampled_from("\"'*^():-+\0 aA1_"), max_size=60))
@example('"')
@example('" OR "x')
@example("a\0b")
@example("\ud800")
@example("".join(map(chr, range(0x300))))
@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_can_break_the_syntax(table: sqlite3.Connection, query: str) -> None:
    expression = match_expression(query)
    if expression is not None:
        try:
            expression.encode()
        except UnicodeEncodeError:
            pytest.fail("an expression that the database cannot be given")
        table.execute("SELECT count(*) FROM t WHERE t MATCH ?", (expression,)).fetchone()


@given(st.sampled_from(DOCUMENTS), st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_piece_of_a_document_that_has_a_word_in_it_finds_the_document(
    table: sqlite3.Connection, document: str, data: st.DataObject
) -> None:
    piece = data.draw(st.sampled_from(document.split()))
    if match_expression(piece) is not None:
        assert DOCUMENTS.index(document) in found(table, piece)


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("src/net/retry_policy.py", 0),
        ("retry_policy", 0),
        ("ECONNRESET-104", 0),
        ("econnreset", 0),
        ("parse_http2_frame", 2),
        ("v2.4.1", 2),
        ("std::optional", 2),
        ("retries", 0),
        ("zurich", 1),
        ("Zürich", 1),
        (unicodedata.normalize("NFD", "Zürich"), 1),
        (unicodedata.normalize("NFD", "crème"), 1),
        ("which editor does John use?", 3),
        ("C++", 4),
    ],
)
def test_identifiers_paths_codes_inflected_and_accented_words_are_found(
    table: sqlite3.Connection, query: str, row: int
) -> None:
    assert found(table, query)[0] == row


def test_a_phrase_outweighs_its_scattered_parts() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5 (content, tokenize = 'porter unicode61')")
    texts = ["policy of the retry and py, all apart", "see retry_policy.py for the whole of it"]
    connection.executemany("INSERT INTO t (rowid, content) VALUES (?, ?)", enumerate(texts))
    assert found(connection, "retry_policy.py")[0] == 1
    connection.close()


def test_stop_words_and_the_tails_of_contractions_count_only_when_there_is_nothing_else(
    table: sqlite3.Connection,
) -> None:
    assert match_expression("What's the user’s favourite editor, isn't it?") == '"user" OR "favourite" OR "editor"'
    assert match_expression("Mary's") == '"mary"'
    assert match_expression("what is it?") == '"what" OR "is" OR "it"'
    assert match_expression("O'Donnell") == '"o donnell" OR "o" OR "donnell"'
    assert 3 not in found(table, "Mary’s crème")


@pytest.mark.parametrize("query", ["", "   ", "?!", "\0", "🦀", "___"])
def test_a_question_without_a_word_has_no_expression(query: str) -> None:
    assert match_expression(query) is None


def test_a_very_long_question_stays_a_small_expression(table: sqlite3.Connection) -> None:
    many = " ".join(f"word{number}" for number in range(100_000))
    expression = match_expression(many)
    assert expression is not None
    assert expression.count(" OR ") == MAX_TERMS - 1
    dotted = match_expression(".".join(f"word{number}" for number in range(20_000)))
    assert dotted is not None
    assert len(dotted) < 2000
    table.execute("SELECT count(*) FROM t WHERE t MATCH ?", (dotted,)).fetchone()
