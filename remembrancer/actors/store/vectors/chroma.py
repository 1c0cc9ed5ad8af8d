"""Chroma (HNSW, cosine), embedded in the home or on a server, which others may use too: the extra `chroma`.

The collections of each home have names of their own on a server. Importing chromadb takes most of a second: do it off
the loop.
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

from remembrancer.actors.store.vectors.chroma_vectors import TOKEN_BYTES, Collection, IndexAway, Server
from remembrancer.actors.store.vectors.exact_vectors import IndexLost
from remembrancer.protocol.errors import HomeUnusable
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import read_file, write_whole

SEARCH_EFFORT: Final = 150
"""HNSW's ef_search. Among 100,000 mixtures of two real vectors it finds 99.0 % of the true nearest ten in 2 ms.

(100 finds 98.6 % in 1.2 ms.)
"""
SEARCH_S: Final = 1.0
"""The time that a search on a server may take: a client waits for it, and words have answered meanwhile."""
UPKEEP_S: Final = 10.0
"""The time that anything else may take there."""
REACH_S: Final = 2.0
"""The time that the server has to answer at all."""
LIST_PAGE: Final = 500
MARK: Final = "server.id"
"""The file, among what can be made again, that tells one home from another."""


class Chroma:
    """The collections of one home, in `folder` or on a server. Every method may raise `IndexLost`."""

    def __init__(self, folder: Path, server: Server | None = None) -> None:
        """Raises `IndexAway`: the server does not answer, or does not let this client in."""
        self._folder = folder
        self._server = server
        self._prefix = "" if server is None else f"{_mark_of(folder)}."
        self._inode = 0
        self._clients: list[Any] = []
        """The one for upkeep, and the one for searches, which has less patience with a server."""
        try:
            self._open()
        except IndexAway:
            raise
        except IndexLost:  # damaged: the records can fill another one
            self.reset()

    def collection(self, name: str, dimensions: int) -> Collection:
        """The collection `name`, made when it is missing."""
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
        """The names of this home's collections. A server may have many of others."""
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

    def is_intact(self) -> bool:
        """True if what is on disk is still what was opened: a folder that is deleted under it goes unnoticed by Chroma.
        What has gone from a server is noticed when it is searched."""
        if self._server is not None:
            return True
        try:
            return self._database.stat().st_ino == self._inode
        except OSError:
            return False

    def reset(self) -> None:
        """Begin anew, with nothing in it."""
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
            for session in _sessions(client) if self._server is not None else ():  # which its own close leaves open
                session.close()
            client.close()  # forgetting it is not enough: its connections would keep the file locked for a while

    @property
    def _database(self) -> Path:
        return self._folder / "chroma.sqlite3"

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
            self._inode = self._database.stat().st_ino

    def _connect(self, server: Server) -> None:
        headers, verify = server.headers(), server.authority or True
        with self._guard():
            # Chroma's client waits for ever, and asks already while it is made.
            answer = httpx.get(f"{server.url}/api/v2/heartbeat", headers=headers, timeout=REACH_S, verify=verify)
            answer.raise_for_status()
            self._clients = [_client(server, headers, timeout_s) for timeout_s in (UPKEEP_S, SEARCH_S)]
        for path in self._folder.iterdir():  # of a Chroma on disk that was here before
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MARK:
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Chroma's errors as ours. On a server, an answer that something is not there, or is of another form, means
        that it has to be made again; any other fault is the server's or the line's, and passes."""
        try:
            yield
        except IndexLost:
            raise
        except (NotFoundError, InvalidArgumentError, InvalidDimensionException) as error:
            raise IndexLost(f"a collection of Chroma's cannot be used: {error}") from error
        except BaseException as error:  # Chroma's native part panics with a BaseException of its own
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
    for session in _sessions(client):  # it has no setting for that
        session.timeout = httpx.Timeout(timeout_s, connect=REACH_S)
    return client


def _sessions(client: Any) -> list[httpx.Client]:
    """The connections of Chroma's client: of its own, and of the one that it has for databases."""
    return [client._server._session, client._admin_client._server._session]


def _mark_of(folder: Path) -> str:
    """The beginning of the names of a home's collections: of no other home's, nor of a copy's on another host."""
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
