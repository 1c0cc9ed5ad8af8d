"""The promises of every `Records` about memories without a question: the most important, the latest, a file's."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters
from remembrancer.protocol.writes import ForgetMemory, MemoryType, Scope, SourceRef, StoreMemory, UpdateMemory
from tests.operations import (
    OTHER_SESSION,
    REQUESTED_AT,
    SESSION,
    change_of,
    change_operation,
    memory_id_of,
    store_operation,
)

ALL = Filters(SESSION)


def store(records: Records, name: str, **fields: Any) -> int:
    (outcome,) = records.apply([store_operation(name, name, **fields)])
    assert outcome.to_embed is not None
    return outcome.to_embed


def test_open_ends_are_given_by_their_due_dates_until_they_are_done(records: Records) -> None:
    """The done, the forgotten, other sessions' and other kinds are not among them."""
    later = store(records, "undated, later", kind="open_end", type="episodic", requested_at=REQUESTED_AT + 1)
    undated = store(records, "undated", kind="open_end", type="episodic")
    second = store(records, "second", kind="open_end", type="episodic", due=20.0)
    first = store(records, "first", kind="open_end", type="episodic", scope="session", due=10.0)
    theirs = store(records, "theirs", kind="open_end", scope="session", session_id=OTHER_SESSION, due=5.0)
    store(records, "fact", due=1.0)
    for name in ("done", "gone"):
        store(records, name, kind="open_end", type="episodic", due=1.0)
    done, gone = (memory_id_of(store_operation(name, name)) for name in ("done", "gone"))
    for change in (UpdateMemory(done, done=True), ForgetMemory(gone)):
        records.apply([change_operation(f"change {change.memory_id}", change)])
    assert records.top(ALL, "due", 10) == [first, second, later, undated]
    assert records.top(ALL, "due", 2) == [first, second]
    assert records.top(Filters(OTHER_SESSION, include_forgotten=True), "due", 10) == [theirs, second, later, undated]
    assert records.top(Filters(SESSION, ("project",), before=REQUESTED_AT), "due", 10) == [second, undated]
    records.apply([change_operation("reopened", UpdateMemory(done, done=False))])
    assert len(records.top(ALL, "due", 10)) == 5


def test_memories_of_files_are_found_by_a_part_of_the_path(records: Records) -> None:
    quoted = store(records, "quoted", source=SourceRef(file='src/"o\'dd" näme.py'))
    plain = store(records, "plain", source=SourceRef(tool="näme.py", file="src/app.py"), requested_at=REQUESTED_AT + 1)
    store(records, "elsewhere")
    theirs = store(records, "theirs", scope="session", session_id=OTHER_SESSION, source=SourceRef(file="app.py"))
    assert records.top(ALL, "latest", 10, ["app.py"]) == [plain]
    assert records.top(ALL, "latest", 10, ['"o\'dd" näme.py']) == [quoted]
    assert records.top(ALL, "latest", 10, ["näme.py", "app.py"]) == [plain, quoted]
    assert records.top(ALL, "latest", 1, ["näme.py", "app.py"]) == [plain]
    assert records.top(ALL, "latest", 10, []) == []
    assert records.top(Filters(OTHER_SESSION, ("session",)), "latest", 10, ["app.py"]) == [theirs]
    assert records.top(Filters(SESSION, types=("episodic",)), "latest", 10, ["src/"]) == []


def of_every_sort(records: Records) -> dict[int, tuple[StoreMemory, bool]]:
    """Memories of all sorts by their numbers, and whether each is forgotten."""
    made: dict[int, tuple[StoreMemory, bool]] = {}
    sorts = product(
        ("project", "session", "user"), ("episodic", "semantic"), (SESSION, OTHER_SESSION), (0.2, 0.7), (1, 2)
    )
    for place, (scope, kind, session, importance, day) in enumerate(sorts):
        operation = store_operation(
            f"m{place}",
            f"memory {place}",
            scope=scope,
            type=kind,
            session_id=session,
            importance=importance,
            occurred_at=day * 86_400.0 if place % 3 else None,
            tags=(("common", "rare") if place % 5 == 0 else ("common",)) if place % 2 else (),
        )
        (outcome,) = records.apply([operation])
        assert outcome.to_embed is not None
        made[outcome.to_embed] = change_of(operation), place % 7 == 0
        if place % 7 == 0:
            forget = ForgetMemory(memory_id_of(operation), reason="tested")
            records.apply([change_operation(f"f{place}", forget, session_id=session)])
    return made


def happened(memory: StoreMemory) -> float:
    return REQUESTED_AT if memory.occurred_at is None else memory.occurred_at


def passes(memory: StoreMemory, forgotten: bool, filters: Filters) -> bool:
    return (
        (memory.scope != "session" or memory.session_id == filters.session_id)
        and (filters.include_forgotten or not forgotten)
        and memory.scope in (filters.scopes or (memory.scope,))
        and memory.type in (filters.types or (memory.type,))
        and (not filters.tags or bool(set(filters.tags).intersection(memory.tags)))
        and memory.importance >= filters.min_importance
        and (filters.after is None or happened(memory) >= filters.after)
        and (filters.before is None or happened(memory) <= filters.before)
    )


SCOPES: Final[tuple[tuple[Scope, ...], ...]] = ((), ("session",), ("project", "user"), ("user", "session", "user"))
TYPES: Final[tuple[tuple[MemoryType, ...], ...]] = ((), ("episodic",), ("procedural", "semantic", "semantic"))


def test_lists_have_all_that_passes_whatever_the_filters_are(records: Records) -> None:
    made = of_every_sort(records)
    for scopes, types, tags, importance, after, before, forgotten in product(
        SCOPES,
        TYPES,
        ((), ("rare",), ("common", "unknown")),
        (0.0, 0.5),
        (None, 100_000.0),
        (None, 200_000.0),
        (False, True),
    ):
        filters = Filters(SESSION, scopes, types, tags, importance, after, before, forgotten)
        expected = {number for number, (memory, gone) in made.items() if passes(memory, gone, filters)}
        matching = records.matching(filters, len(made))
        assert matching is not None
        assert sorted(matching) == sorted(expected), filters
        assert not expected or records.matching(filters, len(expected) - 1) is None
        latest = sorted(expected, key=lambda number: (happened(made[number][0]), number), reverse=True)
        assert records.top(filters, "latest", 5) == latest[:5], filters
        important = sorted(latest, key=lambda number: -made[number][0].importance)
        assert records.top(filters, "important", 5) == important[:5], filters
