"""The arguments of `reflect_and_consolidate`, checked."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.actors.gateway.toolkit.text import clean_name, shown
from remembrancer.protocol.consolidation import ReflectStrategy
from remembrancer.protocol.errors import InvalidInput

MAX_RUN_ID: Final = 100


class ReflectAndConsolidateArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `reflect_and_consolidate` takes."""

    session_id: str | UnsetType = UNSET
    strategy: Annotated[ReflectStrategy, Meta(extra_json_schema={"default": "full"})] | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    undo: Annotated[str, Meta(description="run_id to undo")] | UnsetType = UNSET


def strategy_of(arguments: ReflectAndConsolidateArguments, session_id: str) -> ReflectStrategy:
    """What to do with the session's own memories.

    Raises:
        InvalidInput: another session is named.
    """
    if arguments.session_id is not UNSET and arguments.session_id.strip() != session_id:
        message = (
            f"session_id must be the current session's ({session_id}) or left out, not {shown(arguments.session_id)}: "
            "what other sessions keep to themselves is theirs"
        )
        raise InvalidInput(message, field="session_id")
    return "full" if arguments.strategy is UNSET else arguments.strategy


def run_to_undo(arguments: ReflectAndConsolidateArguments) -> str | None:
    """The id of the run that is to be undone; None: nothing is, and a reflection is asked for.

    Raises:
        InvalidInput: it is no id, or a reflection is asked for at the same time.
    """
    if arguments.undo is UNSET:
        return None
    others = [name for name in ("strategy", "dry_run") if getattr(arguments, name) is not UNSET]
    if others:
        raise InvalidInput(f"undo and {others[0]} do not go together: undo alone undoes a run", field="undo")
    return clean_name(arguments.undo, field="undo", longest=MAX_RUN_ID)
