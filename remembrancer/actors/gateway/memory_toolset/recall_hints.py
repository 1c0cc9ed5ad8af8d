"""What could be done about an empty answer, in a sentence. Pure."""

from __future__ import annotations

from remembrancer.protocol.reads import Recall, Recalled


def hint_for(request: Recall, found: Recalled) -> str | None:
    """What may find more than this question did; None where it found something."""
    if found.memories:
        return None
    tries = ["Try other words"]
    narrowing = [
        name
        for name, given in (
            ("scope", request.scopes),
            ("type", request.types),
            ("tags", request.tags),
            ("time_range", request.after is not None or request.before is not None),
            ("min_importance", request.min_importance > 0),
        )
        if given
    ]
    if narrowing:
        tries.append(f"leave out {_listed(narrowing)}")
    if not request.include_forgotten:
        tries.append("set include_forgotten")
    says = "Nothing was near enough to the query." if found.below_threshold else "Nothing was found."
    return f"{says} {', '.join(tries[:-1])}{' or ' if len(tries) > 1 else ''}{tries[-1]}."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
