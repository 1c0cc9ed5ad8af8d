"""The demonstration's words when the system does not answer as it should."""

from __future__ import annotations

import pytest

from examples.demo import figures_of
from examples.sessions import reason_of
from remembrancer.protocol.errors import MemoryUnavailable, RecordsUnusable


def test_a_status_that_is_an_error_is_told_by_its_reason() -> None:
    with pytest.raises(RecordsUnusable, match="a file is damaged"):
        figures_of({"error": "records_unusable", "message": "a file is damaged", "retry_possible": False})


def test_a_status_without_figures_is_told_by_its_warning() -> None:
    with pytest.raises(MemoryUnavailable, match="no figures yet"):
        figures_of({"warnings": [{"code": "memory_unavailable", "message": "there are no figures yet"}]})
    assert figures_of({"embedding": {"pending": 2}}) == {"pending": 2}


def test_an_error_of_the_system_is_found_within_groups_and_a_fault_is_no_reason() -> None:
    error = MemoryUnavailable("the store is away")
    assert reason_of(error) == "the store is away"
    assert reason_of(ExceptionGroup("client", [ExceptionGroup("tasks", [error])])) == "the store is away"
    assert reason_of(ExceptionGroup("client", [error, KeyError("embedding")])) is None
