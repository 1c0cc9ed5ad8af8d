"""Memories as Markdown: exports that people can read, with one file per project and kind of memory, and notes to import
as memories. Fields that only programs read are in `details.jsonl`. Pure."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Final

import msgspec

from remembrancer.memory.chunks import Block, headings_of
from remembrancer.memory.export_format import MemoryLine
from remembrancer.memory.open_ends import CALENDAR_DAY, due_of_open_end, is_list_of_open_ends, open_ends_in
from remembrancer.memory.times.windows import KINDS_NAMED
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.kinds import OPEN_END, RULES_OF_WORK, STANDING, Kind, kind_of_type, type_of_kind
from remembrancer.protocol.session_life import SHELL_SESSION
from remembrancer.protocol.writes import PortableMemory, SourceRef

DETAILS: Final = "details.jsonl"
_UNREAD: Final = ("history", "promotion_chain", "accessed_in")
"""The fields that are stored in `DETAILS`."""
_MARK: Final = re.compile(r"^<!-- memory (\{.*) -->\n", re.MULTILINE)
_LIKE_MARK: Final = re.compile(r"^<(\\*!-- memory \{)", re.MULTILINE)
_ESCAPED: Final = re.compile(r"^<\\(\\*!-- memory \{)", re.MULTILINE)
"""Lines of the content that look like a mark are escaped with a backslash."""
_FRONT: Final = re.compile(r"---\n(.*?\n)---\n(.*)", re.DOTALL)
_LINK: Final = re.compile(r"\s*[-*] \[[^\]]*\]\([^):]*\.md\)")
_TICKED: Final = re.compile(r"^[ \t]*[-*] \[[xX]\] .*\n?", re.MULTILINE)
_TO_TICK: Final = "[ ] "
_DAY: Final = rf"(\d{{4}}-\d\d-\d\d|{CALENDAR_DAY},? \d{{4}}|(?=\w* ?(?-i:[A-Z]))(?!\D+ \d+ \w){CALENDAR_DAY})"
_DATED: Final = re.compile(rf"\W*{_DAY}(?!\d)|.*\({_DAY}\)\W*$", re.IGNORECASE)
"""A date at the start of a text ("May 10 servers" is not one), or in brackets at the end of a line."""
_TITLE_DATED: Final = re.compile(
    rf"{_DATED.pattern}|(?:.*(?:\b|_)(?:meeting|minutes|notes?|stand-?up|retro(?:spective)?|log|journal|diary|planning"
    r"|kick-?off|review|report|board|call|sync|weekly|daily|1:1|compte-rendu|protokoll)"
    rf"(?: of| on| with \w+|[^,:–]*[,:–])?[\W_]+)?(?:(?!birth)\w+day\W+)?{_DAY}\W*$",
    re.IGNORECASE,
)
"""A date at the start of a title or file name, in brackets at its end, or beside the word for a meeting or a record:
"Minutes, Tuesday 1 December 2026", "board-2026-12-01", but not "API 2024-01-01"."""
_FRONT_DATE: Final = re.compile(r"^date:(.+)", re.MULTILINE | re.IGNORECASE)
_ITEM: Final = re.compile(r"^[-*] +", re.MULTILINE)
KINDS_OF_FACTS: Final = ("architecture", "error_fix")
"""The kinds that a heading gives only to texts that would otherwise be facts: a rule below it stays a rule."""
WORDS_OF_ITEM: Final = 5
"""The minimum number of words, with the marker, for an item to make sense by itself. Steps are often shorter."""
HALF_YEAR_S: Final = 183 * 86_400.0
_decode_fields: Final = msgspec.json.Decoder(dict[str, Any]).decode


def file_of(line: MemoryLine, folder: str) -> tuple[str, str]:
    """The path of a memory's file in its project's folder, and the text to append to that file."""
    memory = line.memory
    fields = {name: value for name, value in msgspec.to_builtins(memory).items() if name not in ("content", *_UNREAD)}
    if line.project is not None:
        fields["project"] = line.project
    mark = msgspec.json.encode(fields).decode().replace("-->", "--\\u003e")
    content = _LIKE_MARK.sub(r"<\\\1", memory.content)
    return f"{folder}/{memory.kind or kind_of_type(memory.type)}.md", f"<!-- memory {mark} -->\n{content}\n\n"


def details_of(memory: PortableMemory) -> dict[str, Any]:
    fields = msgspec.to_builtins(memory)
    return {"id": memory.id} | {name: fields[name] for name in _UNREAD if name in fields}


def read_file(text: str, details: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[MemoryLine]]:
    """Return the text before the first exported memory, and the exported memories. Raises `InvalidInput`."""
    if not _MARK.search(text):  # a note, or an export that an editor saved with Windows line endings
        text = text.replace("\r\n", "\n")
    notes, *parts = _MARK.split(text)
    lines = []
    for mark, escaped in zip(parts[::2], parts[1::2], strict=True):
        content = _ESCAPED.sub(r"<\1", escaped.removesuffix("\n").removesuffix("\n"))
        try:
            whole = _decode_fields(mark)
            project = whole.pop("project", None)
            whole |= {**details.get(whole["id"], {}), "content": content}
            lines.append(MemoryLine(msgspec.convert(whole, PortableMemory), project))
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise InvalidInput(f"the fields of a memory cannot be read ({error}): {mark[:200]}") from error
    return notes, lines


def _kind_named(title: str) -> Kind | None:
    subject = re.split(r":| (?:of|for|about|in|on) | \(", title.lower())[0]
    kind = KINDS_NAMED.get(subject.rpartition(" ")[2])
    return kind if kind in RULES_OF_WORK or kind in KINDS_OF_FACTS else None


def sections_of(
    path: str, text: str, at: float, project: str | None, kind_of: Callable[[str, float], Kind]
) -> tuple[list[PortableMemory], int, dict[str, set[str]]]:
    """Turn the sections of a note into memories of a project (None: of the user), as if stored at `at`. Also returns
    the number of ticked items skipped, and each memory's texts with and without the headings that may be left out.

    A heading such as "TODO" or "Decision" sets the kind of its section. Each item of a list becomes a memory, unless
    the items are as short as steps and the heading names no kind of rule. So does each open end (also an item with an
    empty box), with its due date if it has one. A section below a heading for procedures is one procedure, unless its
    own heading names another kind. The date comes from the start of the item or section, from brackets at its end, or
    else from a heading above it, the front matter or the file name. Within a project, the same text of the same day
    always yields the same memory, even if the file was renamed or is in another working tree. Front matter, headings
    without text, and lists of links to other notes are skipped.
    """
    front = _FRONT.fullmatch(text)
    body = front[2] if front else text
    of_file = _FRONT_DATE.search(front[1]) if front else None
    day_of_file = (of_file and _day_of(of_file[1], at)) or _day_of(PurePath(path).stem, at, _TITLE_DATED)
    lines, headings = body.split("\n"), headings_of(body)
    titles = [heading.path for heading in headings if " > " not in heading.path]
    title_of_all = f"{titles[0]} > " if len(titles) == 1 else ""
    common: dict[str, Any] = {"scope": "project" if project else "user", "session_id": SHELL_SESSION}
    common |= {"source": SourceRef(file=path), "created_at": at, "updated_at": at}
    made: dict[str, PortableMemory] = {}
    spellings: dict[str, set[str]] = {}
    ticked = 0
    for (_, begin, _, headed), following in pairwise((Block(0, 0), *headings, Block(len(lines), 0))):
        section = "\n".join(lines[begin : following.first]).strip()
        above, _, title = headed.rpartition(" > ")
        is_open = is_list_of_open_ends(f"{title}: {section}".removeprefix(": "))
        section, removed = _TICKED.subn("", section)
        ticked += removed
        if all(map(_LINK.match, filter(str.strip, section.splitlines()))):
            continue
        titled, subject = f"{title}: {section}".removeprefix(": "), _kind_named(title)
        named = None if subject in KINDS_OF_FACTS else subject
        is_steps = not named and "procedure" in map(_kind_named, above.split(" > "))
        listed = _ITEM.split(section)[1:] if _ITEM.match(section) and not is_steps else []
        items = [item.strip() for item in listed if not _LINK.match(f"- {item}")]
        is_list = is_open or (items and (named in STANDING or len(section.split()) >= WORDS_OF_ITEM * len(items)))
        days_above = (_day_of(each, at, _TITLE_DATED) for each in reversed(headed.split(" > ")))
        day_above = next(filter(None, days_above), day_of_file)
        says_kind = is_open or (is_list and subject and " " not in title)
        paths = [above if says_kind else headed, headed]
        untitled = [f"{each} > ".removeprefix(title_of_all).removesuffix(" > ") for each in paths]
        paths = [*untitled, headed] if is_list else [*paths, untitled[1]]  # the title says little about its items
        for told in open_ends_in(titled) if is_open else items if is_list else (section,):
            part = told.removeprefix(_TO_TICK)
            is_task = is_open or part != told
            texts = [f"{each}: {part}".removeprefix(": ") for each in paths]
            day = None if is_task else _day_of(part, at) or day_above
            kind = OPEN_END if is_task else named or ("procedure" if is_steps else kind_of(part, at))
            if kind == "fact" and not is_list:
                kind = kind_of(titled, at)
            if kind == "fact" and subject:
                kind = subject
            memory_id = derive_memory_id(f"section of {project}\n{day}\n{texts[0]}")
            spellings[memory_id] = set(texts)
            due = due_of_open_end(part, day_above or at) if kind == OPEN_END else None
            own: dict[str, Any] = {"kind": kind, "type": type_of_kind(kind), "due": due, "occurred_at": day}
            made[memory_id] = PortableMemory(id=memory_id, content=texts[0], **own, **common)
    return list(made.values()), ticked, spellings


def _day_of(text: str, at: float, pattern: re.Pattern[str] = _DATED) -> float | None:
    """Choose the year that puts the date less than half a year after `at`. None if that day is still after `at`."""
    with suppress(ValueError):  # no such day
        if dated := pattern.match(text):
            from dateutil.parser import parse  # few texts contain a date

            name, year = dated[dated.lastindex or 0], datetime.fromtimestamp(at, UTC).year
            days = (parse(name, default=datetime(each, 1, 1, tzinfo=UTC)) for each in (year, year - 1))
            times = (day.replace(tzinfo=UTC).timestamp() for day in days)
            return next((each if each <= at else None for each in times if each - at < HALF_YEAR_S), None)
    return None
