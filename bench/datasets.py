"""Reads the data sets of the benchmarks as memories and questions. A file may be packed with xz or gzip.

- LongMemEval: `{"questions": [{question_id, question_type, question, question_date, answer_session_ids, haystack:
  [{session_id, date}]}], "sessions": {session_id: [{role, content}]}}`. Each question has its own memories, one for
  each session. A session id followed by `#…` is another text of the same id: only the part before it is compared. A
  question whose id ends with `_abs` has no answer, and is left out.
- LoCoMo: `[{sample_id, conversation, qa: [{question, evidence, category}]}]`. Each conversation has its own memories,
  one for each turn. A question without evidence is left out.
- Named sets: `{name: {haystacks: [{name, type, items: [{label, text, at}], questions: [{id, text, kind, at, wanted}]}],
  before}}`. `at` is in seconds; with `before` only earlier events are asked for.
- Tasks: `{"facts": [{id, text}], "tasks": [{text, wanted: [id]}]}`.
- Simulated weeks: see `Week`.

Dates have no zone and are read as UTC.
"""

import gzip
import itertools
import json
import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from remembrancer.protocol.kinds import KINDS, GivenKind, Kind, MemoryType

TURN_S: Final = 10.0
"""The time between turns, since LoCoMo only dates sessions."""
UNDATED: Final = datetime(2023, 1, 1, tzinfo=UTC).timestamp()
"""The time of items without a date."""
WEEK_BEGAN: Final = datetime(2026, 11, 16, 9, tzinfo=UTC).timestamp()
"""The first morning of a simulated week, a Monday."""
DAY_S: Final = 86_400.0
BETWEEN_S: Final = 420.0
"""The time between memories on a day of a simulated week."""
AFTERWARDS: Final = 8
"""The day of a question that names none: the Monday after the week."""
CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""LoCoMo's numbers of question categories."""
OWN_SETS: Final = tuple(Path(__file__).with_name(name) for name in ("everyday.json", "notes.json", "advice.json"))
"""Sets that come with the benchmarks: one-line memories in eight languages, short notes, facts about a person."""
_WEEKDAY: Final = re.compile(r"\s*\(\w+\)\s*")
_TURN_ID: Final = re.compile(r"D\s*:?\s*(\d{1,9})\s*:\s*(\d{1,9})", re.IGNORECASE)
_SESSION: Final = re.compile(r"session_([0-9]+)")
_DATE_FORMATS: Final = ("%Y/%m/%d %H:%M", "%Y/%m/%d", "%I:%M %p on %d %B, %Y")


class Item(msgspec.Struct, frozen=True):
    """One memory: its label in the answers, its text, and its time (seconds since the epoch).

    Its type follows from its `kind` or, without one, is that of its haystack.
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

    With `before`, a question asks only for earlier events. `entities` are those that an item names, by its label.
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
    """One memory of a simulated week."""

    id: str
    project: str
    day: int
    text: str
    kind: str | None = None
    supersedes: str | None = None
    about_user: bool = False

    @property
    def known_kind(self) -> GivenKind | None:
        """Return its kind, if a caller may set that kind."""
        return next((kind for kind in KINDS if kind == self.kind), None)


class Asked(msgspec.Struct, frozen=True):
    """A question about a week. Without `wanted`, it has no answer. `stale` are outdated answers."""

    text: str
    project: str
    day: int = AFTERWARDS
    wanted: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    sort: str = ""


class Week(msgspec.Struct, frozen=True):
    """A simulated week of use, as in its file. Day 1 begins on Monday, 2026-11-16, at 09:00 UTC, and memories are seven
    minutes apart."""

    projects: tuple[str, ...]
    memories: tuple[Memory, ...]
    questions: tuple[Asked, ...]
    unanswerable: tuple[Asked, ...] = ()

    def haystacks(self, name: str) -> Iterator[Haystack]:
        """Return a haystack for each project: the memories that its sessions see, and its questions."""
        places: dict[int, Iterator[int]] = {}
        happened = {
            each.id: moment(each.day) + BETWEEN_S * next(places.setdefault(each.day, itertools.count()))
            for each in self.memories
        }
        for project in self.projects:
            seen = [each for each in self.memories if each.project == project or each.about_user]
            asked = [each for each in self.questions + self.unanswerable if each.project == project]
            yield Haystack(
                f"{name}/{project}",
                tuple(Item(each.id, each.text, happened[each.id], each.known_kind) for each in seen),
                tuple(
                    Question(str(place), each.text, each.sort, moment(each.day), each.wanted, each.stale)
                    for place, each in enumerate(asked)
                ),
                "semantic",
                supersedes={each.id: each.supersedes for each in seen if each.supersedes is not None},
            )


def moment(day: int) -> float:
    """Return the beginning of a day of a simulated week, in seconds since the epoch."""
    return WEEK_BEGAN + (day - 1) * DAY_S


def read_json(path: Path) -> Any:
    """Read a JSON file, which may be packed with xz or gzip."""
    unpack = {".xz": lzma.decompress, ".gz": gzip.decompress}.get(path.suffix, bytes)
    return json.loads(unpack(path.read_bytes()))


def load_sets(path: Path) -> dict[str, tuple[Haystack, ...]]:
    """Read the sets in a file by name. Only the format of named sets can have several. Raises `ValueError` for an
    unknown format."""
    content = read_json(path)
    if isinstance(content, list) and "qa" in content[0]:
        return {"LoCoMo": tuple(map(locomo, content))}
    if "sessions" in content:
        return {"LongMemEval": tuple(longmemeval(content["questions"], content["sessions"]))}
    if "facts" in content:
        return {path.stem: (tasks(path.stem, content),)}
    if "memories" in content:
        return {path.stem: tuple(msgspec.convert(content, Week).haystacks(path.stem))}
    if all("haystacks" in each for each in content.values()):
        return {
            name: tuple(named_haystack(each, before=bool(named.get("before"))) for each in named["haystacks"])
            for name, named in content.items()
        }
    raise ValueError(f"{path} has none of the formats of bench/datasets.py")


def tasks(name: str, content: Any) -> Haystack:
    """Return facts as memories, and the tasks as questions."""
    items = tuple(Item(fact["id"], fact["text"], UNDATED) for fact in content["facts"])
    questions = (
        Question(str(place), task["text"], "", UNDATED, frozenset(task["wanted"]))
        for place, task in enumerate(content["tasks"])
    )
    return Haystack(name, items, tuple(questions), "semantic")


def longmemeval(questions: Sequence[Any], sessions: Mapping[str, Any]) -> Iterator[Haystack]:
    """Yield a haystack for each question that has an answer."""
    texts = {
        session_id: "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns if turn["content"].strip())
        for session_id, turns in sessions.items()
    }
    for question in questions:
        question_id = question["question_id"]
        if question_id.endswith("_abs"):
            continue
        dates = {each["session_id"]: seconds(each["date"]) for each in reversed(question["haystack"])}
        items = (
            Item(_base_id(session_id), texts[session_id], dates[session_id])
            for session_id in dict.fromkeys(each["session_id"] for each in question["haystack"])
            if texts[session_id]
        )
        asked = Question(
            question_id,
            question["question"],
            question["question_type"],
            seconds(question["question_date"]),
            frozenset(map(_base_id, question["answer_session_ids"])),
        )
        yield Haystack(question_id, tuple(sorted(items, key=lambda item: item.occurred_at)), (asked,))


def _base_id(session_id: str) -> str:
    """Return a session's id without the suffix of an alternative text."""
    return session_id.partition("#")[0]


def locomo(sample: Any) -> Haystack:
    """Return a conversation with its usable questions."""
    name = sample["sample_id"]
    items = tuple(_turns(sample["conversation"]))
    questions = []
    for number, asked in enumerate(sample["qa"]):
        wanted = frozenset(itertools.chain.from_iterable(map(turn_ids, asked.get("evidence") or ())))
        if wanted:
            kind = CATEGORIES[asked["category"]]
            questions.append(
                Question(f"{name}/{number}", asked["question"], kind, items[-1].occurred_at, wanted),
            )
    return Haystack(name, items, tuple(questions))


def _turns(conversation: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the turns in order, with the captions of their images. Some dates are those of missing sessions."""
    for _, key in sorted((int(match[1]), key) for key in conversation if (match := _SESSION.fullmatch(key))):
        now = seconds(conversation[f"{key}_date_time"])
        for place, turn in enumerate(conversation[key]):
            caption = turn.get("blip_caption")
            text = f"{turn['speaker']}: {turn['text']}" + (f" [image: {caption}]" if caption else "")
            yield Item(turn_ids(turn["dia_id"])[0], text, now + place * TURN_S)


def turn_ids(evidence: str) -> list[str]:
    """Return the turns in a string of evidence, which may name several, also as `D:11:26` or `D30:05`."""
    return [f"D{int(session)}:{int(turn)}" for session, turn in _TURN_ID.findall(evidence)]


def named_haystack(read: Any, *, before: bool) -> Haystack:
    """Return one haystack of a named set."""
    items = tuple(Item(item["label"], item["text"], item["at"] or UNDATED) for item in read["items"])
    questions = (
        Question(asked["id"], asked["text"], asked["kind"], asked["at"] or UNDATED, frozenset(asked["wanted"]))
        for asked in read["questions"]
    )
    return Haystack(read["name"], items, tuple(questions), read["type"], before)


def seconds(date: str) -> float:
    """Convert a date such as `2023/05/20 (Sat) 00:31` or `1:56 pm on 8 May, 2023` to epoch seconds. Raises `ValueError`
    for any other format."""
    text = _WEEKDAY.sub(" ", date).strip()
    for form in _DATE_FORMATS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    raise ValueError(f"{date!r} is no date of these data sets")
