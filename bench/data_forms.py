"""Lenient readers of the data formats: an invalid field affects at most its own item. Pure.

- LongMemEval: `{"questions": [{question_id, question_type, question, question_date, answer_session_ids, haystack:
  [{session_id, date}]}], "sessions": {session_id: [{role, content}]}}`. Each question has its own memories, one for
  each session. A session id followed by `#…` is another text of the same id: only the part before it is compared. A
  question whose id ends with `_abs` has no answer.
- LoCoMo: `[{sample_id, conversation, qa: [{question, evidence, category}]}]`. Each conversation has its own memories,
  one for each turn.
- Named sets: `{name: {haystacks: [{name, type, items: [{label, text, at}], questions: [{id, text, kind, at, wanted}]}],
  before}}`. `at` is in seconds; with `before` only earlier events are asked for.
- Invented weeks: `{"projects": [name], "memories": [{id, project, day, session, text, kind, supersedes, about_user}],
  "questions": [{text, project, day, wanted: [id], stale: [id], sort}], "unanswerable": [{text, project}]}`. Day 1
  begins on Monday, 2026-11-16, at 09:00 UTC, and memories are seven minutes apart.

Other content is ignored. Dates have no zone and are read as UTC. An item without a date happened right after the one
before it; a question without one is asked at the time of its last memory.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from remembrancer.protocol.kinds import KINDS, GivenKind, Kind, MemoryType

TURN_S: Final = 10.0
"""The time between turns, since LoCoMo only dates sessions."""
UNDATED: Final = datetime(2023, 1, 1, tzinfo=UTC).timestamp()
"""The start time of a haystack without dates."""
WEEK_BEGAN: Final = datetime(2026, 11, 16, 9, tzinfo=UTC).timestamp()
"""The first morning of an invented week, a Monday."""
DAY_S: Final = 86_400.0
BETWEEN_S: Final = 420.0
"""The time between memories on a day of an invented week."""
AFTERWARDS: Final = 8
"""The day of a question that names none: the Monday after the week."""
CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""LoCoMo's numbers of question categories."""
YEARS: Final = (1900, 2200)
"""Dates outside these years are invalid."""
UNTYPED: Final = "without a type"
UNANSWERABLE: Final = "_abs"
_WEEKDAY: Final = re.compile(r"\s*\(\w+\)\s*")
_TURN_ID: Final = re.compile(r"D\s*:?\s*(\d{1,9})\s*:\s*(\d{1,9})", re.IGNORECASE)
_SESSION: Final = re.compile(r"session_([0-9]{1,6})")
_SEPARATOR: Final = re.compile(r"[;,\s]+")
_HALF_CHARACTER: Final = re.compile(r"[\ud800-\udfff]")
_DATE_FORMATS: Final = ("%Y/%m/%d %H:%M", "%Y/%m/%d", "%I:%M %p on %d %B, %Y")


class Item(msgspec.Struct, frozen=True):
    """One memory: its label in the answers, its text, and its time (seconds since the epoch).

    With a `kind` it has that kind's type, otherwise its haystack's.
    """

    label: str
    text: str
    occurred_at: float
    kind: Kind | None = None


class Question(msgspec.Struct, frozen=True):
    """A question asked at `asked_at`. `wanted` are the labels of the memories with the answer, `stale` those with an
    outdated answer."""

    id: str
    text: str
    kind: str
    asked_at: float
    wanted: frozenset[str]
    stale: frozenset[str] = frozenset()


class Haystack(msgspec.Struct, frozen=True):
    """Memories of one type that belong together, in order of time, and the questions about them.

    With `before` a question only asks for earlier events. `entities` are those named by an item, by its label;
    `supersedes` maps an item's label to the label of the item that it replaces.
    """

    name: str
    items: tuple[Item, ...]
    questions: tuple[Question, ...]
    type: MemoryType = "episodic"
    before: bool = False
    entities: dict[str, tuple[str, ...]] = {}
    supersedes: dict[str, str] = {}


class Memory(msgspec.Struct, frozen=True):
    """One memory of an invented week."""

    id: str
    project: str
    day: int
    session: str
    text: str
    kind: str | None = None
    supersedes: str | None = None
    about_user: bool = False

    @property
    def known_kind(self) -> GivenKind | None:
        """Return its kind, if a caller may set that kind."""
        return next((kind for kind in KINDS if kind == self.kind), None)


class Asked(msgspec.Struct, frozen=True):
    """A question of a week; without `wanted` it has no answer. `stale` are outdated states."""

    text: str
    project: str
    day: int = AFTERWARDS
    wanted: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    sort: str = ""


class Week(msgspec.Struct, frozen=True):
    """An invented week of use, as in its file."""

    projects: tuple[str, ...]
    memories: tuple[Memory, ...]
    questions: tuple[Asked, ...]
    unanswerable: tuple[Asked, ...] = ()

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Return all questions."""
        return self.questions + self.unanswerable

    def asked_in(self, project: str) -> list[Asked]:
        """Return the questions of a project."""
        return [each for each in self.asked if each.project == project]

    def seen_in(self, project: str) -> list[Memory]:
        """Return the memories that a session of a project may see."""
        return [each for each in self.memories if each.project == project or each.about_user]

    def happened(self) -> dict[str, float]:
        """Return the time of each memory by its id, in seconds since the epoch."""
        places: dict[int, Iterator[int]] = {}
        return {
            each.id: moment(each.day) + BETWEEN_S * next(places.setdefault(each.day, itertools.count()))
            for each in self.memories
        }

    def haystacks(self, name: str) -> Iterator[Haystack]:
        """Return a haystack for each project: the memories that its sessions see, and its questions."""
        happened = self.happened()
        for project in self.projects:
            seen = self.seen_in(project)
            yield Haystack(
                f"{name}/{project}",
                tuple(Item(each.id, each.text, happened[each.id], each.known_kind) for each in seen),
                tuple(
                    Question(str(place), each.text, each.sort, moment(each.day), each.wanted, each.stale)
                    for place, each in enumerate(self.asked_in(project))
                ),
                "semantic",
                supersedes={each.id: each.supersedes for each in seen if each.supersedes is not None},
            )


def moment(day: int) -> float:
    """Return the beginning of a day of an invented week, in seconds since the epoch."""
    return WEEK_BEGAN + (day - 1) * DAY_S


@dataclass(slots=True)
class Left:
    """The questions and other items left out while reading, counted by reason."""

    questions: Counter[str]
    others: Counter[str]


def longmemeval(questions: Sequence[Any], sessions: Mapping[str, Any], left: Left) -> list[Haystack]:
    """Return a haystack for each usable question."""
    texts = {text_of(session_id): session_text(turns) for session_id, turns in sessions.items()}
    haystacks = []
    for number, said in enumerate(questions):
        if not isinstance(said, dict):
            left.questions["are no objects"] += 1
            continue
        question_id = text_of(said.get("question_id")) or f"question {number}"
        text = text_of(said.get("question"))
        wanted = frozenset(base_id(each) for each in texts_of(said.get("answer_session_ids")))
        asked_at = _seconds_or_none(said.get("question_date"))
        items = _sessions(said.get("haystack"), texts, asked_at, left)
        if question_id.endswith(UNANSWERABLE):
            left.questions["have no answer (_abs)"] += 1
        elif not (reason := _unaskable(text, wanted, items)):
            if asked_at is None:
                left.others["questions without a date"] += 1
                asked_at = items[-1].occurred_at
            question = Question(question_id, text, kind_of(said.get("question_type")), asked_at, wanted)
            haystacks.append(Haystack(question_id, tuple(items), (question,)))
        else:
            left.questions[reason] += 1
    return haystacks


def _sessions(haystack: Any, texts: Mapping[str, str], asked_at: float | None, left: Left) -> list[Item]:
    """Return the memories of a question, each session once, in order of time."""
    named: list[tuple[str, float | None]] = []
    seen: set[str] = set()
    for each in haystack if isinstance(haystack, list) else ():
        session_id = text_of(each.get("session_id")) if isinstance(each, dict) else ""
        if session_id not in texts:
            left.others["sessions of a haystack that are not in `sessions`"] += 1
        elif session_id in seen:
            left.others["sessions named again in one haystack"] += 1
        elif not texts[session_id]:
            left.others["sessions without text"] += 1
        else:
            named.append((session_id, _seconds_or_none(each.get("date"))))
        seen.add(session_id)
    left.others["sessions without a date"] += sum(date is None for _, date in named)
    left.others += Counter()  # drops counts of zero
    happened = next((date for _, date in named if date is not None), UNDATED if asked_at is None else asked_at)
    items = []
    for session_id, date in named:
        happened = happened if date is None else date
        items.append(Item(base_id(session_id), texts[session_id], happened))
    return sorted(items, key=lambda item: item.occurred_at)


def _unaskable(text: str, wanted: frozenset[str], items: Sequence[Item]) -> str | None:
    if not text.strip():
        return "ask nothing"
    if not wanted:
        return "name no evidence"
    return None if items else "have no memories"


def session_text(turns: Any) -> str:
    """Return a session as one memory: the text of both speakers, one paragraph a turn. Empty if it has no text."""
    said = []
    for turn in turns if isinstance(turns, list) else ():
        content = text_of(turn.get("content")) if isinstance(turn, dict) else ""
        if content.strip():
            role = text_of(turn.get("role"))
            said.append(f"{role}: {content}" if role else content)
    return "\n\n".join(said)


def base_id(session_id: str) -> str:
    """Return a session's id without the suffix of an alternative text."""
    return session_id.partition("#")[0]


def locomo(samples: Sequence[Any], left: Left) -> list[Haystack]:
    """Return a haystack for each conversation with usable questions."""
    haystacks = []
    for place, sample in enumerate(samples):
        if not isinstance(sample, dict):
            left.others["conversations that are no objects"] += 1
            continue
        name = text_of(sample.get("sample_id")) or f"conversation {place}"
        items = tuple(_turns(sample.get("conversation"), left))
        questions = []
        qa = sample.get("qa")
        for number, asked in enumerate(qa if isinstance(qa, list) else ()):
            if not isinstance(asked, dict):
                left.questions["are no objects"] += 1
                continue
            text = text_of(asked.get("question"))
            wanted = frozenset(
                itertools.chain.from_iterable(turn_ids(each) for each in texts_of(asked.get("evidence")))
            )
            if reason := _unaskable(text, wanted, items):
                left.questions[reason] += 1
                continue
            kind = kind_of(asked.get("category"))
            questions.append(Question(f"{name}/{number}", text, kind, items[-1].occurred_at, wanted))
        if questions:
            haystacks.append(Haystack(name, items, tuple(questions)))
    return haystacks


def named_sets(read: Mapping[str, Any]) -> dict[str, tuple[Haystack, ...]]:
    """Return the haystacks of each set, without checks. Raises `KeyError` or `TypeError` for invalid data."""
    return {
        name: tuple(
            Haystack(
                each["name"],
                tuple(Item(item["label"], item["text"], item["at"] or UNDATED) for item in each["items"]),
                tuple(
                    Question(said["id"], said["text"], said["kind"], said["at"] or UNDATED, frozenset(said["wanted"]))
                    for said in each["questions"]
                ),
                each["type"],
                bool(of.get("before")),
            )
            for each in of["haystacks"]
        )
        for name, of in read.items()
    }


def week(name: str, read: Mapping[str, Any]) -> list[Haystack]:
    """Return the haystacks of an invented week. Raises `msgspec.ValidationError` for another format."""
    return list(msgspec.convert(read, Week).haystacks(name))


def advice(name: str, read: Mapping[str, Any]) -> Haystack:
    """Read short facts about a person, and tasks for each of which one is relevant: `{"facts": [{id, text}], "tasks":
    [{text, wanted}]}`."""
    items = tuple(Item(said["id"], said["text"], UNDATED) for said in read["facts"])
    asked = enumerate(read["tasks"])
    questions = (Question(f"{n}", said["text"], "", UNDATED, frozenset(said["wanted"])) for n, said in asked)
    return Haystack(name, items, tuple(questions), "semantic")


def _turns(conversation: Any, left: Left) -> Iterator[Item]:
    """Return the turns in order. A conversation may have dates of missing sessions, and other fields."""
    if not isinstance(conversation, dict):
        return
    sessions = sorted((int(found[1]), key) for key in conversation if (found := _SESSION.fullmatch(key)))
    now = UNDATED
    for number, key in sessions:
        turns = conversation[key]
        if not isinstance(turns, list):
            left.others["sessions that are no lists"] += turns is not None
            continue
        began = _seconds_or_none(conversation.get(f"{key}_date_time"))
        if began is None and turns:
            left.others["sessions without a date"] += 1
        now = now if began is None else began
        for place, turn in enumerate(turns):
            text = _turn_text(turn)
            if text is None:
                left.others["turns without text"] += 1
                continue
            said = text_of(turn.get("dia_id")) or f"D{number}:{place + 1}"
            yield Item(next(iter(turn_ids(said)), said), text, now)
            now += TURN_S
    left.others += Counter()


def _turn_text(turn: Any) -> str | None:
    """Return the text of a turn, with the caption of its image."""
    if not isinstance(turn, dict):
        return None
    text, caption = text_of(turn.get("text")), text_of(turn.get("blip_caption"))
    if not (text.strip() or caption.strip()):
        return None
    return f"{text_of(turn.get('speaker'))}: {text}" + (f" [image: {caption}]" if caption else "")


def kind_of(category: Any) -> str:
    """Return the name of a question's type or category."""
    known = CATEGORIES.get(category) if isinstance(category, int) else None
    return known or text_of(category).strip() or UNTYPED


def turn_ids(evidence: str) -> list[str]:
    """Return the turns named in a string of evidence, which may have several, and ids like `D:11:26` and `D30:05`.

    Text without a number names none.
    """
    found = [f"D{int(session)}:{int(turn)}" for session, turn in _TURN_ID.findall(evidence)]
    return found or [part for part in _SEPARATOR.split(evidence) if any(map(str.isdigit, part))]


def text_of(value: Any) -> str:
    """Return a value as text that a memory can hold: numbers as written, nothing for values that are not text.

    Lone surrogates become U+FFFD, and NUL a space.
    """
    if isinstance(value, str):
        value = value.replace("\0", " ")
        return value if value.isascii() else _HALF_CHARACTER.sub("\ufffd", value)
    return str(value) if isinstance(value, int | float) else ""


def texts_of(value: Any) -> list[str]:
    """Return the texts of a list, or of a single value in its place, without empty ones."""
    values = value if isinstance(value, list) else [value]
    return [text for each in values if (text := text_of(each))]


def seconds(date: str) -> float:
    """Return the seconds since the epoch of `2023/05/20 (Sat) 00:31`, `1:56 pm on 8 May, 2023`, or an ISO 8601 date or
    time.

    Raises:
        ValueError: it has none of these forms, or its year is outside `YEARS`.
    """
    text = _WEEKDAY.sub(" ", date).strip()
    moment: datetime | None = None
    for form in _DATE_FORMATS:
        try:
            moment = datetime.strptime(text, form)
            break
        except ValueError:
            continue
    moment = moment or datetime.fromisoformat(text)
    if not YEARS[0] <= moment.year < YEARS[1]:
        raise ValueError(f"{date!r} is too far from now")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _seconds_or_none(date: Any) -> float | None:
    try:
        return seconds(text_of(date))
    except ValueError:
        return None
