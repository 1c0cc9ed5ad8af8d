"""The predictions of the week, each compared with the results. Pure: it reads the played week."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from examples.week.playing import MEMORIES, STORY, Played

FATES: Final = STORY["fates"]


class Outcome(NamedTuple):
    """A rule, its prediction for this week, and the result."""

    rule: str
    predicted: Any
    happened: Any


def outcomes(played: Played) -> list[Outcome]:
    """Return every prediction's outcome."""
    journal, week = played.journal, played.week
    steps = [step for session in STORY["sessions"] for step in session["steps"]]
    names = {memory_id: name for name, memory_id in journal.ids.items()}

    def places(expected: Iterable[str]) -> dict[str, str]:
        rows = {name: week.memories.get(journal.ids[name]) for name in expected}
        return {name: f"{row['scope']}, {row['status']}" if row else "gone" for name, row in rows.items()}

    def promoted(scope: str, run: str | None) -> dict[str, float]:
        return {
            names[row["memory_id"]]: round(row["score"] or 0.0, 3)
            for row in week.promotions
            if row["to_scope"] == scope and row["run"] == run and row["merged_into"] is None
        }

    def merged(scope: str) -> list[list[Any]]:
        rows = [row for row in week.promotions if row["to_scope"] == scope and row["merged_into"] is not None]
        return [
            [
                names[row["memory_id"]],
                names[row["merged_into"]],
                round(into["importance"], 3),
                round(into["confidence"], 3),
            ]
            for row in rows
            if (into := week.memories.get(row["merged_into"])) is not None
        ]

    questions = {
        f"{step['ask']} (session {number})": set(step["finds"])
        for number, session in enumerate(STORY["sessions"], 1)
        for step in session["steps"]
        if "ask" in step
    }
    return [
        Outcome(
            "At its session's end a memory with a score of 0.6 goes into the project",
            FATES["at_the_end"],
            promoted("project", "session_end"),
        ),
        Outcome("With 0.85 it goes there at once", FATES["at_once"], promoted("project", "promotion")),
        Outcome(
            "What the project knows already (cosine above 0.85) is merged: the larger importance, confidence + 0.05",
            [FATES["merged"]["project"]],
            merged("project"),
        ),
        Outcome(
            "What has less than 0.6 stays with its session, and so does a scratchpad, whatever its score",
            dict.fromkeys(FATES["stay_in_session"], "session, active"),
            places(FATES["stay_in_session"]),
        ),
        Outcome("A preference that two projects have said goes to the user", FATES["to_user"], promoted("user", None)),
        Outcome(
            "What the other project said is merged into it: confidence + 0.1",
            [FATES["merged"]["user"]],
            merged("user"),
        ),
        Outcome(
            "Asked for in three sessions, but of one project or not important enough: it stays",
            dict.fromkeys(FATES["stay_in_project"], "project, active"),
            places(FATES["stay_in_project"]),
        ),
        Outcome(
            "Observations of one matter become one memory, and nothing else is summed up",
            dict.fromkeys(FATES["summed_up"], "project, consolidated"),
            places(sorted(names[each] for each in week.sources)),
        ),
        Outcome(
            "What is superseded ceases to be valid, and stays",
            list(FATES["superseded"]),
            [names[row["id"]] for row in week.memories.values() if row["valid_until"] is not None],
        ),
        Outcome("Each question finds what it should", questions, journal.answers),
        Outcome(
            "No session sees what belongs to another session or project",
            (sum(len(step.get("unseen", ())) for step in steps), []),
            (journal.sought, journal.leaks),
        ),
        Outcome(
            "After the holiday maintenance archives what is weak, old and hardly used",
            set(FATES["archived"]),
            {
                names[row["id"]]
                for row in played.after.memories.values()
                if row["status"] == "archived" and row["id"] in names
            },
        ),
        Outcome(
            "Of all that was stored nothing is lost",
            {name: memory["content"] for name, memory in MEMORIES.items()},
            {name: played.after.memories[memory_id]["content"] for name, memory_id in journal.ids.items()},
        ),
        Outcome("Nothing had to be waited for in vain", [], journal.trouble),
    ]
