"""The vectors of all texts under each model, searched in memory or, for large spaces, in Chroma once it has them.

A separate thread finds near-duplicates, keeps Chroma up to date, and frees unused vectors. Whatever happens to Chroma,
the records are unaffected, and their vectors can be searched in memory.
"""

import asyncio
import importlib.util
import itertools
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

import anyio

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import NearDuplicate, NearestTo, PassageVectors
from remembrancer.actors.store.vectors.chroma import Chroma, ChromaUnavailable, ChromaVectors, Server
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.actors.store.vectors.near_duplicates import compared, nearest_to
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.work import CALIBRATED, CosineScale, ModelIdentity

TOGETHER_S: Final = 0.1
CHECK_INTERVAL_S: Final = 2.0
"""The interval between checks of Chroma and of pending near-duplicates."""
IDLE_S: Final = 600.0
"""Vectors are freed this long after they were last searched."""
COMPARE_BATCH: Final = 16
"""The number of passages compared in one batch, which delays recalls. After a crash, a batch is compared again."""
CHROMA_RETRY_S: Final = 4.0
NOT_INSTALLED: Final = "chroma_url is set, but Chroma is not installed; install the extra chroma"

T = TypeVar("T")
Judge = Callable[[Records, Sequence[NearDuplicate], NearestTo], list[NearDuplicate]]
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class VectorSpaces:
    """All vectors of the store. Belongs to one event loop. `texts` returns all open texts: spaces, and indexes of
    files. `judge` returns the links for similar memories besides those between near-duplicates. Memories are compared
    after `until_quiet`. Above `exact_up_to` passages, Chroma has the vectors: in `folder`, or on a server."""

    folder: Path
    committer: Committer
    texts: Callable[[], Sequence[EmbeddedTexts]]
    _: KW_ONLY
    exact_up_to: int
    judge: Judge = lambda records, pairs, nearest: []
    until_quiet: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0.0)
    server: Server | None = None

    def __post_init__(self) -> None:
        self._with_chroma = importlib.util.find_spec("chromadb") is not None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vectors")
        self._models: dict[str, ModelIdentity] = {}
        self._active: str | None = None
        self._scales: dict[str, CosineScale] = {}
        self._spaces: dict[tuple[str, str], ExactVectors] = {}
        self._uncompared: set[str] = set()
        self._chroma: Chroma | None = None
        self._reach_at = 0.0
        self._wake = asyncio.Event()
        self._closing = False
        self.error: str | None = None if self.server is None or self._with_chroma else NOT_INSTALLED

    def searchable(self, name: str, model: str | None = None) -> ExactVectors | None:
        """Return the vectors of texts under a model (None: the active one); None if either is unknown."""
        model = model or self._active
        texts = next((each for each in self.texts() if each.name == name), None)
        return None if texts is None or model not in self._models else self._vectors_of(texts, model)

    def _vectors_of(self, texts: EmbeddedTexts, model: str) -> ExactVectors:
        place = (texts.name, model)
        vectors = self._spaces.get(place)
        if vectors is None or vectors.records is not texts:
            vectors = self._spaces[place] = ExactVectors(texts, model)
        vectors.scale = self._scales.get(model, CALIBRATED)
        return vectors

    def note_kept(self, name: str) -> None:
        """Look for near-duplicates among these texts, since new vectors may have been stored."""
        self._uncompared.add(name)
        self._wake.set()

    def note_scale(self, model: str, scale: CosineScale) -> None:
        self._scales.setdefault(model, scale)

    def use_models(self, models: Sequence[ModelIdentity], active: ModelIdentity | None) -> None:
        """Keep the vectors of these models searchable. Those of the active model are used to find near-duplicates."""
        self._models = {model.key: model for model in models}
        self._active = active.key if active else None
        self._spaces = {place: vectors for place, vectors in self._spaces.items() if vectors.model in self._models}
        for texts in self.texts():
            self.note_kept(texts.name)

    async def check_now(self, name: str, memory: int, threads: Executor) -> None:
        """Link the near-duplicates of one memory at once, on `threads`, since the upkeep may be busy for minutes."""
        vectors = self.searchable(name)
        if vectors is not None and vectors.records.links_duplicates:
            await self._link(vectors, partial(vectors.records.passages, vectors.model, [memory]), threads)

    async def run(self) -> None:
        while True:
            self._wake.clear()
            open_texts = set(map(id, self.texts()))
            self._spaces = {place: each for place, each in self._spaces.items() if id(each.records) in open_texts}
            await self._compare_some()
            if self._with_chroma:
                await self._update_chroma()
            elif self.server is None and self.folder.exists():  # left by a Chroma that is no longer installed
                await self._on_thread(partial(self._close_chroma, deletes=True))
            self.free_idle()
            is_waiting = any(map(_is_in_chroma, self._spaces.values())) or self._uncompared or self.error
            with anyio.move_on_after(CHECK_INTERVAL_S if is_waiting else IDLE_S / 10):
                await self._wake.wait()
                await anyio.sleep(TOGETHER_S)

    def free_idle(self, idle_s: float = IDLE_S) -> None:
        for vectors in self._spaces.values():
            if time.monotonic() - vectors.used_at >= idle_s:
                vectors.free()

    async def aclose(self) -> None:
        """Close Chroma. Call this after `run` has been cancelled."""
        if not self._closing:
            self._closing = True
            self._spaces = {}
            await self._on_thread(self._close_chroma)
            self._thread.shutdown(wait=False)

    # --- Near-duplicates.

    async def _compare_some(self) -> None:
        for name in list(self._uncompared):
            self._uncompared.discard(name)
            vectors = self.searchable(name)
            if vectors is None or not vectors.records.links_duplicates:
                continue
            records, model = vectors.records, vectors.model
            await self.until_quiet()
            try:
                after = await self._on_thread(partial(records.compared, model))
                fresh = partial(records.passages, model, after=after, limit=COMPARE_BATCH)
                numbers = await self._link(vectors, fresh, self._thread)
                if numbers:
                    await self.committer.run(name, partial(records.note_compared, model, numbers[-1]))
                if len(numbers) == COMPARE_BATCH:
                    self.note_kept(name)
            except RemembrancerError as error:
                logger.warning("near-duplicates are delayed", extra={"file": name, "reason": str(error)})
                self._uncompared.add(name)

    async def _link(self, vectors: ExactVectors, read: Callable[[], PassageVectors], threads: Executor) -> list[int]:
        """Returns the numbers of the passages."""

        def look() -> tuple[PassageVectors, list[NearDuplicate]]:
            passages = read()
            links, pairs = compared(vectors, passages)
            records = cast(Records, vectors.records)  # only records have links
            return passages, links + self.judge(records, pairs, partial(nearest_to, vectors))

        passages, links = await asyncio.get_running_loop().run_in_executor(threads, look)
        if links:
            await self.committer.run(vectors.records.name, lambda: vectors.records.link_similar(links))
        return passages.numbers

    # --- Chroma.

    async def _update_chroma(self) -> None:
        """Keep Chroma up to date. After an error, it is not used for a while. In the home it is deleted, since its
        files may be damaged; on a server its data stays, since only the connection may have failed."""
        if time.monotonic() < self._reach_at:
            return
        try:
            for texts, model in itertools.product(self.texts(), list(self._models.values())):
                vectors = self._vectors_of(texts, model.key)
                try:
                    tended = await self._on_thread(partial(self._updated, vectors, model))
                except RemembrancerError as error:
                    logger.warning("vectors are delayed", extra={"file": texts.name, "reason": error.message})
                    continue
                if model.key in self._models:
                    self._spaces[texts.name, model.key] = tended
            names = {f"{name}.{model}" for (name, model), each in self._spaces.items() if _is_in_chroma(each)}
            await self._on_thread(partial(self._drop_left, names, tuple(f"{each.name}." for each in self.texts())))
        except (ChromaUnavailable, OSError) as error:
            logger.warning("the vectors of large files are searched in memory", extra={"reason": str(error)})
            self.error = str(error)
            self._reach_at = time.monotonic() + CHROMA_RETRY_S
            self._spaces = {place: each for place, each in self._spaces.items() if not _is_in_chroma(each)}
            await self._on_thread(partial(self._close_chroma, deletes=self.server is None))
        else:
            self.error = None

    # On the only thread that may use Chroma, except for searches. Any of these may raise `ChromaUnavailable`.

    def _updated(self, vectors: ExactVectors, model: ModelIdentity) -> ExactVectors:
        if not isinstance(vectors, ChromaVectors) or vectors.has_failed:
            if vectors.records.extent(model.key)[0] <= self.exact_up_to:
                return vectors
            vectors = ChromaVectors(vectors.records, model, self._opened())
        vectors.follow(lambda: not self._closing)
        return vectors

    def _opened(self) -> Chroma:
        if self._chroma is None:
            self._chroma = Chroma(self.folder, self.server)
            logger.info("Chroma is open")
        return self._chroma

    def _drop_left(self, used: Set[str], prefixes: tuple[str, ...]) -> None:
        """Delete the unused collections with these prefixes, since erased content must not remain there."""
        if not used and self._chroma is None and not self.folder.exists():
            return
        chroma = self._opened()
        for name in chroma.names():
            if name not in used and name.startswith(prefixes):
                chroma.delete(name)
        if not used and self.server is None and not chroma.names():
            self._close_chroma(deletes=True)

    def _close_chroma(self, *, deletes: bool = False) -> None:
        chroma, self._chroma = self._chroma, None
        if chroma is not None:
            chroma.close()
        if deletes:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _is_in_chroma(vectors: ExactVectors) -> bool:
    return isinstance(vectors, ChromaVectors)
