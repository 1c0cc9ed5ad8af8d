"""The data sets of the retrieval benchmark, in either of two forms, as memories and questions.

- LongMemEval: `{"questions": [{question_id, question_type, question, question_date, answer_session_ids, haystack:
  [{session_id, date}]}], "sessions": {session_id: [{role, content}]}}`. Each question has memories of its own, one for
  a session. A session id followed by `#…` is another text of the same id: only what is before it is compared.
- LoCoMo: `[{sample_id, conversation, qa: [{question, evidence, category}]}]`. Each conversation has memories of its
  own, one for a turn.

A file may be packed with xz or gzip. Dates say no zone, and are taken for UTC.
"""

from __future__ import annotations

import gzip
import itertools
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

TURN_S: Final = 10.0
"""LoCoMo dates its sessions alone: from one turn of a session to the next."""
CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""LoCoMo's numbers of question categories."""
_XZ: Final = b"\xfd7zXZ\x00"
_GZIP: Final = b"\x1f\x8b"
_WEEKDAY: Final = re.compile(r"\s*\(\w+\)\s*")
_TURN_ID: Final = re.compile(r"D\s*:?\s*(\d+)\s*:\s*(\d+)", re.IGNORECASE)
_SEPARATOR: Final = re.compile(r"[;,\s]+")
_DATE_FORMATS: Final = ("%Y/%m/%d %H:%M", "%Y/%m/%d", "%I:%M %p on %d %B, %Y")

T = TypeVar("T")


class DataUnusable(Exception):
    """A file is none of the two forms, or says something that cannot be; the message says what and where."""


class Item(msgspec.Struct, frozen=True):
    """One memory: what it is called where the answers are named, its text, and when it happened (seconds, epoch)."""

    label: str
    text: str
    occurred_at: float


class Question(msgspec.Struct, frozen=True):
    """A question that was asked at `asked_at`. `wanted` are the labels of the memories that hold the answer."""

    id: str
    text: str
    kind: str
    asked_at: float
    wanted: frozenset[str]


class Haystack(msgspec.Struct, frozen=True):
    """Memories that belong together, in the order in which they happened, and what is asked about them."""

    name: str
    items: tuple[Item, ...]
    questions: tuple[Question, ...]


class Dataset(msgspec.Struct, frozen=True):
    """What a file holds. `without_evidence` are the questions that name no evidence and so are not asked;
    `without_text` counts the sessions that have none and so are no memories."""

    form: Literal["LongMemEval", "LoCoMo"]
    haystacks: tuple[Haystack, ...]
    without_evidence: tuple[str, ...] = ()
    without_text: int = 0

    def first(self, count: int | None) -> Dataset:
        """The same with its first `count` questions alone; None: all."""
        if count is None:
            return self
        left, kept = count, []
        for haystack in self.haystacks:
            questions = haystack.questions[:left]
            left -= len(questions)
            if questions:
                kept.append(msgspec.structs.replace(haystack, questions=questions))
        return msgspec.structs.replace(self, haystacks=tuple(kept))


class _Said(msgspec.Struct):
    role: str
    content: str


class _Dated(msgspec.Struct):
    session_id: str
    date: str


class _LongMemEvalQuestion(msgspec.Struct):
    question_id: str
    question_type: str
    question: str
    question_date: str
    answer_session_ids: list[str]
    haystack: list[_Dated]


class _LongMemEval(msgspec.Struct):
    questions: list[_LongMemEvalQuestion]
    sessions: dict[str, list[_Said]]


class _Turn(msgspec.Struct):
    speaker: str
    dia_id: str
    text: str = ""
    blip_caption: str | None = None


class _LoCoMoQuestion(msgspec.Struct):
    question: str
    category: int | str
    evidence: list[str] = []


class _LoCoMo(msgspec.Struct):
    sample_id: str
    conversation: dict[str, Any]
    qa: list[_LoCoMoQuestion]


def load(path: Path) -> Dataset:
    """Read a file of either form.

    Raises:
        DataUnusable: it cannot be read, is malformed, or holds nothing to ask.
    """
    try:
        data = _unpacked(path.read_bytes())
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataUnusable(f"{path} cannot be read: {error}") from error
    try:
        read = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataUnusable(f"{path} is no JSON: {error}") from error
    try:
        return parse(read)
    except DataUnusable as error:
        raise DataUnusable(f"{path}: {error}") from error


def _unpacked(data: bytes) -> bytes:
    if data.startswith(_XZ):
        return lzma.decompress(data)
    return gzip.decompress(data) if data.startswith(_GZIP) else data


def parse(read: Any) -> Dataset:
    """What JSON of either form holds.

    Raises:
        DataUnusable: see `load`.
    """
    match read:
        case {"questions": _, "sessions": _}:
            dataset = _longmemeval(_converted(read, _LongMemEval))
        case [{"conversation": _, "qa": _}, *_]:
            dataset = _locomo(_converted(read, list[_LoCoMo]))
        case _:
            raise DataUnusable(
                f"neither LongMemEval (an object with `questions` and `sessions`) nor LoCoMo (a list of objects with "
                f"`conversation` and `qa`), but {_shape(read)}"
            )
    if not any(haystack.questions for haystack in dataset.haystacks):
        raise DataUnusable("there is no question with evidence in it")
    return dataset


def _shape(read: Any) -> str:
    if isinstance(read, dict):
        return f"an object with {', '.join(f'`{key}`' for key in list(read)[:8]) or 'nothing in it'}"
    if isinstance(read, list):
        return f"a list that begins with {_shape(read[0])}" if read else "an empty list"
    return f"a {type(read).__name__}"


def _converted(read: Any, form: type[T]) -> T:
    try:
        return msgspec.convert(read, form)
    except msgspec.ValidationError as error:
        raise DataUnusable(str(error)) from error


def _longmemeval(read: _LongMemEval) -> Dataset:
    texts = {session_id: session_text(turns) for session_id, turns in read.sessions.items()}
    haystacks, without_evidence, without_text = [], [], 0
    for question in read.questions:
        if not question.answer_session_ids:
            without_evidence.append(question.question_id)
            continue
        _check_asked(question.question, question.question_id)
        items = []
        for session in question.haystack:
            if session.session_id not in texts:
                raise DataUnusable(
                    f"question {question.question_id}: `sessions` has no session {session.session_id!r} of its haystack"
                )
            text = texts[session.session_id]
            if text.strip():
                items.append(Item(base_id(session.session_id), text, seconds(session.date)))
            else:
                without_text += 1
        if not items:
            raise DataUnusable(f"question {question.question_id}: its `haystack` is empty")
        asked = Question(
            question.question_id,
            question.question,
            question.question_type,
            seconds(question.question_date),
            frozenset(base_id(each) for each in question.answer_session_ids),
        )
        items.sort(key=lambda item: item.occurred_at)
        haystacks.append(Haystack(question.question_id, tuple(items), (asked,)))
    return Dataset("LongMemEval", tuple(haystacks), tuple(without_evidence), without_text)


def session_text(turns: Sequence[_Said]) -> str:
    """A session as one memory: what both said, a paragraph each."""
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)


def base_id(session_id: str) -> str:
    """A session's id without the mark of another text of it."""
    return session_id.partition("#")[0]


def _locomo(read: list[_LoCoMo]) -> Dataset:
    haystacks, without_evidence = [], []
    for sample in read:
        items = tuple(_turns(sample.conversation, sample.sample_id))
        if not items:
            raise DataUnusable(f"{sample.sample_id}: its `conversation` has no turns")
        questions = []
        for number, asked in enumerate(sample.qa):
            question_id = f"{sample.sample_id}/{number}"
            wanted = frozenset(itertools.chain.from_iterable(turn_ids(each) for each in asked.evidence))
            if not wanted:
                without_evidence.append(question_id)
                continue
            _check_asked(asked.question, question_id)
            kind = (
                CATEGORIES.get(asked.category, str(asked.category))
                if isinstance(asked.category, int)
                else asked.category
            )
            questions.append(Question(question_id, asked.question, kind, items[-1].occurred_at, wanted))
        haystacks.append(Haystack(sample.sample_id, items, tuple(questions)))
    return Dataset("LoCoMo", tuple(haystacks), tuple(without_evidence))


def _turns(conversation: Mapping[str, Any], name: str) -> Iterator[Item]:
    """The turns in order. A conversation may have dates of sessions that it does not have."""
    numbers = sorted(int(key[8:]) for key in conversation if re.fullmatch(r"session_\d+", key))
    for number in numbers:
        key = f"session_{number}"
        try:
            turns = msgspec.convert(conversation[key] or [], list[_Turn])
        except msgspec.ValidationError as error:
            raise DataUnusable(f"{name}: {error} of `{key}`") from error
        if not turns:
            continue
        date = conversation.get(f"{key}_date_time")
        if not isinstance(date, str):
            raise DataUnusable(f"{name}: `{key}_date_time` is missing")
        began = seconds(date)
        for place, turn in enumerate(turns):
            caption = f" [image: {turn.blip_caption}]" if turn.blip_caption else ""
            label = next(iter(turn_ids(turn.dia_id)), turn.dia_id)
            yield Item(label, f"{turn.speaker}: {turn.text}{caption}", began + place * TURN_S)


def turn_ids(evidence: str) -> list[str]:
    """The turns that a string of evidence names: there may be several, and ids like `D:11:26` and `D30:05`.

    What has no number in it names nothing.
    """
    found = [f"D{int(session)}:{int(turn)}" for session, turn in _TURN_ID.findall(evidence)]
    return found or [part for part in _SEPARATOR.split(evidence) if any(map(str.isdigit, part))]


def seconds(date: str) -> float:
    """Seconds since the epoch of `2023/05/20 (Sat) 00:31`, `1:56 pm on 8 May, 2023`, or an ISO 8601 date or time.

    Raises:
        DataUnusable: it is none of them.
    """
    text = _WEEKDAY.sub(" ", date).strip()
    moment: datetime | None = None
    for form in _DATE_FORMATS:
        try:
            moment = datetime.strptime(text, form)
            break
        except ValueError:
            continue
    if moment is None:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise DataUnusable(f"{date!r} is no date of a known form") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _check_asked(text: str, question_id: str) -> None:
    if not text.strip():
        raise DataUnusable(f"question {question_id} asks nothing")
