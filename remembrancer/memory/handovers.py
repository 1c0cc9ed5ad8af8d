"""The end of a session's work, for the next ones: its record, what is an open end, and which questions ask for it.
Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from remembrancer.memory.limits import moment
from remembrancer.memory.sentences import cut_at_word, join_sentences, split_sentences
from remembrancer.protocol.kinds import SESSION_RECORD, Kind

HANDOVER: Final = "handover"
"""The tag of what is said to be handed over, and of the record that a session leaves to its project when it ends."""

_OPEN: Final = re.compile(
    r"\b(next( up| steps?)?\s*(:|is\b|are\b|we\b|i\b)|to[- ]?do\b|still (needs?|ha(s|ve) to|missing|open|fails?|to\b)"
    r"|half[- ](done|written|finished|migrated|way)|unfinished|incomplete|wip\b|in progress"
    r"|not (yet )?(done|finished|written|migrated|tested|merged|deployed|committed)"
    r"|(remains?|remaining|left) (to|is|are)\b"
    r"|left (off|to do)|follow[- ]?ups?\b|open (question|end|point|issue)s?|blocked (on|by)|waiting for|continue with"
    r"|pick up (at|with|from)|stopped (at|in|before|after)"
    r"|als nächstes|noch (offen|nicht|zu)|weiter mit|à faire|reste à|prochaine étape|siguiente paso|falta)",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    r"\bwhat(?:'s| is| was| are)?(?: the)? (?:next(?: steps?| up)?|left(?: to do)?)\W*$"
    r"|\bwhat(?:'s| is| was| are)?(?: the)? (?:still (?:open|to do)|open(?: ends?)?)\W*$"
    r"|\bwhat (?:should|do|shall|can) (?:i|we|you) (?:do|work on|continue with|pick up)(?: next| now)?\W*$"
    r"|\bwhere (?:did|were|was|have) (?:i|we|you) (?:stop|stopped|leave off|left off|been|at)\b"
    r"|\b(?:last|previous|earlier|yesterday's|preceding) (?:work(?:ing)? )?sessions?\b"
    r"|\b(?:continue|resume|pick up)\b.{0,30}\b(?:where|left off|stopped|yesterday|last time)\b"
    r"|\b(?:what|anything)\b.{0,30}\b(?:unfinished|half[- ]done|in progress|left over)\b"
    r"|\bopen ends?\b|\bunfinished work\b|\bto[- ]?dos?\W*$"
    r"|was (?:ist|war) (?:als )?nächstes|letzten? sitzung|wo (?:haben wir|habe ich) aufgehört"
    r"|dernière session|prochaine étape|última sesión|siguiente paso",
    re.IGNORECASE,
)


def is_open_end(sentence: str) -> bool:
    """True if a sentence says what is still to be done."""
    return _OPEN.search(sentence) is not None


def asks_where_it_stopped(question: str) -> bool:
    """True if a question asks what the last sessions did, or what is next."""
    return len(question) <= 200 and _ASKS.search(question) is not None


def is_session_record(kind: str | None) -> bool:
    """True if a memory of this kind is the record of a session: it answers only a question that asks for one."""
    return kind == SESSION_RECORD


# --- The record of a session.

LONGEST: Final = 600
"""Characters of open ends in a record, and of what was promoted."""
LINE: Final = 160
"""Characters of one memory that was promoted or said to be handed over."""
MOST_NAMED: Final = 3
"""Ids that the text of a record names; all of them are in `SessionRecord.about`."""
MOST_LISTED: Final = 50
MOST_FILES: Final = 8
FILE_ARGUMENTS: Final = ("file_path", "notebook_path", "path")
"""The arguments of a client's own tools that name a file."""


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory that a session has stored for its project. `is_promoted`: it was the session's own before."""

    id: str
    content: str
    kind: Kind
    tags: tuple[str, ...] = ()
    is_promoted: bool = False


@dataclass(frozen=True, slots=True)
class SessionDeeds:
    """The deeds of a session, so far as its project may know them. What it kept to itself is only counted."""

    ended_at: float
    stored: Sequence[StoredMemory] = ()
    """The most important first."""
    kept: int = 0
    prompts: int = 0
    tool_calls: int = 0
    files: Sequence[str] = ()
    """The files that its tools were given, the most used first."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The record of a session. `quoted`: ids of the memories whose words `content` has."""

    content: str
    summary: str
    quoted: tuple[str, ...]
    about: dict[str, Any]


def session_record(deeds: SessionDeeds) -> SessionRecord | None:
    """The record that a session leaves to the next ones: counts, files, ids, and the words that it said for them.

    Words are those of memories of the project that say what is still to be done, that were tagged to be handed over, or
    that the session has promoted. None for a session that left nothing.
    """
    if not (deeds.stored or deeds.tool_calls):
        return None
    open_ends: dict[str, str] = {}
    promoted: dict[str, str] = {}
    for memory in deeds.stored:
        sentences = [" ".join(sentence.split()) for sentence in split_sentences(memory.content)]
        ends = [sentence for sentence in sentences if len(sentence) <= LONGEST and is_open_end(sentence)]
        if not ends and (HANDOVER in memory.tags or memory.is_promoted):
            said, ends = open_ends if HANDOVER in memory.tags else promoted, [_line(memory.content)]
        else:
            said = open_ends
        for each in ends:
            if each not in said and sum(map(len, said)) + len(each) <= LONGEST:
                said[each] = memory.id
    when = f"{moment(deeds.ended_at):%Y-%m-%d %H:%M} UTC"
    left = join_sentences(open_ends)
    parts = [f"Where the session of {when} stopped. Open: {_closed(left)}" if left else f"The session of {when}."]
    if promoted:
        parts.append(f"Promoted: {_closed(join_sentences(promoted))}")
    parts += _counted(deeds)
    return SessionRecord(
        content=" ".join(parts),
        summary=left and _line(left),
        quoted=tuple(dict.fromkeys((*open_ends.values(), *promoted.values()))),
        about={
            "stored": [each.id for each in deeds.stored[:MOST_LISTED]],
            "kept_to_itself": deeds.kept,
            "prompts": deeds.prompts,
            "tool_calls": deeds.tool_calls,
            "files": list(deeds.files[:MOST_LISTED]),
        },
    )


def _counted(deeds: SessionDeeds) -> Iterator[str]:
    if deeds.stored:
        kinds = Counter(each.kind for each in deeds.stored)
        of_kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in kinds.most_common())
        yield f"Stored: {of_kinds} ({_some([each.id for each in deeds.stored], MOST_NAMED)})."
    if deeds.kept:
        yield f"Kept to itself: {deeds.kept}."
    if deeds.prompts or deeds.tool_calls:
        yield f"Prompts: {deeds.prompts}, tool calls: {deeds.tool_calls}."
    if deeds.files:
        yield f"Files: {_some(deeds.files, MOST_FILES)}."


def _some(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE else cut_at_word(line, LINE - 1) + "…"


def _closed(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…", "。")) else text + "."
