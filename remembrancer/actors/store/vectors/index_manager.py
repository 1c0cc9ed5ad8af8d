"""Manages the vector indexes: opens them beside the work, makes them agree with the records, mends what breaks.

A file of some thousand passages is held in memory and searched exactly. That is quicker and finds more than an index on
disk, which is opened when there is a file that is larger, and for the larger ones alone.

All upkeep runs on one thread of its own. Whatever the index does, the records are untouched and keyword search goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

import anyio

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.records.contract import EmbeddedTexts, NearDuplicate, Records, SavedEmbeddings
from remembrancer.actors.store.vectors.passage_index import (
    Collection,
    ExactCollection,
    IndexAway,
    IndexLost,
    PassageIndex,
    VectorIndex,
)
from remembrancer.memory.ranking import NEAR_DUPLICATE_COSINE, on_the_scale
from remembrancer.memory.replacement import LEAST_COSINE
from remembrancer.protocol.control import IndexFigures
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.work import CALIBRATED, CosineScale, ModelIdentity

CHECK_INTERVAL_S: Final = 2.0
"""The time between two looks at the folder: a deleted one is noticed and made again so soon."""
LAST_FLUSH_S: Final = 0.5
"""A stop is granted little more than a second, and thousands of passages may take longer than that."""
FEW: Final = 8
"""So few memories are compared at once, whatever else there is to do: their session goes on, and may be told."""
NOTED_EVERY: Final = 64
"""After so many passages it is noted how far comparing has come: a crash has them compared again."""
LARGE_FILES_HELD: Final = 10
"""Files of the largest size that is held in memory, and as many smaller ones as are no more together."""
RETRY_S: Final = 2.0
"""Before an index is made again that could not be: a full disk, say."""
REACH_AGAIN_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Before a server that was away is tried again, by how often it was; the last one stays."""

T = TypeVar("T")
Judge = Callable[[Records, Sequence[NearDuplicate]], list[NearDuplicate]]
logger = logging.getLogger(__name__)


def open_chroma(folder: Path) -> VectorIndex:
    """The index of a home; what is broken is thrown away, since the records can fill it again."""
    from remembrancer.actors.store.vectors.chroma_index import ChromaIndex  # half a second of imports: not on the loop

    try:
        return ChromaIndex(folder)
    except BaseException as error:  # Chroma's native part panics with a BaseException of its own
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        logger.warning("the vector index cannot be opened and is made again", extra={"reason": repr(error)})
        return ChromaIndex.anew(folder)


class IndexManager:
    """The indexes of all open files under each model. `busy` says whether embedding has work to do. `judge` gives the
    links that memories near each other are to have besides those between near-duplicates.

    `folder` is for the index on disk; a file of no more than `exact_up_to` passages is searched without it (0: none).
    """

    def __init__(
        self,
        folder: Path,
        committer: Committer,
        *,
        exact_up_to: int,
        busy: Callable[[], bool],
        judge: Judge = lambda records, pairs: [],
        open_index: Callable[[Path], VectorIndex] = open_chroma,
    ) -> None:
        self._folder = folder
        self._open_index = open_index
        self._exact_up_to = exact_up_to
        self._committer = committer
        self._busy = busy
        self._judge = judge
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="index")
        self._index: VectorIndex | None = None
        self._models: dict[str, ModelIdentity] = {}
        self._scales: dict[str, CosineScale] = {}
        self._identity: ModelIdentity | None = None
        self._files: dict[tuple[str, str], PassageIndex] = {}
        """By file and model."""
        self._unpruned = False
        self._wake = asyncio.Event()
        self._noting = asyncio.Lock()
        self._closing = False
        self._trouble = False
        self._left: set[str] = set()
        """Collections of files that are in memory now: from when they were larger there may be some."""
        self._times_away = 0
        self._reach_at = 0.0
        self.error: str | None = None
        self._counted: object = None
        self._not_before = 0.0
        self.figures: tuple[IndexFigures, ...] = ()
        """Passages in the records and in the index, as counted last."""

    def is_whole(self, model: str | None) -> bool:
        """True if every open file can be searched whole by that model's vectors."""
        return all(file.attached for file in self._files.values() if file.model == model)

    def searchable(self, name: str, model: str | None = None) -> PassageIndex | None:
        """The passages of a file (None: of the active model), when all of them can be found."""
        active = "" if self._identity is None else self._identity.key
        file = self._files.get((name, model or active))
        return file if file is not None and file.ready else None

    def adopt(self, records: EmbeddedTexts) -> None:
        """Search this file too."""
        for key in self._models:
            if (records.name, key) in self._files:
                continue
            try:
                file = self._files[records.name, key] = PassageIndex(records, key, self._scales.get(key, CALIBRATED))
                file.is_active = self._identity is not None and key == self._identity.key
            except RemembrancerError as error:
                logger.warning("a file is not searched", extra={"file": records.name, "reason": error.message})
            self._wake.set()

    def note_scale(self, model: str, scale: CosineScale, *, keeps: bool = False) -> None:
        """Keep the scale of a model's cosines, as a worker that has the model found it. `keeps`: one that is known
        counts more."""
        if keeps:
            scale = self._scales.get(model, scale)
        self._scales[model] = scale
        for file in self._files.values():
            if file.model == model:
                file.scale = scale

    def use_models(
        self, models: Sequence[ModelIdentity], active: ModelIdentity | None, files: Sequence[EmbeddedTexts]
    ) -> None:
        """Keep the vectors of these models searchable. By those of the active one near-duplicates are looked for."""
        self._models = {model.key: model for model in models}
        self._identity = active
        self._files = {place: file for place, file in self._files.items() if file.model in self._models}
        for file in self._files.values():
            file.is_active = active is not None and file.model == active.key
        for records in files:
            self.adopt(records)
        self._wake.set()

    def prune(self) -> None:
        """Delete what there is of other models: it is not needed any more."""
        self._unpruned = True
        self._wake.set()

    def forget(self, name: str) -> None:
        """This file is not to be searched any more: it is gone, or is another one from now on."""
        self._files = {place: file for place, file in self._files.items() if place[0] != name}

    def add(self, name: str, model: str, saved: SavedEmbeddings) -> None:
        """New vectors of a model are in a file's records. Those of a model that is not needed are not taken."""
        file = self._files.get((name, model))
        if file is not None:
            file.add(saved)
            self._wake.set()

    def remove(self, name: str, passages: Sequence[int]) -> None:
        """Passages are gone from a file's records: they are not to be found any more."""
        for key in self._models:
            if (file := self._files.get((name, key))) is not None:
                file.remove(passages)
        self._wake.set()

    def nudge(self) -> None:
        """Something may have changed: look."""
        self._wake.set()

    async def check_now(self, name: str, memory: int, threads: Executor) -> None:
        """Look for near-duplicates of one memory at once, and note them in the records.

        On other `threads` than the upkeep's own, which may take long to open an index.
        """
        file = self.searchable(name)
        if file is not None:
            await self._note_duplicates(file, memory, threads)

    async def run(self) -> None:
        """Open, attach, flush, check, mend; until cancelled or closed."""
        while True:
            self._wake.clear()
            try:
                await self._tend()
            except BaseException as error:
                if isinstance(error, (KeyboardInterrupt, SystemExit, asyncio.CancelledError)):
                    raise
                if not self._closing:
                    self.error = f"the vector index failed and is being made again: {error!r}"
                    logger.warning("the vector index failed", exc_info=True)
                    self._trouble = True
                    await self._begin_anew()
            if self._closing:
                return
            if not self._trouble and not self._busy() and any(file.has_work for file in self._files.values()):
                continue
            self._trouble = False
            with anyio.move_on_after(CHECK_INTERVAL_S):
                await self._wake.wait()

    async def count(
        self,
        files: Callable[[], Sequence[EmbeddedTexts]],
        read: Callable[[Callable[[], IndexFigures]], Awaitable[IndexFigures]],
        revision: Callable[[], Hashable],
    ) -> None:
        """Compare the index with the records for `figures`, if anything has changed since (`revision` differs then).

        `read` runs work on a thread of the readers.
        """
        identity = self._identity
        if identity is None or time.monotonic() < self._not_before:
            return
        settled, began = self._settled(files()), time.monotonic()
        state = (settled, identity, revision())
        if state == self._counted:
            return
        figures = []
        for records in files():
            file = self.searchable(records.name)
            if file is not None and records.name in settled:
                figures.append(await read(partial(_compare, file)))
            else:
                figures.append(IndexFigures(records.name, 0, 0, ready=False))
        self._not_before = time.monotonic() + (time.monotonic() - began) / COUNTING_SHARE
        if state == (self._settled(files()), identity, revision()):  # or else something came between the two counts
            self.figures, self._counted = tuple(figures), state

    def _settled(self, files: Sequence[EmbeddedTexts]) -> frozenset[str]:
        """The files that are whole in the index."""
        found = [(records.name, self.searchable(records.name)) for records in files]
        return frozenset(name for name, file in found if file and file.attached and not file.has_work)

    async def note_compared(self) -> None:
        """Let the next start know what has been compared."""
        for file in list(self._files.values()):
            await self._note_compared(file, 1)

    async def flush_all(self) -> None:
        """Move into the index what can be moved in `LAST_FLUSH_S`, before a stop. The next start misses the rest."""
        self._closing = True
        files = list(self._files.values())
        for file in files:
            file.stop()
        last = anyio.current_time() + LAST_FLUSH_S
        for file in files:
            while self._is_on_disk(file) and anyio.current_time() < last and await self._on_thread(file.flush):
                pass

    async def aclose(self) -> None:
        """Close the index. May be called twice."""
        self._closing = True
        index, self._index = self._index, None
        self._files = {}
        if index is not None:
            await self._on_thread(index.close)
        self._thread.shutdown(wait=False)

    async def _tend(self) -> None:
        away: IndexAway | None = None
        is_intact = self._index is None or await self._on_thread(self._index.is_intact)
        if not is_intact or any(file.lost for file in self._files.values()):
            why = "cannot be searched" if is_intact else "has vanished from the disk"
            logger.warning("the vector index is made again", extra={"reason": why})
            await self._begin_anew()
        for file in list(self._files.values()):
            if self._files.get((file.records.name, file.model)) is not file:
                continue  # of a model that is not needed any more
            try:
                await self._tend_file(file)
            except RemembrancerError as error:
                logger.warning("a file waits", extra={"file": file.records.name, "reason": error.message})
                self._trouble = True
            except IndexAway as error:
                away = error
                await self._note_away(error)
        try:
            if self._left and self._index is not None:
                await self._on_thread(self._drop_left)
            if self._unpruned and self._index is not None:
                needed = tuple(f".{model}" for model in self._models)
                await self._on_thread(partial(self._index.prune, lambda name: name.endswith(needed)))
                self._unpruned = False
        except IndexAway as error:
            away = error
            await self._note_away(error)
        if away is None:
            self._times_away = 0
        self.error = None if away is None else str(away)

    async def _note_away(self, error: IndexAway) -> None:
        """Do without the server's collections until it is tried again; nothing of them is thrown away."""
        self._trouble = True
        for file in self._files.values():
            if not file.is_exact:
                file.detach()
        index, self._index = self._index, None
        if index is not None or time.monotonic() >= self._reach_at:
            logger.warning("the vectors of large files are away", extra={"reason": str(error)})
            self._reach_at = time.monotonic() + REACH_AGAIN_S[min(self._times_away, len(REACH_AGAIN_S) - 1)]
            self._times_away += 1
        if index is not None:
            await self._on_thread(index.close)

    async def _tend_file(self, file: PassageIndex) -> None:
        if not file.attached or (file.is_exact and file.size > self._exact_up_to):
            name = f"{file.records.name}.{file.model}"
            collection = await self._on_thread(partial(self._collection_of, file, name))
            differed = await self._on_thread(partial(file.reconcile, collection))
            logger.info("vector collection compared", extra={"collection": name, "mended_passages": differed})
        # Not attached even now, if the store is stopping.
        may_flush = file.attached and (file.must_flush or (file.has_work and not self._busy()))
        # In this order: what a crash keeps out of the index is compared at the next start.
        if may_flush or (file.attached and 0 < file.unchecked <= FEW):
            await self._note_duplicates(file)
        if may_flush:
            await self._on_thread(file.flush)

    async def _note_duplicates(
        self, file: PassageIndex, memory: int | None = None, threads: Executor | None = None
    ) -> None:
        async with self._noting:  # who asks for one memory waits for the round in which it is being compared
            links = await asyncio.get_running_loop().run_in_executor(
                threads or self._thread, partial(self._links_of, file, memory)
            )
            if links:
                await self._committer.run(file.records.name, lambda: file.records.link_similar(links))
            await self._note_compared(file, NOTED_EVERY)

    def _links_of(self, file: PassageIndex, memory: int | None) -> list[NearDuplicate]:
        """The links that are to be noted of memories not compared yet, or of one alone."""
        near = file.near_duplicates(LEAST_COSINE, memory)
        same = [each for each in near if each.begins_alike and each.cosine >= NEAR_DUPLICATE_COSINE]
        scaled = [each._replace(cosine=on_the_scale(each.cosine, file.scale)) for each in near]
        return same + self._judge(cast(Records, file.records), scaled)  # only records keep links

    async def _note_compared(self, file: PassageIndex, least: int) -> None:
        """Keep in the records how far comparing has come, if that is at least so many passages further."""
        compared = file.compared
        if file.noted is not None and file.records.links_duplicates and compared - file.noted >= least:
            note = partial(file.records.note_compared, file.model, compared)
            await self._committer.run(file.records.name, note)
            file.noted = compared

    def _is_on_disk(self, file: PassageIndex) -> bool:
        return file.attached and not file.is_exact

    def _collection_of(self, file: PassageIndex, name: str) -> Collection:
        """The collection for a file, in memory or on disk. On the upkeep's thread. Raises `IndexLost`."""
        held = sum(each.size for each in self._files.values() if each.is_exact and each is not file)
        is_small = 0 < self._exact_up_to >= file.size and held <= LARGE_FILES_HELD * self._exact_up_to
        if is_small:
            self._left.add(name)
            if self._index is not None or self._folder.is_dir():
                with contextlib.suppress(IndexAway):  # it is done when the server is back
                    self._drop_left()
            return ExactCollection()
        self._left.discard(name)
        return self._opened().collection(name, self._models[file.model].dimensions)

    def _opened(self) -> VectorIndex:
        """The index beside memory. On the upkeep's thread. Raises `IndexAway`."""
        if self._index is None:
            if time.monotonic() < self._reach_at:
                raise IndexAway(self.error or "the Chroma server was away a moment ago")
            self._index = self._open_index(self._folder)
            logger.info("the vector index is open")
        return self._index

    def _drop_left(self) -> None:
        """Delete the collections of files that are in memory now, from when they were larger: nothing erased may stay
        there. On the upkeep's thread. Raises `IndexAway`."""
        left = set(self._left)
        self._opened().prune(lambda name: name not in left)
        self._left -= left

    async def _begin_anew(self) -> None:
        for file in self._files.values():
            if not file.is_exact:
                file.detach()
        index, self._index = self._index, None
        try:
            if index is not None:
                await self._on_thread(index.reset)
                self._index = index
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit, asyncio.CancelledError)):
                raise
            logger.warning("the vector index cannot be made again yet", extra={"reason": repr(error)})
            await anyio.sleep(RETRY_S)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


COUNTING_SHARE: Final = 0.05
"""The share of the time that counting may take: a large index is counted less often."""


def _compare(file: PassageIndex) -> IndexFigures:
    """Count the passages of one file in the records and in its collection."""
    try:
        recorded, indexed = file.count()
    except (IndexLost, RemembrancerError) as error:
        logger.warning("the index was not counted", extra={"file": file.records.name, "reason": str(error)})
        return IndexFigures(file.records.name, 0, 0, ready=False)
    return IndexFigures(file.records.name, recorded, indexed, ready=True)
