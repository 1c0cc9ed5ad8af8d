"""Hosts of a lane that is shared through a journal in this process."""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.lane_follower import LaneFollower
from remembrancer.actors.store.records.found_entities import find_names
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import NO_LIMITS, Limits
from remembrancer.actors.store.shared_lane import SharedLane
from remembrancer.journal.contract import LaneSnapshot, NewEntry
from remembrancer.protocol.errors import JournalAway, RemembrancerError
from remembrancer.protocol.writes import Applied, EraseMemory, Operation, PortableMemory
from tests.contracts.records_rig import embedded, pending, texts_of
from tests.in_process_journal import InProcessJournal, InProcessServer
from tests.operations import REQUESTED_AT, change_operation, memory_id_of, store_operation
from tests.spaces import dump_of

LANE = "l_0123456789ab"
T = TypeVar("T")


class Host:
    """One host's copy of the lane, its follower, and the operations that wait there for the journal."""

    def __init__(self, hosts: "Hosts", name: str, ahead_s: float) -> None:
        self.ahead_s = ahead_s
        self.clock = REQUESTED_AT + ahead_s
        self.path = hosts.directory / f"{name}.db"
        self.journal = InProcessJournal(hosts.server)
        self.queued: deque[Operation] = deque()
        self.acknowledged: list[Applied] = []
        self.taken = 0
        """The number of snapshots that were loaded."""
        self.scrubbed: list[str] = []
        self._hosts = hosts
        self.committer = hosts.run(self._commit())
        self.open()

    async def _commit(self) -> Committer:
        return Committer()

    def open(self, limits: Limits = NO_LIMITS) -> None:
        self.lane = SharedLane(
            SqliteFile(self.path, MEMORY),
            LANE,
            lambda: self.clock,
            self.journal,
            self.path.stem,
            self._hosts.ask,
            limits=limits,
        )
        self.follower = LaneFollower(self.lane, self.committer, lambda: self.clock, self._note_taken, self._scrub)

    def reopen(self, limits: Limits = NO_LIMITS) -> None:
        self.lane.close()
        self.open(limits)

    def _note_taken(self) -> None:
        self.taken += 1

    async def _scrub(self, memory_ids: Sequence[str]) -> None:
        self.scrubbed += memory_ids

    def submit(self, *operations: Operation) -> None:
        """Apply the operations behind those that wait: what is not acknowledged and may come later waits on."""
        self.queued.extend(operations)
        replies = self.lane.apply(list(self.queued))
        if any(isinstance(reply, JournalAway) for reply in replies) and self.journal.reachable:
            self.catch_up()
            replies = self.lane.apply(list(self.queued))
        for reply in replies:
            if isinstance(reply, JournalAway):
                break
            if isinstance(reply, Applied):
                self.acknowledged.append(reply)
            self.queued.popleft()

    def reply(self, operation: Operation) -> Applied | RemembrancerError:
        """The outcome of an operation that goes ahead of those that wait."""
        (outcome,) = self.lane.apply([operation])
        return outcome

    def append(self, name: str, said: Operation | bytes) -> None:
        """Append an entry as it is, behind all that this host knows of."""
        body = said if isinstance(said, bytes) else self.lane._body_of(said, None)
        self._hosts.run(self.journal.append(LANE, [NewEntry(name, body)], behind=self.lane.mark))

    def store(self, *names: str) -> None:
        self.submit(*(store_operation(name, f"the {name} burns oil in Rotterdam") for name in names))
        assert not self.queued

    def erase(self, text: str = "the password is brimstone", name: str = "secret") -> None:
        secret = store_operation(name, text)
        self.submit(secret)
        self.submit(change_operation(f"erase {name}", EraseMemory(memory_id_of(secret))))

    def embed(self) -> None:
        """Make the vectors and find the names, as the host does for itself."""
        texts = texts_of(self.lane, pending(self.lane)).items()
        self.lane.save_embeddings("model", [embedded(number, text) for number, text in texts])
        find_names(self.lane.spaces.file, self.clock)

    def catch_up(self) -> None:
        """Apply what others have appended, after a snapshot if the journal does not go back far enough."""
        self._hosts.run(self.follower.catch_up())

    def keep(self) -> None:
        """Remove what was erased from the journal, by a snapshot."""
        self._hosts.run(self.follower.compact())

    def keep_soon(self) -> None:
        self._hosts.run(self.follower._compact_if_due())

    def write_snapshot(self, *, purge: bool = False) -> None:
        """Put the lane as it is here into the journal; `purge` what is before."""
        self._hosts.run(self.follower._write())
        if purge:
            self._hosts.run(self.journal.purge(LANE, up_to=self.lane.mark.position))

    def memory(self, memory_id: str) -> PortableMemory:
        memory = self.lane.portable(memory_id, None)
        assert memory is not None
        return memory

    def dump(self) -> list[str]:
        return dump_of(self.path)

    def close(self) -> None:
        self.lane.close()
        self.committer.close()


class Hosts:
    """Hosts that share a lane. The clocks of some are ahead of the journal's, `now`."""

    def __init__(self, directory: Path, *ahead_s: float) -> None:
        self.directory = directory
        self._loop = asyncio.new_event_loop()
        self.now = REQUESTED_AT
        self.server = InProcessServer(clock=lambda: self.now)
        self.run(InProcessJournal(self.server).create(LANE))
        self.hosts: list[Host] = []
        for number, ahead in enumerate(ahead_s):
            self.join(f"host{number}", ahead)

    def __getitem__(self, number: int) -> Host:
        return self.hosts[number]

    def join(self, name: str, ahead_s: float = 0.0) -> Host:
        self.hosts.append(Host(self, name, ahead_s))
        return self.hosts[-1]

    def run(self, question: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(question)

    def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Ask the journal, in this thread or, while a follower is at work, from the committer's."""
        if self._loop.is_running():
            return asyncio.run_coroutine_threadsafe(question, self._loop).result()
        return self.run(question)

    @property
    def kept(self) -> list[tuple[LaneSnapshot, bytes]]:
        return list(self.server.lanes[LANE].snapshots.values())

    def settle(self) -> None:
        """Everybody is reached again, gives away what waits, and reads what the others have appended."""
        for host in self.hosts:
            host.journal.reachable = True
            host.journal.loses_answers = 0
            host.submit()
            assert not host.queued
        for host in self.hosts:
            host.catch_up()

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        self._loop.close()
