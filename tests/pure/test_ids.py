import re
import string
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ulid import ULID

from remembrancer.memory.short_ids import LEAST, has_part, id_or_part, only_one, part_of_id, short_forms
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import (
    MAX_ULID_MS,
    MEMORY_PREFIX,
    derive_id,
    derive_memory_id,
    new_ulid,
    parse_memory_id,
)

ULID_SHAPE = re.compile(r"(memory:)?[0-7][0-9ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz]{25}")
"""Crockford's base 32 (no I, L, O, U), 128 bits at the most."""
BRIDGE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
request_ids = st.integers(-(2**53), 2**53) | words
arguments = st.dictionaries(words, words | st.integers(-(2**53), 2**53) | st.booleans() | st.none(), max_size=4)


@given(st.tuples(words, request_ids, words, arguments), st.tuples(words, request_ids, words, arguments))
@example(("a", 1, "b", {}), ("a", "1", "b", {}))
@example((BRIDGE, 1, "store_memory", {}), (BRIDGE, "1", "store_memory", {}))
@example(("ab", "c", "d", {}), ("a", "bc", "d", {}))
@example(("a", "b", "c", {"x": 1}), ("a", "b", "c", {"x": "1"}))
def test_a_replayed_request_is_one_operation_and_different_ones_are_different(
    one: tuple[str, int | str, str, dict[str, object]], two: tuple[str, int | str, str, dict[str, object]]
) -> None:
    operation_id = derive_id(*one)
    assert derive_id(*one[:3], dict(reversed(one[3].items()))) == operation_id
    assert re.fullmatch("[0-9a-f]{32}", operation_id)
    same = repr((one[:3], sorted(one[3].items()))) == repr((two[:3], sorted(two[3].items())))
    assert (operation_id == derive_id(*two)) == same


@given(st.text(min_size=1), st.integers(0, MAX_ULID_MS))
def test_a_memory_id_is_a_ulid_of_the_time_at_which_it_was_asked_for(operation_id: str, milliseconds: int) -> None:
    try:
        operation_id.encode()
    except UnicodeEncodeError:
        return  # an operation id is hexadecimal
    memory_id = derive_memory_id(operation_id, milliseconds / 1000)
    assert parse_memory_id(memory_id) == memory_id
    ulid = ULID.from_str(memory_id.removeprefix(MEMORY_PREFIX))
    assert ulid.milliseconds == milliseconds
    assert derive_memory_id(operation_id, milliseconds / 1000) == memory_id


def test_a_time_that_no_ulid_can_hold_has_a_memory_id_and_ulids_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for moment in (-1.0, 1e30):
        memory_id = derive_memory_id("a", moment)
        assert parse_memory_id(memory_id) == memory_id
    assert derive_memory_id("a", 1_700_000_000.0) != derive_memory_id("b", 1_700_000_000.0)
    monkeypatch.setattr(time, "time", iter((1.0, 2.0)).__next__)
    earlier, later = new_ulid(), new_ulid()
    assert len(earlier) == len(later) == 26
    assert earlier < later


@given(st.text(max_size=40) | st.text(string.ascii_letters + string.digits, min_size=26, max_size=26))
@example(BRIDGE)
@example(MEMORY_PREFIX + BRIDGE.lower())
@example("0" * 25 + "ß")
@example("8" + "0" * 25)
@example("memory:memory:" + BRIDGE)
@example(BRIDGE[:-1] + "U")
@example("\ud800" * 26)
def test_any_text_is_a_memory_id_or_is_refused_by_the_name_of_its_field(text: str) -> None:
    if ULID_SHAPE.fullmatch(text):
        found = parse_memory_id(text, field="superseded_by")
        assert found == parse_memory_id(found)
        assert found.removeprefix(MEMORY_PREFIX) == text.removeprefix(MEMORY_PREFIX).upper()
    else:
        with pytest.raises(InvalidInput, match="superseded_by must be a memory's id, or at least 4") as caught:
            parse_memory_id(text, field="superseded_by")
        assert caught.value.field == "superseded_by"


# --- Short ids: an ending that is shown always leads back to the one memory that it was shown for.
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


def test_a_part_of_several_ids_names_them_and_unknown_ids_have_no_short_form() -> None:
    assert short_forms([WHOLE], []) == {}
    one, other = f"{START}{'A' * 17}17KQ2Z"[:33], f"{START}{'B' * 17}27KQ2Z"[:33]
    with pytest.raises(
        InvalidInput, match=r"is ambiguous, 2 memories match: .* \(the harbour …\); .* \(a lantern\)"
    ) as error:
        only_one(one[-4:], [(one, "the harbour …"), (other, "a lantern")], "memory_id")
    assert error.value.field == "memory_id"
    with pytest.raises(NotFound, match="begins or ends with 7KQ2"):
        only_one("7KQ2", [], "memory_id")


def test_a_beginning_or_ending_has_four_characters_of_an_id_or_more() -> None:
    for text, part in (("7KQ2", "7KQ2"), ("memory:7kq2", "7KQ2"), (" 7kq2z ", "7KQ2Z")):
        assert part_of_id(text) == part
    for text in ("7KQ", "7KQU", "a word", "entity:tool:7KQ2", WHOLE, WHOLE.removeprefix("memory:")):
        assert part_of_id(text) is None
    for text in ("", "abc", "what?", "memory:", "01KB" * 7):
        with pytest.raises(InvalidInput, match="memory_id"):
            id_or_part(text)
