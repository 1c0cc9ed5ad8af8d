"""From a question to a full-text expression, against a real FTS5 table with the tokenizer of the records."""

import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.actors.store.records.search import ROWS, WIDE_ROWS, expression_of, narrowed
from remembrancer.actors.store.records.types import Phrase
from remembrancer.actors.store.retrieval.question import MAX_TERMS, phrases_and_units, phrases_of
from remembrancer.memory.stop_words import language_of
from remembrancer.memory.subword_tokens import LONGEST, subword_tokens
from tests.cases import cases

DOCUMENTS = cases("keywords", "documents")


def match_expression(query: str) -> str | None:
    return expression_of(phrases_of(query)) or None


def expressions_of(query: str) -> list[str]:
    return [expression_of(unit) for unit in phrases_and_units(query)[1]]


def table_of(texts: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5 (content, parts, tokenize = 'porter unicode61')")
    rows = [(number, text, subword_tokens(text)) for number, text in enumerate(texts)]
    connection.executemany("INSERT INTO t (rowid, content, parts) VALUES (?, ?, ?)", rows)
    return connection


@pytest.fixture(scope="module")
def table() -> Iterator[sqlite3.Connection]:
    connection = table_of(DOCUMENTS)
    yield connection
    connection.close()


def found(table: sqlite3.Connection, query: str) -> list[int]:
    expression = match_expression(query)
    if expression is None:
        return []
    return [
        row[0] for row in table.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t, 1.0, 0.5)", (expression,))
    ]


operators = st.lists(
    st.sampled_from([*"\"'*^(){}:+-,.;\0\n\\%_", "AND", "OR", "NOT", "NEAR(a b, 2)", "content:", "a*", "🦀", "''"]),
    max_size=30,
).map(" ".join)


names = st.lists(
    st.sampled_from(
        ["lantern", "the", "don't", "src/app.py", "poolSize", "C++", '"pool size"', "数据库", "🦀", "v2.4.1", "“x y”"]
    ),
    max_size=8,
).map(" ".join)


@given(st.text(max_size=200) | operators | names | st.text(st.sampled_from("\"'*^():-+\0 aA1_"), max_size=60))
@example('"')
@example('" OR "x')
@example("a\0b")
@example("\ud800")
@example("".join(map(chr, range(0x300))))
def test_no_text_can_break_the_syntax_as_a_whole_or_piece_by_piece(table: sqlite3.Connection, query: str) -> None:
    whole, pieces = match_expression(query), expressions_of(query)
    for expression in (*([] if whole is None else [whole]), *pieces):
        table.execute("SELECT count(*) FROM t WHERE t MATCH ?", (expression,)).fetchone()
    assert bool(pieces) == (whole is not None)


@given(st.sampled_from(DOCUMENTS), st.data())
def test_a_piece_of_a_document_finds_it(table: sqlite3.Connection, document: str, data: st.DataObject) -> None:
    piece = data.draw(st.sampled_from(document.split()))
    if match_expression(piece) is not None:
        assert DOCUMENTS.index(document) in found(table, piece)


def test_identifiers_and_words_of_every_script_are_found(table: sqlite3.Connection) -> None:
    decomposed = [(unicodedata.normalize("NFD", word), row) for word, row in (("Zürich", 1), ("데이터베이스", 7))]
    for query, row in (*cases("keywords", "found"), *decomposed):
        assert found(table, query)[:1] == [row], query


@pytest.mark.parametrize(("query", "texts"), cases("keywords", "outweigh"))
def test_an_exact_name_and_a_quoted_phrase_outweigh_their_scattered_parts(query: str, texts: list[str]) -> None:
    connection = table_of([*texts, *DOCUMENTS])
    assert found(connection, query)[0] == 1
    connection.close()


def test_stop_words_and_tails_of_contractions_count_where_nothing_else_does(table: sqlite3.Connection) -> None:
    assert match_expression("What's the user’s favourite editor, isn't it?") == '"user" OR "favourite" OR "editor"'
    assert match_expression("Mary's") == '"mary"'
    assert match_expression("what is it?") == '"what" OR "is" OR "it"'
    assert match_expression("O'Donnell") == '"o donnell" OR "o" OR "donnell"'
    assert 3 not in found(table, "Mary’s crème")


def test_french_is_known_by_its_elided_articles_alone() -> None:
    assert [language_of(text) for text in ("J'utilise l'API d'Anna", "Mary's user’s editor")] == ["fr", None]


# Piece by piece
def terms_of(expression: str | None) -> list[str]:
    return [] if expression is None else list(dict.fromkeys(expression.split(" OR ")))


def test_each_word_or_name_is_one_unit_in_all_spellings_of_the_whole_and_without_a_word_there_is_none() -> None:
    for query, expressions in cases("keywords", "units"):
        assert expressions_of(query) == expressions, query
    assert {match_expression(query) for query in ("", "   ", "?!", "\0", "___", '""', "“”")} == {None}


# What is kept of a long question
FILLER = [f"{word}{ending}" for word in ("lantern", "harbour", "keeper") for ending in "abcdefghijklmnopqrst"]
NAMES = ("ECONNRESET-104", "connectionPoolSize", "src/net/retry_policy.py", "v2.4.1", "pool_size", "E1234")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", [0, 30, 60])
def test_a_name_is_kept_wherever_it_stands_in_a_long_question_in_all_its_spellings(name: str, place: int) -> None:
    words = [*FILLER]
    words.insert(place, name)
    expression = match_expression(" ".join(words))
    assert terms_of(expression)[: len(terms_of(match_expression(name)))] == terms_of(match_expression(name))
    assert len(terms_of(expression)) == MAX_TERMS
    assert expressions_of(" ".join(words))[0] == expressions_of(name)[0]


def test_of_a_long_question_what_is_quoted_counts_most_then_names_then_the_longest_words() -> None:
    expression = match_expression(f'{" ".join([*FILLER, *NAMES])} "green oil"')
    assert expression is not None
    assert expression.startswith('"green oil" OR "green oil" OR "green oil" OR ')
    kept = terms_of(match_expression(" ".join([*FILLER, *["lamp_oil"] * 50])))
    assert kept[:4] == terms_of(match_expression("lamp_oil"))
    assert len(kept) == MAX_TERMS
    short = [f"oil{letter}" for letter in "abcdefghij"]
    long = [f"lantern{''.join(ending)}" for ending in product("ab", repeat=5)]
    kept = terms_of(match_expression(" ".join([*short, *FILLER[:4], *long])))
    assert kept[: len(long)] == [f'"{word}"' for word in long]
    assert kept[len(long) :] == [f'"{word}"' for word in [*FILLER[:4], *short]][: MAX_TERMS - len(long)]
    names = [f"part{number}.lampSize{number}" for number in range(10)]
    kept = terms_of(match_expression(" ".join([*FILLER, *names])))
    assert len(kept) == MAX_TERMS
    for number in range(10):
        assert f'"part{number} lampsize{number}"' in kept
    assert len([term for term in kept if term.strip('"') in FILLER]) == MAX_TERMS // 2
    names = [f"lamp_{number}" for number in range(100)]
    kept = terms_of(match_expression(" ".join(names)))
    expected = [*range(MAX_TERMS // 2), *range(100 - MAX_TERMS // 2, 100)]
    assert set(kept) == {f'"lamp {number}"' for number in expected}


# --- The spellings that are indexed besides a text.
def test_what_full_text_does_not_see_is_spelt_out() -> None:
    for text, parts in cases("subword_tokens", "spellings"):
        assert subword_tokens(text) == parts, text


def test_a_question_of_rare_words_is_left_as_it_is_and_a_text_that_is_data_has_no_spellings() -> None:
    assert subword_tokens("aB" * LONGEST) == ""
    assert len(subword_tokens("a-b" * 30)) <= LONGEST
    assert narrowed(counted(a=1, b=1), counted(a=ROWS - 1, b=1)) is None
    assert narrowed(counted(a=1), counted(a=10 * ROWS)) is None
    assert narrowed(counted(a=1, none=1), counted(a=10 * ROWS, none=0)) is None


@given(st.text(max_size=300))
@example("\ud800aB")
@example("".join(map(chr, range(0x3400))))
def test_any_text_has_spellings_that_are_words_and_not_much_longer_than_itself(text: str) -> None:
    parts = subword_tokens(text)
    assert all(part.isalnum() for part in parts.split())
    assert len(parts) <= 7 * len(unicodedata.normalize("NFKC", text))


# --- Which memories an expression is scored among.
def counted(**counts: int) -> dict[Phrase, int]:
    return {Phrase(words.replace("_", " ")): count for words, count in counts.items()}


@pytest.mark.parametrize(
    "rows", [counted(a=5, b=ROWS - 5, c=9 * ROWS, d=0), counted(a=5, b=WIDE_ROWS - 5, c=WIDE_ROWS)]
)
def test_rare_words_are_required_and_common_ones_count_for_what_has_one(rows: dict[Phrase, int]) -> None:
    assert narrowed(dict.fromkeys(rows, 1), rows) == '("a" OR "b") AND ("a" OR "b" OR "c" OR "c")'
