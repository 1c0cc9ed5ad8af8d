"""`VectorIndex` on a Chroma server, which others may use too: the collections of each home have names of their own.

A server that is away is waited for, and what it holds is compared with the records when it is back: nothing is thrown
away because a line was cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import chromadb
import httpx
from chromadb.config import Settings as ChromaSettings
from chromadb.errors import InvalidArgumentError, InvalidDimensionException, NotFoundError

from remembrancer.actors.store.vectors.chroma_index import SEARCH_EFFORT, ChromaCollection
from remembrancer.actors.store.vectors.passage_index import Collection, IndexAway, IndexLost
from remembrancer.protocol.errors import HomeUnusable
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import read_file, write_whole

SEARCH_S: Final = 1.0
"""The time that a search may take: a client waits for it, and words have answered meanwhile."""
UPKEEP_S: Final = 10.0
"""The time that anything else may take."""
REACH_S: Final = 2.0
"""The time that the server has to answer at all."""
MARK: Final = "server.id"
"""The file, among what can be made again, that tells one home from another."""
AUTHORIZATION: Final = "Authorization"
TOKEN_BYTES: Final = 16_384


class Server(NamedTuple):
    """The server as the settings have it. `token_file` holds a secret for `token_header`; `authority` is a PEM file
    with the authority that has signed the server's certificate, if the system does not know it."""

    url: str
    token_file: str | None = None
    token_header: str = AUTHORIZATION
    authority: str | None = None

    def headers(self) -> dict[str, str]:
        """The headers by which this client is let in. Raises `IndexAway`: the file with the token cannot be read."""
        if self.token_file is None:
            return {}
        try:
            token = read_file(Path(self.token_file).expanduser(), TOKEN_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise IndexAway(f"the token for the Chroma server cannot be read: {error}") from error
        return {self.token_header: f"Bearer {token}" if self.token_header == AUTHORIZATION else token}


class ChromaServer:
    """The collections of one home on a server. `folder` holds the mark that their names begin with."""

    def __init__(self, server: Server, folder: Path) -> None:
        """Raises `IndexAway`: it does not answer, or does not let this client in."""
        self._prefix = f"{_mark_of(folder)}."
        headers, verify = server.headers(), server.authority or True
        with _as_away():
            # Chroma's client waits for ever, and asks already while it is made.
            answer = httpx.get(f"{server.url}/api/v2/heartbeat", headers=headers, timeout=REACH_S, verify=verify)
            answer.raise_for_status()
            self._upkeep = _client(server, headers, UPKEEP_S)
            self._search = _client(server, headers, SEARCH_S)
        for left in folder.iterdir():  # of an index on disk that was here before, and is not kept up any more
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            elif left.name != MARK:
                left.unlink(missing_ok=True)

    def collection(self, name: str, dimensions: int) -> Collection:
        full = self._prefix + name
        with _as_away():
            found = self._upkeep.get_or_create_collection(
                full,
                embedding_function=None,
                configuration={"hnsw": {"space": "cosine", "ef_search": SEARCH_EFFORT}},
                metadata={"dimensions": dimensions},
            )
            searched = self._search.get_collection(full, embedding_function=None)
        return ChromaCollection(found, searched, _as_away)

    def prune(self, is_needed: Callable[[str], bool]) -> None:
        with _as_away():
            for name in self._own():
                if not is_needed(name.removeprefix(self._prefix)):
                    self._upkeep.delete_collection(name)

    def is_intact(self) -> bool:
        """True: what has gone from a server is noticed when it is searched."""
        return True

    def reset(self) -> None:
        with _as_away():
            for name in self._own():
                self._upkeep.delete_collection(name)

    def close(self) -> None:
        for client in (self._upkeep, self._search):
            for session in _sessions(client):  # which its own close leaves open
                session.close()
            client.close()

    def _own(self) -> list[str]:
        """The full names of this home's collections, a page at a time: there may be many of others."""
        names: list[str] = []
        page = LIST_PAGE
        offset = 0
        while page == LIST_PAGE:
            listed = self._upkeep.list_collections(limit=LIST_PAGE, offset=offset)
            names += [each.name for each in listed if each.name.startswith(self._prefix)]
            page = len(listed)
            offset += page
        return names


LIST_PAGE: Final = 500


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


@contextlib.contextmanager
def _as_away() -> Iterator[None]:
    """An answer that something is not there, or is of another form, means that it has to be made again; any other
    fault is the server's or the line's, and passes."""
    try:
        yield
    except (NotFoundError, InvalidArgumentError, InvalidDimensionException) as error:
        raise IndexLost(f"a collection on the Chroma server cannot be used: {error}") from error
    except IndexLost:
        raise
    except Exception as error:  # the client raises plain ones
        raise IndexAway(f"the Chroma server does not answer as it should: {error or type(error).__name__}") from error
