"""The predictions of the week, each compared with the results. Pure: it reads the played week."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from examples.week.playing import MEMORIES, STORY, Played

FATES: Final[dict[str, str]] = STORY["fates"]


class Outcome(NamedTuple):
    """A memory or a rule, its prediction for this week, and the result."""

    subject: str
    predicted: Any
    happened: Any


def outcomes(played: Played) -> list[Outcome]:
    """Return every prediction's outcome: the fate of each memory, and what holds for all of them."""
    journal = played.journal
    steps = [step for session in STORY["sessions"] for step in session["steps"]]
    questions = {
        f"{step['ask']} (session {number})": set(step["finds"])
        for number, session in enumerate(STORY["sessions"], 1)
        for step in session["steps"]
        if "ask" in step
    }
    contents = {name: played.after.memories[memory_id]["content"] for name, memory_id in journal.ids.items()}
    unseen = sum(len(step.get("unseen", ())) for step in steps)
    return [
        *(Outcome(name, fate, fate_of(name, played)) for name, fate in FATES.items()),
        Outcome("Each question finds what it should", questions, journal.answers),
        Outcome("No session sees what is another's", (unseen, []), (journal.sought, journal.leaks)),
        Outcome("Nothing is lost", {name: memory["content"] for name, memory in MEMORIES.items()}, contents),
        Outcome("Nothing had to be waited for in vain", [], journal.trouble),
    ]


def fate_of(name: str, played: Played) -> str:
    """Say how a memory was promoted or merged, with the score, and its scope and state after the holiday."""
    memory_id = played.journal.ids[name]
    told = []
    for step in played.week.promotions:
        if step["memory_id"] != memory_id:
            continue
        if step["merged_into"]:
            told.append(f"merged into {played.journal.named(step['merged_into'])}")
            continue
        way = {"promotion": "at once", "session_end": "at the end"}.get(step["run"], "to the user")
        told.append(f"promoted {way} with {step['score']:.3f}")
    memory = played.after.memories[memory_id]
    if memory_id in played.week.sources:
        told.append("summed up")
    if memory["valid_until"] is not None:
        told.append("superseded")
    return ", ".join((*told, f"{memory['scope']} {memory['status']}"))
