"""One memory, whole, for whoever asks for it by its id: the tool `get_memory` and the resource `memory://memory/{id}`."""

from __future__ import annotations

from typing import Final

from remembrancer.actors.gateway.memory_toolset import change_answers as answers
from remembrancer.actors.gateway.store_access.reads import Asked, ReadPath
from remembrancer.actors.gateway.toolkit.tools import Answer, Caller, warnings_of
from remembrancer.protocol.errors import DeadlineExceeded, MemoryUnavailable, NotFound, RemembrancerError
from remembrancer.protocol.reads import GetMemory, MemoryShown

KNOWN: Final = "This is what is known of it without the store."


async def look_up(
    reads: ReadPath, caller: Caller, memory_id: str, received_at: float, version: int | None = None
) -> Answer:
    """The answer of `get_memory`. Without the store: what is known here, with a warning and `degraded`.

    Raises:
        NotFound: there is no such memory that the caller may see.
        InvalidInput: it has no such version.
        MemoryUnavailable, DeadlineExceeded: the store is away or slow, and nothing is known of the memory here.
    """
    request = GetMemory(caller.project, caller.session_id, memory_id)
    asked = await _ask(reads, request, received_at)
    notices = asked.notices
    if isinstance(asked.reply, MemoryShown):
        answer = answers.shown(asked.reply, version)
        if asked.from_cache:
            answer["degraded"] = True
    else:
        # An earlier version is in the history alone, which only the store and its last answer have.
        known = None if version is not None else reads.look_for(request)
        if known is None:
            raise _unavailable(asked)
        answer = {**answers.known(known.memory), "degraded": True}
        if asked.away is not None:
            notices = (reads.explain(asked.away, known.caveat or KNOWN),)
    if notices:
        answer["warnings"] = warnings_of(notices)
    return answer


async def _ask(reads: ReadPath, request: GetMemory, received_at: float) -> Asked:
    try:
        return await reads.ask(request, received_at)
    except NotFound:
        if not reads.behind:
            raise
        # It may be that it is on its way there.
        if reads.look_for(request) is None:
            raise
        return Asked(None, reads.behind)


def _unavailable(asked: Asked) -> RemembrancerError:
    (notice,) = asked.notices
    kind = DeadlineExceeded if notice.code == "query_timeout" else MemoryUnavailable
    return kind(notice.message)
