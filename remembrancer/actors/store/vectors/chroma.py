"""Chroma (HNSW, cosine), either embedded in the home or on a server that others may share: the extra `chroma`.

On a server, each home's collections have unique names. Importing chromadb takes most of a second, so do it off the
event loop.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import chromadb
import httpx
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings as ChromaSettings
from chromadb.errors import InvalidArgumentError, InvalidDimensionException, NotFoundError

from remembrancer.actors.store.vectors.chroma_vectors import TOKEN_BYTES, Collection, IndexAway, IndexLost, Server
from remembrancer.protocol.errors import HomeUnusable
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import read_file, write_whole

SEARCH_EFFORT: Final = 150
"""HNSW's ef_search. Among 100,000 mixtures of two real vectors it finds 99.0 % of the true nearest ten in 2 ms.

(100 finds 98.6 % in 1.2 ms.)
"""
SEARCH_S: Final = 1.0
"""The time that a search on a server may take, since a client waits for it while words could have answered."""
UPKEEP_S: Final = 10.0
"""The time that other requests to a server may take."""
REACH_S: Final = 2.0
"""The time within which a server must answer at all."""
LIST_PAGE: Final = 500
MARK: Final = "server.id"
"""The file that identifies a home, kept with the data that can be rebuilt."""


class Chroma:
    """The collections of one home, in `folder` or on a server. Every method may raise `IndexLost`."""

    def __init__(self, folder: Path, server: Server | None = None) -> None:
        """Raises `IndexAway` if the server does not answer, or refuses this client."""
        self._folder = folder
        self._server = server
        self._prefix = "" if server is None else f"{_mark_of(folder)}."
        self._clients: list[Any] = []
        """One client for upkeep, and one for searches, which has a shorter timeout."""
        try:
            self._open()
        except IndexAway:
            raise
        except IndexLost:  # damaged; it can be refilled from the records
            self.reset()

    def collection(self, name: str, dimensions: int) -> Collection:
        """Return the collection `name`, creating it if needed."""
        with self._guard():
            upkeep, searching = self._clients[0], self._clients[-1]
            collection = upkeep.get_or_create_collection(
                self._prefix + name,
                embedding_function=None,
                configuration={"hnsw": {"space": "cosine", "ef_search": SEARCH_EFFORT}},
                metadata={"dimensions": dimensions},
            )
            searched = collection
            if searching is not upkeep:
                searched = searching.get_collection(self._prefix + name, embedding_function=None)
        return Collection(collection, searched, self._guard)

    def names(self) -> list[str]:
        """Return the names of this home's collections. A server may have many others."""
        with self._guard():
            names: list[str] = []
            while True:
                page = self._clients[0].list_collections(limit=LIST_PAGE, offset=len(names))
                names += [each.name for each in page]
                if len(page) < LIST_PAGE:
                    break
        return [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]

    def delete(self, name: str) -> None:
        """Delete a collection."""
        with self._guard():
            self._clients[0].delete_collection(self._prefix + name)

    def reset(self) -> None:
        """Start over with an empty index."""
        if self._server is None:
            self.close()
            SharedSystemClient.clear_system_cache()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._open()
        else:
            for name in self.names():
                self.delete(name)

    def close(self) -> None:
        """Close. May be called twice."""
        clients, self._clients = self._clients, []
        for client in clients:
            for session in _sessions(client) if self._server is not None else ():  # Chroma's own close leaves it open
                session.close()
            client.close()  # otherwise its connections would keep the file locked for a while

    def _open(self) -> None:
        if self._server is not None:
            self._connect(self._server)
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._guard():
            settings = ChromaSettings(
                anonymized_telemetry=False, is_persistent=True, persist_directory=str(self._folder)
            )
            self._clients = [chromadb.PersistentClient(str(self._folder), settings=settings)]
            self._clients[0].heartbeat()

    def _connect(self, server: Server) -> None:
        headers, verify = server.headers(), server.authority or True
        with self._guard():
            # Chroma's client has no timeout, and sends a request while it is being created.
            answer = httpx.get(f"{server.url}/api/v2/heartbeat", headers=headers, timeout=REACH_S, verify=verify)
            answer.raise_for_status()
            self._clients = [_client(server, headers, timeout_s) for timeout_s in (UPKEEP_S, SEARCH_S)]
        for path in self._folder.iterdir():  # left by an earlier Chroma on disk
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MARK:
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Convert Chroma's errors to ours. On a server, an answer that a collection is missing or invalid means that it
        has to be rebuilt; any other fault is temporary, of the server or the network."""
        try:
            yield
        except IndexLost:
            raise
        except (NotFoundError, InvalidArgumentError, InvalidDimensionException) as error:
            raise IndexLost(f"a collection of Chroma's cannot be used: {error}") from error
        except BaseException as error:  # Chroma's native part panics with its own BaseException
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            reason = str(error) or type(error).__name__
            if self._server is not None:
                raise IndexAway(f"the Chroma server does not answer as it should: {reason}") from error
            raise IndexLost(f"Chroma's files cannot be used: {error!r}") from error


def _client(server: Server, headers: dict[str, str], timeout_s: float) -> Any:
    settings = ChromaSettings(anonymized_telemetry=False)
    if server.authority is not None:
        settings.chroma_server_ssl_verify = server.authority
    client: Any = chromadb.HttpClient(server.url, headers=dict(headers), settings=settings)
    for session in _sessions(client):  # there is no setting for it
        session.timeout = httpx.Timeout(timeout_s, connect=REACH_S)
    return client


def _sessions(client: Any) -> list[httpx.Client]:
    """Return the connections of Chroma's client: its own, and the one for databases."""
    return [client._server._session, client._admin_client._server._session]


def _mark_of(folder: Path) -> str:
    """Return the prefix of a home's collection names, which no other home and no copy on another host has."""
    path = folder / MARK
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            write_whole(path, new_ulid().encode())
        drawn = read_file(path, TOKEN_BYTES)
    except OSError as error:
        raise HomeUnusable(f"{path} cannot be read or written: {error.strerror}") from error
    where = f"{socket.gethostname()}\0{os.fsdecode(folder.resolve())}\0".encode()
    return f"r{hashlib.sha256(where + drawn).hexdigest()[:20]}"
