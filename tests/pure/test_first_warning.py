"""Caveats of answers: the most serious comes first, and each is said once."""

from __future__ import annotations

from remembrancer.protocol.reads import Notice
from remembrancer.toolsets.tools import Answer, with_caveats


def answer(*codes: str, **fields: object) -> Answer:
    return with_caveats(dict(fields), [Notice(code, f"about {code}") for code in codes])


def test_the_most_serious_warning_comes_first_also_when_it_is_added_later() -> None:
    formed = answer("unknown_toolset", "queued")
    formed = with_caveats(formed, [Notice("embedding_failed", "why")])
    assert [each["code"] for each in formed["warnings"]] == ["embedding_failed", "queued", "unknown_toolset"]
    assert set(formed) == {"warnings"}


def test_an_answer_without_a_caveat_stays_as_it_is() -> None:
    assert with_caveats({"memory_id": "m"}, []) == {"memory_id": "m"}
