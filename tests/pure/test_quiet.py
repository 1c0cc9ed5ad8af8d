"""The reading of files that change: after some quiet, and not while they are being written."""

from __future__ import annotations

import math

from remembrancer.actors.indexer.watching import LONGEST_S, STILL_S, Quiet


def test_files_are_read_when_nothing_has_changed_for_long_enough() -> None:
    quiet = Quiet(2.0)
    assert quiet.due_at == math.inf
    quiet.note("a", 10.0)
    quiet.note("b", 11.0)
    assert quiet.due_at == 13.0
    quiet.take(13.0)
    assert quiet.due_at == math.inf


def test_files_are_read_at_last_though_others_never_rest() -> None:
    quiet = Quiet(2.0)
    for tenth in range(1000):
        quiet.note("busy", tenth / 10)
    assert quiet.due_at == 2.0 + LONGEST_S


def test_a_file_that_is_being_written_is_left_for_the_next_time() -> None:
    quiet = Quiet(2.0)
    quiet.note("done", 10.0)
    quiet.note("written", 12.0)
    quiet.take(12.5)
    assert quiet.is_still("done", 12.5)
    assert not quiet.is_still("written", 12.5)
    assert quiet.is_still("written", 12.0 + STILL_S)
    assert quiet.is_still("never heard of", 0.0)
