"""Spaces of one database: none sees another one's rows, whoever asks for them and how, and many of them cost little."""

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.read_handlers import list_memories
from remembrancer.actors.store.records import found_entities
from remembrancer.actors.store.records.browsing import BROWSER_READS
from remembrancer.actors.store.records.found_entities import find_names
from remembrancer.actors.store.records.memory_rows import read_copies
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits, merge
from remembrancer.actors.store.records.sqlite_records import Reader, Records
from remembrancer.actors.store.records.types import USER, Filters, Outcome, Phrase, Vectors
from remembrancer.actors.store.retrieval.graph_search import search_graph
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.actors.store.spaces import HomeSpaces
from remembrancer.actors.store.write_handlers import MemoryWriter
from remembrancer.memory.times.windows import TimeWindow
from remembrancer.protocol.browsing import FindUndecided, ListSessions, ReadActivity, ReadGraph, ReadTurns
from remembrancer.protocol.consolidation import ReadMemories
from remembrancer.protocol.errors import EmbeddingUnavailable, FileLocked, MemoryUnavailable
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import ListMemories, Order, Recall, SearchGraph, Strategy
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import (
    Applied,
    EntityRef,
    EraseMemory,
    ForgetMemory,
    LinkRef,
    ProjectRef,
    PromoteMemory,
    UpdateMemory,
)
from tests.contracts.records_rig import MODEL, RecordsRig, apply, check_derived, embedded, pending, scrub, texts_of
from tests.operations import (
    OTHER_PROJECT,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)
from tests.patience import PATIENCE_S
from tests.spaces import locked

SECRET = "zanzibar"
WRITES = {"note_commit", "apply", "touch", "complete", "apply_in", "close", "save_embeddings"}
WRITES |= {"prune_models", "link_similar", "note_compared", "note_attempts", "try_again"}
PLAIN = {"name", "users", "space", "spaces", "of", "links_duplicates", "is_users", "is_shared", "commits", "writes"}
PLAIN |= {"time", "lane_time", "works_here", "names_of"}


def fill(rig: RecordsRig, word: str) -> None:
    first, second = IDS
    rig.do(StartSession(SESSION))
    rig.say(f"the {word} is lit", f"{word}:place", memory_id=first)
    rig.say(f"a {word} burns", scope="session", tags=(word,), memory_id=second)
    rig.do(UpdateMemory(first, add_links=(LinkRef("related_to", second),)))
    rig.do(RecordEvents(SESSION, (Turn("user", f"{word}?", 1.0),), (ToolCall("Read", 2.0, {"path": word}),)))
    rig.do(EndSession(SESSION))
    for memory_id in IDS:
        rig.embed(memory_id)
    rig.find_names()


@pytest.fixture
def spaces(path: Path) -> Iterator[tuple[RecordsRig, RecordsRig]]:
    """An empty space, and one in which the same ids say something."""
    with RecordsRig(path, "p_ffffffffffff") as theirs:
        fill(theirs, SECRET)
        yield theirs.beside(PROJECT.id), theirs


ALL = Filters(SESSION, include_forgotten=True)
WORD = [Phrase(SECRET)]
IDS = ["mem_first", "mem_second"]
STORED = "say 2"
"""The operation that stored the first of them."""
NUMBERS = list(range(20))
BROWSED = (ReadActivity, ListSessions, ReadTurns, FindUndecided, ReadGraph)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


READS: dict[str, Callable[[Records], Any]] = {
    "number_of": lambda it: it.number_of(IDS[0]) or it.number_of(IDS[1]),
    "numbers_of": lambda it: it.numbers_of(IDS),
    "ids_with": lambda it: it.ids_with([IDS[0][-4:], IDS[1][-4:]]),
    "short_forms": lambda it: it.short_forms(IDS),
    "keyword_hits": lambda it: it.keyword_hits(WORD, ALL, 5),
    "survey": lambda it: [
        list(it.survey([WORD], SESSION, 5).sizes.values()),
        list(it.survey([WORD], SESSION, 5).postings.values()),
    ],
    "postings": lambda it: it.postings([WORD]),
    "frequencies": lambda it: it.frequencies([WORD]),
    "merged_into": lambda it: it.merged_into(IDS),
    "summaries_of": lambda it: it.summaries_of(NUMBERS),
    "outcome_of": lambda it: it.outcome_of(STORED),
    "shareable": lambda it: it.shareable(),
    "materials": lambda it: it.materials(ReadMemories(PROJECT)).memories,
    "entity_edges": lambda it: it.entity_edges(),
    "waiting_work": lambda it: (it.waiting_work(0.0, 9).sessions, it.waiting_work(0.0, 9).promotable),
    "missing": lambda it: it.missing("another"),
    "next_texts": lambda it: it.next_texts("another", 9, 9999),
    "dead_letters": lambda it: it.dead_letters(MODEL),
    "compared": lambda it: it.compared(MODEL),
    "extent": lambda it: it.extent(MODEL),
    "passage_numbers": lambda it: it.passage_numbers(MODEL),
    "passages": lambda it: it.passages(MODEL, after=0).numbers,
}
BY_SHOWN_NUMBERS = {"spaces_of", "is_embedded", "derived_among", "edited_among", "settled_among"}
"""Questions about numbers that an answer of the same space has shown."""


def is_empty(answer: Any) -> bool:
    if isinstance(answer, str | bytes):
        return not answer
    if isinstance(answer, dict):
        return all(is_empty(each) for each in answer.values())
    if isinstance(answer, list | tuple | set):
        return all(is_empty(each) for each in answer)
    if hasattr(answer, "__struct_fields__"):
        return all(is_empty(getattr(answer, name)) for name in answer.__struct_fields__)
    return not answer


def test_no_question_of_a_space_is_answered_with_anothers(spaces: tuple[RecordsRig, RecordsRig]) -> None:
    for name, ask in READS.items():
        ours, theirs = (ask(rig.records) for rig in spaces)
        assert SECRET not in repr(ours), name
        assert is_empty(ours), (name, ours, theirs)


NEW = itertools.count(1000)
OFTEN: dict[str, Callable[[Records], Any]] = {
    "ids_with": READS["ids_with"],
    "survey": lambda it: it.survey([], SESSION, 5),
    "missing": READS["missing"],
    "dead_letters": READS["dead_letters"],
    "number_of": READS["number_of"],
    "outcome_of": READS["outcome_of"],
    "store": lambda it: apply(it, [store_operation(f"{next(NEW)}", "a beacon on Skagen and Thyborøn")]),
    "find_names": lambda it: find_names(it.spaces.file, REQUESTED_AT),
}
"""Questions that every store, recall or answer with short ids asks, and what every store does."""


def test_what_is_asked_all_the_time_costs_no_more_in_a_space_of_many(tmp_path: Path) -> None:
    with closing(SqliteFile(tmp_path / "memory.db", MEMORY)) as database:
        records = Records(database, PROJECT.id, lambda: REQUESTED_AT)
        costs: list[dict[str, int]] = []
        for numbers in (range(50), range(50, 500)):
            apply(records, [store_operation(f"{number}", f"lamp {number}") for number in numbers])
            found = texts_of(records, pending(records, MODEL)).items()
            records.save_embeddings(MODEL, [embedded(number, text) for number, text in found])
            costs.append({name: steps_of(database, partial(ask, records)) for name, ask in OFTEN.items()})
        few, many = costs
        assert {name for name in OFTEN if many[name] > 2 * few[name] + 10} == set()


def steps_of(database: SqliteFile, ask: Callable[[], Any]) -> int:
    """The steps of SQLite's virtual machine that a question or a write takes."""
    ask()  # the thread's connection is there, its statements are prepared
    steps = itertools.count()
    connections = [database.writer, *database._idle]
    for connection in connections:
        connection.set_progress_handler(lambda: next(steps) < 0, 1)
    ask()
    for connection in connections:
        connection.set_progress_handler(None, 0)
    return next(steps)


def test_what_is_written_to_a_space_leaves_another_of_the_same_ids_alone(spaces: tuple[RecordsRig, RecordsRig]) -> None:
    ours, theirs = spaces
    before = theirs.everything(), theirs.found(SECRET)
    fill(ours, "lantern")
    ours.do(UpdateMemory(IDS[0], "a candle"))
    ours.do(EraseMemory(IDS[1]))
    scrub(ours.records, IDS[1], quotes=[SECRET])
    assert (theirs.everything(), theirs.found(SECRET)) == before
    assert theirs.records.describe_session(SESSION).started_at is not None
    assert theirs.records.passage_numbers(MODEL)


def test_names_are_found_in_all_spaces_by_one_round_and_counted_in_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_entities, "SMALL", 1)
    with closing(SqliteFile(tmp_path / "memory.db", MEMORY)) as database:
        ours, theirs = (Records(database, name, lambda: REQUESTED_AT) for name in (PROJECT.id, USER))
        apply(ours, [store_operation(f"{n}", f"{n} boats left src/{n}.py for Skagen today") for n in range(2)])
        apply(theirs, [store_operation("2", "two boats left src/2.py for Skagen today")])
        assert not find_names(database, REQUESTED_AT), "nothing is left"
        found = [
            records.surroundings(memory_id_of(store_operation(name, "")), "", None).found_entities
            for records, name in ((ours, "0"), (ours, "1"), (theirs, "2"))
        ]
    assert found == [("src/0.py",), ("src/1.py",), ("src/2.py",)], "Skagen is in three memories, but not of one space"


def test_what_is_merged_into_a_space_is_all_there_beside_what_was_there(tmp_path: Path) -> None:
    with RecordsRig(tmp_path / "memory.db") as old:
        new, database = old.beside("p_ffffffffffff"), old.records._file.file
        for rig, word in ((old, "lantern"), (new, "candle")):
            fill(rig, word)
        new.do(StartSession("session:new"))
        extra = new.say("the lantern burns wax", session_id="session:new", tags=("wax",))
        new.do(UpdateMemory(extra, add_links=(LinkRef("related_to", IDS[0]),)))
        expected = [old.shown(IDS[0]), old.shown(IDS[1]), new.shown(extra)]
        with database.transaction() as connection:
            merge(SqliteEdits(connection, new.records.space, REQUESTED_AT), old.records.space)
        assert [old.shown(each) for each in (*IDS, extra)] == expected
        assert old.found("wax") == [extra]
        assert old.records.describe_session("session:new").started_at is not None
        assert old.records.outcome_of(expected[2].history[0].operation_id) is not None, "it is answered as before"
        assert [name for (name,) in database.read("SELECT name FROM spaces")] == [PROJECT.id]
        assert len(old.everything()) == 4, "with the record of a session"
        check_derived(old.path)


async def test_many_projects_take_few_threads_and_descriptors(tmp_path: Path) -> None:
    committer = Committer()
    files = HomeSpaces(RuntimePaths(tmp_path), committer, time.time, lambda _: None)
    threads, opened = threading.active_count(), descriptors()
    try:
        for number in range(20):
            records = await files.project(ProjectRef(f"p_{number:012x}", f"/{number}"))
            records.counts(None)
        assert threading.active_count() - threads <= 3
        assert descriptors() - opened <= 12
        assert {records.name for records in files} == {USER, *(f"p_{number:012x}" for number in range(20))}
    finally:
        committer.close()
        files.close()
    with pytest.raises(MemoryUnavailable, match="stopping"):
        await asyncio.wait_for(committer.run(USER, list), PATIENCE_S)


async def test_a_write_behind_a_move_is_applied_and_a_move_that_fails_hides_nothing(tmp_path: Path) -> None:
    committer, paths = Committer(), RuntimePaths(tmp_path)
    files = HomeSpaces(paths, committer, time.time, lambda _: None)
    writer, both = MemoryWriter(files), (PROJECT, OTHER_PROJECT)

    def store(text: str, project: ProjectRef) -> Awaitable[Outcome]:
        return committer.submit(writer, store_operation(f"{text} {project.id}", text, project=project))

    def counts() -> list[int | None]:
        found = map(files.open_project, both)
        return [None if records is None else records.counts(None).total for records in found]

    def source_of(memory_id: str) -> str | None:
        memory = files.user.portable(memory_id, SESSION)
        return None if memory is None else memory.source_project

    try:
        for project in both:
            await files.project(project)
            await store(f"early in {project.id}", project)
        of_user = store_operation("of the user", "The user drinks tea")
        for operation in (of_user, change_operation("promote", PromoteMemory(memory_id_of(of_user), "user"))):
            assert isinstance(await committer.submit(writer, operation), Applied)
        with locked(paths.database), pytest.raises(FileLocked):
            await files.move(PROJECT.id, OTHER_PROJECT, "/there")
        assert counts() == [1, 1]
        assert source_of(memory_id_of(of_user)) == PROJECT.id
        moving = asyncio.ensure_future(files.move(PROJECT.id, OTHER_PROJECT, "/there"))
        await asyncio.sleep(0)
        late, is_over = store("late", OTHER_PROJECT), threading.Event()
        over = committer.run(USER, is_over.set)
        assert is_over.wait(PATIENCE_S), "this thread hears of the move after the write"
        assert isinstance(await late, Applied)
        await asyncio.gather(moving, over)
        assert counts() == [None, 3]
        assert source_of(memory_id_of(of_user)) == OTHER_PROJECT.id
    finally:
        committer.close()
        files.close()


def test_threads_that_end_leave_no_open_file(tmp_path: Path) -> None:
    """A thread that writes ends when there is nothing to write: for months another one comes and goes every minute."""
    with closing(Records(SqliteFile(tmp_path / "memory.db", MEMORY), USER, time.time)) as records:

        def reads() -> None:
            thread = threading.Thread(target=records.number_of, args=("memory:none",))
            thread.start()
            thread.join()

        reads()
        before = descriptors()
        for _ in range(20):
            reads()
        assert descriptors() <= before


OURS, LANE, THEIRS = PROJECT.id, "l_000000000001", "p_ffffffffffff"


def secret_of(place: int) -> str:
    """A word that one memory alone has, and an entity of it."""
    return f"secret{place}x"


class Viewer(NamedTuple):
    """A session that asks a view, with the numbers and ids of all memories that there are."""

    view: View
    reader: Reader
    session: str
    filters: Filters
    numbers: list[int]
    ids: list[str]


VIEWED: dict[str, Callable[[Viewer], object]] = {
    "recall": lambda it: [
        recalled(it.view, Recall(it.session, project=PROJECT, query="who lit the beacon", strategy=strategy, limit=50))
        for strategy in get_args(Strategy)
    ],
    "happened_in": lambda it: it.view.load(it.view.happened_in(TimeWindow(0.0, 1e12, 0.0), it.filters), None),
    "graph": lambda it: [
        search_graph(SearchGraph(PROJECT, it.session, entity), it.view, 1e12)
        for entity in ("beacon", None, *(secret_of(place) for place in range(len(it.ids))))
    ],
    "ranking_facts": lambda it: it.view.load(it.view.ranking_facts(it.numbers, it.filters), None),
    "load": lambda it: it.view.load(it.numbers, it.filters),
    "top": lambda it: [it.view.load(it.reader.top(it.filters, order, 50), None) for order in get_args(Order)],
    "from_files": lambda it: it.view.load(it.reader.from_files([""], it.filters, 50), None),
    "matching": lambda it: it.view.load(it.reader.matching(it.filters, 99) or [], None),
    "list": lambda it: [
        list_memories(ListMemories(it.session, project=PROJECT, include_forgotten=True, limit=50, valid_at=at), it.view)
        for at in (None, 1e12)
    ],
    "neighbours": lambda it: it.view.load(it.reader.neighbours(it.numbers, it.filters).facts, None),
    "follow": lambda it: it.reader.follow(it.ids, it.session, 2, 50),
    "visible": lambda it: it.view.visible(it.ids, it.filters),
    "portable": lambda it: [it.reader.portable(each, it.session, PROJECT.id) for each in it.ids],
    "surroundings": lambda it: [
        (it.reader.surroundings(each, found.content, it.session),)
        for each in it.ids
        if (found := it.reader.portable(each, it.session, PROJECT.id)) is not None
    ],
    "copies_of": lambda it: [
        read_copies(it.reader._file.read, "", f"{session} lit the beacon {secret_of(place)}", it.session)
        for place, session in itertools.product(range(len(it.ids)), ("alice", "bob"))
    ],
    "counts": lambda it: (it.reader.counts(it.session).by_type, it.reader.counts(it.session).by_scope),
    "proposals": lambda it: it.reader.proposals(),
    "describe_session": lambda it: it.reader.describe_session(it.session),
    "uses": lambda it: it.reader.uses(it.session, 999),
    "happened": lambda it: (
        BROWSER_READS[ReadActivity](
            it.reader, ReadActivity(PROJECT, it.session, after=-1e12, days=(-1e12, 1e12))
        ).happened
    ),
    "browse": lambda it: [BROWSER_READS[kind](it.reader, kind(PROJECT, it.session)) for kind in BROWSED],
}
"""Every question of a view that a session asks."""
BY_SHOWN = {"records_of", "spaces_of"}
BY_SHOWN |= {"number_of", "numbers_of", "summaries_of", "ids_with", "short_forms", "merged_into"}
"""Questions of a view about what it has shown, or in which ids alone are named."""
PARTS = {"of"}
"""Parts of the reader of a view."""
FOR_ONE = {"keyword_hits", "postings", "frequencies", "survey"}
"""Questions about the words of a space, which a recall asks."""
IN_BACKGROUND = {"materials", "entity_edges", "waiting_work", "derived_among", "edited_among", "settled_among"}


def recalled(view: View, request: Recall) -> Any:

    async def embed(_: str) -> Vectors:
        raise EmbeddingUnavailable("there is no engine")

    with ThreadPoolExecutor(1) as threads:
        return asyncio.run(recall(request, view, embed, threads, 1e12)).memories


def test_every_question_of_a_space_and_of_a_view_is_asked() -> None:
    names = {name for each in Records.__mro__ for name in vars(each) if not name.startswith("_")}
    assert names - WRITES - PLAIN - BY_SHOWN_NUMBERS <= READS.keys() | VIEWED.keys()
    methods = [item for kind in (View, *Reader.__mro__[:-1]) for item in vars(kind).items()]
    questions = {name for name, each in methods if callable(each) and not name.startswith("_")}
    others = BY_SHOWN | PARTS | FOR_ONE | IN_BACKGROUND
    assert questions <= VIEWED.keys() | others
    assert others <= questions


PLACES = st.sampled_from([OURS, LANE, USER, THEIRS])
MEMORIES = st.tuples(PLACES, st.sampled_from(["alice", "bob"]), st.booleans(), st.booleans())


@settings(max_examples=settings().max_examples // 4)
@given(st.lists(MEMORIES, min_size=1, max_size=12))
def test_of_two_viewers_none_sees_what_is_the_others(stored: list[tuple[str, str, bool, bool]]) -> None:
    with TemporaryDirectory() as directory, closing(SqliteFile(Path(directory) / "memory.db", MEMORY)) as database:
        spaces = {name: Records(database, name, lambda: REQUESTED_AT) for name in (OURS, LANE, USER, THEIRS)}
        known: dict[str, tuple[str, str | None, str]] = {}
        for place, (name, session, is_own, forgotten) in enumerate(stored):
            word = secret_of(place)
            is_own = is_own and name in (OURS, THEIRS)
            operation = store_operation(
                word,
                f"{session} lit the beacon {word}",
                scope="session" if is_own else "user" if name == USER else "project",
                session_id=session,
                tags=(f"tag{word}",),
                related_entities=(EntityRef("beacon", "place", "about"), EntityRef(word, "thing", "about")),
                type="episodic",
            )
            memory_id = memory_id_of(operation)
            events = RecordEvents(session, (Turn("user", f"{word}?", 1.0),), (ToolCall("Read", 2.0, {"path": word}),))
            changes = [operation, change_operation(f"events{place}", events, session_id=session)]
            if forgotten:
                changes.append(change_operation(f"forget{place}", ForgetMemory(memory_id, word), session_id=session))
            mine = [each for each, (space, *_) in known.items() if space == name]
            for number, other in enumerate(mine[-2:]):
                link = UpdateMemory(memory_id, add_links=(LinkRef("related_to", other),))
                changes.append(change_operation(f"link{place}.{number}", link, session_id=session))
            apply(spaces[name], changes)
            known[memory_id] = name, session if is_own else None, word
        while find_names(database, REQUESTED_AT):
            pass
        numbers = [number for (number,) in database.read("SELECT number FROM memories")]
        for session, names in (("alice", (OURS, LANE, USER)), ("bob", (OURS, LANE)), ("bob", (THEIRS, USER))):
            view = View([Source(spaces[name]) for name in names])
            viewer = Viewer(view, view.reader, session, Filters(session, include_forgotten=True), numbers, list(known))
            hidden = {
                part
                for memory_id, (name, owner, word) in known.items()
                if name not in names or owner not in (None, session)
                for part in (memory_id, word)
            }
            for question, ask in VIEWED.items():
                answer = repr(ask(viewer))
                assert not [each for each in hidden if each in answer], question
            seen = {each.id for each in view.load(numbers, viewer.filters).values()}
            assert seen == {each for each, (_, _, word) in known.items() if word not in hidden}
