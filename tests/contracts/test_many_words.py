"""Words that are in thousands of memories: what is found by them, and that nothing is lost for being common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remembrancer.actors.store.records.search import BM25, WIDE_ROWS, expression_of
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Phrase
from tests.contracts.records_factories import SqliteFactory
from tests.operations import OTHER_SESSION, store_operation

COUNT = WIDE_ROWS + 2_000
QUESTION = [Phrase("rare"), Phrase("seldom"), Phrase("common"), Phrase("usual")]
OTHERS = Filters(OTHER_SESSION)
OWN = 40
TAGGED = 5
"""Of the common memories some are a session's own, and some have a tag."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    made = SqliteFactory(Path(tmp_path_factory.mktemp("many")))
    opened = made.open()
    operations = [
        store_operation(
            str(n),
            f"common {'usual ' * (n % 4)}{'rare ' * (n % 400 == 0)}{'seldom ' * (n % 90 == 0)}{'filling ' * (n % 6)}"
            f"no{n}",
            scope="session" if COUNT // 2 < n <= COUNT // 2 + OWN else "project",
            tags=("marked",) if 1 <= n <= TAGGED else (),
        )
        for n in range(COUNT)
    ]
    for start in range(0, COUNT, 2_000):
        opened.apply(operations[start : start + 2_000])
    yield opened
    made.close()


def scored_by_all(records: Records) -> dict[int, float]:
    scored = f"SELECT rowid, {BM25} FROM words_@SPACE WHERE words_@SPACE MATCH ?"
    return dict(records._file.read(scored, (expression_of(QUESTION),)))


def test_the_best_are_found_with_the_scores_that_all_words_give(records: Records) -> None:
    hits = records.keyword_hits(QUESTION, OTHERS, 50)
    known = scored_by_all(records)
    best = sorted(known, key=lambda number: (-known[number], -number))[:50]
    assert list(hits) == best
    assert list(hits.values()) == pytest.approx([known[number] for number in best])


def test_what_is_known_of_how_many_have_a_word_changes_nothing_of_what_is_found(records: Records) -> None:
    known = dict(zip(QUESTION[1:3], records.frequencies([[each] for each in QUESTION[1:3]]), strict=True))
    assert known == {Phrase("seldom"): COUNT // 90 + 1, Phrase("common"): COUNT}
    hits = records.keyword_hits(QUESTION, OTHERS, 50, counted=known)
    assert hits == records.keyword_hits(QUESTION, OTHERS, 50, counted={})
