"""The predictions of the week, each compared with the results. Pure: it reads the played week."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from examples.week.fates import (
    ARCHIVED,
    AT_ONCE,
    AT_THE_END,
    MERGED,
    MERGED_TO_USER,
    SCRATCHPADS,
    STAY_IN_PROJECT,
    SUMMED_UP,
    SUPERSEDED,
    TO_USER,
    TOO_LOW,
)
from examples.week.playing import Played
from examples.week.records import Held, Promotion
from examples.week.steps import Ask, ReadContext, SeekInVain
from examples.week.story import WEEK, memories

Happened = Callable[[Played], str]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction, its meaning in this week, and the check."""

    rule: str
    predicted: str
    happened: Happened


@dataclass(frozen=True, slots=True)
class Outcome:
    """A prediction compared with the played week."""

    rule: str
    predicted: str
    happened: str

    @property
    def kept(self) -> bool:
        """True if it came true."""
        return self.predicted == self.happened


def outcomes(played: Played) -> list[Outcome]:
    """Return every prediction's outcome, in the order of the table."""
    return [Outcome(each.rule, each.predicted, each.happened(played)) for each in PREDICTIONS]


def _scores(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {numbers[name]:.3g}" for name in memories() if name in numbers) or "none"


def _names(names: Iterable[str]) -> str:
    known = list(memories())
    return (
        ", ".join(sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))) or "none"
    )


def _held(played: Played, name: str, *, after: bool = False) -> Held | None:
    memory_id = played.journal.ids.get(name, name)
    files = played.after if after else played.week
    return next((file.memories[memory_id] for file in files.values() if memory_id in file.memories), None)


def _places(played: Played, names: Iterable[str]) -> dict[str, str]:
    return {name: "gone" if (held := _held(played, name)) is None else f"{held.scope}, {held.status}" for name in names}


def _promotions(played: Played) -> Iterable[Promotion]:
    return [each for file in played.week.values() for each in file.promotions]


def _promoted(scope: str, by: str | None) -> Callable[[Played], dict[str, float]]:
    """Return the names and scores of the memories promoted (and not merged) into a scope by a kind of run."""

    def found(played: Played) -> dict[str, float]:
        return {
            played.journal.named(each.memory_id): each.score or 0.0
            for each in _promotions(played)
            if each.to_scope == scope and each.by == by and each.merged_into is None
        }

    return found


def _merged(scope: str) -> Happened:
    def found(played: Played) -> str:
        return _listed(
            _merging(played.journal.named(each.memory_id), played.journal.named(each.merged_into), held)
            for each in _promotions(played)
            if each.to_scope == scope
            and each.merged_into is not None
            and (held := _held(played, each.merged_into)) is not None
        )

    return found


def _merging(name: str, into: str, held: Held) -> str:
    return _merge_text(name, into, held.importance, held.confidence)


def _merge_text(name: str, into: str, importance: float, confidence: float) -> str:
    return f"{name} into {into}, now {importance:.3g} / {confidence:.3g}"


def _listed(parts: Iterable[str]) -> str:
    return "; ".join(parts) or "none"


def _at_once(played: Played) -> str:
    promoted = _promoted("project", "promotion")(played)
    return _scores({name: score for name, score in promoted.items() if name in played.journal.at_once})


def _all_at(names: Iterable[str], place: str) -> tuple[str, Happened]:
    """Return the memories predicted to be in one place, and the actual ones; other names come with their places."""
    expected = tuple(names)

    def found(played: Played) -> str:
        return _names(
            name if where == place else f"{name} ({where})" for name, where in _places(played, expected).items()
        )

    return _names(expected), found


def _observed(played: Played) -> str:
    memory_id = played.journal.ids.get(MERGED_TO_USER[1], "")
    return f"{len(played.week['user'].patterns.get(memory_id, ()))} projects"


def _summed_up(played: Played) -> str:
    """Return every fact that is not in the story, with its sources and their state. (A session's handover to the next
    is an observation.)"""
    found = []
    for file in played.week.values():
        for memory in file.memories.values():
            if memory.id in played.journal.ids.values() or memory.kind != "fact":
                continue
            sources = {
                played.journal.named(target)
                for source, target, relation in file.links
                if source == memory.id and relation == "derived_from"
            }
            statuses = {held.status for name in sources if (held := _held(played, name)) is not None}
            found.append(_summary_text(memory.kind, sources, statuses))
    return _listed(found)


def _summary_text(kind: str, sources: Iterable[str], statuses: Iterable[str]) -> str:
    return f"a {kind} of {_names(sources)}, which are {_names(statuses)}"


def _contradictions(played: Played) -> str:
    name = played.journal.named
    links = {
        (name(source), name(target))
        for file in played.week.values()
        for source, target, relation in file.links
        if relation == "contradicts"
    }
    return _listed(
        f"{newer} against {older}" for newer, older in sorted(links) if (older, newer) in played.journal.doubted
    )


def _superseded(played: Played) -> str:
    return _names(
        name for name in memories() if (held := _held(played, name)) is not None and held.valid_until is not None
    )


def _answers(played: Played) -> str:
    wrong = [
        f"{ask.query} (session {session.number}): {_names(found)}"
        for session, ask, found in played.journal.found
        if set(found) != set(ask.finds)
    ]
    return _listed(wrong) if wrong else f"all {len(played.journal.found)}"


def _secrets(played: Played) -> str:
    journal = played.journal
    seen = [f"session {session.number} saw {name}" for session, name in journal.leaks]
    return _listed(seen) if seen else f"nothing, {len(journal.sought)} times"


def _context(played: Played) -> str:
    # A session's handover is shown beside the memories.
    block = "\n".join(line for line in played.journal.context.splitlines() if " the session of " not in line)
    known = {kept.content: name for name, (_, kept) in memories().items()}  # the later one of two duplicates
    return _names(
        name for name, (_, kept) in memories().items() if kept.content in block and known[kept.content] == name
    )


def _sessions(played: Played) -> str:
    ends = [end for file in played.week.values() for end in file.sessions.values()]
    return f"{sum(end.status == 'completed' and end.ended for end in ends)} of {len(ends)}"


def _hooks(played: Played) -> str:
    end = played.week["tidewatch"].sessions.get(WEEK[0].id)
    return "none" if end is None else f"{end.turns} turn, {end.tool_calls} tool call"


def _archived(played: Played) -> str:
    return _names(
        played.journal.named(memory.id)
        for file in played.after.values()
        for memory in file.memories.values()
        if memory.status == "archived" and memory.id in played.journal.ids.values()
    )


def _lost(played: Played) -> str:
    lost = [
        name
        for name, (_, kept) in memories().items()
        if (held := _held(played, name, after=True)) is None or held.content != kept.content
    ]
    return _names(lost)


def _trouble(played: Played) -> str:
    return _listed(played.journal.trouble)


_CONTEXT: Final = next(step for session in WEEK for step in session.steps if isinstance(step, ReadContext))
_QUESTIONS: Final = sum(isinstance(step, Ask) for session in WEEK for step in session.steps)
_SOUGHT: Final = sum(len(step.names) for session in WEEK for step in session.steps if isinstance(step, SeekInVain))

PREDICTIONS: Final[tuple[Prediction, ...]] = (
    Prediction(
        "At its session's end a memory with a score of 0.6 goes into the project",
        _scores(AT_THE_END),
        lambda played: _scores(_promoted("project", "session_end")(played)),
    ),
    Prediction("With 0.85 it goes there at once, while the session runs", _scores(AT_ONCE), _at_once),
    Prediction(
        "What the project knows already (cosine above 0.85) is merged: the larger importance, confidence + 0.05",
        _merge_text(*MERGED),
        _merged("project"),
    ),
    Prediction("What has less than 0.6 stays with its session", *_all_at(TOO_LOW, "session, active")),
    Prediction("A scratchpad does, whatever its score", *_all_at(SCRATCHPADS, "session, active")),
    Prediction(
        "A preference that two projects have said goes to the user",
        _scores(TO_USER),
        lambda played: _scores(_promoted("user", None)(played)),
    ),
    Prediction(
        "What the other project said is merged into it: confidence + 0.1",
        _merge_text(*MERGED_TO_USER),
        _merged("user"),
    ),
    Prediction("and counts as observed there", "2 projects", _observed),
    Prediction(
        "Asked for in three sessions, but of one project or not important enough: it stays",
        *_all_at(STAY_IN_PROJECT, "project, active"),
    ),
    Prediction(
        "Observations of one matter become one memory, and nothing else is summed up",
        _summary_text("fact", SUMMED_UP, ["consolidated"]),
        _summed_up,
    ),
    Prediction("A new fact against an old one is shown as doubt", " against ".join(SUPERSEDED), _contradictions),
    Prediction("What is superseded ceases to be valid, and stays", SUPERSEDED[1], _superseded),
    Prediction("Each question finds what it should", f"all {_QUESTIONS}", _answers),
    Prediction("No session sees what belongs to another session or project", f"nothing, {_SOUGHT} times", _secrets),
    Prediction(
        "The last session begins with the user's preference and its project's knowledge, and with nothing twice",
        _names(_CONTEXT.shows),
        _context,
    ),
    Prediction("Each session's end is dealt with", f"{len(WEEK)} of {len(WEEK)}", _sessions),
    Prediction("The hooks' reports are in the records", "1 turn, 1 tool call", _hooks),
    Prediction("After the holiday maintenance archives what is weak, old and hardly used", _names(ARCHIVED), _archived),
    Prediction("Of all that was stored nothing is lost", "none", _lost),
    Prediction("Nothing had to be waited for in vain", "none", _trouble),
)
