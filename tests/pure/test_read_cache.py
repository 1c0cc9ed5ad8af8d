"""The gateway's answers while the store is away: last answers, later changes, queued writes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.gateway.overlay import Viewer
from remembrancer.actors.gateway.read_cache import MAX_ANSWERS, PreparedAnswers, ReadCache
from remembrancer.actors.gateway.recent_writes import MAX_CHANGES, RecentWrites, Stage
from remembrancer.memory.text import word_match
from remembrancer.protocol.reads import (
    ContextGathered,
    ContextSection,
    GatherContext,
    GetMemory,
    GraphFound,
    MemoryShown,
    Recall,
    Recalled,
    RecalledMemory,
    Scores,
    SearchGraph,
)
from remembrancer.protocol.wire import GatewayRequest, ToGateway, encoder
from remembrancer.protocol.writes import (
    Change,
    EntityRef,
    ForgetMemory,
    Operation,
    PortableMemory,
    ProjectRef,
    PromoteMemory,
    RestoreMemory,
    Scope,
    StoreMemory,
    TagMemory,
    UpdateMemory,
)

HERE = ProjectRef("p_000000000001", "/here")
THERE = ProjectRef("p_000000000002", "/there")
VIEWER = Viewer(HERE.id, "s", sees_user=True)


class Cache(ReadCache):
    """A cache with its list of writes."""

    def __init__(self) -> None:
        self.writes = RecentWrites()
        super().__init__(self.writes)

    def keep(self, request: GatewayRequest, reply: ToGateway, mark: int, at: float) -> None:
        """Put an answer of its size into it."""
        self.put(request, reply, mark, at, len(encoder.encode(reply)))


def question(query: str = "harbour", project: ProjectRef = HERE, session: str = "s", **fields: Any) -> Recall:
    return Recall(project=project, session_id=session, query=query, **fields)


def memory(identity: str, content: str, scope: Scope = "project", **fields: Any) -> RecalledMemory:
    scores = Scores(final=0.5, relevance=0.5, importance=0.5, recency=0.5)
    return RecalledMemory(
        id=identity, content=content, type="semantic", scope=scope, scores=scores, created_at=0.0, **fields
    )


def portable(identity: str, content: str = "harbour", **fields: Any) -> PortableMemory:
    return PortableMemory(
        id=identity,
        content=content,
        type="semantic",
        scope="project",
        session_id="s",
        created_at=1.0,
        updated_at=1.0,
        **fields,
    )


def answer(*memories: RecalledMemory) -> Recalled:
    return Recalled(memories, len(memories), 0, "hybrid", 1.0)


def asked(change: Change, project: ProjectRef = HERE, session: str = "s", at: float = 5.0) -> Operation:
    return Operation("0" * 32, project, session, at, change)


def stored(content: str, scope: Scope = "project", project: ProjectRef = HERE, session: str = "s") -> Operation:
    return asked(
        StoreMemory(memory_id=f"memory:{content}", content=content, type="semantic", scope=scope, session_id=session),
        project,
        session,
    )


def shown(cache: Cache, request: Recall | None = None, *queued: Operation) -> list[str]:
    return [each.content for each in cache.answer(request or question(), queued)]


def cached(*memories: RecalledMemory, request: Recall | None = None) -> Cache:
    cache = Cache()
    cache.keep(request or question(), answer(*memories), cache.writes.next_number, 0.0)
    return cache


def test_the_same_question_has_its_last_answer() -> None:
    cache = cached(memory("a", "no word of it"))
    cache.keep(question(), answer(memory("b", "nor here")), cache.writes.next_number, 0.0)
    assert [each.id for each in cache.answer(question(), [])] == ["b"]


def test_another_question_is_answered_from_what_was_shown_before() -> None:
    cache = cached(memory("a", "a deep harbour"), memory("b", "a tall tower"), request=question("x"))
    assert [each.id for each in cache.answer(question("harbour depth"), [])] == ["a"]


@pytest.mark.parametrize("other", [question(project=THERE), question(session="other")])
def test_answers_are_shown_to_their_own_project_and_session_alone(other: Recall) -> None:
    cache = cached(memory("a", "harbour"))
    viewer = Viewer(other.project.id, other.session_id, sees_user=True)
    assert cache.answer(other, []) == []
    assert cache.known(viewer, []) == []
    assert cache.find(viewer, "a", []) is None


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"after": 100.0}, ["then"]),
        ({"before": 100.0}, ["now"]),
        ({"after": 1.0, "before": 1.0}, []),
        ({"after": 300.0, "before": 300.0}, ["then"]),
    ],
)
def test_filters_go_by_when_it_happened_and_only_else_by_when_it_was_stored(
    fields: dict[str, Any], seen: list[str]
) -> None:
    told = memory("then", "harbour", occurred_at=300.0), memory("now", "harbour")
    cache = cached(*told, request=question("x"))
    assert [each.id for each in cache.answer(question(**fields), [])] == seen


def test_a_queued_write_is_filtered_by_when_it_happened() -> None:
    change = StoreMemory(
        memory_id="memory:1", content="harbour", type="episodic", scope="project", session_id="s", occurred_at=300.0
    )
    queued = [asked(change, at=5.0)]
    assert [each.id for each in Cache().answer(question(after=100.0), queued)] == ["memory:1"]
    assert Cache().answer(question(before=100.0), queued) == []


def test_queued_writes_come_first_and_nothing_twice() -> None:
    cache = cached(memory("memory:harbour new", "harbour"), memory("old", "harbour"))
    found = cache.answer(question(), [stored("harbour new"), stored("tower")])
    assert [each.id for each in found] == ["memory:harbour new", "old"]
    assert len(cache.answer(question(limit=1), [stored("harbour new")])) == 1


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
    cache, operation = Cache(), stored("harbour", scope, project, session)
    assert bool(cache.answer(question(), [operation])) is seen
    assert bool(cache.known(VIEWER, [operation])) is seen
    assert (cache.find(VIEWER, "memory:harbour", [operation]) is not None) is seen


def test_the_filters_hold_for_queued_writes() -> None:
    for without in (
        {"scopes": ("user",)},
        {"types": ("episodic",)},
        {"tags": ("x",)},
        {"min_importance": 0.6},
        {"after": 6.0},
        {"before": 4.0},
    ):
        assert Cache().answer(msgspec.structs.replace(question(), **without), [stored("harbour")]) == []


UPDATE = UpdateMemory("a", content="a new harbour", importance=0.9, add_tags=("new",), remove_tags=("old",))


@pytest.mark.parametrize("is_queued", [True, False])
@pytest.mark.parametrize(
    ("changes", "request_", "seen"),
    [
        ([UPDATE], question(), ["a new harbour"]),
        ([UPDATE], question(tags=("new",)), ["a new harbour"]),
        ([UPDATE], question(tags=("old",)), []),
        ([UPDATE], question(min_importance=0.8), ["a new harbour"]),
        ([UpdateMemory("a", content="a tower")], question(), []),
        ([UpdateMemory("a", content="a tower")], question("tower"), ["a tower"]),
        ([TagMemory("a", add=("new",))], question(tags=("new",)), ["a harbour"]),
        ([TagMemory("a", remove=("old",))], question(tags=("old",)), []),
        ([ForgetMemory("a")], question(), []),
        ([ForgetMemory("a")], question(include_forgotten=True), ["a harbour"]),
        ([ForgetMemory("a"), UPDATE], question(include_forgotten=True), ["a harbour"]),
        ([ForgetMemory("a"), RestoreMemory("a")], question(), ["a harbour"]),
        ([UPDATE, RestoreMemory("a", version=1)], question(), []),
        ([PromoteMemory("a", "user")], question(scopes=("user",)), ["a harbour"]),
        ([PromoteMemory("a", "user")], question(scopes=("project",)), []),
        ([PromoteMemory("a", "user"), PromoteMemory("a", "project")], question(scopes=("user",)), ["a harbour"]),
    ],
)
def test_changes_that_came_later_show_in_what_was_answered_before(
    changes: list[Change], request_: Recall, seen: list[str], is_queued: bool
) -> None:
    for asked_before in (request_, question("something else")):
        cache = cached(memory("a", "a harbour", tags=("old",)), request=asked_before)
        operations = [asked(change) for change in changes]
        if not is_queued:
            for operation in operations:
                cache.writes.note(operation)
        assert shown(cache, request_, *(operations if is_queued else ())) == seen


def test_a_change_shows_in_a_queued_memory_too_also_to_those_whom_it_is_promoted_for() -> None:
    operations = [stored("harbour", "session"), asked(UpdateMemory("memory:harbour", content="harbour master"))]
    assert shown(Cache(), question(session="other"), *operations) == []
    operations.append(asked(PromoteMemory("memory:harbour", "project")))
    assert shown(Cache(), question(session="other"), *operations) == ["harbour master"]
    assert shown(Cache(), question(project=THERE), *operations) == []


@pytest.mark.parametrize("session", ["other", "s"])
def test_nobody_changes_what_he_may_not_see(session: str) -> None:
    forget = asked(ForgetMemory("a"), HERE, session)
    assert shown(cached(memory("a", "harbour", "session")), None, forget) == (["harbour"] if session == "other" else [])
    elsewhere = asked(ForgetMemory("a"), THERE, session)
    assert shown(cached(memory("a", "harbour", "project")), None, elsewhere) == ["harbour"]
    assert shown(cached(memory("a", "harbour", "user")), None, elsewhere) == []


def test_an_answer_that_overtook_a_change_on_its_way_is_shown_changed() -> None:
    cache = Cache()
    mark = cache.writes.next_number
    cache.writes.note(asked(ForgetMemory("a")))
    cache.keep(question(), answer(memory("a", "harbour")), mark, 0.0)
    assert shown(cache) == []
    cache.keep(question(), answer(memory("a", "harbour")), cache.writes.next_number, 0.0)
    assert shown(cache) == ["harbour"]


def test_answers_older_than_the_changes_that_are_known_are_not_trusted() -> None:
    cache = cached(memory("a", "harbour"))
    for number in range(MAX_CHANGES):
        cache.writes.note(asked(TagMemory(f"other{number}", ("x",))))
    assert shown(cache) == ["harbour"]
    cache.writes.note(asked(TagMemory("other", ("x",))))
    assert shown(cache) == []
    assert cache.last(question(), []) is None


def test_large_changes_are_kept_in_bounded_memory() -> None:
    cache = cached(memory("a", "harbour"))
    for _ in range(10):
        cache.writes.note(asked(UpdateMemory("b", content="x" * 262_144)))
    assert shown(cache) == []


def test_every_sort_of_answer_is_given_again_as_it_is_now() -> None:
    cache = Cache()
    graph = SearchGraph(HERE, "s", "harbour")
    context = GatherContext(HERE, "s")
    whole = GetMemory(HERE, "s", "a")
    cache.keep(graph, GraphFound((), (memory("a", "one"), memory("b", "two"))), 0, 7.0)
    section = ContextSection("project_context", (memory("a", "one"), memory("b", "two")))
    cache.keep(context, ContextGathered((section,)), 0, 7.0)
    cache.keep(whole, MemoryShown(portable("a", "one"), embedded=True), 0, 7.0)
    cache.writes.note(asked(UpdateMemory("a", content="new")))
    queued = [asked(ForgetMemory("b"))]

    found = cache.last(graph, queued)
    assert found is not None
    assert isinstance(found[0], GraphFound)
    assert ([each.content for each in found[0].memories], found[1]) == (["new"], 7.0)
    gathered = cache.last(context, queued)
    assert gathered is not None
    assert isinstance(gathered[0], ContextGathered)
    assert [each.content for each in gathered[0].sections[0].memories] == ["new"]
    one = cache.last(whole, queued)
    assert one is not None
    assert isinstance(one[0], MemoryShown)
    assert (one[0].memory.content, one[0].memory.version) == ("new", 2)
    assert cache.last(GetMemory(HERE, "s", "b"), queued) is None
    assert [each.content for each in cache.known(VIEWER, queued)] == ["new"]


def test_a_memory_shown_whole_is_known_whole_with_what_changed() -> None:
    cache = Cache()
    first = portable("a", metadata={"k": 1, "gone": 2}, related_entities=(EntityRef("Maven", "tool", "uses"),))
    cache.keep(GetMemory(HERE, "s", "a"), MemoryShown(first, embedded=True), 0, 0.0)
    change = UpdateMemory(
        "a",
        metadata={"gone": None, "new": [3]},
        add_entities=(EntityRef("Ant", "tool", "used"),),
        remove_entities=("maven",),
    )
    found = cache.find(VIEWER, "a", [asked(change), asked(ForgetMemory("a", "why"), at=9.0)])
    assert isinstance(found, PortableMemory)
    assert found.metadata == {"k": 1, "new": [3]}
    assert found.related_entities == (EntityRef("Ant", "tool", "used"),)
    assert (found.forgotten_at, found.forgotten_reason, found.version, found.updated_at) == (9.0, "why", 3, 9.0)


def test_the_cache_is_bounded_in_answers_and_in_size() -> None:
    cache = Cache()
    for number in range(MAX_ANSWERS + 10):
        cache.keep(question(f"q{number}"), answer(memory(f"m{number}", "harbour")), 0, 0.0)
    assert len(cache.answer(question("harbour", limit=10_000), [])) == MAX_ANSWERS
    cache.keep(question("large"), answer(memory("large", "x" * 9_000_000)), 0, 0.0)
    assert cache.answer(question("large"), []) == []


def test_what_was_stored_lately_is_known_without_having_been_shown() -> None:
    cache = Cache()
    cache.writes.note(stored("harbour", "session"))
    cache.writes.note(stored("harbour master"))
    assert shown(cache) == ["harbour", "harbour master"]
    assert shown(cache, question(session="other")) == ["harbour master"]
    assert shown(cache, question(project=THERE)) == []
    cache.writes.note(asked(ForgetMemory("memory:harbour")))
    assert shown(cache) == ["harbour master"]
    assert [each.id for each in cache.made(VIEWER, [])] == ["memory:harbour master"]


def test_an_answer_that_came_after_a_memory_was_stored_keeps_its_order() -> None:
    cache = Cache()
    cache.writes.note(stored("harbour"))
    cache.keep(
        question(),
        answer(memory("b", "harbour b"), memory("memory:harbour", "harbour")),
        cache.writes.next_number,
        0.0,
    )
    cache.writes.note(stored("harbour later"))
    assert shown(cache) == ["harbour later", "harbour b", "harbour"]


def test_many_new_memories_cost_the_changes_no_room_and_are_bounded_themselves() -> None:
    cache = cached(memory("a", "harbour"))
    cache.writes.note(asked(UpdateMemory("a", content="harbour II")))
    for number in range(MAX_CHANGES + 1):
        cache.writes.note(stored(f"tower {number}"))
    assert shown(cache) == ["harbour II"]
    assert len(cache.made(VIEWER, [])) == MAX_CHANGES


def test_a_new_memory_whose_changes_are_not_all_known_any_more_is_not_known_either() -> None:
    cache = Cache()
    cache.writes.note(stored("harbour"))
    cache.writes.note(asked(ForgetMemory("memory:harbour")))
    for number in range(MAX_CHANGES):
        cache.writes.note(asked(TagMemory(f"other{number}", ("x",))))
    assert shown(cache) == []


IDS = st.sampled_from(["a", "b"])
TAGS = st.lists(st.sampled_from(["x", "y", "z"]), max_size=2).map(tuple)
CHANGES = st.one_of(
    st.builds(UpdateMemory, IDS, content=st.sampled_from(["harbour one", "harbour two", "tower"]), add_tags=TAGS),
    st.builds(lambda memory_id, add, remove: TagMemory(memory_id, add, tuple({*remove} - {*add})), IDS, TAGS, TAGS),
    st.builds(ForgetMemory, IDS),
    st.builds(RestoreMemory, IDS),
    st.builds(PromoteMemory, IDS, st.sampled_from(["project", "user"])),
)


def model(changes: list[Change]) -> dict[str, tuple[str, frozenset[str], str, bool]]:
    """Content, tags, scope and whether it is forgotten, of two memories that began alike."""
    state: dict[str, tuple[str, frozenset[str], str, bool]] = {
        each: ("harbour", frozenset(), "session", False) for each in ("a", "b")
    }
    for change in changes:
        assert isinstance(change, UpdateMemory | TagMemory | ForgetMemory | RestoreMemory | PromoteMemory)
        content, tags, scope, forgotten = state[change.memory_id]
        match change:
            case ForgetMemory():
                forgotten = True
            case RestoreMemory():
                forgotten = False
            case _ if forgotten:
                pass
            case UpdateMemory(content=str(new), add_tags=add):
                content, tags = new, tags | set(add)
            case TagMemory(add=add, remove=remove):
                tags = (tags - set(remove)) | set(add)
            case PromoteMemory(target_scope=target) if scope != "user":
                scope = target
        state[change.memory_id] = (content, tags, scope, forgotten)
    return state


@given(st.lists(CHANGES, max_size=8), st.integers(0, 8))
def test_wherever_changes_are_on_their_way_the_same_is_known(changes: list[Change], applied: int) -> None:
    cache = cached(memory("a", "harbour", "session"), memory("b", "harbour", "session"))
    operations = [asked(change) for change in changes]
    for operation in operations[:applied]:
        cache.writes.note(operation)
    queued = operations[applied:]

    expected = model(changes)
    known = {each.id: each for each in cache.known(VIEWER, queued)}
    assert set(known) == {identity for identity, (*_, forgotten) in expected.items() if not forgotten}
    for identity, (content, tags, scope, _) in expected.items():
        found = cache.find(VIEWER, identity, queued)
        assert isinstance(found, RecalledMemory)
        assert (found.content, frozenset(found.tags), found.scope) == (content, tags, scope)
    for request in (question(), question("other harbour"), question(include_forgotten=True)):
        for each in cache.answer(request, queued):
            content, _, _, forgotten = expected[each.id]
            assert each.content == content
            assert each.forgotten == forgotten
            assert request.include_forgotten or not forgotten


@given(st.text(max_size=50), st.text(max_size=50))
def test_a_match_is_a_share(query: str, content: str) -> None:
    assert 0.0 <= word_match(query, content) <= 1.0


def test_words_match_whatever_their_ending() -> None:
    assert word_match("harbours deep", "The harbour is deep") == 1.0
    assert word_match("deeply moored", "deep water") == 0.5
    assert word_match("a b", "abc") == 0.0


def test_all_that_follows_a_write_reads_it_in_one_list() -> None:
    writes = RecentWrites()
    cache, ahead = ReadCache(writes), PreparedAnswers(writes)
    context = GatherContext(HERE, "s")
    ahead.finish(ahead.begin(context, 1.0), 1.0, is_whole=True)
    cache.put(question(), answer(memory("a", "harbour")), writes.next_number, 1.0, 100)
    looked = writes.next_number
    writes.note(asked(ForgetMemory("a")))
    assert cache.answer(question(), []) == []
    assert not ahead.is_ready(context, 1.0)
    assert [each.operation.change for each in writes.since(looked) or ()] == [ForgetMemory("a")]


def test_what_is_queued_or_was_applied_before_spoils_an_answer_and_changes_none() -> None:
    stages: tuple[Stage, ...] = ("queued", "repeated")
    for stage in stages:
        cache, ahead = cached(memory("a", "harbour")), PreparedAnswers(writes := RecentWrites())
        ahead.finish(ahead.begin(GatherContext(HERE, "s"), 1.0), 1.0, is_whole=True)
        for each in (cache.writes, writes):
            each.note(asked(ForgetMemory("a")), stage)
        assert shown(cache) == ["harbour"]
        assert not ahead.take(GatherContext(HERE, "s"), 1.0)


def test_who_has_not_looked_for_long_is_told_that_writes_are_not_known_any_more() -> None:
    writes = RecentWrites()
    for number in range(MAX_CHANGES + 1):
        writes.note(asked(TagMemory(f"other{number}", ("x",))))
    assert writes.since(0) is None
    assert len(writes.since(1) or ()) == MAX_CHANGES
