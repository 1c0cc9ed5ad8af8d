import hashlib
import logging
import os
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from msgspec.structs import replace

from remembrancer.actors.index_file import CodeWriter, FileState, NotesWriter, ReadNote
from remembrancer.actors.indexer import watching
from remembrancer.actors.indexer.file_reading import WorkspaceFiles
from remembrancer.actors.indexer.watching import Indexer
from remembrancer.actors.store.file_index import CodeIndex, FileFilter, FileIndex, FileMemories
from remembrancer.actors.store.records.types import Filters, Phrase, is_memory
from remembrancer.code.reader import read_file
from remembrancer.code.tree import Tree
from remembrancer.config.settings import Settings
from remembrancer.memory.chunks import Chunk
from remembrancer.memory.limits import EARLIEST_S, LATEST_S
from remembrancer.protocol.code import CodeChunk
from remembrancer.protocol.errors import RecordsUnusable, SchemaTooOld
from remembrancer.protocol.files import IndexedTree, SyncDone
from tests.cases import cases
from tests.contracts.records_rig import embedded, pending, texts_of
from tests.patience import until
from tests.spaces import full_disk, write_rows

ROOT = "/shop"
ALL = Filters("session")
MODEL = "a-model"


class NotesIndex(NamedTuple):
    writer: NotesWriter
    store: FileIndex


@contextmanager
def opened(path: Path) -> Iterator[NotesIndex]:
    with closing(NotesWriter(path)) as writer, closing(FileIndex(path, "p_0.files")) as store:
        yield NotesIndex(writer, store)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[NotesIndex]:
    with opened(tmp_path / "index.db") as made:
        yield made


@pytest.mark.parametrize("of_code", [False, True])
def test_an_index_of_another_release_is_refused_and_made_again_quietly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, of_code: bool
) -> None:
    writer: Any = CodeWriter if of_code else NotesWriter
    reader: Any = CodeIndex if of_code else partial(FileIndex, name="p_0.files")
    path = tmp_path / "index.db"
    write_rows(path, "CREATE TABLE files (path TEXT)", "PRAGMA user_version = 20000")
    with pytest.raises(SchemaTooOld):
        reader(path)
    with caplog.at_level(logging.INFO):
        writer(path).close()
    (record,) = [each for each in caplog.records if each.message == "a file index is rebuilt"]
    assert (record.levelname, vars(record)["reason"]) == ("INFO", "another release wrote it")
    with closing(reader(path)) as anew:
        assert anew.counts(ROOT) == {}


def test_files_that_were_cut_with_other_settings_are_read_again_and_found_until_then(tmp_path: Path) -> None:
    with opened(tmp_path / "index.db") as index:
        change(index, note("a.md", "the lantern"))
    for cut, is_known in (("400", False), ("400", False), ("", False)):
        with closing(NotesWriter(tmp_path / "index.db", cut)) as writer:
            assert (writer.known(ROOT)["a.md"].mtime_ns > 0) == is_known
    with opened(tmp_path / "index.db") as index:
        assert found(index, "lantern") == ["a.md"]


def note(path: str, *texts: str, heading: str = "", mtime_s: int = 1) -> ReadNote:
    chunks = (Chunk(10 * place + 1, 10 * place + 10, heading, text) for place, text in enumerate(texts))
    digest = hashlib.sha256("".join(texts).encode()).digest()
    return ReadNote(path, mtime_s * 10**9, 10, "notes", tuple(chunks), digest=digest)


def change(index: NotesIndex, *files: ReadNote, removed: Sequence[str] = (), root: str = ROOT) -> dict[str, int]:
    return +index.writer.take(root, files, removed)


def embed(store: FileIndex, numbers: Sequence[int]) -> None:
    texts = texts_of(store, numbers).items()
    store.save_embeddings(MODEL, [embedded(number, text, [len(text), 1.0]) for number, text in texts])


def found(index: NotesIndex, word: str, wanted: FileFilter | None = None, filters: Filters = ALL) -> list[str]:
    memories = FileMemories(index.store, FileFilter(ROOT) if wanted is None else wanted)
    hits = list(memories.keyword_hits([Phrase(word)], filters, 10))
    return [chunk.path for chunk in memories.chunks(hits, filters)]


def test_an_edit_embeds_the_chunks_that_it_changed_and_no_others(index: NotesIndex) -> None:
    first = change(index, note("a.md", "one", "two", "three"))
    assert first == {"added": 3}
    assert len(pending(index.store, MODEL)) == 3
    embed(index.store, pending(index.store, MODEL))
    second = change(index, note("a.md", "one", "zwei", "three", "four"))
    assert second == {"updated": 1, "added": 1}
    assert set(texts_of(index.store, pending(index.store, MODEL)).values()) == {"zwei", "four"}
    assert len(index.store.passages(MODEL).numbers) == 2
    assert found(index, "two") == []
    assert found(index, "zwei") == ["a.md"]


def test_the_same_content_at_another_time_changes_nothing_but_that_and_what_cannot_be_read_is_not_found(
    index: NotesIndex,
) -> None:
    first = note("a.md", "the lantern")
    change(index, first)
    assert change(index, first._replace(mtime_ns=99, chunks=None)) == {}
    assert index.writer.known(ROOT) == {"a.md": FileState("notes", 99, 10, first.digest, "")}
    assert found(index, "lantern") == ["a.md"]
    assert change(index, note("a.md")._replace(skipped="binary")) == {"removed": 1}
    assert index.writer.known(ROOT)["a.md"].skipped == "binary"
    assert (found(index, "lantern"), index.store.listed(ROOT, "", 9), index.store.counts(ROOT)) == ([], [], {})


def test_a_note_outside_the_working_tree_is_neither_found_nor_listed_for_one_who_may_not_see_the_users(
    index: NotesIndex,
) -> None:
    change(index, note("a.md", "the lantern"), note("/home/.codex/style.md", "their lantern"))
    for is_inside, paths in ((False, ["/home/.codex/style.md", "a.md"]), (True, ["a.md"])):
        assert found(index, "lantern", FileFilter(ROOT, is_inside=is_inside)) == paths
        assert [each.path for each in index.store.listed(ROOT, "", 9, is_inside=is_inside)] == paths


def test_workspaces_and_paths_and_times_are_kept_apart(index: NotesIndex) -> None:
    change(index, note("memory/a.md", "a lantern"), note("memory/ab/c.md", "another lantern", mtime_s=50))
    change(index, note("memory/a.md", "a lantern elsewhere"), root="/other")
    assert found(index, "lantern") == ["memory/a.md", "memory/ab/c.md"]
    assert found(index, "elsewhere") == []
    assert found(index, "lantern", FileFilter(ROOT, path="memory/a")) == []
    assert found(index, "lantern", FileFilter(ROOT, path="./memory/ab/")) == ["memory/ab/c.md"]
    assert found(index, "lantern", FileFilter(ROOT, path="memory/a.md")) == ["memory/a.md"]
    assert found(index, "lantern", FileFilter(ROOT, sources=("sessions",))) == []
    assert found(index, "lantern", filters=Filters("session", after=20.0)) == ["memory/ab/c.md"]
    assert {source: counts.files for source, counts in index.store.counts(ROOT).items()} == {"notes": 2}


def test_a_damaged_index_is_made_anew_and_its_passages_have_other_numbers(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with opened(path) as index:
        change(index, note("a.md", "the lantern"))
        embed(index.store, pending(index.store, MODEL))
        before = index.store.passages(MODEL).numbers
    path.write_bytes(b"this is no database" * 100)
    with opened(path) as index:
        assert index.writer.known(ROOT) == {}
        change(index, note("a.md", "the lantern"))
        embed(index.store, pending(index.store, MODEL))
        assert not set(before) & set(index.store.passages(MODEL).numbers)


def test_a_recall_sees_chunks_as_memories_that_say_where_they_are(index: NotesIndex) -> None:
    change(index, note("memory/a.md", "the lantern", mtime_s=50))
    memories = FileMemories(index.store, FileFilter(ROOT, ("notes",)))
    (hit,) = memories.keyword_hits([Phrase("lantern")], ALL, 5)
    assert not is_memory(hit)
    record = memories.load([hit], ALL)[hit]
    assert (record.content, record.origin) == ("the lantern", "notes")
    assert (record.lines, record.source.file) == ((1, 10), "memory/a.md")
    assert memories.ranking_facts([hit], ALL)[hit].happened_at == 50.0
    assert memories.ranking_facts([hit], Filters("session", after=60.0)) == {}
    assert memories.ranking_facts([hit], Filters("session", after=LATEST_S)) == {}
    assert memories.ranking_facts([hit], Filters("session", after=EARLIEST_S))
    assert memories.matching(Filters("session", scopes=("session",)), 5) == []
    assert memories.matching(ALL, 5) == memories.top(ALL, "latest", 5) == [hit]


def shown(index: NotesIndex, word: str) -> set[tuple[str | None, str]]:
    """The files and contents that an answer has of the notes with a word."""
    memories = FileMemories(index.store, FileFilter(ROOT, ("notes",)))
    hits = list(memories.keyword_hits([Phrase(word)], ALL, 5))
    return {(each.source.file, each.content) for each in memories.load(hits, ALL).values()}


def test_a_note_is_found_by_its_front_matter_and_shown_without_it_and_with_each_heading_once(index: NotesIndex) -> None:
    front = "---\nname: lamp\ndescription: how the beacon is lit\n---\n"
    change(index, note("a.md", f"{front}\nWith a match.", heading="Lamps"), note("b.md", f"{front}title: beacon"))
    change(index, note("c.md", f"{front.rstrip()}"))
    contents = {("a.md", "Lamps\nWith a match."), ("b.md", "title: beacon"), ("c.md", front.rstrip())}
    assert shown(index, "beacon") == contents
    change(index, note("d.md", "# Shop\n\n## Release\n\nOn Thursdays, by lantern.", heading="Shop > Release"))
    change(index, note("e.md", "## Release\nBy lantern.", "Lanterns go out.", heading="Shop > Release"))
    assert shown(index, "lantern") == {
        ("d.md", "# Shop\n\n## Release\n\nOn Thursdays, by lantern."),
        ("e.md", "Shop\n## Release\nBy lantern."),
        ("e.md", "Shop > Release\nLanterns go out."),
    }


def ended(told: Sequence[SyncDone]) -> list[SyncDone]:
    return [each for each in told if not each.left]


def left(told: Sequence[SyncDone]) -> list[int]:
    """The numbers of files that were left, as a store was told them."""
    return [each.left for each in told if each.left]


@asynccontextmanager
async def indexing(root: Path, path: Path, told: list[SyncDone], **options: Any) -> AsyncIterator[Indexer]:
    """An indexer that begins at the first thing that is waited for here, and watches only if an option says so. What
    it tells the store is added to `told`."""
    settings = Settings(**{"watch": False, **options})
    tree = IndexedTree("p_0", ROOT, str(path), "notes", settings.watch)
    indexer = Indexer(tree, WorkspaceFiles(str(root), settings), told.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        yield indexer
        tasks.cancel_scope.cancel()


async def test_a_disk_that_is_full_in_the_middle_of_a_sync_is_told_and_what_is_left_is_read_when_there_is_room(
    index: NotesIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "work"
    (root / "memory").mkdir(parents=True)
    for number in range(24):
        words = " ".join(f"word{number}x{each}" for each in range(300))
        (root / "memory" / f"{number:02}.md").write_text(f"lantern{number}\n\n{words}\n")
        os.utime(root / "memory" / f"{number:02}.md", (1, 1))
    monkeypatch.setattr(watching, "RETRY_S", 0.05)
    monkeypatch.setattr(WorkspaceFiles, "batch_bytes", 12_000)
    told: list[SyncDone] = []
    async with indexing(root, tmp_path / "index.db", told):
        with full_disk(300_000):
            await until(lambda: ended(told))
            first, before = ended(told)[0], len(index.store.listed(ROOT, "", 99))
        assert "no room" in (first.error or "")
        assert 0 < before < 24
        await until(lambda: ended(told)[-1].error is None)
    assert ended(told)[-1].added, "what was read before is not read again"
    assert max(left(told)[left(told).index(24) + 1 :]) < 24
    assert all(found(index, f"lantern{number}") == [f"memory/{number:02}.md"] for number in range(24))


async def test_a_workspace_without_notes_gets_no_index(tmp_path: Path) -> None:
    told: list[SyncDone] = []
    async with indexing(tmp_path, tmp_path / "index.db", told):
        await until(lambda: ended(told))
    assert not (tmp_path / "index.db").exists()


@pytest.mark.parametrize("is_polled", [False, True])
async def test_a_workspace_that_is_replaced_is_followed_in_its_place(
    is_polled: bool, index: NotesIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "IS_POLLED", is_polled)  # as where the system cannot report changes
    root = tmp_path / "work"

    async def write(word: str) -> None:
        (root / "MEMORY.md").write_text(f"about the {word}\n")
        await until(lambda: found(index, word) == ["MEMORY.md"])

    root.mkdir()
    told: list[SyncDone] = []
    for name, value in (("UNWATCHED_LOOK_S", 0.05), ("FIRST_REPORT_MS", 1100 if is_polled else 50)):
        monkeypatch.setattr(watching, name, value)
    async with indexing(root, tmp_path / "index.db", told, watch=True, watch_quiet_s=0.05) as indexer:
        await write("lantern")
        await write("windmill")
        root.rename(tmp_path / "elsewhere")
        before = len(ended(told))
        await until(lambda: not indexer.is_watching and len(ended(told)) > before + 3)
        root.mkdir()
        await write("harbour")
        await write("pier")


# --- The code_index of a tree of code: what it finds first, and what it keeps when files change.
FILES: dict[str, str] = cases("file_index", "tree")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(str(tmp_path / "tree"))


class CodeOfTree:
    def __init__(self, path: Path, tree: Tree) -> None:
        self.store = CodeIndex(path)
        self.writer = CodeWriter(path)
        self.tree = tree
        self.take(*sorted(file.path for file in tree.files()))

    def take(self, *paths: str) -> None:
        files = [read_file(self.tree.root, file) for file in self.tree.files() if file.path in paths]
        self.writer.take(self.tree.root, files)

    def close(self) -> None:
        self.writer.close()
        self.store.close()


@pytest.fixture
def code_index(tmp_path: Path, tree: Tree) -> Iterator[CodeOfTree]:
    with closing(CodeOfTree(tmp_path / "code.db", tree)) as made:
        yield made


def test_a_zeroed_page_of_an_index_of_code_is_damage_wherever_it_is(tmp_path: Path) -> None:
    root, path, numbers = tmp_path / "tree", tmp_path / "code.db", random.Random(7)
    root.mkdir()
    for number in range(12):
        rows = "".join(f"        '{numbers.randbytes(60).hex()}',\n" for _ in range(120))
        (root / f"table{number}.py").write_text(f"def table{number}():\n    return [\n{rows}    ]\n")
    tree = Tree(str(root))
    files = list(tree.files())
    CodeIndex(path).close()
    empty = path.stat().st_size
    CodeOfTree(path, tree).close()
    whole, errors = path.read_bytes(), 0
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        try:
            with closing(CodeIndex(path)) as code_index:
                code_index.search("table3", 20)
                assert len(code_index.listed(str(root), "", 99)) == len(files)
        except RecordsUnusable:
            errors += 1
    assert errors > (len(whole) - empty) // 4096 // 2


def test_what_defines_a_name_is_found_first_a_test_last_unless_asked_for_and_a_change_at_once(
    code_index: CodeOfTree, tree: Tree
) -> None:
    def found(question: str) -> list[str]:
        return [each.file_path for each in code_index.store.search(question, 9)]

    assert found("ConnectionPool") == ["pool.py", "use.py", "tests/test_pool.py"]
    assert found("what acquires a connection") == ["pool.py", "use.py", "tests/test_pool.py"]
    assert found("the test of acquire")[0] == "tests/test_pool.py"
    assert found("json reader of numbers") == ["parse/json_reader.ts"]
    Path(tree.root, "use.py").write_text("def drain():\n    return 1\n")
    Path(tree.root, "drains.py").write_text("from use import drain\n\nFULL = drain()\nEMPTY = drain()\n")
    code_index.take("use.py", "drains.py")
    assert found("drain") == ["use.py", "drains.py"]


def answers(code_index: CodeOfTree) -> list[list[CodeChunk]]:
    questions = ("connection pool", "ConnectionPool", "drain_7", "acquire")
    return [code_index.store.search(question, 100) for question in questions]


def test_a_tree_that_is_edited_at_random_is_as_if_read_anew(
    code_index: CodeOfTree, tree: Tree, tmp_path: Path, dice: random.Random
) -> None:
    pumps = [f"def drain_{number}(pool):\n    pool.x\n\n\n" for number in range(9)]
    parts = [FILES["pool.py"], FILES["use.py"], "# about pumps\n", "import pumps\n", *pumps]
    for _ in range(40):
        name = dice.choice(("pool.py", "use.py", "pump.py"))
        Path(tree.root, name).write_text("\n".join(dice.choices(parts, k=dice.randrange(6))))
        code_index.take(name)
    with closing(CodeOfTree(tmp_path / "fresh.db", tree)) as fresh:
        for ours, theirs in zip(answers(code_index), answers(fresh), strict=True):
            scores = {each.file_path: each.score for each in theirs}
            assert {each.file_path: each.score for each in ours} == pytest.approx(scores, rel=1e-9), "another order"
            assert {replace(each, score=0.0) for each in ours} == {replace(each, score=0.0) for each in theirs}
        terms = "SELECT term, count(*) FROM occurrences GROUP BY term"
        chunks = """SELECT path, start_line, end_line, c.kind, c.name, length, text
            FROM code AS c JOIN files AS f ON f.number = file ORDER BY 1, 2"""
        for query in (terms, chunks):
            assert code_index.store.file.read(query) == fresh.store.file.read(query)


def test_a_file_that_is_no_code_is_known_and_counted(code_index: CodeOfTree, tree: Tree) -> None:
    Path(tree.root, "data.py").write_bytes(b"a\0b")
    code_index.take("data.py")
    assert "data.py" in code_index.writer.known(tree.root)
    assert code_index.store.skipped(tree.root) == {"binary": 1}
    assert sum(each.files for each in code_index.store.counts(tree.root).values()) == 4
