"""The contract of a journal: one growing list of entries for each lane, which every member reads in the same order.

A lane is all that has one order, and a `LaneMark` is the place up to which a host has applied it. Positions begin at 1,
grow and are never used again; a position whose entry was deleted is a hole. Each call says from which mark it goes on,
and a journal that is not the one of the mark (deleted and made anew, restored from an older backup, another of the same
name) is noticed: `JournalChanged`, after which a host applies and appends nothing more to this lane.

**One append is atomic**: all its entries stand side by side, or none does. What others append at the same time stands
before or behind them, so nobody waits for anybody: an entry means what it does where it stands, and the caller reads on
to there. **An append without an answer** is repeated by the journal itself, which knows entries that are there by their
ids; if it stays away meanwhile (`JournalAway`), the outcome is unknown to the caller too: it reads before it appends
these entries again. So an operation that is applied once for its id is done exactly once.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Protocol

import msgspec

from remembrancer.protocol.errors import EntryTooLarge, InvalidInput, RemembrancerError, size_in_words

MAX_ENTRY_BYTES: Final = 512 * 1024
"""The body of an entry at most, before it is sealed: below the megabyte that a NATS server takes."""
MAX_APPEND: Final = 500
"""Entries of one append at most."""
MAX_APPEND_BYTES: Final = 4 * 1024 * 1024
"""The bodies of one append at most, together."""
_LANE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID: Final = re.compile(r"[!-~]{1,128}")


class LaneMark(msgspec.Struct, frozen=True):
    """The place up to which a host knows a lane. It is kept in the same transaction as what was applied."""

    journal: str
    """The identity of the lane's journal; "" is any, for who has seen none yet."""
    position: int
    entry_id: str
    """The id of the entry at that position; "" is any: at position 0, and behind a hole."""


START: Final = LaneMark("", 0, "")
"""The mark of who has seen nothing yet."""


class NewEntry(msgspec.Struct, frozen=True):
    """An entry to append. `id` is 1 to 128 printable ASCII characters without spaces, and no secret."""

    id: str
    body: bytes


class Entry(msgspec.Struct, frozen=True):
    """An entry of a lane."""

    position: int
    id: str
    body: bytes
    at: float
    """The time of the journal's server when it was appended, for every reader the same, in seconds since the epoch. It
    may be before that of an earlier entry, if the server's clock was set."""


class EntryPage(msgspec.Struct, frozen=True):
    """Entries in their order, the mark behind the last one, and the newest position of the lane."""

    entries: tuple[Entry, ...]
    mark: LaneMark
    head: int

    @property
    def is_last(self) -> bool:
        """True if nothing stands behind this page yet."""
        return self.mark.position >= self.head


class LaneSnapshot(msgspec.Struct, frozen=True):
    """A file of a lane as it was at a mark, kept in the journal for who joins or was away for long."""

    name: str
    mark: LaneMark
    size_bytes: int


class LaneNotice(msgspec.Struct, frozen=True):
    """The last word of a host to the members of a lane, and its age in seconds by the journal's own clock."""

    body: bytes
    age_s: float


class Seen(msgspec.Struct, frozen=True):
    """The word that a host leaves: the position that it has applied, and the snapshots that it has made, or has looked
    at and found good. `left`: it takes no part any more, and what it has stays as it was."""

    position: int
    snapshots: tuple[str, ...] = ()
    left: bool = False


class Trimmed(RemembrancerError):
    """The entries behind a mark are not kept any more: a host that was away for so long goes on from a snapshot."""

    code: ClassVar[str] = "trimmed"
    retry_possible: ClassVar[bool] = True

    def __init__(self, first: int) -> None:
        super().__init__(f"the journal begins at position {first}: what was before is in a snapshot")
        self.first = first


class Journal(Protocol):
    """A connection to the journals of lanes. Any call may raise `JournalAway` and `JournalRefused`.

    A lane's name is 1 to 64 letters, digits, `-` and `_`.
    """

    async def create(self, lane: str) -> LaneMark:
        """Begin a lane, and return the mark of its beginning. Raises `InvalidInput` if there is one of that name."""
        ...

    async def identity(self, lane: str) -> str:
        """The identity of the lane's journal, another one for each that was ever made.

        Raises `JournalChanged` if there is none.
        """
        ...

    async def head(self, lane: str) -> int:
        """The newest position of a lane; 0 if nothing was appended yet. Raises `JournalChanged` if there is none."""
        ...

    async def append(self, lane: str, entries: Sequence[NewEntry], *, behind: LaneMark) -> LaneMark:
        """Append 1 to `MAX_APPEND` entries of new ids somewhere behind a mark, durably; returns the mark behind them.
        The same entries once more, within a minute, are not appended again.

        Raises:
            EntryTooLarge: a body is larger than `MAX_ENTRY_BYTES`.
            StorageFull: the journal has no room. Nothing was appended.
            JournalChanged: this is not the journal of the mark.
        """
        ...

    async def read(self, lane: str, *, after: LaneMark, limit: int = 1000) -> EntryPage:
        """At most `limit` entries behind a mark, fewer where they are large; none only if nothing is there.

        Raises:
            Trimmed: the entries directly behind the mark are not kept any more.
            JournalChanged: this is not the journal of the mark.
            EntryDamaged: the first entry behind the mark is not what a member wrote. Good ones before it are returned.
            KeyMissing: it was sealed with a key that this host does not have.
        """
        ...

    def watch(self, lane: str) -> AsyncIterator[None]:
        """Return something soon after each append, once for several, and now and then without one: a hint to read.

        Close it (`aclose`) when it is not wanted any more.
        """
        ...

    async def scrub(self, lane: str, position: int) -> None:
        """Delete the entry at a position for good, overwritten on the server's disk. Its position stays, as a hole."""
        ...

    async def trim(self, lane: str, *, before: int) -> None:
        """Delete all entries before a position, which a snapshot holds."""
        ...

    async def put_snapshot(self, lane: str, mark: LaneMark, path: Path) -> LaneSnapshot:
        """Keep a file as the lane at a mark. It is seen by others when it is whole."""
        ...

    async def snapshots(self, lane: str) -> tuple[LaneSnapshot, ...]:
        """The snapshots of a lane, the newest first."""
        ...

    async def get_snapshot(self, lane: str, snapshot: LaneSnapshot, path: Path) -> None:
        """Write the file of a snapshot to a path, where nothing may be yet. An error leaves nothing there.

        Raises:
            InvalidInput: it was dropped.
            EntryDamaged, KeyMissing: as in `read`.
        """
        ...

    async def drop_snapshot(self, lane: str, snapshot: LaneSnapshot) -> None:
        """Delete a snapshot."""
        ...

    async def lease(self, lane: str, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew a lease for `ttl_s` seconds (1 at least) of the journal's clock; False: another holds it."""
        ...

    async def holder(self, lane: str, name: str) -> str | None:
        """Who has a lease; None: nobody."""
        ...

    async def release(self, lane: str, name: str, holder: str) -> None:
        """Give a lease back, if this holder has it."""
        ...

    async def notify(self, lane: str, host: str, body: bytes) -> None:
        """Leave a word for the members of a lane in the place of this host's last one."""
        ...

    async def notices(self, lane: str) -> Mapping[str, LaneNotice]:
        """The last word of each host."""
        ...

    async def aclose(self) -> None:
        """Let go of the connection. It may be called twice."""
        ...


def check_name(name: str) -> str:
    """The name of a lane, a lease or a host as it is. Raises `InvalidInput` for one that no journal takes."""
    if _LANE.fullmatch(name) is None:
        raise InvalidInput(f"a name is 1 to 64 letters, digits, '-' and '_', not {name[:80]!r}")
    return name


def check_entries(entries: Sequence[NewEntry], *, seal_bytes: int = 0) -> None:
    """Raise `EntryTooLarge` or `InvalidInput` for entries that no journal takes together.

    `seal_bytes` is what was added to each body by a seal.
    """
    if not 1 <= len(entries) <= MAX_APPEND:
        raise InvalidInput(f"1 to {MAX_APPEND} entries are appended together, not {len(entries)}")
    if len({entry.id for entry in entries}) < len(entries) or not all(_ID.fullmatch(entry.id) for entry in entries):
        raise InvalidInput("the ids of entries are 1 to 128 printable characters without spaces, each another one")
    largest = max(len(entry.body) for entry in entries)
    if largest > MAX_ENTRY_BYTES + seal_bytes:
        limit = size_in_words(MAX_ENTRY_BYTES)
        raise EntryTooLarge(f"an entry of {size_in_words(largest)} is too large to be shared: at most {limit}")
    if sum(len(entry.body) - seal_bytes for entry in entries) > MAX_APPEND_BYTES:
        raise InvalidInput(f"entries of at most {size_in_words(MAX_APPEND_BYTES)} are appended together")
