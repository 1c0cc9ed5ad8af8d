"""The vectors of all texts under each model: searched in memory; those of large spaces in Chroma, if it is there.

Beside the searches, on a thread of its own, near-duplicates are looked for, Chroma is kept up to date, and vectors that
nobody searches are freed. Whatever becomes of Chroma, the records are untouched and keyword search goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

import anyio

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.records.contract import NearDuplicate, PassageFilter, PassageVectors
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.vectors.chroma_vectors import ChromaVectors, IndexAway, Server
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors, IndexLost, SpaceVectors
from remembrancer.actors.store.vectors.near_duplicates import compared
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.work import CALIBRATED, CosineScale, ModelIdentity

if TYPE_CHECKING:
    from remembrancer.actors.store.vectors.chroma import Chroma

CHECK_INTERVAL_S: Final = 2.0
"""The time between two looks at Chroma, and at near-duplicates that wait. A deleted folder is noticed within it."""
IDLE_S: Final = 600.0
"""The time after their last search at which vectors are freed."""
MOST_BYTES: Final = 512 * 1024 * 1024
"""The size of all vectors in memory, beyond which those that were searched longest ago are freed."""
COMPARED_AT_ONCE: Final = 64
"""Passages that are compared in one batch. After a whole batch it is noted how far comparing has come; a crash has
the others compared again."""
FEW: Final = 32
"""The number of memories up to which they are compared without delay: their session may still be told of it."""
MANY: Final = FEW + 1
NEWEST: Final = 1024
"""Passages that are compared beside a collection while there is something better to do than to move them into it."""
REACH_AGAIN_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Before Chroma is tried again that was away or damaged, by how often it was; the last one stays."""
NOT_INSTALLED: Final = "chroma_url is set, and Chroma is not installed: install the extra chroma"

T = TypeVar("T")
Judge = Callable[[Records, Sequence[NearDuplicate]], list[NearDuplicate]]
logger = logging.getLogger(__name__)


class VectorSpaces:
    """Belongs to one event loop. `texts` returns all texts that are open: spaces, and indexes of files. Upkeep waits
    while `busy` returns True. `judge` returns the links that memories near each other are to have besides those between
    near-duplicates.

    Texts with more than `exact_up_to` passages have their vectors in Chroma, if that is installed: in `folder`, or on a
    server.
    """

    def __init__(
        self,
        folder: Path,
        committer: Committer,
        texts: Callable[[], Sequence[EmbeddedTexts]],
        *,
        exact_up_to: int,
        busy: Callable[[], bool],
        judge: Judge = lambda records, pairs: [],
        server: Server | None = None,
        with_chroma: bool | None = None,
    ) -> None:
        self._folder = folder
        self._committer = committer
        self._texts = texts
        self._exact_up_to = exact_up_to
        self._busy = busy
        self._judge = judge
        self._server = server
        self._with_chroma = is_chroma_installed() if with_chroma is None else with_chroma
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vectors")
        self._models: dict[str, ModelIdentity] = {}
        self._active: str | None = None
        self._scales: dict[str, CosineScale] = {}
        self._spaces: dict[tuple[str, str], SpaceVectors] = {}
        """The vectors by the name of the texts and the model."""
        self._compared: dict[str, int] = {}
        """The last passage of the active model that was compared with others, by the name of the texts."""
        self._uncompared: dict[str, int] = {}
        """The texts that may have later passages, with the greatest number of memories that these are of."""
        self._chroma: Chroma | None = None
        self._times_away = 0
        self._reach_at = 0.0
        self._wake = asyncio.Event()
        self._closing = False
        self.error: str | None = None if server is None or self._with_chroma else NOT_INSTALLED

    def is_whole(self, model: str | None) -> bool:
        """True if all that is open can be searched whole by that model's vectors."""
        return model is None or all(self._ready(texts, model) is not None for texts in self._texts())

    def searchable(self, name: str, model: str | None = None) -> SpaceVectors | None:
        """The vectors of texts (None: of the active model), when all of them can be found."""
        model = model or self._active
        texts = next((each for each in self._texts() if each.name == name), None)
        return None if texts is None or model not in self._models else self._ready(texts, model)

    def _ready(self, texts: EmbeddedTexts, model: str) -> SpaceVectors | None:
        try:
            vectors = self._vectors_of(texts, model)
        except RemembrancerError as error:
            logger.warning("vectors are not searched", extra={"file": texts.name, "reason": error.message})
            return None
        return vectors if vectors.ready else None

    def _vectors_of(self, texts: EmbeddedTexts, model: str) -> SpaceVectors:
        place = (texts.name, model)
        vectors = self._spaces.get(place)
        if vectors is None or vectors.records is not texts:
            is_large = self._with_chroma and texts.extent(model)[0] > self._exact_up_to
            kind = ChromaVectors if is_large else ExactVectors
            vectors = self._spaces[place] = kind(texts, model, self._scales.get(model, CALIBRATED))
        return vectors

    def note_kept(self, name: str, count: int = MANY) -> None:
        """New vectors of so many memories are in the records (0: it is not known whether there are any): what is near
        these may be found."""
        self._uncompared[name] = self._uncompared.get(name, 0) + count
        self._wake.set()

    def note_scale(self, model: str, scale: CosineScale, *, keeps: bool = False) -> None:
        """Keep the scale of a model's cosines, as a worker that has the model found it. `keeps`: one that is known
        counts more."""
        if keeps:
            scale = self._scales.get(model, scale)
        self._scales[model] = scale
        for vectors in self._spaces.values():
            if vectors.model == model:
                vectors.scale = scale

    def use_models(self, models: Sequence[ModelIdentity], active: ModelIdentity | None) -> None:
        """Keep the vectors of these models searchable. By those of the active one near-duplicates are looked for."""
        self._models = {model.key: model for model in models}
        if self._active != (active.key if active else None):
            self._active = active.key if active else None
            self._compared.clear()
        self._spaces = {place: vectors for place, vectors in self._spaces.items() if vectors.model in self._models}
        for texts in self._texts():
            self.note_kept(texts.name, 0)

    def forget(self, name: str) -> None:
        """These texts are gone, or are others from now on."""
        self._spaces = {place: vectors for place, vectors in self._spaces.items() if place[0] != name}
        self._compared.pop(name, None)

    def nudge(self) -> None:
        """Something may have changed: look."""
        self._wake.set()

    async def check_now(self, name: str, memory: int, threads: Executor) -> None:
        """Look for near-duplicates of one memory at once, and note them in the records.

        On other `threads` than the upkeep's own, which may be at something that takes long.
        """
        vectors = self.searchable(name)
        if vectors is None or not vectors.records.links_duplicates:
            return

        def own() -> PassageVectors:
            return vectors.records.passages(PassageFilter(vectors.model, [memory]))

        with contextlib.suppress(IndexLost):  # then it is compared once they can be searched again
            await self._link(vectors, own, threads)

    async def run(self) -> None:
        """Compare, free, tend Chroma; until cancelled or closed."""
        with contextlib.suppress(_Closed):
            await self._go_on()

    async def _go_on(self) -> None:
        while not self._closing:
            self._wake.clear()
            await self._compare_some()
            if self._with_chroma:
                await self._tend()
            elif self._server is None and self._folder.exists():  # of Chroma, which is not installed any more
                await self._on_thread(partial(shutil.rmtree, self._folder, ignore_errors=True))
            self.free_idle()
            in_chroma = any(isinstance(each, ChromaVectors) for each in self._spaces.values())
            is_waiting = in_chroma or self._uncompared or self.error
            with anyio.move_on_after(CHECK_INTERVAL_S if is_waiting else IDLE_S / 10):
                await self._wake.wait()

    def free_idle(self, idle_s: float = IDLE_S, most_bytes: int = MOST_BYTES) -> None:
        """Free vectors that nobody has searched for so long, and of more than so many bytes those searched first."""
        exact = (vectors for vectors in self._spaces.values() if isinstance(vectors, ExactVectors))
        now, total = time.monotonic(), 0
        for place, vectors in enumerate(sorted(exact, key=lambda each: -each.used_at)):
            total += vectors.size_bytes
            if vectors.size_bytes and (now - vectors.used_at >= idle_s or (place and total > most_bytes)):
                vectors.free()

    async def note_compared(self) -> None:
        """Let the next start know what has been compared."""
        for texts in self._texts():
            compared = self._compared.get(texts.name, 0)
            if self._active is not None and compared > texts.compared(self._active):
                await self._committer.run(texts.name, partial(texts.note_compared, self._active, compared))

    async def aclose(self) -> None:
        """Stop, and close Chroma. May be called twice."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        self._spaces = {}
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close_chroma)
        self._thread.shutdown(wait=False)

    # --- Near-duplicates.

    async def _compare_some(self) -> None:
        for name, count in list(self._uncompared.items()):
            if count > FEW and self._busy():
                continue
            vectors = self.searchable(name)
            self._uncompared.pop(name, None)
            if vectors is None or not vectors.records.links_duplicates:
                continue
            try:
                if await self._compare(vectors):
                    self.note_kept(name)
            except (RemembrancerError, IndexLost) as error:
                logger.warning("near-duplicates wait", extra={"file": name, "reason": str(error)})
                self._uncompared[name] = MANY

    async def _compare(self, vectors: SpaceVectors) -> bool:
        """Look for near-duplicates among the next passages that were not compared yet. True if there may be more."""
        name, records = vectors.records.name, vectors.records
        after = self._compared.get(name)
        if after is None:
            after = self._compared[name] = await self._on_thread(partial(records.compared, vectors.model))

        def fresh() -> PassageVectors:
            return records.passages(PassageFilter(vectors.model, after=after, limit=COMPARED_AT_ONCE))

        if self._closing:
            raise _Closed
        numbers = await self._link(vectors, fresh, self._thread)
        if numbers:
            self._compared[name] = numbers[-1]
        if len(numbers) < COMPARED_AT_ONCE:
            return False
        await self._committer.run(name, partial(records.note_compared, vectors.model, numbers[-1]))
        return True

    async def _link(self, vectors: SpaceVectors, read: Callable[[], PassageVectors], threads: Executor) -> list[int]:
        """Note the near-duplicates of what `read` returns. Returns the numbers of these passages."""

        def look() -> tuple[PassageVectors, list[NearDuplicate]]:
            passages = read()
            links, pairs = compared(vectors, passages)
            return passages, links + self._judge(cast(Records, vectors.records), pairs)  # only records keep links

        passages, links = await asyncio.get_running_loop().run_in_executor(threads, look)
        if links:
            await self._committer.run(vectors.records.name, lambda: vectors.records.link_similar(links))
        return passages.numbers

    # --- Chroma.

    async def _tend(self) -> None:
        """Keep Chroma up to date."""
        if time.monotonic() < self._reach_at:
            return
        try:
            for texts in self._texts():
                for model in list(self._models):
                    try:
                        await self._tend_texts(texts, model)
                    except RemembrancerError as error:
                        logger.warning("vectors wait", extra={"file": texts.name, "reason": error.message})
            await self._on_thread(self._drop_left)
        except (IndexLost, OSError) as error:
            logger.warning("the vectors of large files cannot be searched", extra={"reason": str(error)})
            self.error = str(error)
            self._reach_at = time.monotonic() + REACH_AGAIN_S[min(self._times_away, len(REACH_AGAIN_S) - 1)]
            self._times_away += 1
            await self._on_thread(partial(self._give_up, error))
        else:
            self.error, self._times_away = None, 0

    async def _tend_texts(self, texts: EmbeddedTexts, model: str) -> None:
        vectors = self._vectors_of(texts, model)
        if isinstance(vectors, ExactVectors):
            if max(vectors.count, texts.extent(model)[0]) <= self._exact_up_to:
                return
            vectors = ChromaVectors(texts, model)
        assert isinstance(vectors, ChromaVectors)
        await self._on_thread(partial(self._move, vectors))
        if vectors.ready and not self._closing and model in self._models:
            vectors.scale = self._scales.get(model, CALIBRATED)
            self._spaces[texts.name, model] = vectors

    def _move(self, file: ChromaVectors) -> None:
        """Bring a file's collection to what the records have. On the upkeep's thread. Raises `IndexLost`."""
        if self._chroma is not None and not self._chroma.is_intact():
            raise IndexLost("the folder of Chroma has vanished")
        if not file.ready or (file.is_behind and (not self._busy() or file.newest > NEWEST)):
            model = self._models.get(file.model)
            if model is not None:
                file.tend(self._opened().collection, model.dimensions, lambda: not self._closing)

    def _opened(self) -> Chroma:
        """Raises `IndexAway`."""
        if self._chroma is None:
            from remembrancer.actors.store.vectors.chroma import Chroma  # half a second of imports: not on the loop

            self._chroma = Chroma(self._folder, self._server)
            logger.info("Chroma is open")
        return self._chroma

    def _drop_left(self) -> None:
        """Delete the collections of models that are not needed any more and of files that are searched in memory now:
        nothing erased may stay there. On the upkeep's thread. Raises `IndexLost`."""
        in_chroma = {
            f"{each.records.name}.{each.model}" for each in self._spaces.values() if isinstance(each, ChromaVectors)
        }
        open_texts = {texts.name for texts in self._texts()}
        if not in_chroma and self._chroma is None and not self._folder.exists():
            return
        chroma = self._opened()
        for name in chroma.names():
            if name not in in_chroma and any(name.startswith(f"{each}.") for each in open_texts):
                chroma.delete(name)
        if not in_chroma and self._server is None and not chroma.names():
            self._close_chroma()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _give_up(self, error: Exception) -> None:
        """Do without Chroma until it is tried again. What a server holds is not thrown away because a line was cut."""
        for vectors in self._spaces.values():
            if isinstance(vectors, ChromaVectors):
                vectors.detach()
        if isinstance(error, IndexAway):
            self._close_chroma()
        elif self._chroma is not None:
            try:
                self._chroma.reset()
            except (IndexLost, OSError) as reason:
                logger.warning("Chroma cannot be made again yet", extra={"reason": repr(reason)})
                self._close_chroma()

    def _close_chroma(self) -> None:
        chroma, self._chroma = self._chroma, None
        if chroma is not None:
            chroma.close()

    async def _on_thread(self, work: Callable[[], T]) -> T:
        if self._closing:
            raise _Closed
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class _Closed(Exception):
    """Nothing more is done beside the searches."""


def is_chroma_installed() -> bool:
    """True if the extra `chroma` is there."""
    return importlib.util.find_spec("chromadb") is not None
