"""One memory that stands for another: what says the same."""

from __future__ import annotations

from remembrancer.actors.consolidator.standing_for import says_the_same
from tests.pure.reflection_world import memory


def test_what_another_one_says_as_well_stands_for_it_unless_that_is_over_or_made_of_it() -> None:
    text = "The API runs on Postgres"
    one, other = memory(1, text), memory(2, text + ".")
    assert says_the_same(one, [(other, 0.99)], 10.0, 0.85) == (other, 0.99)
    assert says_the_same(one, [(other, 0.85)], 10.0, 0.85) is None
    for changes in ({"valid_until": 5.0}, {"is_derived": True}, {"derived_from": (one.id,)}):
        assert says_the_same(one, [(memory(2, text, **changes), 0.99)], 10.0, 0.85) is None
