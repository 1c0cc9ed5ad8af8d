"""The choice of memories for a context's budget, and the files that it is asked for."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from remembrancer.actors.store.retrieval.context import OpenFiles
from remembrancer.memory.contexts import AROUND, ENDS_SHARE, STANDING_SHARE, Choice, choose, section_of
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.reads import RecalledMemory, Section
from tests.pure.recalled import recalled


def memory(number: int, words: int = 10, **fields: Any) -> RecalledMemory:
    return recalled(f"{number} {'word ' * words}", number, **fields)


def test_all_are_given_where_they_fit_and_else_it_is_said_that_they_are_not_all() -> None:
    found = [memory(number) for number in range(20)]
    assert choose(Choice(rest=found), 3000).given == tuple(found)
    assert not choose(Choice(rest=found), 3000).left_out
    assert choose(Choice(rest=found), 300).left_out
    assert choose(Choice(rest=found[:2]), 3000, is_part=True).left_out


def test_what_holds_for_every_task_comes_first_but_leaves_most_to_the_rest() -> None:
    standing = [memory(number) for number in range(100)]
    ends = [memory(number) for number in range(100, 200)]
    rest = [memory(number) for number in range(200, 300)]
    given = choose(Choice(standing, ends, rest), 1000, is_part=True).given
    shares = [
        sum(estimate_tokens(each.content) + AROUND for each in given if each in part) for part in (standing, ends, rest)
    ]
    assert STANDING_SHARE * 1000 - 30 < shares[0] <= STANDING_SHARE * 1000
    assert ENDS_SHARE * 1000 - 30 < shares[1] <= ENDS_SHARE * 1000
    assert shares[2] > 0
    assert sum(shares) < 1000
    assert len(choose(Choice(standing), 1000, is_part=True).given) > len([each for each in given if each in standing])
    assert len(choose(Choice(ends=ends), 1000, is_part=True).given) > len([each for each in given if each in ends])


def test_standing_memories_are_ordered_by_the_task_then_replacements_then_importance_then_the_last_change() -> None:
    old = memory(0, possibly_superseded_by=("memory:9",), importance=0.6)
    gone = memory(5, possibly_superseded_by=("memory:1",))
    found = [old, memory(2, importance=0.7), memory(3, updated_at=9.0), memory(4), gone, memory(1, importance=0.1)]
    chosen = choose(Choice(standing=found), 3000, is_part=True)
    assert [each.id[7:] for each in chosen.given] == ["1", "2", "0", "3", "4"]
    assert chosen.replaced == (gone,), "what one that is given says anew is not"
    for_task = choose(Choice(standing=found, found=frozenset({"memory:4"})), 3000, is_part=True)
    assert [each.id[7:] for each in for_task.given] == ["4", "1", "2", "0", "3"]


def test_an_open_end_is_given_until_it_is_closed_and_one_long_memory_keeps_no_other_away() -> None:
    end = memory(0, possibly_superseded_by=("memory:1",), kind="open_end")
    chosen = choose(Choice(rest=[end, memory(1)]), 3000)
    assert (len(chosen.given), chosen.replaced) == (2, ())
    found = [memory(0, words=5000), *(memory(number) for number in range(1, 10))]
    given = choose(Choice(rest=found), 600, is_part=True).given
    assert len(given) == 10
    assert given[0].content.endswith("word…")


@pytest.mark.parametrize(
    ("fields", "wanted", "section"),
    [
        ({}, None, "project_context"),
        ({"scope": "user"}, None, "preferences"),
        ({"scope": "session"}, None, "session_history"),
        ({"type": "procedural", "scope": "user"}, None, "relevant_procedures"),
        ({"type": "procedural", "scope": "user"}, ("preferences",), "preferences"),
        ({"type": "procedural"}, ("project_context",), "project_context"),
        ({"kind": "open_end", "type": "episodic"}, None, "open_ends"),
        ({"kind": "open_end", "type": "episodic"}, ("project_context",), "project_context"),
        ({}, ("preferences",), None),
    ],
)
def test_a_memory_is_in_one_section_of_those_that_are_asked_for(
    fields: dict[str, Any], wanted: tuple[Section, ...] | None, section: Section | None
) -> None:
    assert section_of(memory(1, **fields), wanted or get_args(Section)) == section


# --- Open files are searched for by their names, and recognised however a memory names its source.


FILES = OpenFiles.at(["/home/me/code/src/auth/token_store.py", "web\\pages\\Login.tsx", "Makefile", ""])


def test_the_query_has_names_and_the_task() -> None:
    assert FILES.query("mend the login") == "token_store Login Makefile mend the login"
    assert OpenFiles.at([]).query("mend") == "mend"
    assert OpenFiles.at([]).query("") == ""
    assert OpenFiles.at([".gitignore"]).query("") == ".gitignore"


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
