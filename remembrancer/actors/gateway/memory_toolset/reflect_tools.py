"""The tool `reflect_and_consolidate`: it asks the consolidator over the store, or has one of its runs undone."""

from __future__ import annotations

from typing import Final

import anyio

from remembrancer.actors.gateway.memory_toolset import reflect_answers as answers
from remembrancer.actors.gateway.memory_toolset.reflect_arguments import (
    ReflectAndConsolidateArguments,
    run_to_undo,
    strategy_of,
)
from remembrancer.actors.gateway.store_access.happenings import Happenings
from remembrancer.actors.gateway.store_access.reads import ReadPath
from remembrancer.actors.gateway.store_access.writes import WritePath, Written
from remembrancer.actors.gateway.toolkit.tools import Answer, Call, Tool, warnings_of
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Reflect, Reflected
from remembrancer.protocol.errors import DeadlineExceeded, NotFound
from remembrancer.protocol.ids import derive_operation_id
from remembrancer.protocol.runs import ApplyRun, UndoneResult, UndoRun
from remembrancer.protocol.writes import Operation

NAME: Final = "reflect_and_consolidate"


class ReflectTools:
    """Carries out the tool."""

    def __init__(self, writes: WritePath, reads: ReadPath, settings: Settings, happenings: Happenings) -> None:
        self._writes = writes
        self._reads = reads
        self._settings = settings
        self._happenings = happenings

    def tools(self) -> tuple[Tool[ReflectAndConsolidateArguments]]:
        """The tool, as it is offered. It hides nothing, and each of its runs can be undone."""
        return (
            Tool(
                NAME,
                "Condense this session's memories into summaries and recurring patterns.",
                ReflectAndConsolidateArguments,
                self.reflect_and_consolidate,
            ),
        )

    async def reflect_and_consolidate(self, call: Call, arguments: ReflectAndConsolidateArguments) -> Answer:
        """What was consolidated, or in a dry run would be; or what undoing a run came to."""
        run_id = run_to_undo(arguments)
        strategy = strategy_of(arguments, call.caller.session_id)
        if run_id is not None:
            return await self._undo(call, run_id)
        caller = call.caller
        request = Reflect(
            project=caller.project,
            session_id=caller.session_id,
            about=caller.session_id,
            strategy=strategy,
            dry_run=arguments.dry_run is True,
            operation_id=derive_operation_id(caller.bridge, call.request_id, NAME, call.raw_arguments),
        )
        found = await self._ask(request)
        if found.run_id is not None:
            self._tell(call, request, found.run_id)
        return answers.reflected(found)

    async def _ask(self, request: Reflect) -> Reflected:
        budget_s = self._settings.reflect_budget_s
        try:
            found = await self._reads.require(request, budget_s)
        except DeadlineExceeded as error:
            message = (
                f"the reflection has not ended within {budget_s:g} s. It may still be carried out: what it makes is "
                "found by recall. Call again to see what is left to do"
            )
            raise DeadlineExceeded(message) from error
        assert isinstance(found, Reflected)
        return found

    def _tell(self, call: Call, request: Reflect, run_id: str) -> None:
        """Tell those who watch resources of what the consolidator wrote, since no write of it comes by here."""
        run = ApplyRun(run_id, "project", "consolidation", "summarize_cluster", ())
        caller = call.caller
        self._happenings.applied(
            (Operation(request.operation_id, caller.project, caller.session_id, call.received_at, run),)
        )

    async def _undo(self, call: Call, run_id: str) -> Answer:
        """Undo what the run did in the project and to the user's memories.

        Answers when the undoing is durable; a retry of the same request undoes nothing more.
        """
        unknown: NotFound | None = None
        with anyio.CancelScope(shield=True):  # a client that leaves must not leave a write half-way
            try:
                written = [await self._undo_in(call, NAME, UndoRun(run_id, "project"))]
            except NotFound as error:  # the store knows nothing of the tool's arguments
                unknown = NotFound(error.message, field="undo")
                written = []
            written.append(await self._undo_in(call, f"{NAME} user", UndoRun(run_id, "user", if_there=True)))
        results = [each.result for each in written if isinstance(each.result, UndoneResult)]
        found = [result for result in results if result.found]
        if found:
            answer = answers.undone(found)
        elif unknown is not None and len(results) == len(written):
            raise unknown
        else:
            answer = answers.undoing(run_id)
        if any(each.degraded for each in written):
            answer["degraded"] = True
        notices = dict.fromkeys(notice for each in written for notice in each.notices)
        if notices:
            answer["warnings"] = warnings_of(list(notices))
        return answer

    async def _undo_in(self, call: Call, name: str, change: UndoRun) -> Written:
        """Have one file's part undone. `name` tells the operations of one call apart."""
        caller = call.caller
        operation = Operation(
            operation_id=derive_operation_id(caller.bridge, call.request_id, name, call.raw_arguments),
            project=caller.project,
            session_id=caller.session_id,
            requested_at=call.received_at,
            change=change,
        )
        return await self._writes.apply(operation, call.received_at)
