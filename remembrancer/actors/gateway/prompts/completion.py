"""Completion of arguments: entities and tags for prompts, ids for the template of one memory."""

from __future__ import annotations

from typing import Final, Literal

from remembrancer.actors.gateway.prompts.catalogue import find_prompt, nearest
from remembrancer.actors.gateway.resources.recall_ledger import RecallLedger
from remembrancer.actors.gateway.resources.resource_uris import MEMORY_TEMPLATE
from remembrancer.actors.gateway.store_access.reads import ReadPath
from remembrancer.actors.gateway.toolkit.text import shown
from remembrancer.actors.gateway.toolkit.tools import Caller
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import MEMORY_PREFIX
from remembrancer.protocol.reads import Suggest, Suggestions

MAX_VALUES: Final = 100
"""What the protocol allows in one answer."""
MAX_PREFIX: Final = 200
"""Characters of a value beyond which no name begins with it."""
NOTHING: Final = Suggestions((), 0)


class Completion:
    """Completes values from what a caller may see. Without the store there are none, and that is no error."""

    def __init__(self, reads: ReadPath, ledger: RecallLedger) -> None:
        self._reads = reads
        self._ledger = ledger

    async def of_prompt(
        self, caller: Caller, prompt: str, argument: str, value: str, received_at: float
    ) -> Suggestions:
        """Values for an argument of a prompt that begin with `value`.

        Raises:
            InvalidInput: there is no such prompt, or it has no such argument.
        """
        arguments = {each.name: each for each in find_prompt(prompt).arguments}
        if argument not in arguments:
            message = f"{prompt} has no argument {shown(argument)}{nearest(argument, arguments)}"
            raise InvalidInput(message, field="name")
        if arguments[argument].among:
            return _among(arguments[argument].among, value)
        match argument:
            case "subject":
                return await self._names(caller, "entity", value, received_at)
            case "topic" | "query" | "about":
                if argument == "about" and value.casefold().startswith(MEMORY_PREFIX):
                    return self._ids(caller, value)
                entities = await self._names(caller, "entity", value, received_at)
                tags = await self._names(caller, "tag", value, received_at)
                values = tuple(dict.fromkeys((*entities.values, *tags.values)))
                return Suggestions(values[:MAX_VALUES], max(len(values), entities.total + tags.total))
        return NOTHING

    def of_template(self, caller: Caller, template: str, argument: str, value: str) -> Suggestions:
        """Values for a variable of a resource's URI: the memories that the session was shown last.

        Raises:
            InvalidInput: there is no such template, or it has no such variable.
        """
        if template != MEMORY_TEMPLATE:
            message = f"there is no template {shown(template)}{nearest(template, (MEMORY_TEMPLATE,))}"
            raise InvalidInput(message, field="uri")
        if argument != "id":
            raise InvalidInput(f"the template has no variable {shown(argument)}: it has id", field="name")
        return self._ids(caller, value)

    def _ids(self, caller: Caller, value: str) -> Suggestions:
        ids = self._ledger.last_shown(caller.project.id, caller.session_id)
        if not value.startswith(MEMORY_PREFIX[: len(value)]):
            value = MEMORY_PREFIX + value.upper()
        return _among(ids, value)

    async def _names(
        self, caller: Caller, kind: Literal["entity", "tag"], prefix: str, received_at: float
    ) -> Suggestions:
        if len(prefix) > MAX_PREFIX:
            return NOTHING
        question = Suggest(caller.project, caller.session_id, kind, prefix, limit=MAX_VALUES)
        asked = await self._reads.ask(question, received_at)
        return asked.reply if isinstance(asked.reply, Suggestions) else NOTHING


def _among(known: tuple[str, ...] | list[str], value: str) -> Suggestions:
    values = tuple(each for each in known if each.startswith(value))
    return Suggestions(values[:MAX_VALUES], len(values))
