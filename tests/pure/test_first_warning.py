"""The literal forms of a caveat, beside the list of all of them."""

from __future__ import annotations

from remembrancer.protocol.reads import Notice
from remembrancer.toolsets.tools import Answer, with_caveats, with_first_warning


def answer(*codes: str, **fields: object) -> Answer:
    return with_caveats(dict(fields), [Notice(code, f"about {code}") for code in codes])


def test_the_most_serious_warning_comes_first_and_names_the_answer_s() -> None:
    formed = with_first_warning(answer("unknown_toolset", "queued", "embedding_failed"))
    assert [each["code"] for each in formed["warnings"]] == ["embedding_failed", "queued", "unknown_toolset"]
    assert formed["warning"] == "embedding_failed"
    assert "message" not in formed


def test_a_degraded_answer_says_why() -> None:
    formed = with_first_warning(answer("queued", "memory_unavailable", degraded=True))
    assert (formed["warning"], formed["message"]) == ("memory_unavailable", "about memory_unavailable")


def test_an_answer_without_a_caveat_stays_as_it_is() -> None:
    assert with_first_warning({"memory_id": "m"}) == {"memory_id": "m"}
