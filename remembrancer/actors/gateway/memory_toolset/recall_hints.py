"""What could be done about an empty answer, in a sentence. Pure."""

from __future__ import annotations

from typing import Final

from remembrancer.protocol.reads import Filters, Recall, Recalled

ARGUMENTS: Final = {"tags": "tags", "after": "time_range", "before": "time_range"}
"""The names of filters as the tool has them, where they are not the singular."""


def hint_for(request: Recall, found: Recalled) -> str | None:
    """What may find more than this question did; None where it found something."""
    if found.memories:
        return None
    tries = ["Try other words"]
    everything = Filters(request.session_id)
    narrowing = dict.fromkeys(
        ARGUMENTS.get(name, name.removesuffix("s"))
        for name in Filters.__struct_fields__
        if name != "include_forgotten" and getattr(request, name) != getattr(everything, name)
    )
    if narrowing:
        tries.append(f"leave out {_listed(list(narrowing))}")
    if not request.include_forgotten:
        tries.append("set include_forgotten")
    says = "Nothing was near enough to the query." if found.below_threshold else "Nothing was found."
    return f"{says} {', '.join(tries[:-1])}{' or ' if len(tries) > 1 else ''}{tries[-1]}."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
