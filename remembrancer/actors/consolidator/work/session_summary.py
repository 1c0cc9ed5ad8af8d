"""What happened in a session, in a few sentences: its own, and figures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from remembrancer.actors.consolidator.reflection.summaries import Source, join_sentences, one_line, summarise
from remembrancer.protocol.consolidation import Material, SessionRead, ToolUse
from remembrancer.protocol.kinds import Kind

LONGEST: Final = 600
SENTENCES: Final = 380
"""Characters for the sentences; the rest is for topics and tools."""
MOST_TOPICS: Final = 5
MOST_TOOLS: Final = 4
MOST_TURNS: Final = 50
LINE: Final = 160
"""Characters of one memory."""
UNTOLD: Final[frozenset[Kind]] = frozenset({"scratchpad", "tool_outcome"})


def session_summary(memories: Sequence[Material], read: SessionRead) -> str | None:
    """At most 600 characters; None for a session of which nothing is known.

    It says the most important memories of the session in a line each, word for word, in the order of their times, and
    for those that were summed up their summary. Without memories it is made of the session's turns.
    """
    known = [each for each in memories if not each.is_derived]
    parts = [_said(memories) or _turns(read), _topics(known), _tools(read.tools)]
    return _cut(" ".join(part for part in parts if part)) or None


def _said(memories: Sequence[Material]) -> str:
    told = [each for each in memories if each.status != "consolidated" and each.kind not in UNTOLD]
    chosen: dict[int, str] = {}
    for memory in sorted(told, key=lambda each: (-each.importance, each.number)):
        line = one_line(memory.content, LINE)
        longer = _joined({**chosen, memory.number: line})
        if line and line not in chosen.values() and len(longer) <= SENTENCES:
            chosen[memory.number] = line
    return _joined(chosen)


def _joined(lines: Mapping[int, str]) -> str:
    return _closed(join_sentences(lines[number] for number in sorted(lines)))


def _turns(read: SessionRead) -> str:
    sources = [Source(text) for role, text in read.turns if role in ("user", "assistant")]
    return _closed(summarise(sources, SENTENCES).text) if sources else ""


def _topics(memories: Sequence[Material]) -> str:
    counts = Counter(name for each in memories for name in dict.fromkeys(entity.name for entity in each.entities))
    counts.update(tag for each in memories for tag in each.tags if tag not in counts)
    names = sorted(counts, key=lambda name: (-counts[name], name))[:MOST_TOPICS]
    return f"Topics: {', '.join(names)}." if names else ""


def _tools(tools: Sequence[ToolUse]) -> str:
    used = sorted(tools, key=lambda each: (-each.count, each.tool_name))
    if not used:
        return ""
    told = [_told(each) for each in used[:MOST_TOOLS]]
    if len(used) > MOST_TOOLS:
        told.append(f"{len(used) - MOST_TOOLS} more")
    return f"Tools: {', '.join(told)}."


def _told(use: ToolUse) -> str:
    failures = use.count - use.successes
    times = "once" if use.count == 1 else f"{use.count} times"
    return f"{use.tool_name} {times}" + (f" ({failures} failed)" if failures else "")


def _closed(text: str) -> str:
    return text + "." if text and text[-1].isalnum() else text


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
