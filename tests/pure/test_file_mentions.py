"""Open files are searched for by what tells them apart, and recognised however a memory names them."""

from __future__ import annotations

import pytest

from remembrancer.actors.store.retrieval.context import SEARCHED_FILES, OpenFiles

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
