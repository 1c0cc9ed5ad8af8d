"""What happened in a session, in a few sentences: its own, and figures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from remembrancer.actors.consolidator.reflection.summaries import Source, summarise
from remembrancer.protocol.consolidation import Material, SessionRead, ToolUse

LONGEST: Final = 600
SENTENCES: Final = 380
"""Characters for the sentences; the rest is for topics and tools."""
MOST_TOPICS: Final = 5
MOST_TOOLS: Final = 4
MOST_TURNS: Final = 50
TURN_WEIGHT: Final = 0.3
"""What is said counts for less than what somebody found worth remembering."""


def session_summary(memories: Sequence[Material], read: SessionRead) -> str | None:
    """At most 600 characters; None for a session of which nothing is known.

    The sentences are taken from the session's memories word for word, or from its turns when there are none.
    """
    known = [each for each in memories if each.kind != "scratchpad" and not each.is_derived]
    known = known or [each for each in memories if not each.is_derived]
    sources = [Source(each.content, each.importance) for each in sorted(known, key=lambda each: each.number)]
    if not sources:
        sources = [Source(text, TURN_WEIGHT) for role, text in read.turns if role in ("user", "assistant")]
    said = summarise(sources, SENTENCES).text if sources else ""
    parts = [_closed(said), _topics(known), _tools(read.tools)]
    return _cut(" ".join(part for part in parts if part)) or None


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
