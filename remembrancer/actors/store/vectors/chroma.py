"""The vectors of large spaces in Chroma (HNSW, cosine), in the home or on a server. Needs the `chroma` extra. A
collection contains the passages of one space under one model: only numbers and vectors, since metadata would double the
time of a search. Importing chromadb takes most of a second, so it is imported only when `Chroma` opens."""

import contextlib
import hashlib
import logging
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.types import PassageVectors, Vectors
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors, Nearest, first_memories
from remembrancer.protocol.errors import HomeUnusable
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import read_file, write_whole
from remembrancer.protocol.work import ModelIdentity

logger = logging.getLogger(__name__)
SEARCH_EFFORT: Final = 150
"""HNSW's ef_search. It finds 99 % of the true nearest ten among 100,000 vectors in 2 ms."""
SEARCH_TIMEOUT_S: Final = 1.0
"""The time limit for a search on a server. After that, the client gets an answer from words alone."""
UPKEEP_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 2.0
LIST_PAGE: Final = 500
MARK: Final = "server.id"
"""The file that identifies a home, kept with the data that can be rebuilt."""
TOKEN_BYTES: Final = 16_384
ADD_BATCH: Final = 64
"""The size of a batch. Chroma answers no searches while it adds one, for about 40 ms if there are 100,000 passages."""
DELETE_BATCH: Final = 1000
"""Chroma refuses batches above its own limit (5,461 with this SQLite)."""
PROBES: Final = 16
MAX_SELF_DISTANCE: Final = 0.01
MAX_COMPARED: Final = 5000
MAX_DEPTH: Final = 3200
"""The maximum depth of a search if many of the nearest passages are not allowed."""


class ChromaUnavailable(Exception):
    """Chroma, or a collection, cannot be used."""


class Server(NamedTuple):
    url: str
    token_file: str | None = None

    def headers(self) -> dict[str, str]:
        """Raises `ChromaUnavailable` if the token file cannot be read."""
        if self.token_file is None:
            return {}
        try:
            token = read_file(Path(self.token_file).expanduser(), TOKEN_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ChromaUnavailable(f"the token for the Chroma server cannot be read: {error}") from error
        return {"Authorization": f"Bearer {token}"}


class Chroma:
    """The collections of one home. On a server, their names have a prefix. Methods raise `ChromaUnavailable`."""

    def __init__(self, folder: Path, server: Server | None = None) -> None:
        self._is_remote = server is not None
        self._prefix = f"{_prefix_of(folder)}." if self._is_remote else ""
        with self.guard():
            self._clients = [_embedded(folder)] if server is None else _connected(server)
        """The clients for upkeep and for searches; without a server, one client does both."""

    def collection(self, name: str, dimensions: int) -> tuple[Any, Any]:
        with self.guard():
            upkeep = self._clients[0].get_or_create_collection(
                self._prefix + name,
                embedding_function=None,
                configuration={"hnsw": {"space": "cosine", "ef_search": SEARCH_EFFORT}},
                metadata={"dimensions": dimensions},
            )
            return upkeep, self._clients[-1].get_collection(self._prefix + name, embedding_function=None)

    def names(self) -> list[str]:
        names: list[str] = []
        with self.guard():
            while page := self._clients[0].list_collections(limit=LIST_PAGE, offset=len(names)):
                names += [each.name for each in page]
        return [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]

    def delete(self, name: str) -> None:
        with self.guard():
            self._clients[0].delete_collection(self._prefix + name)

    def close(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            for session in (
                _http_sessions(client) if self._is_remote else ()
            ):  # Chroma's own `close` leaves sessions open
                session.close()
            client.close()  # otherwise, its connections would keep the file locked for a while

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        try:
            yield
        except (ChromaUnavailable, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in Chroma's native code raises a BaseException of its own
            where = "the Chroma server does not answer" if self._is_remote else "Chroma's files cannot be used"
            raise ChromaUnavailable(f"{where}: {str(error) or type(error).__name__}") from error


class ChromaVectors(ExactVectors):
    """The vectors of one large space, searched in a collection with all but the newest passages, or in memory if that
    has failed. One that disagrees with the records is rebuilt. All but searches may raise `ChromaUnavailable`."""

    def __init__(self, records: EmbeddedTexts, model: ModelIdentity, chroma: Chroma) -> None:
        super().__init__(records, model.key)
        self._guard = chroma.guard
        self._followed = (0, 0)
        """The extent of the records when the collection was last up to date."""
        self.has_failed = False
        name = f"{records.name}.{model.key}"
        self._open(chroma, name, model.dimensions)
        if not self._agrees():
            chroma.delete(name)
            self._open(chroma, name, model.dimensions)

    def _open(self, chroma: Chroma, name: str, dimensions: int) -> None:
        self._upkeep, self._searched = chroma.collection(name, dimensions)
        with self._guard():
            self._numbers = np.asarray(self._upkeep.get(include=[])["ids"], dtype=np.int64)
        """The numbers of the passages in the collection."""

    def _agrees(self) -> bool:
        """True if the records have all passages of the collection, and its index finds half of a sample."""
        if len(np.setdiff1d(self._numbers, self.records.passage_numbers(self.model))):
            return False
        if not len(self._numbers):
            return True
        numbers = self._numbers[:: max(1, len(self._numbers) // PROBES)].tolist()
        probes = self.records.passages(numbers=numbers).vectors
        with self._guard():
            found = self._upkeep.query(query_embeddings=probes, n_results=1, include=["distances"])["distances"]
        itself = [nearest for nearest in found if nearest and nearest[0] <= MAX_SELF_DISTANCE]
        return len(itself) * 2 >= len(found)

    def newest(self) -> PassageVectors:
        return self.records.passages(self.model, after=int(self._numbers.max(initial=0)))

    def follow(self, goes_on: Callable[[], bool]) -> None:
        """Bring the collection up to date with the records, as long as `goes_on` returns True. Blocks for minutes."""
        extent = self.records.extent(self.model)
        if extent == self._followed:
            return
        recorded = self.records.passage_numbers(self.model)
        missing, gone = np.setdiff1d(recorded, self._numbers), np.setdiff1d(self._numbers, recorded)
        for start in range(0, len(gone), DELETE_BATCH):
            with self._guard():
                self._upkeep.delete(ids=[str(number) for number in gone[start : start + DELETE_BATCH]])
        self._numbers = np.intersect1d(self._numbers, recorded)
        for start in range(0, len(missing), ADD_BATCH):
            if not goes_on():
                return
            added = self.records.passages(numbers=missing[start : start + ADD_BATCH].tolist())
            if added.numbers:
                with self._guard():
                    self._upkeep.upsert(ids=[str(number) for number in added.numbers], embeddings=added.vectors)
            self._numbers = np.append(self._numbers, added.numbers).astype(np.int64)
        self._followed = extent

    def nearest_each(self, queries: Vectors, limit: int, allowed: Sequence[int] | None = None) -> list[Nearest]:
        if self.has_failed:
            return super().nearest_each(queries, limit, allowed)
        if allowed is not None and len(allowed) <= MAX_COMPARED:
            passages = self.of_memories(allowed)
            return [_nearest_among(passages, query, limit) for query in queries]
        try:
            newest, may_be_found = self.newest(), None if allowed is None else set(allowed)
            return [self._nearest(query, limit, may_be_found, newest) for query in queries]
        except ChromaUnavailable as error:
            logger.warning("a collection cannot be searched", extra={"reason": str(error)})
            self.has_failed = True
            return super().nearest_each(queries, limit, allowed)

    def of_memories(self, memories: Sequence[int]) -> PassageVectors:
        return self.records.passages(self.model, memories)

    def _nearest(self, query: Vectors, limit: int, allowed: Set[int] | None, newest: PassageVectors) -> Nearest:
        beside, depth = _nearest_among(newest, query, limit, allowed), 2 * limit
        while True:
            with self._guard():
                (ids,) = self._searched.query(query_embeddings=query[None], n_results=depth, include=[])["ids"]
            passages = self.records.passages(self.model, numbers=[*map(int, ids)])
            found = [*beside.items(), *_nearest_among(passages, query, limit, allowed).items()]
            best = dict(sorted(found, key=lambda pair: pair[1]))  # if both found a memory, the better result
            nearest = dict(sorted(best.items(), key=lambda pair: -pair[1])[:limit])
            if len(nearest) == limit or len(ids) < depth or depth >= MAX_DEPTH:
                return nearest
            depth = min(4 * depth, MAX_DEPTH)


def _nearest_among(passages: PassageVectors, query: Vectors, limit: int, allowed: Set[int] | None = None) -> Nearest:
    if not passages.numbers:
        return {}
    memories = np.asarray(passages.memories, dtype=np.int64)
    which = slice(None) if allowed is None else [memory in allowed for memory in passages.memories]
    return first_memories((passages.vectors @ query)[which], memories[which], limit)


def _embedded(folder: Path) -> Any:
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient

    SharedSystemClient.clear_system_cache()  # without this, Chroma would reuse a system that failed to open
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = chromadb.Settings(anonymized_telemetry=False, is_persistent=True, persist_directory=str(folder))
    client = chromadb.PersistentClient(str(folder), settings=settings)
    client.heartbeat()
    return client


def _connected(server: Server) -> list[Any]:
    import chromadb
    import httpx

    # Chroma's client has no timeout, and sends a request while it is being created.
    headers = server.headers()
    httpx.get(f"{server.url}/api/v2/heartbeat", headers=headers, timeout=CONNECT_TIMEOUT_S).raise_for_status()
    clients = []
    for timeout_s in (UPKEEP_TIMEOUT_S, SEARCH_TIMEOUT_S):
        settings = chromadb.Settings(anonymized_telemetry=False)
        clients.append(chromadb.HttpClient(server.url, headers=dict(headers), settings=settings))
        for session in _http_sessions(clients[-1]):  # there is no setting for the timeout
            session.timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
    return clients


def _http_sessions(client: Any) -> list[Any]:
    return [client._server._session, client._admin_client._server._session]


def _prefix_of(folder: Path) -> str:
    """Return the unique prefix of a home's collection names. Removes files that an earlier Chroma left there."""
    path = folder / MARK
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            write_whole(path, new_ulid().encode())
        drawn = read_file(path, TOKEN_BYTES)
        for left in folder.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            elif left != path:
                left.unlink(missing_ok=True)
    except OSError as error:
        raise HomeUnusable(f"{path} cannot be read or written: {error.strerror}") from error
    where = f"{socket.gethostname()}\0{os.fsdecode(folder.resolve())}\0".encode()
    return f"r{hashlib.sha256(where + drawn).hexdigest()[:20]}"
