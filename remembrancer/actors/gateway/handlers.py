"""Everything beside the tools, put together: resources and their subscriptions, prompts, completion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import anyio.abc

from remembrancer.actors.gateway.prompts.completion import Completion
from remembrancer.actors.gateway.prompts.prompt_handlers import PromptHandlers
from remembrancer.actors.gateway.prompts.prompts import Prompts
from remembrancer.actors.gateway.resources.reading import Resources
from remembrancer.actors.gateway.resources.recall_ledger import RecallLedger
from remembrancer.actors.gateway.resources.resource_handlers import ResourceHandlers
from remembrancer.actors.gateway.resources.subscriptions import Subscriptions
from remembrancer.actors.gateway.store_access.happenings import Happenings
from remembrancer.actors.gateway.store_access.reads import ReadPath
from remembrancer.actors.gateway.toolkit.tools import Caller, Tool


def compose_handlers(
    tools: Iterable[Tool[Any]],
    reads: ReadPath,
    happenings: Happenings,
    is_store_there: Callable[[], bool],
    tasks: anyio.abc.TaskGroup,
) -> tuple[ResourceHandlers, PromptHandlers]:
    """The handlers of one gateway. They hear of its writes and recalls through `happenings`."""
    by_name = {tool.name: tool for tool in tools}
    ledger = RecallLedger(time.time())
    resources = Resources(by_name, reads, ledger)
    subscriptions = Subscriptions(resources.read, is_store_there, tasks)

    def heard_recall(caller: Caller, memory_ids: tuple[str, ...]) -> None:
        ledger.note(caller.project.id, caller.session_id, memory_ids)
        subscriptions.heard_recall(caller, memory_ids)

    happenings.on_recall.append(heard_recall)
    happenings.on_write.append(subscriptions.heard_write)
    prompts = PromptHandlers(Prompts(by_name), Completion(reads, ledger))
    return ResourceHandlers(resources, subscriptions), prompts
