"""A second kind of `Records`, in plain dicts: no file, no SQL, and no more promises than `CAPABILITIES` names.

The rules of a change are those of `memory/plan.py`: here is how their edits are applied to dicts, and how what is asked
is read from them. What is there is there until whoever holds the `Tables` lets them go.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import re
import threading
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import msgspec
import numpy as np

from remembrancer.actors.store.records.contract import (
    EmbeddedMemory,
    Filters,
    KeywordHit,
    MemoryRecord,
    NearDuplicate,
    Neighbours,
    Outcome,
    PassageFilter,
    PassageVectors,
    Phrase,
    RankingFacts,
    SavedEmbeddings,
    SessionStart,
    SessionStory,
    Sizes,
    Surroundings,
    Survey,
    Vectors,
)
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.search import INTERLEAVED, NAMED, TOGETHER_S, neighbours_in
from remembrancer.actors.store.records.sessions import TOPICS_OF
from remembrancer.actors.store.records.subword_tokens import subword_tokens
from remembrancer.memory.changes import is_version_visible, is_visible
from remembrancer.memory.edits import (
    AddAlias,
    AppliedOperation,
    CountAccess,
    Delete,
    Edit,
    Edits,
    Erased,
    EraseTraces,
    FoundTopic,
    Insert,
    Link,
    LoggedConsolidation,
    LoggedPromotion,
    Memory,
    NoteActive,
    NoteUse,
    Proposed,
    Put,
    Remove,
    Revise,
    Row,
    RunChange,
    SessionDeeds,
    Unlink,
)
from remembrancer.memory.moves import receive_move, snapshot_of
from remembrancer.memory.plan import RELATED, carry_out, check_session_limit, plan
from remembrancer.memory.planner import SIMILAR, Planner, make_active
from remembrancer.memory.ranking import is_assistants
from remembrancer.memory.replacement import PROBABLE
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.kinds import MEMORY_TYPES, SCOPES, SESSION_RECORD, Kind, kind_of_type
from remembrancer.protocol.reads import Counts, LinkedMemory, ListedMemory, MemoryCopy, Order
from remembrancer.protocol.runs import ApplyRun, DropOrphans
from remembrancer.protocol.session_life import RecordEvents, SessionEntry
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import (
    Applied,
    HistoryEntry,
    MemoryLink,
    Operation,
    PortableMemory,
    Result,
    ShownFields,
    Snapshot,
    StoreMemory,
)

CAPABILITIES: Final = frozenset({"links", "memories", "versions", "vectors", "words"})
"""Its share of what `Records` promise. It has no graph and no stems of words, no turns of a session and nothing of what
the background works on; it has no limit of its own, and what it holds ends with the process."""
K1: Final = 1.2
B: Final = 0.75
LEAST_IDF: Final = 1e-6
WEIGHTS: Final = (3.0, 1.5, 0.9, 1.5)
"""The weights of content, tags, summary and their other spellings in BM25, which is FTS5's."""
LOGS: Final = (LoggedPromotion, LoggedConsolidation, RunChange, FoundTopic)
"""The kinds of rows that have no key."""
SESSIONS_KEPT: Final = 16
REVIVED: Final = "revived"
_WORD: Final = re.compile(r"[^\W_]+")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_result: Final = msgspec.msgpack.Decoder(Result).decode
_LINKED: Final[dict[tuple[str, bool], str]] = {
    (SIMILAR, True): "near_duplicates",
    (SIMILAR, False): "near_duplicates",
    ("derived_from", True): "derived_from",
    ("supersedes", False): "superseded_by",
    ("contradicts", False): "possibly_superseded_by",
}
"""The field of a listed memory that names the other end of a link, which begins at it (True) or ends there."""

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory as it is kept. `words` are those of each searched field."""

    number: int
    memory: Memory
    words: tuple[list[str], ...] = ()
    accessed_in: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        return self.memory.now.kind or kind_of_type(self.memory.now.type)

    @property
    def happened_at(self) -> float:
        at = self.memory.now.occurred_at
        return self.memory.created_at if at is None else at

    @property
    def begins(self) -> float:
        """From when on it is valid."""
        since = self.memory.now.valid_from
        return min(self.memory.created_at, self.happened_at) if since is None else since


@dataclass(slots=True)
class Tables:
    """All that one set of records holds. It outlives those who open it; no value in it is ever changed."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    memories: dict[str, Stored] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    history: dict[str, tuple[HistoryEntry, ...]] = field(default_factory=dict)
    links: dict[tuple[str, str, str], Link] = field(default_factory=dict)
    awaited: dict[tuple[str, str, str], MemoryLink] = field(default_factory=dict)
    rows: dict[type[Any], tuple[Any, ...]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    passages: dict[int, KeptPassage] = field(default_factory=dict)
    compared: dict[str, int] = field(default_factory=dict)
    last_number: int = 0
    last_passage: int = 0

    @contextlib.contextmanager
    def unless_refused(self) -> Iterator[None]:
        """Let nothing change of what fails."""
        names = [each.name for each in fields(self) if each.name != "lock"]
        before = {name: copy.copy(getattr(self, name)) for name in names}
        try:
            yield
        except Exception:
            for name, value in before.items():
                setattr(self, name, value)
            raise


class KeptPassage(NamedTuple):
    """A passage of a memory under a model."""

    memory: int
    model: str
    ordinal: int
    passage: Passage
    vector: Vectors


class DictEdits:
    """The edits of one operation, and the questions of rules (see `Reader`)."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.to_embed: list[int] = []

    def carry_out(self, operation: Operation, edits: Edits[Any]) -> Outcome:
        """Apply the plan of an operation and note what came of it."""
        try:
            with self._tables.unless_refused():
                result = carry_out(edits, self.apply)
        except (InvalidInput, NotFound) as refusal:
            return Outcome(refusal)
        except (ValueError, OverflowError) as error:
            return Outcome(InvalidInput(f"the records refuse this operation: {error}"))
        self.apply(Put(AppliedOperation(operation.operation_id, _encode(result), operation.requested_at)))
        reply, numbers = Applied(operation.operation_id, result), tuple(self.to_embed)
        if isinstance(operation.change, ApplyRun):
            return Outcome(reply, None, numbers)
        return Outcome(reply, numbers[0] if numbers else None, numbers[1:])

    def outcome_of(self, operation_id: str) -> Applied | None:
        """The answer to an operation that was applied."""
        found = self.rows(AppliedOperation, "operation_id", operation_id)
        return Applied(operation_id, _decode_result(found[0].result), replayed=True) if found else None

    def stored_by(self, session_id: str) -> int:
        """The memories that a session has stored and that are not forgotten; what was derived of others is not its."""
        derived = {source for source, _, relation in self._tables.links if relation == "derived_from"}
        its = (each.memory for each in self._tables.memories.values() if each.memory.now.session_id == session_id)
        return sum(not each.now.forgotten and each.id not in derived for each in its)

    def memory(self, memory_id: str) -> Memory | None:
        found = self._tables.memories.get(self._tables.aliases.get(memory_id, memory_id))
        return None if found is None else found.memory

    def history(self, memory_id: str) -> tuple[HistoryEntry, ...]:
        return self._tables.history.get(memory_id, ())

    def links(self, memory_id: str) -> list[Link]:
        numbers = self._tables.memories
        its = [each for key, each in self._tables.links.items() if memory_id in key[:2]]
        return sorted(its, key=lambda each: (numbers[each.source].number, numbers[each.target].number, each.relation))

    def portable(self, memory_id: str) -> PortableMemory | None:
        return portable(self._tables, memory_id, None, None)

    def same_content(self, content: str, session_id: str) -> list[tuple[str, str, str]]:
        alike = [
            (each.memory.id, now.scope, now.session_id)
            for each in self._tables.memories.values()
            if (now := each.memory.now).content == content
            and not now.forgotten
            and is_visible(now.scope, now.session_id, session_id)
        ]
        return alike[:5]  # type: ignore[return-value]

    def summed_up_in(self, memory_id: str) -> tuple[str, ...]:
        its = self._tables.memories[memory_id].memory.now
        supported = [
            self._tables.memories[target].memory.now.content
            for source, target, relation in self._tables.links
            if source == memory_id and relation == "supports"
        ]
        summaries = (
            self._tables.memories[source]
            for source, target, relation in self._tables.links
            if target == memory_id and relation == "derived_from"
        )
        return tuple(
            each.memory.id
            for each in sorted(summaries, key=lambda each: each.number)
            if not each.memory.now.forgotten
            and (its.scope == "session" or each.memory.now.scope != "session")
            and any(text in each.memory.now.content for text in (its.content, *supported))
        )

    def session_record(self, session_id: str) -> Memory | None:
        its = (each.memory for each in self._tables.memories.values() if each.memory.now.session_id == session_id)
        return next((each for each in its if each.now.kind == SESSION_RECORD), None)

    def session_deeds(self, session_id: str, root: str) -> SessionDeeds | None:
        return None  # no session leaves a record here

    def turns(self, session_id: str) -> int:
        return self._tables.turns.get(session_id, 0)

    def rows(self, kind: type[R], field: str, value: str | int) -> list[R]:
        return [each for each in self._tables.rows.get(kind, ()) if getattr(each, field) == value]

    def apply(self, edit: Edit) -> int:
        """Apply an edit; how many rows went, where that is asked."""
        tables = self._tables
        match edit:
            case Insert():
                self._insert(edit)
            case Revise():
                self._revise(edit)
            case CountAccess():
                self.put_memory(edit.memory_id, access_count=edit.count, last_accessed_at=edit.last_accessed_at)
            case Link():
                if edit.source in tables.memories and edit.target in tables.memories:
                    key = edit.source, edit.target, edit.relation
                    known = tables.links.get(key, edit)
                    tables.links[key] = msgspec.structs.replace(known, strength=edit.strength)
            case Unlink():
                tables.links.pop((edit.source, edit.target, edit.relation), None)
            case AddAlias():
                tables.aliases.setdefault(edit.alias, edit.memory_id)
            case NoteUse():
                self._note_use(edit)
            case NoteActive():
                self._note_active(edit)
            case Put():
                self._put(edit.row)
            case Remove():
                tables.rows[edit.kind] = tuple(
                    each
                    for each in tables.rows.get(edit.kind, ())
                    if edit.field is not None and getattr(each, edit.field) != edit.value
                )
            case Delete():
                self._delete(edit.memory_id)
                if edit.with_history:
                    self._drop_history(edit.memory_id)
            case EraseTraces():
                return self._erase_traces(edit.memory_id)
            case RecordEvents():
                tables.turns[edit.session_id] = self.turns(edit.session_id) + len(edit.turns)
            case DropOrphans():
                return 0  # an entity is here as long as a memory names it
            case _:
                raise InvalidInput(f"records in memory cannot do a {type(edit).__name__}")
        return 0

    def put_memory(self, memory_id: str, **changed: Any) -> None:
        """Change what stands of a memory beside its versions."""
        kept = self._tables.memories[memory_id]
        self._tables.memories[memory_id] = replace(kept, memory=replace(kept.memory, **changed))

    def _insert(self, edit: Insert) -> None:
        memory, tables = edit.memory, self._tables
        if memory.id in tables.memories:
            raise ValueError("there is a memory of that id")
        check_kept(snapshot_of(memory))
        tables.last_number += 1
        now = snapshot_of(memory)
        kept = Memory(
            memory.id,
            memory.version,
            now,
            memory.created_at,
            memory.updated_at,
            memory.access_count,
            memory.last_accessed_at,
            memory.forgotten_at,
            memory.promotion_chain,
            memory.source_project,
        )
        tables.memories[memory.id] = Stored(
            tables.last_number, kept, words_of_fields(kept), memory.accessed_in[:SESSIONS_KEPT]
        )
        if edit.comes_whole:
            self._drop_history(memory.id)
        for entry in memory.history:
            self._add_entry(memory.id, entry)
        if edit.comes_whole:
            tables.awaited |= {(memory.id, link.target, link.relation): link for link in memory.links}
            for (source, target, relation), link in list(tables.awaited.items()):
                if source in tables.memories and target in tables.memories:
                    tables.links.setdefault(
                        (source, target, relation), Link(source, target, relation, link.strength, link.created_at)
                    )
                    del tables.awaited[source, target, relation]
        self.to_embed.append(tables.last_number)

    def _drop_history(self, memory_id: str) -> None:
        history = self._tables.history.get(memory_id, ())
        self._tables.history[memory_id] = tuple(each for each in history if each.record.scope == "session")

    def _revise(self, edit: Revise) -> None:
        before, after, at = edit.before, edit.entry.record, edit.entry.changed_at
        forgotten_at = before.forgotten_at
        if after.forgotten != before.now.forgotten:
            forgotten_at = at if after.forgotten else None
        check_kept(after)
        self.put_memory(
            before.id,
            version=edit.entry.version,
            now=after,
            updated_at=at,
            forgotten_at=forgotten_at,
            promotion_chain=before.promotion_chain if edit.chain is None else edit.chain,
        )
        kept = self._tables.memories[before.id]
        self._tables.memories[before.id] = replace(kept, words=words_of_fields(kept.memory))
        self._add_entry(before.id, edit.entry)
        if "content" in edit.fields:
            for key in [
                key for key in self._tables.links if key[2] in (SIMILAR, "contradicts") and before.id in key[:2]
            ]:
                del self._tables.links[key]
            self._drop_passages(kept.number)
            self.to_embed.append(kept.number)

    def _drop_passages(self, number: int) -> None:
        gone = [passage for passage, each in self._tables.passages.items() if each.memory == number]
        for passage in gone:
            del self._tables.passages[passage]

    def _add_entry(self, memory_id: str, entry: HistoryEntry) -> None:
        """Add an entry as it is. One that is there already is not added twice."""
        known = self._tables.history.get(memory_id, ())
        if all(each.version != entry.version for each in known):
            said = msgspec.json.decode(msgspec.json.encode(entry.details))
            entries = (*known, msgspec.structs.replace(entry, details=said))
            self._tables.history[memory_id] = tuple(sorted(entries, key=lambda each: each.version))

    def _note_use(self, edit: NoteUse) -> None:
        for memory_id in sorted(set(edit.memory_ids)) if edit.session_id else ():
            kept = self._tables.memories.get(memory_id)
            if kept is None or not is_visible(kept.memory.now.scope, kept.memory.now.session_id, edit.session_id):
                continue
            if edit.session_id not in kept.accessed_in and len(kept.accessed_in) < SESSIONS_KEPT:
                used = replace(kept, accessed_in=(*kept.accessed_in, edit.session_id))
                self._tables.memories[memory_id] = used

    def _note_active(self, edit: NoteActive) -> None:
        known = self.rows(SessionEntry, "session_id", edit.session_id)
        entry = known[0] if known else SessionEntry(edit.session_id, edit.at, edit.at)
        last = max(entry.last_active_at, edit.at)
        self._put(msgspec.structs.replace(entry, status="active", ended_at=None, last_active_at=last))

    def _put(self, row: Row) -> None:
        kind, name = type(row), type(row).__struct_fields__[0]
        rows = list(self._tables.rows.get(kind, ()))
        same = [place for place, each in enumerate(rows) if getattr(each, name) == getattr(row, name)]
        if same and kind not in LOGS:
            rows[same[0]] = row
        else:
            rows.append(row)
        self._tables.rows[kind] = tuple(rows)

    def _delete(self, memory_id: str) -> None:
        tables = self._tables
        kept = tables.memories.pop(memory_id, None)
        if kept is not None:
            self._drop_passages(kept.number)
        tables.aliases = {alias: target for alias, target in tables.aliases.items() if target != memory_id}
        tables.links = {key: link for key, link in tables.links.items() if memory_id not in key[:2]}
        tables.awaited = {key: link for key, link in tables.awaited.items() if key[0] != memory_id}
        self.apply(Remove(Proposed, "memory_id", memory_id))

    def _erase_traces(self, memory_id: str) -> int:
        tables = self._tables
        found = len(tables.history.pop(memory_id, ()))
        for kind, rows in tables.rows.items():
            named = ("memory_id", "merged_into") if kind is not Erased else ()
            left = tuple(each for each in rows if all(getattr(each, name, None) != memory_id for name in named))
            found += len(rows) - len(left)
            tables.rows[kind] = left
        return found


def check_kept(now: Snapshot) -> None:
    """Raises `ValueError` for what no records take, whoever let it pass."""
    if not 0.0 <= now.importance <= 1.0:
        raise ValueError(f"the importance {now.importance} is not in [0, 1]")
    if now.scope not in SCOPES or now.type not in MEMORY_TYPES:
        raise ValueError(f"a {now.type} memory of the scope {now.scope} is none that there is")


def portable(tables: Tables, memory_id: str, session_id: str | None, project_id: str | None) -> PortableMemory | None:
    """A memory whole, as far as a session (None: anybody) may see it."""
    kept = tables.memories.get(tables.aliases.get(memory_id, memory_id))
    if kept is None or not _sees(kept, session_id):
        return None
    memory, now = kept.memory, kept.memory.now
    links = [
        MemoryLink(link.target, link.relation, link.strength, link.created_at)
        for (source, target, _), link in tables.links.items()
        if source == memory.id and _sees(tables.memories[target], session_id)
    ]
    if session_id is None:
        links += [link for key, link in tables.awaited.items() if key[0] == memory.id]
    return PortableMemory(
        **now.recorded(),
        id=memory.id,
        created_at=memory.created_at,
        updated_at=memory.updated_at,
        version=memory.version,
        access_count=memory.access_count,
        last_accessed_at=memory.last_accessed_at,
        forgotten_at=memory.forgotten_at,
        history=tuple(
            _told(tables, entry, session_id)
            for entry in tables.history.get(memory.id, ())
            if is_version_visible(entry.record, now.scope, memory.source_project, session_id, project_id)
        ),
        links=tuple(sorted(links, key=lambda link: (link.target, link.relation, link.strength, link.created_at))),
        promotion_chain=memory.promotion_chain,
        source_project=memory.source_project,
        accessed_in=tuple(sorted(kept.accessed_in)),
    )


def _told(tables: Tables, entry: HistoryEntry, session_id: str | None) -> HistoryEntry:
    """An entry of the history without the id of what superseded the memory, if the session may not see that."""
    newer = tables.memories.get(str(entry.details.get("by")))
    if newer is None or _sees(newer, session_id):
        return entry
    return msgspec.structs.replace(entry, details={name: said for name, said in entry.details.items() if name != "by"})


def _sees(kept: Stored, session_id: str | None) -> bool:
    return is_visible(kept.memory.now.scope, kept.memory.now.session_id, session_id)


def words_of_fields(memory: Memory) -> tuple[list[str], ...]:
    """The words of each searched field of a memory, as full text parts them."""
    now = memory.now
    spellings = subword_tokens(now.content, now.summary or "", *now.tags)
    return tuple(_words(text) for text in (now.content, " ".join(now.tags), now.summary or "", spellings))


def _words(text: str) -> list[str]:
    """The words of a text in small letters, without marks on Latin letters."""
    plain = "".join(each for each in unicodedata.normalize("NFD", text) if unicodedata.category(each) != "Mn")
    return _WORD.findall(unicodedata.normalize("NFC", plain).lower())


def occurrences(phrase: Phrase, words: Sequence[str]) -> int:
    """The number of places at which a phrase stands among words."""
    wanted = _words(phrase.words)
    if not wanted:
        return 0
    last = len(wanted) - 1
    return sum(
        all(
            words[place + at].startswith(word) if phrase.begins and at == last else words[place + at] == word
            for at, word in enumerate(wanted)
        )
        for place in range(len(words) - last)
    )


def passes(kept: Stored, filters: Filters) -> bool:
    """True if a memory passes filters."""
    now = kept.memory.now
    return (
        _sees(kept, filters.session_id)
        and (not filters.scopes or now.scope in filters.scopes)
        and (not filters.types or now.type in filters.types)
        and (filters.include_forgotten or not now.forgotten)
        and (not filters.kinds or kept.kind in filters.kinds)
        and (not filters.domains or now.domain in filters.domains)
        and now.importance >= filters.min_importance
        and (filters.after is None or kept.happened_at >= filters.after)
        and (filters.before is None or kept.happened_at <= filters.before)
        and (
            filters.valid_at is None
            or (kept.begins <= filters.valid_at and (now.valid_until is None or now.valid_until > filters.valid_at))
        )
        and (not filters.tags or not set(filters.tags).isdisjoint(now.tags))
    )


def _whole(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method that sees whole groups of operations, or makes one."""

    @functools.wraps(method)
    def held(self: Any, *arguments: P.args, **named: P.kwargs) -> T:
        with self.tables.lock:
            return method(self, *arguments, **named)

    return held  # type: ignore[return-value]


class MemoryRecords:
    """Records in dicts. `clock`: seconds since the epoch; see `SqliteRecords` for `session_limit`."""

    links_duplicates = False
    is_shared = False
    is_replaced = False

    def __init__(
        self, tables: Tables, name: str, clock: Callable[[], float], *, session_limit: int | None = None
    ) -> None:
        self.tables = tables
        self.name = name
        self.is_users = name == "user"
        self._clock = clock
        self._session_limit = session_limit

    # Writing.

    @_whole
    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        return [self._apply(operation) for operation in operations]

    def _apply(self, operation: Operation) -> Outcome:
        edits = DictEdits(self.tables)
        earlier = edits.outcome_of(operation.operation_id)
        if earlier is not None:
            return Outcome(earlier)
        try:
            _encode(operation)  # what no database could keep
            if self._session_limit is not None and isinstance(operation.change, StoreMemory):
                stored = edits.stored_by(operation.change.session_id)
                check_session_limit(operation, edits, stored, self._session_limit)
        except InvalidInput as refusal:
            return Outcome(refusal)
        except (ValueError, OverflowError, TypeError) as error:
            return Outcome(InvalidInput(f"the records refuse this operation: {error}"))
        return edits.carry_out(operation, plan(operation, edits))

    def held(self) -> contextlib.AbstractContextManager[object]:
        return self.tables.lock

    @_whole
    def prepare(self, operation: Operation, step: Callable[[Planner], Edits[T]]) -> T | Outcome:
        edits = DictEdits(self.tables)
        earlier = edits.outcome_of(operation.operation_id)
        if earlier is not None:
            return Outcome(earlier)
        try:
            return carry_out(step(Planner(operation, edits)), edits.apply)
        except (InvalidInput, NotFound) as refusal:
            return Outcome(refusal)

    @_whole
    def complete(self, operation: Operation, step: Callable[[Planner], Edits[Result]]) -> Outcome:
        edits = DictEdits(self.tables)
        earlier = edits.outcome_of(operation.operation_id)
        return Outcome(earlier) if earlier is not None else edits.carry_out(operation, step(Planner(operation, edits)))

    @_whole
    def take_outcomes(self, applied: Sequence[AppliedOperation]) -> None:
        for each in applied:
            DictEdits(self.tables).apply(Put(each))

    def receive(self, operation: Operation, memory: PortableMemory) -> Outcome:
        return self.complete(operation, functools.partial(receive_move, memory=memory))

    @_whole
    def unfinished(self, kind: type[R]) -> list[R]:
        return list(self.tables.rows.get(kind, ()))

    @_whole
    def touch(self, numbers: Sequence[int], at: float, session_id: str = "", used: Sequence[str] = ()) -> None:
        edits = DictEdits(self.tables)
        edits.apply(NoteUse(tuple(used), session_id))
        for kept in self._of(numbers):
            known = self.tables.memories[kept.memory.id].memory
            edits.put_memory(known.id, access_count=known.access_count + 1, last_accessed_at=at)
            memory = self.tables.memories[known.id].memory
            if memory.now.status == "archived" and not memory.now.forgotten:
                edits.apply(make_active(memory, REVIVED, "it was used again", at))

    def tidy(self) -> bool:
        return False

    def checkpoint(self) -> None:
        """There is no log."""

    def close(self) -> None:
        """There is nothing to close: who has the tables has all of it."""

    # One memory.

    @_whole
    def number_of(self, memory_id: str) -> int | None:
        kept = self.tables.memories.get(self.tables.aliases.get(memory_id, memory_id))
        return None if kept is None else kept.number

    @_whole
    def outcome_of(self, operation_id: str) -> Applied | None:
        return DictEdits(self.tables).outcome_of(operation_id)

    @_whole
    def portable(self, memory_id: str, session_id: str | None, project_id: str | None = None) -> PortableMemory | None:
        return portable(self.tables, memory_id, session_id, project_id)

    @_whole
    def is_erased(self, memory_id: str) -> bool:
        return any(each.memory_id == memory_id for each in self.tables.rows.get(Erased, ()))

    # Several memories.

    @_whole
    def texts(self, numbers: Sequence[int]) -> dict[int, str]:
        return {kept.number: kept.memory.now.content for kept in self._of(numbers)}

    # Vectors.

    @_whole
    def pending(self, model: str | None = None) -> list[int]:
        done = {each.memory for each in self.tables.passages.values() if model in (None, each.model)}
        return [kept.number for kept in self.tables.memories.values() if kept.number not in done]

    @_whole
    def save_embeddings(self, model: str, embedded: Sequence[EmbeddedMemory]) -> SavedEmbeddings:
        outdated: list[int] = []
        numbers: list[int] = []
        for each in embedded:
            for kept in self._of([each.number]):
                if each.number not in self.pending(model):
                    continue
                if digest_of(kept.memory.now.content) != each.digest:
                    outdated.append(each.number)
                    continue
                for ordinal, (passage, vector) in enumerate(zip(each.passages, each.vectors, strict=True)):
                    self.tables.last_passage += 1
                    its = KeptPassage(each.number, model, ordinal, passage, vector)
                    self.tables.passages[self.tables.last_passage] = its
                    numbers.append(self.tables.last_passage)
        return SavedEmbeddings(numbers, outdated)

    @_whole
    def passages(self, wanted: PassageFilter) -> PassageVectors:
        known = self.tables.passages
        several = {(each.memory, each.model) for each in known.values() if each.ordinal == 1}
        found = [
            (number, each)
            for number, each in known.items()
            if (wanted.model is None or each.model == wanted.model)
            and (wanted.numbers is None or number in wanted.numbers)
            and (wanted.memories is None or each.memory in wanted.memories)
            and (wanted.after is None or number > wanted.after)
            and (not wanted.heads or (each.ordinal == 0 and (each.memory, each.model) in several))
        ][: None if wanted.limit < 0 else wanted.limit]
        vectors = [each.vector for _, each in found] if wanted.vectors else []
        return PassageVectors(
            [number for number, _ in found],
            [each.memory for _, each in found],
            [each.ordinal for _, each in found],
            np.array(vectors, np.float32) if vectors else np.zeros((0, 0), np.float32),
            [(each.passage.start, each.passage.end) for _, each in found] if wanted.ranges else (),
        )

    @_whole
    def prune_models(self, kept: Sequence[str], limit: int) -> int:
        gone = [number for number, each in self.tables.passages.items() if each.model not in kept][:limit]
        for number in gone:
            del self.tables.passages[number]
        return len(gone)

    @_whole
    def link_similar(self, links: Sequence[NearDuplicate]) -> None:
        edits = DictEdits(self.tables)
        for link in links:
            ends = [kept.memory.id for kept in self._of([link.later, link.earlier])]
            if len(ends) == 2 and all(each in self.tables.passages for each in link.seen):
                settled = link.relation != SIMILAR and any(
                    {each.source, each.target} == set(ends) and each.relation not in (SIMILAR, "contradicts")
                    for each in self.tables.links.values()
                )
                if not settled:
                    edits.apply(Link(ends[0], ends[1], link.relation, link.cosine, self._clock()))

    @property
    def commits(self) -> int:
        return self.tables.last_passage + len(self.tables.passages)

    def extent(self, model: str) -> tuple[int, int]:
        found = self.passages(PassageFilter(model, vectors=False))
        return found.ordinals.count(0), max(found.numbers, default=0)

    def passage_numbers(self, model: str) -> list[int]:
        return self.passages(PassageFilter(model, vectors=False)).numbers

    def compared(self, model: str) -> int:
        return self.tables.compared.get(model, 0)

    def note_compared(self, model: str, number: int) -> None:
        self.tables.compared[model] = number

    # What is known besides.

    @_whole
    def surroundings(self, memory_id: str, content: str, session_id: str | None) -> Surroundings:
        memories, edits = self.tables.memories, DictEdits(self.tables)
        incoming = [
            (-link.strength, memories[link.source].number, link.relation, link.created_at, link.source)
            for link in self.tables.links.values()
            if link.target == memory_id and self._is_shown(memories[link.source], session_id)
        ]
        summaries = edits.summed_up_in(memory_id) if memory_id in memories else ()
        return Surroundings(
            tuple(MemoryLink(source, kind, -weak, at) for weak, _, kind, at, source in sorted(incoming)),
            summed_up_in=tuple(each for each in summaries if _sees(memories[each], session_id)),
            copies=tuple(
                MemoryCopy(each.memory.id, each.memory.now.scope)
                for each in memories.values()
                if each.memory.now.content == content
                and each.memory.id != memory_id
                and self._is_shown(each, session_id)
            ),
        )

    @_whole
    def session_story(self, session_id: str) -> SessionStory:
        its = [each for each in self.tables.memories.values() if each.memory.now.session_id == session_id]
        told = [each.memory.now for each in its if each.kind != SESSION_RECORD]
        live = [each for each in told if not each.forgotten]
        topics = Counter(
            topic
            for each in sorted((each for each in its if not each.memory.now.forgotten), key=lambda each: -each.number)[
                :TOPICS_OF
            ]
            for topic in {*each.memory.now.tags, *(entity.name for entity in each.memory.now.related_entities)}
        )
        entries = DictEdits(self.tables).rows(SessionEntry, "session_id", session_id)
        return SessionStory(
            entries[0].started_at if entries else None,
            dict(Counter((now.type, now.scope) for now in told)),
            dict(
                Counter(
                    entry.change
                    for entries in self.tables.history.values()
                    for entry in entries
                    if entry.session_id == session_id and entry.change != "stored"
                )
            ),
            dict(topics),
            entry=entries[0] if entries else None,
            remembered=len(live),
            consolidated=sum(now.status == "consolidated" for now in live),
            importance=sum(now.importance for now in live),
        )

    @_whole
    def session_start(self, session_id: str) -> SessionStart:
        story = self.session_story(session_id)
        return SessionStart(story.started_at, sum(story.stored.values()))

    @_whole
    def load(self, numbers: Sequence[int], filters: Filters | None) -> dict[int, MemoryRecord]:
        return {
            kept.number: self._record(kept, filters)
            for kept in self._of(numbers)
            if filters is None or passes(kept, filters)
        }

    @_whole
    def ranking_facts(self, numbers: Sequence[int], filters: Filters) -> dict[int, RankingFacts]:
        return {kept.number: _facts(kept) for kept in self._of(numbers) if passes(kept, filters)}

    @_whole
    def matching(self, filters: Filters, limit: int) -> list[int] | None:
        numbers = [each.number for each in self.tables.memories.values() if passes(each, filters)]
        return None if len(numbers) > limit else numbers

    @_whole
    def top(self, filters: Filters, order: Order, limit: int, files: Sequence[str] | None = None) -> list[int]:
        def key(kept: Stored) -> tuple[float, ...]:
            if order == "valid":
                return kept.begins, kept.number
            if order == "due":
                due = kept.memory.now.due
                return -math.inf if due is None else -due, kept.happened_at, kept.number
            importance = kept.memory.now.importance if order == "important" else 0.0
            return importance, kept.happened_at, kept.number

        passing = [each for each in self.tables.memories.values() if passes(each, filters)]
        if order == "due":
            passing = [each for each in passing if each.memory.now.is_open and not each.memory.now.forgotten]
        if files is not None:
            passing = [each for each in passing if any(name in (each.memory.now.source.file or "") for name in files)]
        return [each.number for each in sorted(passing, key=key, reverse=True)[:limit]]

    @_whole
    def neighbours(self, numbers: Sequence[int], filters: Filters, *, and_theirs: bool = False) -> Neighbours:
        told: defaultdict[tuple[str, str], list[tuple[int, RankingFacts]]] = defaultdict(list)
        asked = [each for each in self._of(numbers) if _is_turn(each)]
        times = 2 if and_theirs else 1
        for kept in self.tables.memories.values():
            now = kept.memory.now
            if (
                _is_turn(kept)
                and passes(kept, filters)
                and any(
                    abs(kept.number - each.number) <= times * INTERLEAVED
                    and (now.session_id, now.scope) == (each.memory.now.session_id, each.memory.now.scope)
                    and abs(kept.happened_at - each.happened_at) <= times * TOGETHER_S
                    for each in asked
                )
            ):
                told[now.session_id, now.scope].append((kept.number, _facts(kept)))
        return neighbours_in(told.values(), set(numbers), and_theirs=and_theirs)

    @_whole
    def follow(self, memory_ids: Sequence[str], session_id: str, depth: int, limit: int) -> dict[int, LinkedMemory]:
        known = (self.tables.memories.get(self.tables.aliases.get(each, each)) for each in memory_ids)
        start = [each.memory.id for each in known if each is not None and self._is_shown(each, session_id)]
        distances = dict.fromkeys(start[:limit], 0)
        related: defaultdict[str, dict[str, None]] = defaultdict(dict)
        reached = list(distances)
        for distance in range(1, depth + 2):  # the last round: what the farthest are related to
            found: dict[str, None] = {}
            for _, _, memory_id, other in sorted(self._related(reached, session_id)):
                related[memory_id][other] = None
                if other not in distances:
                    found[other] = None
            reached = list(found)[: limit - len(distances)] if distance <= depth else []
            distances |= dict.fromkeys(reached, distance)
            if not reached:
                break
        linked: dict[int, LinkedMemory] = {}
        for memory_id, distance in distances.items():
            kept = self.tables.memories[memory_id]
            fields = self._record(kept, None).listed()
            linked[kept.number] = LinkedMemory(
                **fields,
                last_accessed_at=kept.memory.last_accessed_at,
                related=tuple(related[memory_id]),
                distance=distance,
            )
        return linked

    def _related(self, memory_ids: Iterable[str], session_id: str) -> Iterator[tuple[float, int, str, str]]:
        """The relations of these memories to others: the time, the other's number, the own id and the other's."""
        asked = set(memory_ids)
        for (source, target, relation), link in self.tables.links.items():
            for here, there in ((source, target), (target, source)) if relation == RELATED else ():
                other = self.tables.memories[there]
                if here in asked and self._is_shown(other, session_id):
                    yield link.created_at, other.number, here, there

    @_whole
    def known_as_of(
        self, session_id: str, project_id: str, valid_at: float, as_of: float, limit: int, offset: int = 0
    ) -> list[tuple[float, ListedMemory]]:
        found: list[tuple[float, ListedMemory]] = []
        for kept in self.tables.memories.values():
            memory = kept.memory
            entries = [each for each in self.tables.history.get(memory.id, ()) if each.changed_at <= as_of]
            if not entries or not _sees(kept, session_id):
                continue
            entry, record = entries[-1], entries[-1].record
            begins = record.valid_from
            if begins is None:
                at = memory.created_at if record.occurred_at is None else record.occurred_at
                begins = min(memory.created_at, at)
            is_valid = begins <= valid_at and (record.valid_until is None or record.valid_until > valid_at)
            is_seen = is_version_visible(record, memory.now.scope, memory.source_project, session_id, project_id)
            if record.forgotten or not is_valid or not is_seen:
                continue
            names = (*ShownFields.__struct_fields__, "status", "invalid_reason")
            fields = {name: getattr(record, name) for name in names}
            times: dict[str, Any] = {"created_at": memory.created_at, "updated_at": entry.changed_at}
            listed = ListedMemory(**fields, **times, id=memory.id, version=entry.version)
            found.append((begins if valid_at <= as_of else entry.changed_at, listed))
        found.sort(key=lambda each: (each[0], each[1].id), reverse=True)
        return found[offset : offset + limit]

    @_whole
    def merged_into(self, memory_ids: Sequence[str]) -> dict[str, str]:
        logged = self._rows(LoggedPromotion)
        return {
            each.memory_id: each.merged_into
            for each in logged
            if each.memory_id in memory_ids and each.merged_into is not None
        }

    @_whole
    def summaries_of(self, numbers: Sequence[int]) -> dict[int, list[int]]:
        edits, found = DictEdits(self.tables), defaultdict[int, list[int]](list)
        for kept in sorted(self._of(numbers), key=lambda each: each.number):
            for memory_id in edits.summed_up_in(kept.memory.id):
                summary = self.tables.memories[memory_id]
                if summary.memory.now.type == "semantic":
                    found[summary.number].append(kept.number)
        return dict(sorted(found.items()))

    @_whole
    def counts(self, session_id: str | None) -> Counts:
        seen = [each.memory.now for each in self.tables.memories.values() if _sees(each, session_id)]
        live = [now for now in seen if not now.forgotten]
        by_scope: Counter[str] = Counter(now.scope for now in live)
        by_type: Counter[str] = Counter(now.type for now in live)
        named = [{(each.name, each.type, each.relationship) for each in now.related_entities} for now in seen]
        entities = {each[:2] for its in named for each in its}
        return Counts(
            len(live), dict(by_scope), dict(by_type), len(seen) - len(live), len(entities), sum(map(len, named))
        )

    # Words.

    @_whole
    def survey(self, groups: Sequence[Sequence[Phrase]], session_id: str, limit: int) -> Survey:
        kept = self.tables.memories.values()
        scopes = Counter(each.memory.now.scope for each in kept if not each.memory.now.forgotten)
        own = [
            each.number
            for each in kept
            if each.memory.now.scope == "session" and each.memory.now.session_id == session_id
        ]
        return Survey(
            Sizes(dict(scopes), 0),
            [sum(self._has(each, group) for each in kept) for group in groups],
            own if len(own) <= limit else None,
            bool(self.tables.links) or any(each.memory.now.related_entities for each in kept),
        )

    @_whole
    def words_in(
        self, groups: Sequence[Sequence[Phrase]], frequencies: Sequence[int], numbers: Sequence[int]
    ) -> dict[int, set[int]]:
        found = {
            kept.number: {place for place, group in enumerate(groups) if self._has(kept, group)}
            for kept in self._of(numbers)
        }
        return {number: places for number, places in found.items() if places}

    @_whole
    def keyword_hits(
        self,
        phrases: Sequence[Phrase],
        filters: Filters,
        limit: int,
        *,
        apart: bool = False,
        counted: Mapping[Phrase, int] | None = None,
    ) -> list[list[KeywordHit]]:
        scores = {each.number: score for each, score in self._scores(phrases) if passes(each, filters)}
        own = {each.number for each in self.tables.memories.values() if each.memory.now.scope == "session"}
        best = sorted(scores, key=lambda number: (-scores[number], -number))
        sides = [best]
        if apart:
            sides = [[each for each in best if each in own], [each for each in best if each not in own]]
        return [[KeywordHit(number, scores[number]) for number in side[:limit]] for side in sides]

    def _scores(self, phrases: Sequence[Phrase]) -> Iterator[tuple[Stored, float]]:
        """The BM25 of the memories that have any of the phrases."""
        kept = list(self.tables.memories.values())
        lengths = [sum(map(len, each.words)) for each in kept]
        usual = sum(lengths) / max(1, len(kept))
        rarity = {
            phrase: max(LEAST_IDF, math.log((len(kept) - having + 0.5) / (having + 0.5)))
            for phrase in set(phrases)
            if (having := sum(self._has(each, [phrase]) for each in kept))
        }
        for each, length in zip(kept, lengths, strict=True):
            score = 0.0
            for phrase in phrases:
                counts = (occurrences(phrase, words) for words in each.words)
                said = sum(weight * count for weight, count in zip(WEIGHTS, counts, strict=True))
                if said:
                    score += rarity[phrase] * said * (K1 + 1) / (said + K1 * (1 - B + B * length / usual))
            if score:
                yield each, score

    def _rows(self, kind: type[R]) -> tuple[R, ...]:
        return self.tables.rows.get(kind, ())

    def _has(self, kept: Stored, group: Sequence[Phrase]) -> bool:
        return any(occurrences(phrase, words) for phrase in group for words in kept.words)

    def _of(self, numbers: Iterable[int]) -> list[Stored]:
        """The memories of these numbers, one that is named twice twice."""
        known = {each.number: each for each in self.tables.memories.values()}
        return [known[number] for number in numbers if number in known]

    def _is_shown(self, kept: Stored, session_id: str | None) -> bool:
        return not kept.memory.now.forgotten and _sees(kept, session_id)

    def _record(self, kept: Stored, filters: Filters | None) -> MemoryRecord:
        memory, now = kept.memory, kept.memory.now
        linked: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for (source, target, relation), link in self.tables.links.items() if filters is not None else ():
            if memory.id not in (source, target):
                continue
            other = self.tables.memories[target if source == memory.id else source]
            name = _LINKED.get((relation, source == memory.id))
            if relation == "contradicts" and link.strength < PROBABLE:
                continue
            if name is not None and filters is not None and self._is_shown(other, filters.session_id):
                linked[name][other.memory.id] = max(link.strength, linked[name].get(other.memory.id, 0.0))
        fields: dict[str, Any] = {name: getattr(now, name) for name in ShownFields.__struct_fields__}
        for name, others in linked.items():
            best = sorted(others, key=lambda each: (-others[each], self.tables.memories[each].number))
            fields[name] = tuple(best[: NAMED[name]])
        return MemoryRecord(
            **fields | {"kind": kept.kind},
            number=kept.number,
            id=memory.id,
            created_at=memory.created_at,
            updated_at=memory.updated_at,
            version=memory.version,
            access_count=memory.access_count,
            last_accessed_at=memory.last_accessed_at,
            status=now.status,
            forgotten=now.forgotten,
            forgotten_at=memory.forgotten_at,
            forgotten_reason=now.forgotten_reason,
            invalid_reason=now.invalid_reason,
        )


def _is_turn(kept: Stored) -> bool:
    return bool(kept.memory.now.session_id) and kept.memory.now.type == "episodic"


def _facts(kept: Stored) -> RankingFacts:
    now = kept.memory.now
    return RankingFacts(
        now.importance,
        kept.happened_at,
        now.status,
        now.scope,
        now.valid_until,
        now.type,
        is_assistants(now.content),
        kept.kind,
    )
