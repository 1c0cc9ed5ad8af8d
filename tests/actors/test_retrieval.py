"""A recall over three scopes, in which none crowds out another; the graph of what they say; contexts."""

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_args

import anyio
import numpy as np
import pytest

from remembrancer.actors.store.read_handlers import follow_links, list_memories
from remembrancer.actors.store.records.types import USER, Hits, Vectors
from remembrancer.actors.store.retrieval.candidates import CANDIDATES, FIRST_SEARCH
from remembrancer.actors.store.retrieval.recalls import ANSWERS_BY_TIME
from remembrancer.memory.contexts import CUT, in_sections, section_of
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.ranking import DEFAULT_MODEL, weights_file
from remembrancer.memory.relevance import is_given_whole
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.kinds import SESSION_RECORD, Scope
from remembrancer.protocol.reads import (
    ContextGathered,
    FollowLinks,
    GatherContext,
    GraphEntity,
    GraphFound,
    LinkedMemory,
    ListMemories,
    Memories,
    SearchGraph,
    Section,
    Strategy,
)
from remembrancer.protocol.runs import AddLink, ApplyRun, LogPromotion, ReviseMemory
from remembrancer.protocol.writes import (
    ForgetMemory,
    LinkRef,
    NearMemory,
    PromoteMemory,
    UndoChange,
    UpdateMemory,
)
from remembrancer.toolsets.memory.context_block import build_block
from remembrancer.toolsets.service import Asked
from tests.actors import spaces_rig
from tests.actors.spaces_rig import NOW, Spaces
from tests.actors.store_process import Gateway, StoreRig, store_rig, the, vector_of
from tests.cases import cases
from tests.contracts.records_rig import entities
from tests.operations import OTHER_SESSION, PROJECT, REQUESTED_AT, SESSION, store_operation
from tests.patience import PATIENCE_S, until


async def section(files: Spaces, section: Section, task: str = "") -> list[str]:
    return [memory.id for memory in (await files.context(task=task, sections=(section,))).memories]


STRATEGIES: Sequence[Strategy] = ("hybrid", "vector", "keyword")


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_session_s_few_memories_are_not_crowded_out_by_its_project_s(files: Spaces, strategy: Strategy) -> None:
    mine = files.store("the lantern by the near mole", "session", type="episodic")
    for number in range(2 * CANDIDATES):
        files.store(f"the lantern by the near mole, number {number}", type="episodic")
    found = await files.found("the lantern by the near mole", strategy=strategy, limit=4 * CANDIDATES)
    assert mine in found
    assert len(found) > CANDIDATES, "the many are more than a search brings"


async def test_filters_take_no_candidates_away_and_meaning_alone_reads_no_words(files: Spaces) -> None:
    for number in range(FIRST_SEARCH):
        files.store(f"the lantern {number}", type="episodic")
    rare = files.store("bread", tags=("rare",))
    unready = files.store("the lantern is new", passages=0)
    vector: dict[str, Any] = {"strategy": "vector", "is_task": True, "limit": CANDIDATES}
    assert await files.found("the lantern", tags=("rare",), **vector) == [rare]
    answer = await files.recall("the lantern", left_out=1, about=rare, **vector)
    assert rare not in {each.id for each in answer.memories}
    assert unready not in await files.found("the lantern is new", **vector | {"limit": FIRST_SEARCH})
    assert rare in {each.id for each in answer.left_out}, "it is scored as well, since it was asked about"


async def test_what_two_scopes_say_alike_is_said_once_and_has_short_ids_where_both_are_searched(files: Spaces) -> None:
    text = "the keeper prefers the brass lantern with the short wick and the blue glass"
    narrow, broad = files.store(text), files.store(f"{text} now", "user")
    answer = await files.recall(text)
    assert [(each.id, each.stands_for) for each in answer.memories] == [(broad, (narrow,))]
    assert answer.short_ids[broad] == broad[-4:], "so that the gateway need not ask for them"
    again = await files.recall(text, scopes=("project",))
    assert [each.id for each in again.memories] == [narrow]
    assert not again.short_ids, "the ids of other scopes may end alike"


async def test_a_question_that_names_a_time_alone_gets_what_happened_then(files: Spaces) -> None:
    asked = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()  # a Friday
    saturday = datetime(2026, 11, 14, 9, tzinfo=UTC).timestamp()
    files.store("a lantern of the last mole", occurred_at=saturday - DAY_S)
    files.store("their rope was cut", "session", session_id=OTHER_SESSION, occurred_at=saturday)
    mine = files.store("the rope was spliced", "session", occurred_at=saturday)
    users = files.store("a new oar was bought", "user", occurred_at=saturday + 3600, importance=0.9)
    unready = files.store("the buoy was painted", passages=0, occurred_at=saturday)
    answer = await files.recall("What did we do last Saturday?", reference_time=asked)
    assert {memory.id for memory in answer.memories} == {mine, users, unready}
    assert {memory.scores.relevance for memory in answer.memories} == {ANSWERS_BY_TIME}
    assert answer.below_threshold == 0
    filtered = await files.found("What did we do last Saturday?", reference_time=asked, after=saturday + 60)
    assert filtered == [users]


async def test_of_a_time_events_come_before_notes_and_a_task_noted_then_did_not_happen(files: Spaces) -> None:
    asked = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
    task = files.store("what happens next: oil the winch", kind="open_end", requested_at=asked - 2 * DAY_S)
    note = files.store("what happened to the oar is known", requested_at=asked - DAY_S)
    event = files.store("ice", occurred_at=asked - 3 * DAY_S)
    answer = await files.recall("what happened this week?", reference_time=asked)
    assert [memory.id for memory in answer.memories] == [event, note, task]
    likely = [memory.scores.relevance == ANSWERS_BY_TIME for memory in answer.memories]
    assert likely == [True, True, False]


async def test_a_context_leaves_out_what_is_over_and_what_is_stood_for_where_it_has_more(files: Spaces) -> None:
    archived = files.store("the lantern is archived", importance=0.0)
    stood_for = files.store("the lantern is stood for", importance=1.0)
    over = files.store("the lantern is over", importance=0.9)
    active = files.store("the lantern is there", importance=0.1)
    files.run(ReviseMemory(archived, "archived", status="archived"))
    files.run(ReviseMemory(stood_for, "archived", status="consolidated"))
    files.change(UpdateMemory(over, valid_until=NOW - 1))
    for task in ("", "the lantern is stood for"):
        assert await section(files, "project_context", task=task) == [active, archived]
    for each in (active, archived):
        files.change(ForgetMemory(each))
    for task in ("", "the lantern is stood for"):
        assert await section(files, "project_context", task=task) == [stood_for]


async def test_a_context_has_what_was_merged_only_where_its_target_cannot_be_seen(files: Spaces) -> None:
    other = files.store("the mole is long", importance=0.1)
    broad = files.store("the keeper likes green lanterns everywhere", "user")
    into_user, mine = files.store("the keeper likes green lanterns"), files.store("my lantern is green", "session")
    theirs = files.store("their lantern is green", "session", session_id=OTHER_SESSION)
    into_theirs = files.store("a lantern is green")
    for memory_id, target in ((into_user, broad), (mine, into_user), (into_theirs, theirs)):
        merged = LogPromotion(memory_id, "observation", "project", "user", "importance", SESSION, merged_into=target)
        files.run(ReviseMemory(memory_id, "archived", status="promoted"), merged)
    for task in ("", "the green lantern"):
        assert await section(files, "session_history", task=task) == []
        assert set(await section(files, "project_context", task=task)) <= {other, into_theirs}
        assert into_theirs in await section(files, "project_context", task=task), "nobody says it to this session"
    files.change(ForgetMemory(broad), USER)
    assert into_user in await section(files, "project_context")
    assert await section(files, "session_history") == [], "what it was merged into is there again"


async def test_open_ends_are_in_every_context_by_due_date_and_the_done_are_named_for_two_weeks(files: Spaces) -> None:
    end: dict[str, Any] = {"kind": "open_end", "type": "episodic"}
    undated = files.store("cut the wick of the lantern", **end)
    later = files.store("Bruno must paint the boat by 5 December", "user", due=NOW + 9, **end)
    soon = files.store("ring the bell", "session", due=NOW + 5, **end)
    meeting = files.store("Meeting with the keeper on 3 December", due=NOW + 7, **end)
    done = files.store("oil the lantern", done=True, **end)
    files.store("The session of noon worked on lantern.py.", kind=SESSION_RECORD, type="episodic")
    for task, days in itertools.product(("the lantern", ""), (1, 30)):
        gathered = await files.context(task=task, now=NOW + 86_400 * days)
        is_past = days == 30  # a meeting that took place needs nobody to say so
        assert [each.id for each in gathered.memories] == [soon, *([] if is_past else [meeting]), later, undated]
        assert [each.id for each in gathered.closed] == ([done] if days == 1 else [])


async def test_a_recall_doubts_what_review_asks_about_and_nothing_else(files: Spaces) -> None:
    sprints = [files.store(f"Sprint {number} by the lantern was late") for number in range(3, 7)]
    old, new = files.store("The lantern is green"), files.store("The lantern is blue now")
    for earlier, later in (*itertools.pairwise(sprints), (old, new)):
        files.run(AddLink(later, earlier, "contradicts"))
    recalled = (await files.recall("lantern")).memories
    assert {each.id: each.newer for each in recalled if each.newer} == {old: "The lantern is blue now"}
    doubts = {each.id: each.possibly_superseded_by for each in recalled}
    assert doubts == {old: (new,), new: ()} | dict.fromkeys(sprints, ()), "a series is not asked about"
    listed = list_memories(ListMemories(SESSION, project=PROJECT, limit=9), files.view()).memories
    assert [each.id for each in listed] == [new, old, *reversed(sprints)], "the latest first"
    read = follow_links(FollowLinks(PROJECT, SESSION, tuple(doubts), limit=9), files.view()).memories
    for memories in (listed, read):
        assert {each.id: each.possibly_superseded_by for each in memories} == doubts


async def test_a_question_for_open_ends_about_a_subject_finds_those_first(files: Spaces) -> None:
    reader = files.store("The importer reads the files of the lantern")
    end: dict[str, Any] = {"kind": "open_end", "type": "episodic"}
    own, other, far, done = (
        files.store(text, **end, done=is_done)
        for text, is_done in (
            ("Write a queue, a log and a help page for the importer of the harbour", False),
            ("Oil the lantern", False),
            ("Book an inn", False),
            ("Fix the importer of the lantern", True),
        )
    )
    asked = "anything still open on the importer of the lantern files?"
    by_words = await files.found(asked, strategy="keyword")
    for found in (await files.found(asked), by_words):
        assert set(found[:2]) == {own, other}
        assert set(found[2:]) == {far, reader, done}
    assert by_words[-1] == done
    assert await files.found("which tasks are left for the pilot?", strategy="keyword", limit=3)
    assert (await files.found(asked.removeprefix("anything still open on ")))[0] == reader
    assert (await files.found("the deadline for files", strategy="keyword"))[0] == reader, "no open end has the word"


@pytest.mark.parametrize("task", ["", "light the lantern"])
async def test_a_context_marks_what_review_asks_about_and_nothing_else(files: Spaces, task: str) -> None:
    old, new = files.store("The lantern is green"), files.store("The lantern is blue now")
    sprints = [files.store(f"Sprint {number} by the lantern was late") for number in range(3, 7)]
    for earlier, later in (*itertools.pairwise(sprints), (old, new)):
        files.run(AddLink(later, earlier, "contradicts", 0.2))
    gathered = await files.context(task=task)
    doubts = {each.id: each.possibly_superseded_by for each in gathered.memories}
    assert doubts == {old: (new,), new: ()} | dict.fromkeys(sprints, ())


async def test_words_are_searched_while_a_worker_makes_vectors(files: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    lantern = files.store("A lantern of brass.")
    search, searched = files.project.keyword_hits, threading.Event()

    def search_and_say(*asked: Any) -> Hits:
        hits = search(*asked)
        searched.set()
        return hits

    async def once_words_are_searched(text: str) -> Vectors:
        assert await asyncio.to_thread(searched.wait, PATIENCE_S), "the words wait for the vector"
        return vector_of(text)

    monkeypatch.setattr(files.project, "keyword_hits", search_and_say)
    monkeypatch.setattr(files, "embed", once_words_are_searched)
    answer = await files.recall("brass lantern")
    assert [memory.id for memory in answer.memories] == [lantern]
    assert answer.memories[0].scores.shares["meaning"] > 0.0


async def test_what_was_replaced_comes_after_what_replaced_it_and_is_marked(files: Spaces) -> None:
    old = files.store("caching caching caching is done by redis", importance=1.0)
    for number in range(12):
        files.store(f"caching note {number}")
    new = files.store("valkey eight took over", importance=0.1, supersedes=old)
    found = (await files.recall("caching redis", limit=3)).memories
    assert [memory.id for memory in found[:2]] == [new, old]
    assert (found[1].superseded_by, found[1].expired, found[0].expired) == ((new,), True, False)
    assert found[0].scores.relevance >= found[1].scores.relevance, "it is given whole where the replaced one is"
    assert await files.found("caching redis", limit=1) == [new]
    newest = files.store("dragonfly is in charge", importance=0.1, supersedes=new)
    found_by_words = await files.found("caching redis", limit=3, strategy="keyword")
    assert found_by_words[:2] == [newest, old], "what stood between them does not take an answer's place"
    assert new not in found_by_words


async def test_a_memory_is_found_by_its_words_until_it_has_its_vector(files: Spaces) -> None:
    files.store("The night ferry leaves at six", requested_at=NOW - 3 * DAY_S)
    for number in range(10):
        files.store(f"The keeper of boat {number} sleeps at noon")
    new = files.store("The night ferry leaves at seven now", passages=0, requested_at=NOW)
    first = (await files.recall("when does the night ferry leave")).memories[:2]
    assert is_given_whole(the(first, new))
    assert [each.message for each in files.notices] == ["Still being indexed, so only searched by words: 1 memory."]
    assert not Asked(None, tuple(files.notices)).is_degraded, "it is judged as ever"
    alone = files.store("Bread is baked at four", passages=0, requested_at=NOW)
    baked = (await files.recall("when is bread baked")).memories[0]
    assert (baked.id, "meaning" in baked.scores.shares) == (alone, True), "as near as its words let expect"


async def test_results_stand_in_the_order_of_the_number_that_is_shown_with_them(files: Spaces) -> None:
    for number in range(12):
        files.store(f"the {'brass ' * (number % 3)}lantern number {number}", type="episodic", importance=number / 12)
    files.store("bread is baked at four")
    for strategy in STRATEGIES:
        answer = await files.recall("brass lantern number four", strategy=strategy, limit=20)
        shown = [memory.scores.relevance for memory in answer.memories]
        assert shown == sorted(shown, reverse=True), strategy
        assert len(shown) > 5
        assert all(0.0 <= each <= 1.0 for each in shown)
        kinds = {kind for memory in answer.memories for kind in memory.scores.shares}
        assert ("meaning" in kinds, "bm25" in kinds) == (strategy != "keyword", strategy != "vector")
        assert (answer.strategy_used, answer.total_matched) == (strategy, len(shown))
        for memory in answer.memories:
            assert memory.scores.final == pytest.approx(sum(memory.scores.shares.values()), abs=0.01)


async def test_rules_count_without_words_and_replace_no_facts_and_another_number_counts_against(files: Spaces) -> None:
    files.vector_of = lambda _: vector_of("lantern")
    old = files.store("the lantern burns oil at pier7", requested_at=NOW - 9 * DAY_S)
    other = files.store("the lantern burns oil at pier8", requested_at=NOW - 9 * DAY_S)
    rule = files.store("always trim wicks", kind="convention", requested_at=NOW)
    shares = {
        each.id: each.scores.shares
        for each in (await files.recall("what does the lantern burn at pier7", is_task=True)).memories
    }
    assert shares[rule]["standing"] > 0.0
    assert {"standing", "outdated"}.isdisjoint(shares[old])
    assert shares[other].keys() - shares[old].keys() == {"names_missed"}


async def test_a_question_of_which_the_memories_have_no_word_is_not_emptied(files: Spaces) -> None:
    port = files.store("The gateway listens on port 8443 for all clients")
    for number in range(20):
        files.store(f"The keeper of boat {number} sleeps at noon")
    answer = await files.recall("Auf welchem Port lauscht das Gateway?")
    assert answer.memories[0].id == port
    strange = await files.recall("Wo ist der Hafen und wer ist da?")
    assert strange.memories, "what is near by meaning is shown, however unlikely"
    assert max(each.scores.relevance for each in strange.memories) < answer.memories[0].scores.relevance


MULTILINGUAL = "multilingual-e5-small.w7a8c.1571fc982750.384"


@pytest.mark.parametrize("model", [DEFAULT_MODEL, MULTILINGUAL])
async def test_meaning_weighs_what_was_fitted_for_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(spaces_rig, "MODEL", model)
    with closing(Spaces(tmp_path)) as spaces:
        spaces.store("the lantern by the near mole")
        answer = await spaces.recall("the lantern by the near mole")
    assert answer.memories[0].scores.shares["meaning"] == pytest.approx(
        weights_file()[model]["meaning"].weights["meaning"]
    )


LANE = "l_0123456789ab"


def say(files: Spaces, content: str, *names: str, scope: Scope = "project") -> str:
    return files.store(content, scope, related_entities=entities(*names))


async def test_names_that_nobody_gave_join_memories_a_moment_after_they_were_stored(rig: StoreRig) -> None:
    one = await rig.gateway.store("The fix for INC-311 is in src/pool.py.")
    two = await rig.gateway.store("INC-311 came back at night.")
    await rig.gateway.store("INC-311 is mine.", scope="session", session_id=OTHER_SESSION)

    async def search(entity: str) -> GraphFound:
        return await rig.gateway.ask(SearchGraph(PROJECT, SESSION, entity))

    while {each.id for each in (await search("inc 311")).memories} != {one, two}:  # noqa: ASYNC110 - it tells nobody
        await anyio.sleep(1.0)  # names are looked for while nobody asks
    assert [each.name for each in (await search("INC-311")).entities] == ["INC-311", "src/pool.py"]


def test_what_a_project_and_the_user_call_the_same_is_one_entity(files: Spaces) -> None:
    here = say(files, "one", "Python:language", "uv:tool:installed_by")
    mine = say(files, "two", "python:language", "mypy:tool:checked_by", scope="user")
    other_type = say(files, "three", "Python:snake", "Zoo:place:lives_in", scope="user")
    found = files.graph("python")
    python = the_entity(found, "language")
    assert (python.name, python.memory_count) == ("python", 2), "as it was asked for, where somebody writes it so"
    edges = {(each.type, each.target, each.direction) for each in python.relationships}
    assert edges == {("installed_by", "uv", "outgoing"), ("checked_by", "mypy", "outgoing")}
    assert {memory.id for memory in found.memories} >= {here, mine}
    assert {entity.name for entity in found.entities if entity.distance == 1} >= {"uv", "mypy"}
    everything = files.graph("PYTHON")
    assert the_entity(everything, "language").name == "Python", "as the project writes it"
    assert {entity.type for entity in everything.entities if entity.distance == 0} == {"language", "snake"}
    assert other_type in {memory.id for memory in everything.memories}


def the_entity(found: GraphFound, kind: str) -> GraphEntity:
    (entity,) = [entity for entity in found.entities if entity.type == kind]
    return entity


async def test_memories_around_the_named_entities_are_recalled_nearest_and_most_relevant_first(files: Spaces) -> None:
    direct = say(files, "Logins take two seconds.", "AuthService", "Redis::uses")
    also_direct = say(files, "The auth pager rings on Mondays.", "AuthService")
    hop = say(files, "Restart it with the red button.", "Redis", "Ops::owned_by")
    two_hops = say(files, "They sit on the third floor.", "Ops", "Building::located_in")
    three_hops = say(files, "It was built in 1930.", "Building", "Architect::drawn_by")
    unrelated = say(files, "Bread is baked at four, pager or not.", "Bakery")
    answer = await files.recall("who bakes bread?", strategy="graph")
    assert (answer.strategy_used, answer.memories[0].id) == ("hybrid", unrelated)
    assert [each.code for each in files.notices] == ["no_entity"]
    answer = await files.recall("who gets the pager of the auth service?", strategy="graph")
    found = [memory.id for memory in answer.memories]
    assert (answer.strategy_used, files.notices) == ("graph", [])
    assert found[0] == also_direct, "as near as the other, and more like the question"
    assert set(found) == {direct, also_direct, hop, two_hops}
    assert not {three_hops, unrelated} & set(found)
    nearness = {memory.id: memory.scores.shares.get("graph", 0.0) for memory in answer.memories}
    assert nearness[direct] == nearness[also_direct] > nearness[hop] > nearness[two_hops] > 0


def test_a_walk_over_links_ends_where_the_answer_is_full(files: Spaces) -> None:
    middle = files.store("the middle")
    near = [files.store(f"{each} " * 20, related=(middle,)) for each in ("north", "south")]
    far = files.store("far away", related=(near[0],))

    def walk(**fields: Any) -> Memories[LinkedMemory]:
        return follow_links(FollowLinks(PROJECT, SESSION, (middle,), 2, **fields), files.view())

    whole = walk()
    assert ([each.id for each in whole.memories], whole.more) == ([middle, *near, far], False)
    for fields, shown in (({"characters": 140}, [middle, near[0]]), ({"limit": 2}, [middle, near[0]])):
        found = walk(**fields)
        assert ([each.id for each in found.memories], found.more) == (shown, True)
    assert [each.id for each in walk(characters=1).memories] == [middle], "the first is always shown"


CLUE = "BillingService is deployed by Argo CD, on every merge."
JOINED = "Nadia alone has the keys of Argo CD."


@pytest.mark.parametrize(("question", "cosines", "is_open"), cases("retrieval", "joined"))
async def test_what_is_joined_to_a_memory_answers_what_that_leaves_open(
    files: Spaces, question: str, cosines: dict[str, float], is_open: bool
) -> None:
    """It has no word of the question, and is far from it: only what it shares with the answer speaks for it."""

    def vector_of(text: str) -> Vectors:
        cosine = 1.0 if text == question else {JOINED: 0.0, **cosines}.get(text, 0.2)
        return np.array([cosine, (1.0 - cosine**2) ** 0.5], np.float32)

    files.vector_of = vector_of
    files.store(CLUE, passages=len(cosines), related_entities=entities("BillingService", "Argo CD"))
    files.store(JOINED, related_entities=entities("Argo CD", "Nadia"))
    files.store("Argo CD was deployed by Ines.", related_entities=entities("Argo CD"))
    for number in range(30):
        files.store(f"The drawer {number} is merged with a shelf.")
    found = await files.recall(question)
    shown = [each.content for each in found.memories]
    assert shown[0] == CLUE
    assert (JOINED in shown[:3]) is is_open
    assert any(each.scores.shares.get("joined", 0.0) > 0.0 for each in found.memories) is is_open


def test_the_graph_shows_what_holds_now_before_what_had_its_time_and_how_strong_it_is(files: Spaces) -> None:
    ended = files.store("the lantern burns oil", valid_until=REQUESTED_AT - 1, related_entities=entities("Lantern"))
    holding = files.store("the lantern burns gas", related_entities=entities("Lantern"))
    now, then = files.graph("lantern").memories
    assert (now.id, then.id) == (holding, ended)
    assert then.scores.final < now.scores.final
    assert now.strength == then.strength == 0.25


def test_an_overview_of_a_shared_project_has_what_its_members_share(tmp_path: Path) -> None:
    with closing(Spaces(tmp_path, (PROJECT.id, LANE, USER))) as spaces:
        spaces.store("the lantern burns oil", related_entities=entities("Lantern", "Oil"))
        spaces.store("the harbour has a crane", space=LANE, related_entities=entities("Harbour", "Crane"))
        spaces.store("the user likes tea", "user", related_entities=entities("Tea"))
        found = spaces.graph()
    assert {entity.name for entity in found.entities} == {"Lantern", "Oil", "Harbour", "Crane"}
    assert found.total_entities == 4


@pytest.fixture
async def gateway(rig: StoreRig) -> Gateway:
    await rig.worker()
    return rig.gateway


async def test_whoever_waits_for_the_vectors_gets_them_and_the_near_duplicates(gateway: Gateway) -> None:
    text = "the quick lantern keeper walks along the harbour wall at dusk with a brass bell in one hand"
    first = await gateway.store(text)
    state = await gateway.embedding_of(first)
    assert (state.embedded, state.near_duplicates, state.error) == (True, (), None)
    second = await gateway.store(f"{text} 1901")
    state = await gateway.embedding_of(second)
    assert (state.embedded, state.near_duplicates) == (True, (first,))
    unknown = await gateway.embedding_of("memory:01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert (unknown.embedded, unknown.error is None) == (False, False)


PORT: Final = "the lantern port of the old pier is 8080"
OTHER_PORT: Final = "the lantern port of the old pier is 9090 now"


async def two_ports(rig: StoreRig, gateway: Gateway) -> tuple[str, str, Callable[[], Awaitable[bool]]]:
    """The ids of a memory and of one that probably replaces it, and a check that recalls say so."""
    old = await gateway.store(PORT, occurred_at=time.time() - 3 * DAY_S)
    await gateway.until_embedded()
    new = await gateway.store(OTHER_PORT)

    async def is_doubted() -> bool:
        return the((await gateway.recall("lantern port")).memories, old).possibly_superseded_by == (new,)

    await until(is_doubted)
    await until(lambda: rig.rows("SELECT 1 FROM embedded WHERE compared = (SELECT max(number) FROM passages)"))
    return old, new, is_doubted


async def test_what_was_changed_since_is_no_longer_reported_as_replaced(rig: StoreRig, gateway: Gateway) -> None:
    old, new, _ = await two_ports(rig, gateway)
    await gateway.change(UpdateMemory(old, content="the old pier has one lantern"))
    assert (await gateway.embedding_of(new)).near == ()


async def test_a_memory_whose_move_is_undone_is_compared_with_its_project_again(
    rig: StoreRig, gateway: Gateway
) -> None:
    old, _, is_doubted = await two_ports(rig, gateway)
    await gateway.change(PromoteMemory(old, "user"))
    assert not await is_doubted(), "it is in another space"
    await gateway.change(UndoChange(old))
    await until(is_doubted)


async def test_a_summary_is_not_replaced_by_one_more_event_but_by_what_holds(gateway: Gateway) -> None:
    days_ago = time.time() - 3 * DAY_S
    event = await gateway.store("the pier is dark", type="episodic", occurred_at=days_ago)
    summary = await gateway.store(PORT, occurred_at=days_ago)
    await gateway.change(UpdateMemory(summary, add_links=(LinkRef("derived_from", event),)))
    await gateway.until_embedded()
    await gateway.embedding_of(await gateway.store(OTHER_PORT, type="episodic"))
    assert the((await gateway.recall("lantern port")).memories, summary).possibly_superseded_by == ()
    new = await gateway.store(OTHER_PORT.replace("9090", "6060"))
    await gateway.embedding_of(new)
    assert the((await gateway.recall("lantern port")).memories, summary).possibly_superseded_by == (new,)


async def test_a_summary_of_what_is_probably_replaced_gives_way_to_its_sources(gateway: Gateway) -> None:
    days_ago = time.time() - 3 * DAY_S
    texts = (PORT, "the pier is dark", "bread is baked at four every morning")
    old, pier, bread = [await gateway.store(text, type="episodic", occurred_at=days_ago) for text in texts]
    summary = await gateway.store(chr(10).join(texts), occurred_at=days_ago)
    derived = tuple(LinkRef("derived_from", each) for each in (old, pier, bread))
    await gateway.change(UpdateMemory(summary, add_links=derived))
    hiding = tuple(ReviseMemory(each, "consolidated", status="consolidated") for each in (old, pier, bread))
    await gateway.change(ApplyRun("run:1", "project", "consolidation", hiding))
    await gateway.until_embedded()
    assert {each.id for each in (await gateway.ask(GatherContext(PROJECT, SESSION))).memories} == {summary}
    new = await gateway.store(OTHER_PORT)
    assert (await gateway.embedding_of(new)).near == (NearMemory(old, PORT, new, OTHER_PORT),)
    context = await gateway.ask(GatherContext(PROJECT, SESSION))
    assert {each.id for each in context.memories} == {new, pier, bread}
    assert [each.id for each in context.replaced] == [old]
    for query, source in (("when is bread baked every morning", bread), ("lantern port", old)):
        recalled = await gateway.recall(query, limit=10)
        assert summary not in {each.id for each in recalled.memories}, "in a recall as well"
        assert source in {each.id for each in recalled.memories}


QUESTION = "What did the keeper say about the lantern in the harbour?"
LENDER = "The keeper did say a word or two about the lantern in the harbour."
ANSWER = "It was in the attic."
"""Without a word of the question that counts."""
DECOY = "A harbour in the south has piers, and the boats are there."


def at(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


async def test_an_answer_without_a_word_of_the_question_is_found_after_what_it_was_told_next_to(files: Spaces) -> None:
    told = NOW - 3 * DAY_S
    files.store(DECOY, session_id="session:decoy", requested_at=told, type="episodic")
    lender = files.store(LENDER, requested_at=told, type="episodic")
    after_it = files.store(ANSWER, requested_at=told + 60.0, type="episodic")
    answer = await files.recall(QUESTION)
    assert [memory.id for memory in answer.memories][:2] == [lender, after_it]
    shares = the(answer.memories, after_it).scores.shares
    assert "bm25" not in shares
    assert shares["context_words"] > 0.0
    for session in (SESSION, OTHER_SESSION):
        assert await files.found(QUESTION, session) == [each.id for each in answer.memories]


async def test_a_time_in_the_question_moves_what_is_of_it_to_the_front_and_takes_nothing_away(files: Spaces) -> None:
    files.vector_of = lambda _: vector_of("lantern")
    march = files.store("What did the lantern get: fresh oil.", type="episodic", occurred_at=at("2023-03-10"))
    may = files.store("What did the lantern get: clear glass.", type="episodic", occurred_at=at("2023-05-18"))
    for question, reference, month in cases("retrieval", "times"):
        first = {"March": march, "May": may}[month]
        for strategy in STRATEGIES:
            answer = await files.recall(question, reference_time=at(reference), strategy=strategy)
            assert [memory.id for memory in answer.memories][:1] == [first], (question, reference, strategy)
            assert {memory.id for memory in answer.memories} == {march, may}, "nothing is filtered out"
            assert answer.below_threshold == 0
            near = {memory.id: memory.scores.shares.get("time", 0.0) for memory in answer.memories}
            assert near.pop(first) > 2 * max(near.values())
    nothing = await files.recall("what happened last week?", reference_time=at("2024-05-24"))
    assert nothing.strategy_used == "hybrid", "as there is nothing of that time"
    timeless = await files.recall("What did the lantern get?", reference_time=at("2023-05-20"))
    assert not any("time" in memory.scores.shares for memory in timeless.memories)


def ids(gathered: ContextGathered, sections: tuple[Section, ...] = get_args(Section)) -> dict[Section, list[str]]:
    found: dict[Section, list[str]] = {name: [] for name in sections}
    for memory in gathered.memories:
        name = section_of(memory, sections)
        assert name is not None
        found[name].append(memory.id)
    assert list(gathered.memories) == list(in_sections(gathered.memories, sections))
    return found


async def test_without_a_task_each_section_has_its_own_in_its_own_order(files: Spaces) -> None:
    sections = cases("retrieval", "sections")
    contents = {files.store(content, scope, **fields): content for content, scope, fields in sections["stored"]}
    gathered = await files.context()
    given = {section: [contents[each] for each in found] for section, found in ids(gathered).items()}
    assert given == sections["given"]
    assert gathered.is_all


async def test_where_not_all_fits_what_holds_for_every_task_and_what_it_asks_for_are_given(files: Spaces) -> None:
    for number in range(60):  # far more than fits, of what no task is about
        files.store(f"Accounts of the year {number} are closed in March of the next one", importance=0.9)
    rule = files.store("Never log request bodies", kind="convention", importance=0.4, tags=("privacy",))
    tabs = files.store("Prefers tabs over spaces", "user", kind="preference", importance=0.4)
    call = files.store("Call the harbour master", kind="open_end", importance=0.2, tags=("privacy",))
    harbour = files.store("The lantern stands in the harbour", importance=0.1)
    light = files.store("To light the lantern turn the key", type="procedural", importance=0.1)
    gathered = await files.context(task="mend the lantern", tokens=500)
    found = ids(gathered)
    assert rule in found["project_context"]
    assert found["preferences"] == [tabs]
    assert found["open_ends"] == [call]
    assert found["relevant_procedures"] == [light]
    assert harbour in found["project_context"]
    assert not gathered.is_all
    assert ("privacy", 2) in gathered.subjects
    everything = [memory_id for section in found.values() for memory_id in section]
    assert len(everything) == len(set(everything)), "no memory is in two sections"


async def test_a_text_too_long_for_a_context_of_everything_is_cut_so_that_nothing_else_is_left_out(
    files: Spaces,
) -> None:
    facts = {files.store(f"The berth {number} belongs to the pilot") for number in range(40)}
    log = files.store("The log of the harbour. " * 1200, importance=0.9)
    gathered = await files.context(task="mend the lantern")
    contents = {each.id: each.content for each in gathered.memories}
    assert (set(contents), gathered.is_all) == ({*facts, log}, True)
    assert (contents[log].endswith(CUT), len(contents[log]) < 2000) == (True, True)


async def test_where_not_all_fit_a_small_project_s_memories_come_before_the_user_s_but_not_before_rules(
    files: Spaces,
) -> None:
    own = {files.store(f"The berth {number} belongs to the pilot") for number in range(40)}
    wish = files.store("The answers are short", "user", kind="preference")
    for number in range(70):
        files.store(f"Cousin {number} has a lantern. " * 15, "user")
    for task in ("mend the lantern", ""):
        gathered = await files.context(task=task)
        assert not gathered.is_all
        assert {*own, wish} <= {each.id for each in gathered.memories}


async def test_a_relative_day_counts_from_the_day_on_which_its_text_was_written(files: Spaces) -> None:
    heating = files.store("The heating has been cold since yesterday")
    files.rigs[PROJECT.id].at(REQUESTED_AT + 2 * DAY_S)
    files.change(UpdateMemory(heating, content="The heating was repaired yesterday"))
    files.rigs[PROJECT.id].at(REQUESTED_AT + 4 * DAY_S)
    files.change(UpdateMemory(heating, tags=("house",)))
    text = build_block(await files.context(), 2000, estimate_tokens).text
    assert "The heating was repaired yesterday (stored 2023-11-16) (changed 2023-11-18)\n" in text


async def test_a_text_stored_after_a_pause_wakes_the_resting_embedders_and_lacks_nothing(home: Path) -> None:
    scheduler = "remembrancer.actors.store.vectors.embedding_scheduler"
    constants = {f"{scheduler}.STARTING_S": 0.5, f"{scheduler}.UNATTENDED_S": 0.0}
    async with store_rig(home, constants=constants) as rig:
        await rig.gateway.until(lambda now: now.embedding.error is not None)  # none came: they rest
        applied = await rig.gateway.submit(store_operation("woken", "The lantern stands in the harbour."))
        assert applied.embedding_error is None
