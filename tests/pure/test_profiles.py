"""The six profiles, and what each of them adds to the score of a scope."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.profiles import PROFILES, scope_shares
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.reads import ProfileName

NAMES: tuple[ProfileName, ...] = get_args(ProfileName)


@given(st.sampled_from(NAMES), st.sets(st.sampled_from(SCOPES), min_size=1))
def test_a_profile_orders_the_scopes_as_its_weights_do_and_leaves_the_heaviest_as_it_is(
    name: ProfileName, scopes: set[Scope]
) -> None:
    weights, shares = PROFILES[name], scope_shares(PROFILES[name], scopes)
    assert shares.keys() == scopes
    assert max(shares.values()) == 0.0
    for one in scopes:
        for two in scopes:
            assert (shares[one] > shares[two]) == (weights[one] > weights[two])
