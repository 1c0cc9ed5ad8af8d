"""The life of one process: ready, dead, hanging, failed, stopped, and when it is started again."""

from __future__ import annotations

import pytest

from remembrancer.actors.launcher.lifecycle import (
    ASK_S,
    DELAYS_S,
    FORGIVEN_S,
    KILL_S,
    SLOW_S,
    STARTING_S,
    TERM_S,
    describe_ending,
)
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import PeerFailed, Stop
from tests.pure.launcher_world import FREE_RESTARTS, begun, starting


def test_a_process_that_dies_is_started_again_at_once_then_with_a_pause_and_after_a_good_life_at_once() -> None:
    world = begun()
    before = world.running["store"]
    world.exit("store")
    assert world.running["store"] != before
    assert world.state("store") == "starting"
    assert world.process("store").restarts == 1
    world.apply(world.core.on_ready("store", before, world.now))
    world.apply(world.core.on_exit("store", before, -9, world.now))
    assert world.state("store") == "starting", "words of an earlier incarnation are ignored"
    for _ in range(FREE_RESTARTS):
        world.exit("store")
    assert world.state("store") == "restarting"
    world.run_for(DELAYS_S[FREE_RESTARTS] - 0.01)
    assert "store" not in world.running
    world.run_for(0.02)
    assert "store" in world.running
    world = begun()
    for _ in range(4):
        world.exit("store")
        world.run_for(DELAYS_S[-1])
    world.ready("store")
    world.run_for(5 * FORGIVEN_S)
    world.exit("store")
    assert "store" in world.running


def test_a_crash_loop_fails_visibly_is_told_once_and_tried_rarely_until_it_recovers() -> None:
    world = begun()
    world.crash_loop("store", 70)
    assert world.process("store").restarts == len(DELAYS_S)
    assert world.state("store") == "failed"
    assert "status 70" in (world.process("store").error or "")
    for _ in range(2):
        tries = len(world.started)
        world.run_for(SLOW_S)
        assert len(world.started) == tries + 1
        assert world.state("store") == "failed"  # until it has proved itself
        world.exit("store", 70)
    assert [failed.code for failed in world.heard("gateway", PeerFailed)] == ["crash_loop"]
    world.run_for(SLOW_S)
    world.ready("store")
    assert (world.state("store"), world.process("store").error) == ("ready", None)


@pytest.mark.parametrize("reports_first", [True, False])
def test_a_failure_that_the_process_reports_is_not_retried_and_keeps_its_reason(reports_first: bool) -> None:
    world = begun()
    world.exit("store")
    incarnation = world.running["store"]
    if reports_first:
        world.refuse("store", "a newer release")
    else:
        world.exit("store", 2)
        world.apply(world.core.on_start_failed("store", incarnation, "schema_too_new", "a newer release", world.now))
    world.run_for(3600.0)
    assert "store" not in world.running
    assert (world.state("store"), world.process("store").error) == ("failed", "a newer release")


def test_what_reports_a_failure_and_stays_is_killed_and_what_is_never_ready_is_tried_rarely() -> None:
    world = begun()
    world.exit("store")
    world.apply(world.core.on_start_failed("store", world.running["store"], "x", "y", world.now))
    world.run_for(5.0)
    assert ("store", "KILL") in world.signals
    assert "store" not in world.running
    world = begun(Settings(start_timeout_s=10.0))
    world.exit("store")
    world.run_for(10.5)
    assert ("store", "KILL") in world.signals
    assert world.state("store") == "failed"
    assert "not ready after 10 s" in (world.process("store").error or "")
    tries = len(world.started)
    world.run_for(SLOW_S)
    assert len(world.started) == tries + 1


def test_a_process_that_hangs_is_killed_and_replaced_and_a_launcher_that_was_suspended_kills_nobody() -> None:
    world = begun()
    world.run_for(10.0)
    world.now += 3600.0
    world.apply(world.core.tick(world.now))
    assert world.signals == []
    before = world.running["store"]
    world.run_for(Settings().stall_timeout_s - 1, answering=False)
    assert world.signals == []
    world.run_for(3.0, answering=False)
    assert ("store", "KILL") in world.signals
    assert world.running["store"] != before
    assert any(change.state == "unresponsive" for change in world.changes)


@pytest.mark.parametrize("suspended", [False, True])
def test_a_stop_climbs_from_asking_to_killing_and_a_suspended_launcher_gives_a_process_its_time(
    suspended: bool,
) -> None:
    world = begun(Settings(embedders=0))
    world.stop()
    assert isinstance(world.told[-1][1], Stop)
    if suspended:
        world.now += 3600.0
        world.apply(world.core.tick(world.now))
    else:
        world.run_for(ASK_S - 0.01)
        assert world.signals == []
        world.run_for(0.01)
    assert world.signals == [("gateway", "TERM")]
    world.run_for(TERM_S - 0.01)
    assert world.signals == [("gateway", "TERM")]
    world.run_for(0.02)
    assert world.signals[1] == ("gateway", "KILL")


def test_a_process_that_still_starts_has_less_time_to_stop_and_one_that_the_kernel_holds_none() -> None:
    world = starting(Settings(embedders=0))
    world.stop()
    assert world.signals == [("gateway", "TERM")]
    world.run_for(STARTING_S)
    assert ("gateway", "KILL") in world.signals
    world = begun()
    world.dies_of_kill = False
    world.stop()
    world.run_for(4 * (ASK_S + TERM_S + KILL_S) + 0.1)
    assert world.core.finished


def test_the_end_of_a_process_is_described_for_a_person() -> None:
    assert "SIGKILL" in describe_ending("store", -9)
    assert "signal 200" in describe_ending("store", -200)
    assert "store.log" in describe_ending("store", 70)
    assert describe_ending("store", "no such file") == "no such file"
