"""The division of a context among the sections that have found something, and the files that it is asked for."""

from __future__ import annotations

import msgspec
import pytest

from remembrancer.actors.store.retrieval.context import (
    LEAST_MEMORIES,
    SEARCHED_FILES,
    Finds,
    OpenFiles,
    divided,
    how_many,
)
from remembrancer.protocol.reads import RecalledMemory, Scores


def memory(number: int, length: int = 10) -> RecalledMemory:
    scores = Scores(final=0.5, relevance=0.0, importance=0.5, recency=1.0)
    content = str(number).ljust(length, "x")
    return RecalledMemory(
        id=f"memory:{number}", content=content, type="semantic", scope="user", scores=scores, created_at=0.0
    )


def test_a_section_has_what_comes_to_the_characters_and_says_that_there_is_more() -> None:
    found = Finds([memory(number) for number in range(100)])
    [section] = divided({"preferences": found}, limit=400, characters=500)
    assert (len(section.memories), section.more) == (50, True)
    [section] = divided({"preferences": found}, limit=400, characters=1000)
    assert (len(section.memories), section.more) == (100, False)
    [section] = divided({"preferences": found}, limit=30, characters=1000)
    assert (len(section.memories), section.more) == (30, True)
    [section] = divided({"preferences": found}, limit=400)
    assert (len(section.memories), section.more) == (100, False)


def test_long_memories_leave_room_for_others() -> None:
    assert how_many([memory(number, 100_000) for number in range(50)], 1000) == LEAST_MEMORIES


def test_what_one_section_took_counts_for_no_other() -> None:
    both = [memory(number) for number in range(10)]
    sections = divided({"preferences": Finds(both), "relevant_procedures": Finds(both[:4])}, 400, 60)
    assert [[each.id for each in section.memories] for section in sections] == [
        [each.id for each in both[4:10]],
        [each.id for each in both[:4]],
    ]
    assert not any(section.more for section in sections)


def test_what_is_remembered_twice_in_the_same_words_is_there_once_and_what_happened_twice_is_there_twice() -> None:
    texts = ("Prefer pytest.", "prefer  pytest", "Prefer unittest.")
    found = [msgspec.structs.replace(memory(number), content=text) for number, text in enumerate(texts)]
    [section] = divided({"preferences": Finds(found)}, 400)
    assert (section.memories, section.more) == ((found[0], found[2]), False)
    happened = [msgspec.structs.replace(each, type="episodic") for each in found]
    [section] = divided({"session_history": Finds(happened)}, 400)
    assert len(section.memories) == 3


def test_what_a_summary_stands_for_is_there_where_a_section_has_nothing_else_and_what_was_merged_comes_last() -> None:
    consolidated, merged, active = (
        msgspec.structs.replace(memory(number), status=status)
        for number, status in enumerate(("consolidated", "promoted", "active"))
    )
    [section] = divided({"preferences": Finds([consolidated, merged, active])}, 400)
    assert section.memories == (active, merged)
    assert not section.more
    [section] = divided({"preferences": Finds([consolidated])}, 400)
    assert section.memories == (consolidated,)


# --- Open files are searched for by what tells them apart, and recognised however a memory names them.


FILES = OpenFiles.at(["/home/me/code/src/auth/token_store.py", "web\\pages\\Login.tsx", "Makefile", ""])


def test_the_query_has_names_the_task_and_the_directories_that_say_something() -> None:
    assert FILES.query("mend the login") == "token_store Login Makefile mend the login auth web pages"
    assert OpenFiles.at([]).query("mend") == "mend"
    assert OpenFiles.at([]).query("") == ""
    assert OpenFiles.at([".gitignore"]).query("") == ".gitignore"


def test_many_files_leave_room_for_the_task() -> None:
    many = OpenFiles.at([f"src/module{number}.py" for number in range(50)])
    assert many.query("mend").split().index("mend") == SEARCHED_FILES


@pytest.mark.parametrize(
    ("file", "is_source"),
    [
        ("/home/me/code/src/auth/token_store.py", True),
        ("auth/token_store.py", True),
        ("./token_store.py", True),
        ("C:\\web\\pages\\Login.tsx", True),
        ("billing/token_store.py", False),
        ("my_token_store.py", False),
        ("", False),
        (None, False),
    ],
)
def test_a_source_is_an_open_file_if_one_path_is_the_end_of_the_other(file: str | None, is_source: bool) -> None:
    assert FILES.is_source(file) is is_source


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("token_store.py keeps them", True),
        ("see `src/auth/token_store.py:40`.", True),
        ("see (token_store.py).", True),
        ("billing/token_store.py is another", False),
        ("not my_token_store.py, nor token_store.pyc", False),
        ("run the Makefile", True),
        ("nothing of the sort", False),
    ],
)
def test_a_text_names_an_open_file_by_its_name_with_directories_that_agree(content: str, names: bool) -> None:
    assert FILES.are_named_in(content) is names
