"""A model of the records after any operations: their contract, said once more in other words.

`Model.apply` answers an operation as the records should; `check` compares everything that can be asked of records with
what the model says. Both can be driven by whatever applies operations: one process, or a store that is killed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.memory.changes import removed_words
from remembrancer.memory.names import name_key
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.reads import Counts
from remembrancer.protocol.writes import (
    Change,
    EntityRef,
    ForgetMemory,
    ForgottenResult,
    Kind,
    MemoryType,
    MemoryVersion,
    Operation,
    PortableMemory,
    PromotedResult,
    PromoteMemory,
    RestoredResult,
    RestoreMemory,
    Result,
    StoredResult,
    StoreMemory,
    TaggedResult,
    TagMemory,
    UpdatedResult,
    UpdateMemory,
)
from tests.contracts.records_factories import pending
from tests.operations import OTHER_SESSION, SESSION

WORDS = ("lantern", "candle", "torch", "bottle")
TAGS = ("red", "blue", "green")
BREADTH = ("session", "project", "user")
KINDS: dict[str, Kind] = {"episodic": "observation", "semantic": "fact", "procedural": "procedure"}
TYPES: dict[Kind, MemoryType] = {"decision": "semantic", "preference": "semantic", "procedure": "procedural"}
SESSIONS = (SESSION, OTHER_SESSION)
Refusal = type[InvalidInput] | type[NotFound]


@dataclass
class Remembered:
    """A memory: each of its versions, and what each change was called."""

    created_at: float
    versions: list[MemoryVersion] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    embedded: bool = False
    came_from_project: bool = False
    proposal: Literal["open", "refused"] | None = None
    """That it goes to the user. What was taken back from him is one that is refused."""

    @property
    def now(self) -> MemoryVersion:
        return self.versions[-1]

    def become(self, change: str, **fields: Any) -> list[str]:
        """Add a version, if it is another one. The names of the fields that differ."""
        after = msgspec.structs.replace(self.now, **fields)
        names = [
            "content",
            "importance",
            "tags",
            "metadata",
            "related_entities",
            "source",
            "type",
            "kind",
            "summary",
            "structured",
            "confidence",
            "domain",
            "valid_until",
            "scope",
            "forgotten",
        ]
        differing = [
            name
            for name in names
            if msgspec.json.encode(getattr(after, name), order="sorted")
            != msgspec.json.encode(getattr(self.now, name), order="sorted")
        ]
        if differing:
            self.versions.append(after)
            self.changes.append(change)
            self.embedded = self.embedded and "content" not in differing
        return ["status" if name == "forgotten" else name for name in differing]


class Model:
    """Memories by their ids, and the answer of each operation that was applied."""

    def __init__(self) -> None:
        self.memories: dict[str, Remembered] = {}
        self.answers: dict[str, Result] = {}
        self.aliases: dict[str, str] = {}

    def apply(self, operation: Operation) -> Result | Refusal:
        """The answer that the records should give. The session may see what it changes, or there is no such memory."""
        if operation.operation_id in self.answers:
            return self.answers[operation.operation_id]
        answer = self._answer(operation)
        if not isinstance(answer, type):
            self.answers[operation.operation_id] = answer
        return answer

    def merges(self, operation: Operation) -> bool:
        """True for a promotion of a memory whose text the broader scope has, of which the model knows nothing."""
        change = operation.change
        if not isinstance(change, PromoteMemory) or operation.operation_id in self.answers:
            return False
        seen = self.visible(operation.session_id)
        memory = seen.get(self.aliases.get(change.memory_id, change.memory_id))
        others = [each.now for each in seen.values() if each is not memory and each.now.scope == change.target_scope]
        return memory is not None and memory.now.content in [each.content for each in others]

    def visible(self, session_id: str | None) -> dict[str, Remembered]:
        return {
            memory_id: memory
            for memory_id, memory in self.memories.items()
            if session_id is None or memory.now.scope != "session" or memory.now.session_id == session_id
        }

    def _answer(self, operation: Operation) -> Result | Refusal:
        change = operation.change
        if isinstance(change, StoreMemory):
            return self._store(operation, change)
        assert isinstance(change, (UpdateMemory, TagMemory, ForgetMemory, RestoreMemory, PromoteMemory))
        change = msgspec.structs.replace(change, memory_id=self.aliases.get(change.memory_id, change.memory_id))
        memory = self.visible(operation.session_id).get(change.memory_id)
        if memory is None:
            return NotFound
        if memory.now.forgotten and isinstance(change, (UpdateMemory, TagMemory, PromoteMemory)):
            return InvalidInput
        match change:
            case UpdateMemory():
                return self._update(memory, change)
            case TagMemory():
                memory.become("tagged", tags=new_tags(memory.now.tags, change.add, change.remove))
                return TaggedResult(change.memory_id, memory.now.tags, len(memory.versions))
            case ForgetMemory():
                already = memory.now.forgotten
                if not already:
                    memory.become("forgotten", forgotten=True, forgotten_reason=change.reason)
                return ForgottenResult(change.memory_id, memory.now.forgotten_reason, already)
            case RestoreMemory():
                return self._restore(memory, change, operation.session_id)
            case PromoteMemory():
                return self._promote(memory, change)

    def _store(self, operation: Operation, change: StoreMemory) -> StoredResult:
        same = [
            memory_id
            for memory_id, memory in self.visible(change.session_id).items()
            if memory.now.content == change.content and not memory.now.forgotten
        ]
        entities = tuple(dict.fromkeys(change.related_entities))
        for memory_id in same:
            known = self.memories[memory_id]
            if known.now.scope == change.scope and not known.now.valid_until:
                had = known.now.related_entities
                fields = known.become(
                    "stored again",
                    importance=max(known.now.importance, change.importance),
                    confidence=max(known.now.confidence, change.confidence),
                    tags=tuple(dict.fromkeys((*known.now.tags, *change.tags))),
                    related_entities=tuple(dict.fromkeys((*had, *entities))),
                    summary=known.now.summary or change.summary,
                )
                self.aliases[change.memory_id] = memory_id
                return StoredResult(
                    memory_id,
                    known.now.type,
                    known.now.scope,
                    len(known.now.related_entities) - len(had),
                    tuple(each for each in same[:5] if each != memory_id),
                    already_known=True,
                    updated_fields=tuple(fields),
                )
        first = MemoryVersion(
            content=change.content,
            type=change.type,
            scope=change.scope,
            session_id=change.session_id,
            importance=change.importance,
            tags=change.tags,
            source=change.source,
            related_entities=entities,
            kind=change.kind or KINDS[change.type],
            summary=change.summary,
            confidence=change.confidence,
        )
        self.memories[change.memory_id] = Remembered(operation.requested_at, [first], ["stored"])
        return StoredResult(change.memory_id, change.type, change.scope, len(entities), tuple(same[:5]))

    def _update(self, memory: Remembered, change: UpdateMemory) -> UpdatedResult:
        entities = list(memory.now.related_entities)
        for name in change.remove_entities:
            exact = [each for each in memory.now.related_entities if each.name == name]
            for each in exact or [e for e in memory.now.related_entities if name_key(e.name) == name_key(name)]:
                if each in entities:
                    entities.remove(each)
        entities += [each for each in dict.fromkeys(change.add_entities) if each not in entities]
        before = memory.now.content
        fields = memory.become(
            "updated",
            content=before if change.content is None else change.content,
            importance=memory.now.importance if change.importance is None else change.importance,
            tags=new_tags(memory.now.tags, change.add_tags, change.remove_tags),
            metadata=merged(memory.now.metadata, change.metadata),
            related_entities=tuple(entities),
            type=memory.now.type if change.kind is None else TYPES[change.kind],
            kind=change.kind or memory.now.kind,
            summary=memory.now.summary if change.summary is None else change.summary or None,
            structured=merged(memory.now.structured, change.structured),
            confidence=memory.now.confidence if change.confidence is None else change.confidence,
            valid_until=change.valid_until or (None if change.cleared else memory.now.valid_until),
        )
        was = removed_words(before, memory.now.content)
        return UpdatedResult(change.memory_id, tuple(fields), "content" in fields, len(memory.versions), was=was)

    def _restore(self, memory: Remembered, change: RestoreMemory, session_id: str) -> RestoredResult | Refusal:
        if change.version is None:
            if not memory.now.forgotten and memory.proposal == "refused":
                memory.proposal = "open"
                return RestoredResult(change.memory_id, len(memory.versions), (), False)
            if not memory.now.forgotten:
                return InvalidInput
            old = memory.now
        elif 1 <= change.version <= len(memory.versions):
            old = memory.versions[change.version - 1]
            if old.scope == "session" and old.session_id != session_id:
                return InvalidInput
        else:
            return InvalidInput
        kept = {name: getattr(memory.now, name) for name in ("scope", "session_id", "occurred_at")}
        again = {name: getattr(old, name) for name in MemoryVersion.__struct_fields__ if name not in kept}
        fields = memory.become("restored", **again | {"forgotten": False, "forgotten_reason": None})
        return RestoredResult(change.memory_id, len(memory.versions), tuple(fields), "content" in fields)

    def _promote(self, memory: Remembered, change: PromoteMemory) -> PromotedResult | Refusal:
        before = memory.now.scope
        if before == "user" and change.target_scope == "project" and memory.came_from_project:
            memory.become("taken back", scope="project")
            memory.came_from_project, memory.proposal = False, "refused"
            return PromotedResult(change.memory_id, before, "project", len(memory.versions), change.reason)
        if before == change.target_scope and memory.proposal:
            memory.proposal = "refused"
            return PromotedResult(change.memory_id, before, before, len(memory.versions), change.reason)
        if BREADTH.index(change.target_scope) <= BREADTH.index(before):
            return InvalidInput
        memory.become("promoted", scope=change.target_scope)
        memory.came_from_project, memory.proposal = change.target_scope == "user", None
        return PromotedResult(change.memory_id, before, change.target_scope, len(memory.versions), change.reason)


def merged(present: dict[str, Any], changes: dict[str, Any] | None) -> dict[str, Any]:
    """Key by key; None takes a key away."""
    both = present | (changes or {})
    return {key: value for key, value in both.items() if value is not None or key not in (changes or {})}


def new_tags(present: tuple[str, ...], add: tuple[str, ...], remove: tuple[str, ...]) -> tuple[str, ...]:
    """In the order in which they came."""
    left = [tag for tag in present if tag not in remove]
    return (*left, *(tag for tag in dict.fromkeys(add) if tag not in present))


def check(records: Records, model: Model) -> None:
    """Everything that can be asked of the records is as the model says."""
    for memory_id, memory in model.memories.items():
        shown = records.portable(memory_id, None)
        assert shown is not None
        check_memory(shown, memory)
        for session in SESSIONS:
            seen = records.portable(memory_id, session)
            assert (seen is not None) == (memory_id in model.visible(session))
            if seen is not None:
                drafts = [each.scope == "session" and each.session_id != session for each in memory.versions]
                assert [entry.version for entry in seen.history] == [
                    version for version, hidden in enumerate(drafts, start=1) if not hidden
                ]
    check_counts(records, model, None)
    for session in SESSIONS:
        check_counts(records, model, session)
        for forgotten in (False, True):
            check_searches(records, model, session, forgotten)
    waiting = {number_of(records, memory_id) for memory_id, memory in model.memories.items() if not memory.embedded}
    assert set(pending(records)) == waiting


def check_memory(shown: PortableMemory, memory: Remembered) -> None:
    now = memory.now
    assert (shown.content, shown.type, shown.scope, shown.session_id) == (
        now.content,
        now.type,
        now.scope,
        now.session_id,
    )
    assert (shown.importance, shown.tags, shown.metadata) == (now.importance, now.tags, now.metadata)
    assert (shown.related_entities, shown.source) == (now.related_entities, now.source)
    assert (shown.kind, shown.summary, shown.structured) == (now.kind, now.summary, now.structured)
    assert (shown.confidence, shown.valid_until, shown.status) == (now.confidence, now.valid_until, "active")
    assert (shown.forgotten_at is not None, shown.forgotten_reason) == (now.forgotten, now.forgotten_reason)
    assert (shown.version, shown.created_at) == (len(memory.versions), memory.created_at)
    assert [entry.change for entry in shown.history] == memory.changes
    assert [entry.record for entry in shown.history] == memory.versions
    assert [entry.version for entry in shown.history] == list(range(1, len(memory.versions) + 1))


def check_counts(records: Records, model: Model, session: str | None) -> None:
    everything = list(model.visible(session).values())
    alive = [memory.now for memory in everything if not memory.now.forgotten]
    edges = [(memory.now, entity) for memory in everything for entity in memory.now.related_entities]
    assert records.counts(session) == Counts(
        total=len(alive),
        by_scope=dict(Counter(each.scope for each in alive)),
        by_type=dict(Counter(each.type for each in alive)),
        forgotten=len(everything) - len(alive),
        entities=len({(entity.name, entity.type) for _, entity in edges}),
        relationships=len(edges),
    )


def check_searches(records: Records, model: Model, session: str, include_forgotten: bool) -> None:
    seen = {
        number_of(records, memory_id): memory.now
        for memory_id, memory in model.visible(session).items()
        if include_forgotten or not memory.now.forgotten
    }
    filters = Filters(session, include_forgotten=include_forgotten)
    for word in (*WORDS, *TAGS):
        found = set(records.keyword_hits([Phrase(word)], filters, 1000))
        assert found == {number for number, now in seen.items() if word in now.content.split() or word in now.tags}
    for tag in TAGS:
        matching = records.matching(tagged(filters, tag), 1000)
        assert set(matching or ()) == {number for number, now in seen.items() if tag in now.tags}


def tagged(filters: Filters, tag: str) -> Filters:
    return Filters(filters.session_id, tags=(tag,), include_forgotten=filters.include_forgotten)


def number_of(records: Records, memory_id: str) -> int:
    number = records.number_of(memory_id)
    assert number is not None
    return number


# Changes of every kind, as hypothesis may make them up.

contents = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
importances = st.sampled_from([0.0, 0.25, 1.0])
tags = st.lists(st.sampled_from(TAGS), max_size=2, unique=True).map(tuple)
entities = st.lists(
    st.builds(
        EntityRef,
        name=st.sampled_from(["AuthService", "auth-service", "store", "???"]),
        type=st.sampled_from(["service", "module"]),
        relationship=st.sampled_from(["about", "breaks"]),
    ),
    max_size=3,
).map(tuple)
metadata = st.none() | st.dictionaries(
    st.sampled_from(["a", "b"]), st.none() | st.sampled_from([1, True, 1.0, "x", {"deep": [1]}]), max_size=2
)
reasons = st.none() | st.just("why")


def changes_of(memory_ids: st.SearchStrategy[str]) -> st.SearchStrategy[Change]:
    """Any change of a memory that is there (or not), inside its file."""
    return st.one_of(
        st.builds(
            UpdateMemory,
            memory_id=memory_ids,
            content=st.none() | contents,
            importance=st.none() | importances,
            add_tags=tags,
            remove_tags=tags,
            metadata=metadata,
            add_entities=entities,
            remove_entities=st.lists(st.sampled_from(["AuthService", "Store", "???", "none"]), max_size=2).map(tuple),
            kind=st.none() | st.sampled_from(list(TYPES)),
            summary=st.none() | st.sampled_from(["", "glimmer", "glow"]),
            structured=metadata,
            confidence=st.none() | importances,
            valid_until=st.none() | st.just(7.0),
            cleared=st.sampled_from([(), ("valid_until",)]),
        ),
        st.builds(TagMemory, memory_id=memory_ids, add=tags, remove=tags),
        st.builds(ForgetMemory, memory_id=memory_ids, reason=reasons),
        st.builds(RestoreMemory, memory_id=memory_ids, version=st.none() | st.integers(0, 5), reason=reasons),
        st.builds(PromoteMemory, memory_id=memory_ids, target_scope=st.just("project"), reason=reasons),
    )
