"""Reunites memories with projects whose directories were moved, on request.

Moving a project renames its space, and merges any memories already stored at the new path into it, in one transaction:
after a crash, the request can be repeated. Notes are indexed at the new path; code must be indexed again.
"""

import asyncio
import logging
import shlex
from functools import partial

from remembrancer.actors.store.code_handlers import CodeHandlers
from remembrancer.actors.store.dispatcher import Handler, Handlers, RequestContext, StoreParts, by_request
from remembrancer.actors.store.file_handlers import FileHandlers
from remembrancer.actors.store.records.types import USER
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import PROJECT_ID
from remembrancer.protocol.sharing import MemoriesMoved, MoveProject

logger = logging.getLogger(__name__)


class ProjectMoves(Handlers):
    def __init__(self, parts: StoreParts, file_handlers: FileHandlers, code: CodeHandlers) -> None:
        super().__init__(parts)
        self._file_handlers = file_handlers
        self._code = code
        self._moving = asyncio.Lock()

    def handlers(self) -> dict[type, Handler]:
        return by_request(self._move)

    async def _move(self, request: MoveProject, _context: RequestContext) -> MemoriesMoved:
        async with self._moving:
            old, new, files, committer = request.old, request.new, self._files, self._committer
            if not PROJECT_ID.fullmatch(new.id) or new.id == old.id:
                raise InvalidInput(f"{new.path} is the same place as {old.path}")
            if (source := files.open_project(old)) is None:
                raise NotFound(f"there are no memories of {old.path}")
            for place in (old, new):
                if place.id in files.shared:
                    leave = f"REMEMBRANCER_PROJECT={shlex.quote(place.path)} remembrancer share leave"
                    again = "'remembrancer share join --here' after the move"
                    raise InvalidInput(f"a shared project cannot be moved; run '{leave}' first, and {again}")
            if self._file_handlers.has_client(old.id):
                raise InvalidInput(
                    f"an assistant is still connected in {old.path}; close it there, then run this again"
                )
            memories = (await committer.run(old.id, partial(source.counts, None))).total
            target = files.open_project(new)
            joined = 0 if target is None else (await committer.run(new.id, partial(target.counts, None))).total
            if request.dry_run:
                return MemoriesMoved(memories, joined)
            if (lane := files.shared.get(USER)) is not None:
                await committer.run(lane.name, partial(lane.rename_project, old.id, new.id))
            await self._file_handlers.discard_index(old.id)
            await files.move(old.id, new, request.directory)
            await self._code.drop(old.id)
            logger.info("a project was moved", extra={"project": old.id, "to": new.id, "memories": memories})
            return MemoriesMoved(memories, joined)
