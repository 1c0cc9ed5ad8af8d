"""Short ids: an ending that is shown always leads back to the one memory that it was shown for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.short_ids import LEAST, has_part, id_or_part, is_whole_id, only_one, part_of_id, short_forms
from remembrancer.protocol.errors import InvalidInput, NotFound

START = "memory:01KB"
WHOLE = START + "7" * 22
few = st.text("AB", min_size=22, max_size=22)
"""Of two letters, so that ids are often alike."""


@given(st.sets(few.map(START.__add__), min_size=1, max_size=40))
def test_a_short_form_stands_for_one_memory_and_a_shorter_one_for_several(ids: set[str]) -> None:
    for memory_id, short in short_forms(ids, ids).items():
        if short == memory_id:
            continue
        assert [each for each in ids if has_part(each, short)] == [memory_id]
        assert len(short) == LEAST or len([each for each in ids if has_part(each, short[1:])]) > 1


def test_ids_that_are_not_known_have_no_short_form() -> None:
    assert short_forms([WHOLE], []) == {}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("7KQ2", "7KQ2"),
        ("memory:7kq2", "7KQ2"),
        (" 7kq2z ", "7KQ2Z"),
        ("7KQ", None),
        ("7KQU", None),
        ("a word", None),
        ("entity:tool:7KQ2", None),
        (WHOLE, None),
        (WHOLE.removeprefix("memory:"), None),
    ],
)
def test_a_beginning_or_ending_has_four_characters_of_an_id_or_more(text: str, part: str | None) -> None:
    assert part_of_id(text) == part


@pytest.mark.parametrize("text", ["", "abc", "what?", "memory:", "01KB" * 7])
def test_other_texts_are_refused_as_ids(text: str) -> None:
    with pytest.raises(InvalidInput, match="memory_id"):
        id_or_part(text)


def test_a_part_of_several_ids_names_them_with_their_words_and_one_of_none_says_so() -> None:
    one, other = f"{START}{'A' * 17}17KQ2Z"[:33], f"{START}{'B' * 17}27KQ2Z"[:33]
    assert is_whole_id(one)
    with pytest.raises(
        InvalidInput, match=r"is ambiguous, 2 memories match: .* \(the harbour …\); .* \(a lantern\)"
    ) as error:
        only_one(one[-4:], [(one, "the harbour …"), (other, "a lantern")], "memory_id")
    assert error.value.field == "memory_id"
    with pytest.raises(NotFound, match="begins or ends with 7KQ2"):
        only_one("7KQ2", [], "memory_id")
