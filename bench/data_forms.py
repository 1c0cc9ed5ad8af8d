"""The forms of data, read with patience: one field that is amiss costs its own item at the most. Pure.

- LongMemEval: `{"questions": [{question_id, question_type, question, question_date, answer_session_ids, haystack:
  [{session_id, date}]}], "sessions": {session_id: [{role, content}]}}`. Each question has memories of its own, one for
  a session. A session id followed by `#…` is another text of the same id: only what is before it is compared. A
  question whose id ends with `_abs` has no answer.
- LoCoMo: `[{sample_id, conversation, qa: [{question, evidence, category}]}]`. Each conversation has memories of its
  own, one for a turn.
- Named sets: `{name: {haystacks: [{name, type, items: [{label, text, at}], questions: [{id, text, kind, at, wanted}]}],
  before}}`. `at` is in seconds; with `before` only what had happened by then is asked for.
- Invented weeks: `{"projects": [name], "memories": [{id, project, day, session, text, kind, supersedes, about_user}],
  "questions": [{text, project, day, wanted: [id], stale: [id], sort}], "unanswerable": [{text, project}]}`. Day 1
  begins on Monday, 2026-11-16, at 09:00 UTC, and a memory happens seven minutes after the one before it.

Whatever else is in there is passed over. Dates say no zone, and are taken for UTC. What has no date happened right
after what is told before it; a question without one is asked when the last of its memories happened.
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
"""LoCoMo dates its sessions alone: from one turn of a session to the next."""
UNDATED: Final = datetime(2023, 1, 1, tzinfo=UTC).timestamp()
"""The beginning of a haystack without any date."""
WEEK_BEGAN: Final = datetime(2026, 11, 16, 9, tzinfo=UTC).timestamp()
"""The first morning of an invented week, a Monday."""
DAY_S: Final = 86_400.0
BETWEEN_S: Final = 420.0
"""From one memory of a day of an invented week to the next."""
AFTERWARDS: Final = 8
"""The day of a question that names none: the Monday after the week."""
CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""LoCoMo's numbers of question categories."""
YEARS: Final = (1900, 2200)
"""A date beyond them is none."""
UNTYPED: Final = "without a type"
UNANSWERABLE: Final = "_abs"
_WEEKDAY: Final = re.compile(r"\s*\(\w+\)\s*")
_TURN_ID: Final = re.compile(r"D\s*:?\s*(\d{1,9})\s*:\s*(\d{1,9})", re.IGNORECASE)
_SESSION: Final = re.compile(r"session_([0-9]{1,6})")
_SEPARATOR: Final = re.compile(r"[;,\s]+")
_HALF_CHARACTER: Final = re.compile(r"[\ud800-\udfff]")
_DATE_FORMATS: Final = ("%Y/%m/%d %H:%M", "%Y/%m/%d", "%I:%M %p on %d %B, %Y")


class Item(msgspec.Struct, frozen=True):
    """One memory: what it is called where the answers are named, its text, and when it happened (seconds, epoch).

    With a `kind` it has the type of that kind, without one that of its haystack.
    """

    label: str
    text: str
    occurred_at: float
    kind: Kind | None = None


class Question(msgspec.Struct, frozen=True):
    """A question that was asked at `asked_at`. `wanted` are the labels of the memories that hold the answer, `stale`
    those of memories that held it once."""

    id: str
    text: str
    kind: str
    asked_at: float
    wanted: frozenset[str]
    stale: frozenset[str] = frozenset()


class Haystack(msgspec.Struct, frozen=True):
    """Memories of a type that belong together, in the order in which they happened, and what is asked about them.

    With `before` a question asks only for what happened before it. `entities` are those that an item names, by its
    label; `supersedes` are the labels of items that another one replaces, by the label of that one.
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
        """Its kind, if it is one of those that can be said."""
        return next((kind for kind in KINDS if kind == self.kind), None)


class Asked(msgspec.Struct, frozen=True):
    """A question of a week; nothing answers one without `wanted`. `stale` are states that are past."""

    text: str
    project: str
    day: int = AFTERWARDS
    wanted: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    sort: str = ""


class Week(msgspec.Struct, frozen=True):
    """An invented week of use, as a file has it."""

    projects: tuple[str, ...]
    memories: tuple[Memory, ...]
    questions: tuple[Asked, ...]
    unanswerable: tuple[Asked, ...] = ()

    @property
    def asked(self) -> tuple[Asked, ...]:
        """All that is asked."""
        return self.questions + self.unanswerable

    def asked_in(self, project: str) -> list[Asked]:
        """All that is asked in a project."""
        return [each for each in self.asked if each.project == project]

    def seen_in(self, project: str) -> list[Memory]:
        """The memories that a session of a project may be given."""
        return [each for each in self.memories if each.project == project or each.about_user]

    def happened(self) -> dict[str, float]:
        """The time of each memory, by its id: seconds since the epoch."""
        places: dict[int, Iterator[int]] = {}
        return {
            each.id: moment(each.day) + BETWEEN_S * next(places.setdefault(each.day, itertools.count()))
            for each in self.memories
        }

    def haystacks(self, name: str) -> Iterator[Haystack]:
        """One for each project: the memories that its sessions see, and what is asked in it."""
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
    """The beginning of a day of an invented week, in seconds since the epoch."""
    return WEEK_BEGAN + (day - 1) * DAY_S


@dataclass(slots=True)
class Left:
    """The questions and other things left out while reading, counted by the reason."""

    questions: Counter[str]
    others: Counter[str]


def longmemeval(questions: Sequence[Any], sessions: Mapping[str, Any], left: Left) -> list[Haystack]:
    """A haystack for each question that can be asked."""
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
    """The memories of a question, each session once, in the order in which they happened."""
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
    left.others += Counter()  # drops what counts nothing
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
    """A session as one memory: what both said, a paragraph each. Empty where nobody said anything."""
    said = []
    for turn in turns if isinstance(turns, list) else ():
        content = text_of(turn.get("content")) if isinstance(turn, dict) else ""
        if content.strip():
            role = text_of(turn.get("role"))
            said.append(f"{role}: {content}" if role else content)
    return "\n\n".join(said)


def base_id(session_id: str) -> str:
    """A session's id without the mark of another text of it."""
    return session_id.partition("#")[0]


def locomo(samples: Sequence[Any], left: Left) -> list[Haystack]:
    """A haystack for each conversation about which something can be asked."""
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
    """The haystacks of each set, as they are written. Raises `KeyError` or `TypeError` where they are not."""
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
    """The haystacks of an invented week. Raises `msgspec.ValidationError` where the form is another one."""
    return list(msgspec.convert(read, Week).haystacks(name))


def advice(name: str, read: Mapping[str, Any]) -> Haystack:
    """Short facts about a person, and tasks on which one of them bears: `{"facts": [{id, text}], "tasks": [{text,
    wanted}]}`."""
    items = tuple(Item(said["id"], said["text"], UNDATED) for said in read["facts"])
    asked = enumerate(read["tasks"])
    questions = (Question(f"{n}", said["text"], "", UNDATED, frozenset(said["wanted"])) for n, said in asked)
    return Haystack(name, items, tuple(questions), "semantic")


def _turns(conversation: Any, left: Left) -> Iterator[Item]:
    """The turns in order. A conversation may have dates of sessions that it does not have, and much else."""
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
    """The words of a turn, and the caption of the image that is shown with it."""
    if not isinstance(turn, dict):
        return None
    text, caption = text_of(turn.get("text")), text_of(turn.get("blip_caption"))
    if not (text.strip() or caption.strip()):
        return None
    return f"{text_of(turn.get('speaker'))}: {text}" + (f" [image: {caption}]" if caption else "")


def kind_of(category: Any) -> str:
    """The name of a question's type or category."""
    known = CATEGORIES.get(category) if isinstance(category, int) else None
    return known or text_of(category).strip() or UNTYPED


def turn_ids(evidence: str) -> list[str]:
    """The turns that a string of evidence names: there may be several, and ids like `D:11:26` and `D30:05`.

    What has no number in it names nothing.
    """
    found = [f"D{int(session)}:{int(turn)}" for session, turn in _TURN_ID.findall(evidence)]
    return found or [part for part in _SEPARATOR.split(evidence) if any(map(str.isdigit, part))]


def text_of(value: Any) -> str:
    """A value as text that a memory can hold: a number as it is written, nothing for what is no text.

    Half a character becomes U+FFFD, and NUL a space.
    """
    if isinstance(value, str):
        value = value.replace("\0", " ")
        return value if value.isascii() else _HALF_CHARACTER.sub("\ufffd", value)
    return str(value) if isinstance(value, int | float) else ""


def texts_of(value: Any) -> list[str]:
    """The texts of a list, or of what may stand for a list of one; without those that are empty."""
    values = value if isinstance(value, list) else [value]
    return [text for each in values if (text := text_of(each))]


def seconds(date: str) -> float:
    """Seconds since the epoch of `2023/05/20 (Sat) 00:31`, `1:56 pm on 8 May, 2023`, or an ISO 8601 date or time.

    Raises:
        ValueError: it is none of them, or of a year beyond `YEARS`.
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
