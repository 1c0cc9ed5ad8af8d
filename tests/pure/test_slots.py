"""What replaces what: another value of the same thing, and not what holds beside it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from remembrancer.memory.slots import in_force_first, replaces
from remembrancer.protocol.reads import ListedMemory


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The gateway listens on port 7000", "The gateway listens on port 7001."),
        ("The wiki is owned by Ida.", "The owner of the wiki is Pia."),
        ("We use SQS as job queue", "We moved from SQS to River, because of the costs."),
        ("Ida is the lead of the data team", "Pia is now the lead of the data team"),
        ("The page size is 50", "We raised the page size to 80"),
        ("We squash commits.", "We don't squash commits any more."),
        ("We host the docs on Netlify", "The docs are no longer on Netlify"),
        ("Database: PostgreSQL 15", "Database: MariaDB 11"),
        ("billing: the worker listens on port 7000", "billing: the worker listens on port 7001"),
    ],
)
def test_another_value_of_the_same_thing_replaces_the_earlier_one(earlier: str, later: str) -> None:
    assert replaces(later, earlier)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The gateway listens on port 7000", "The gateway listens on port 7000"),
        ("The gateway listens on port 7000", "The metrics listen on port 7001"),
        ("The staging gateway listens on port 7000", "The production gateway listens on port 7001"),
        ("We deploy on Mondays", "We also deploy on Thursdays"),
        ("auth: return early where the token is missing", "auth: rotate signing keys each quarter of the year"),
        ("Note: read the changelog before an upgrade", "Note: ask Ida for access to the staging host"),
        ("billing: the worker listens on port 7000", "search: the worker listens on port 7001"),
        ("The importer depends on lxml", "The importer depends on httpx"),
        ("Does the gateway listen on port 7000?", "The gateway listens on port 7001"),
        ("The search moved from Solr to Meilisearch", "We use Solr as archive of the orders"),
        ("Wir nutzen Redis", "Wir nutzen Kafka"),
        ("", "!"),
        ("x" * 5000, "y" * 5000),
    ],
)
def test_what_holds_beside_it_does_not(earlier: str, later: str) -> None:
    assert not replaces(later, earlier)


def listed(identity: str, content: str, at: float, **fields: Any) -> ListedMemory:
    known: dict[str, Any] = {"id": identity, "content": content, "type": "semantic", "scope": "project"}
    return ListedMemory(**known | {"created_at": at} | fields)


def test_what_is_replaced_is_marked_and_right_behind_what_replaces_it() -> None:
    memories = [
        listed("a", "The page size is 50", 1.0),
        listed("other", "Releases are on Fridays", 2.0),
        listed("b", "The page size is 80", 3.0),
    ]
    ordered = in_force_first(memories)
    assert [(each.id, each.possibly_superseded_by) for each in ordered] == [("b", ()), ("a", ("b",)), ("other", ())]


def test_of_many_newer_values_the_newest_three_are_named() -> None:
    values = [listed(name, f"The pool has {number + 4} threads", number * 10.0) for number, name in enumerate("abcde")]
    ordered = in_force_first(values)
    assert [each.id for each in ordered] == ["e", "d", "c", "b", "a"]
    assert ordered[-1].possibly_superseded_by == ("e", "d", "c")
    notes = [listed(name, f"note {number} of the export", number * 10.0) for number, name in enumerate("ab")]
    assert in_force_first(notes) == notes, "two notes"


def test_links_decide_the_order_whatever_was_stored_first_and_a_circle_of_them_ends() -> None:
    chain = [
        listed("a", "x", 3.0, superseded_by=("b",)),
        listed("c", "z", 1.0),
        listed("b", "y", 2.0, superseded_by=("c",)),
    ]
    assert [each.id for each in in_force_first(chain)] == ["c", "b", "a"]
    circle = [listed("a", "x", 1.0, superseded_by=("b",)), listed("b", "y", 2.0, superseded_by=("a",))]
    assert sorted(each.id for each in in_force_first(circle)) == ["a", "b"]


def test_events_and_memories_of_another_scope_are_replaced_by_nothing() -> None:
    for fields in ({"type": "episodic"}, {"scope": "user"}):
        memories = [listed("a", "The page size is 50", 1.0, **fields), listed("b", "The page size is 80", 3.0)]
        assert in_force_first(memories) == memories


def test_nine_of_ten_pairs_of_the_benchmark_are_told_apart() -> None:
    shares = subprocess.run(
        [sys.executable, "-m", "bench.superseded"], capture_output=True, text=True, check=True
    ).stdout
    assert len(shares.splitlines()) == 4
    assert all(float(line.split()[-2]) >= 90.0 for line in shares.splitlines()), shares
