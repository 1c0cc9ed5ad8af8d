"""The six profiles, and which of them a question gets."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.profiles import PROFILES, choose_profile
from remembrancer.protocol.kinds import SCOPES
from remembrancer.protocol.reads import ProfileName

NAMES: tuple[ProfileName, ...] = get_args(ProfileName)


def test_the_weights_are_the_seeds() -> None:
    assert {name: tuple(weights.of(scope) for scope in SCOPES) for name, weights in PROFILES.items()} == {
        "default": (0.50, 0.35, 0.15),
        "codebase": (0.20, 0.60, 0.20),
        "preferences": (0.10, 0.20, 0.70),
        "debugging": (0.40, 0.40, 0.20),
        "new_project": (0.30, 0.10, 0.60),
        "architecture": (0.15, 0.65, 0.20),
    }
    assert set(PROFILES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_of_a_profile_are_1_together(name: ProfileName) -> None:
    assert sum(PROFILES[name].of(scope) for scope in SCOPES) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "question",
    [
        "",
        "What did we decide about retries?",
        "When is the next release?",
        "Who reviews the translations?",
        "What does the configuration look like?",
        "What do we want to do next?",
        "What did Caroline research?",
        "Is it true that mirrors are expensive?",
        "Does it run on macOS and Node.js?",
        "日本語の質問です",
        "e.g. the U.S. office, and/or the one in Bern",
    ],
)
def test_an_ordinary_question_gets_the_default(question: str) -> None:
    assert choose_profile(question, 100) == "default"


@pytest.mark.parametrize(
    "question",
    [
        "Why does the build fail?",
        "FAILED: two of the uploads",
        "Traceback (most recent call last)",
        "KeyError in the importer",
        "a NullPointerException at the start",
        "the exceptions of last week",
        "How was the bug in the importer fixed?",
        "It doesn't work on Fridays",
        "It doesn\u2019t work on Fridays",
        "what went wrong on Friday",
        "a stack trace from yesterday",
        "The server crashed",
    ],
)
def test_a_question_about_a_failure_is_debugging(question: str) -> None:
    assert choose_profile(question, 100) == "debugging"


@pytest.mark.parametrize(
    "question",
    [
        "Which editor do I prefer?",
        "what are the user's preferences",
        "my favourite colours",
        "favorite colors",
        "Do I really like tabs?",
        "things the user dislikes",
        "Which shell do I always use?",
        "coding style",
        "How is my commit style?",
    ],
)
def test_a_question_about_what_somebody_likes_is_one_of_preferences(question: str) -> None:
    assert choose_profile(question, 100) == "preferences"


@pytest.mark.parametrize(
    "question",
    [
        "How is the architecture of the service?",
        "What did we design for payments?",
        "overall structure",
        "Which modules are there?",
        "what depends on AuthService",
        "components of the gateway",
        "data flow of an upload",
    ],
)
def test_a_question_about_structure_is_one_of_architecture(question: str) -> None:
    assert choose_profile(question, 100) == "architecture"


@pytest.mark.parametrize(
    "question",
    [
        "Which file has the limits?",
        "the function that retries",
        "What does parse_config do?",
        "what does parseConfig do",
        "what does retry() return",
        "look into src/auth",
        "what is in token.py",
        "what is in ./auth/token.py",
        "the repo of the importer",
    ],
)
def test_a_question_that_names_code_is_one_of_the_codebase(question: str) -> None:
    assert choose_profile(question, 100) == "codebase"


def test_a_project_without_memories_is_new() -> None:
    assert choose_profile("What did we decide about retries?", 0) == "new_project"
    assert choose_profile("What did we decide about retries?", 1) == "default"


def test_liking_comes_before_failure() -> None:
    assert choose_profile("Which style of error messages do I prefer?", 100) == "preferences"


def test_failure_comes_before_structure_and_code() -> None:
    assert choose_profile("Which component fails in src/auth/token.py?", 100) == "debugging"
    assert choose_profile('File "/app/main.py", line 3, in load_all\nValueError: bad', 100) == "debugging"


def test_structure_comes_before_code() -> None:
    assert choose_profile("In which files is the storage layer?", 100) == "architecture"


def test_what_leans_on_the_project_is_for_a_project_that_has_memories() -> None:
    assert choose_profile("In which files is the storage layer?", 0) == "new_project"
    assert choose_profile("What does parse_config do?", 0) == "new_project"
    assert choose_profile("Which editor do I prefer?", 0) == "preferences"
    assert choose_profile("Why does the build fail?", 0) == "debugging"


def test_words_count_whole() -> None:
    assert choose_profile("The prefix of the profile was filed by the coder in a classic way", 100) == "default"


@given(st.text(max_size=200), st.integers(0, 3))
def test_every_question_gets_one_of_the_six_whatever_its_case(question: str, memories: int) -> None:
    assert choose_profile(question, memories) in NAMES
    if question.isascii():
        words = question.lower()
        assert (choose_profile(words, memories) == "debugging") == (
            choose_profile(words.upper(), memories) == "debugging"
        )


def test_a_long_question_is_looked_at_in_one_pass() -> None:
    for piece in ("a", "a_", "a/", "aA", "user ", "i really "):
        assert choose_profile(piece * 100_000, 1) in NAMES
