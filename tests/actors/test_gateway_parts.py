"""The gateway's pure parts: the link's health, the read cache, roots."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.gateway.hello import path_of_uri
from remembrancer.actors.gateway.read_cache import MAX_ANSWERS, ReadCache, as_recalled, word_match
from remembrancer.protocol.reads import Recall, Recalled, RecalledMemory, Scores
from remembrancer.protocol.writes import Operation, ProjectRef, Scope, SourceRef, StoreMemory

HERE = ProjectRef("p_000000000001", "/here")
THERE = ProjectRef("p_000000000002", "/there")


def question(query: str = "harbour", project: ProjectRef = HERE, session: str = "s", limit: int = 10) -> Recall:
    return Recall(project=project, session_id=session, query=query, limit=limit)


def memory(identity: str, content: str, final: float = 0.5) -> RecalledMemory:
    scores = Scores(final=final, relevance=0.5, importance=0.5, recency=0.5)
    return RecalledMemory(identity, content, "semantic", "project", 0.5, scores, (), 0.0, 0, SourceRef())


def answer(*memories: RecalledMemory) -> Recalled:
    return Recalled(memories, len(memories), 0, "hybrid", 1.0)


def queued(content: str, scope: Scope = "project", project: ProjectRef = HERE, session: str = "s") -> Operation:
    change = StoreMemory(f"memory:{content}", content, "semantic", scope, session)
    return Operation(content, project, session, 5.0, change)


def test_the_same_question_has_its_last_answer() -> None:
    cache = ReadCache()
    cache.put(question(), answer(memory("a", "no word of it")))
    cache.put(question(), answer(memory("b", "nor here")))
    assert [each.id for each in cache.answer(question(), [])] == ["b"]


def test_another_question_is_answered_from_what_was_shown_before() -> None:
    cache = ReadCache()
    cache.put(question("x"), answer(memory("a", "a deep harbour"), memory("b", "a tall tower")))
    assert [each.id for each in cache.answer(question("harbour depth"), [])] == ["a"]


@pytest.mark.parametrize("other", [question(project=THERE), question(session="other")])
def test_answers_are_shown_to_their_own_project_and_session_alone(other: Recall) -> None:
    cache = ReadCache()
    cache.put(question(), answer(memory("a", "harbour")))
    assert cache.answer(other, []) == []


def test_queued_writes_come_first_and_nothing_twice() -> None:
    cache = ReadCache()
    cache.put(question(), answer(memory("memory:harbour new", "harbour"), memory("old", "harbour")))
    found = cache.answer(question(), [queued("harbour new"), queued("tower")])
    assert [each.id for each in found] == ["memory:harbour new", "old"]
    assert len(cache.answer(question(limit=1), [queued("harbour new")])) == 1


@pytest.mark.parametrize(
    ("scope", "project", "session", "seen"),
    [
        ("user", THERE, "other", True),
        ("project", HERE, "other", True),
        ("project", THERE, "s", False),
        ("session", HERE, "s", True),
        ("session", HERE, "other", False),
        ("session", THERE, "s", False),
    ],
)
def test_a_queued_write_is_seen_by_whom_its_scope_names(
    scope: Scope, project: ProjectRef, session: str, seen: bool
) -> None:
    assert (as_recalled(queued("harbour", scope, project, session), question()) is not None) is seen


def test_the_filters_hold_for_queued_writes() -> None:
    operation = queued("harbour")
    for without in (
        {"scopes": ("user",)},
        {"types": ("episodic",)},
        {"tags": ("x",)},
        {"min_importance": 0.6},
        {"after": 6.0},
        {"before": 4.0},
    ):
        assert as_recalled(operation, msgspec.structs.replace(question(), **without)) is None


def test_the_cache_is_bounded_in_answers_and_in_size() -> None:
    cache = ReadCache()
    for number in range(MAX_ANSWERS + 10):
        cache.put(question(f"q{number}"), answer(memory(f"m{number}", "harbour")))
    assert len(cache.answer(question("harbour", limit=10_000), [])) == MAX_ANSWERS
    cache.put(question("large"), answer(memory("large", "x" * 9_000_000)))
    assert cache.answer(question("large"), []) == []


@given(st.text(max_size=50), st.text(max_size=50))
def test_a_match_is_a_share(query: str, content: str) -> None:
    assert 0.0 <= word_match(query, content) <= 1.0


def test_words_match_whatever_their_ending() -> None:
    assert word_match("harbours deep", "The harbour is deep") == 1.0
    assert word_match("deeply moored", "deep water") == 0.5
    assert word_match("a b", "abc") == 0.0


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///home/u/my%20code", Path("/home/u/my code")),
        ("file://localhost/srv", Path("/srv")),
        ("file://other/srv", None),
        ("https://example.org/x", None),
        ("file:relative", None),
        ("file:///a%00b", None),
        ("", None),
    ],
)
def test_a_root_is_a_file_uri_of_this_host(uri: str, path: Path | None) -> None:
    assert path_of_uri(uri) == path
