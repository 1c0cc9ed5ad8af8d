"""The base of the classes that answer the store's requests: the parts of the store that they share."""

from __future__ import annotations

from typing import NamedTuple

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.readers import Readers
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.config.settings import Settings
from remembrancer.protocol.paths import RuntimePaths


class StoreParts(NamedTuple):
    """The parts of a store."""

    paths: RuntimePaths
    settings: Settings
    files: MemoryFiles
    committer: Committer
    vectors: VectorSpaces
    scheduler: EmbeddingScheduler
    readers: Readers


class Handlers:
    """Handlers of requests of one subject. They belong to one event loop; reads run on `readers`."""

    def __init__(self, parts: StoreParts) -> None:
        self._paths, self._settings, self._files, self._committer = parts[:4]
        self._vectors, self._scheduler, self._readers = parts[4:]
