"""Names are found by their parts, and words by their stems."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.code.words import names_in, question_words, terms_in, terms_of, words_in
from remembrancer.memory.wording import stem


@pytest.mark.parametrize(
    "word", ["getHTTPResponse", "get_http_response", "GetHttpResponse", "GET_HTTP_RESPONSE", "getHttpResponses"]
)
def test_a_name_is_found_by_its_parts_however_they_are_joined(word: str) -> None:
    assert {stem("get"), stem("http"), stem("response")} <= set(terms_of(word))


def test_a_name_is_found_as_a_whole_and_in_other_scripts_by_pairs() -> None:
    assert "gethttpresponse" in terms_of("getHttpResponse")
    assert "_private_name".strip("_") in terms_of("_private_name")
    assert "größe" in terms_of("größe")
    assert {"接続", "続管"} <= set(terms_of("接続管理"))
    assert list(terms_in("данные = данные + 1")).count("данные") == 2


def test_a_question_names_code_by_its_form_and_words_that_say_nothing_are_not_looked_for() -> None:
    assert names_in("how ClientSession releases snake_case to Pool.acquire") == [
        *("ClientSession", "snake_case", "Pool.acquire")
    ]
    assert names_in("how .refine and use() work") == ["refine", "use"]
    assert names_in("how does dependency injection work") == []
    assert names_in("Depends") == ["Depends"]
    assert names_in("std::vec::Vec") == ["std.vec.Vec"]
    assert question_words("how does the pool work") == ["pool", "work"]
    assert question_words("this") == ["this"]


@given(st.text(st.sampled_from("aZé_9٣名 \n\x1c.-$")))
@example("".join(map(chr, range(128))))
def test_words_in_plain_letters_are_those_of_every_script(text: str) -> None:
    assert words_in(text) == re.findall(r"\w+", text)
