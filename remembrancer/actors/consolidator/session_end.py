"""The end of a session: what is worth it goes into the project, what is related is summed up, and its entry is closed.

In that order, in transactions of their own. When this process dies in between, the next one reads what is left: what
was promoted or summed up is not looked at again, and the entry is closed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.communities import topics_of
from remembrancer.actors.consolidator.contradictions import CONTRADICTION_COSINE
from remembrancer.actors.consolidator.derived_memories import derived_parts, plan_summaries
from remembrancer.actors.consolidator.maintenance import plan_contradictions
from remembrancer.actors.consolidator.promoting import Promoted, observe_patterns, plan_for_project, promote_to_user
from remembrancer.actors.consolidator.store_connection import (
    Clock,
    Group,
    Head,
    StoreConnection,
    all_memories,
    derive,
    parts_of,
    run_id_of,
    slices,
    vectors_wait_s,
)
from remembrancer.actors.consolidator.summaries import Source, join_sentences, one_line, split_sentences, summarise
from remembrancer.config.settings import Settings, promotion_rules
from remembrancer.memory.handovers import HANDOVER, is_open_end
from remembrancer.memory.promotion import PromotionRules, promoted_at_session_end
from remembrancer.protocol.consolidation import Material, ReadMemories, ReadSession, SessionEndJob, SessionRead, ToolUse
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.kinds import SESSION_KINDS
from remembrancer.protocol.runs import AddLink, AddMemory, CloseSession, Method, NewMemory, ReviseMemory, SaveTopics
from remembrancer.protocol.session_life import SessionEntry

LONGEST: Final = 600
SENTENCES: Final = 380
"""Characters for the sentences; the rest is for topics and tools."""
MOST_TOPICS: Final = 5
MOST_TOOLS: Final = 4
MOST_TURNS: Final = 50
LAST_TURNS: Final = 6
"""Of a session's turns those in which it may say what is left to do."""
HANDOVER_IMPORTANCE: Final = 0.6
HANDOVER_CONFIDENCE: Final = 0.8
LINE: Final = 160
"""Characters of one memory."""


async def end_session(job: SessionEndJob, store: StoreConnection, settings: Settings, clock: Clock) -> None:
    """Deal with the end of a session."""
    project, session, rules = job.project, job.session, promotion_rules(settings)
    run_id = run_id_of("session_end", project.id, session.session_id, session.ended_at)
    request = ReadMemories(project, session_id=session.session_id, statuses=("active", "consolidated"))

    def head(method: Method) -> Head:
        return Head(run_id, "project", "session_end", method, session.session_id)

    chosen: list[Promoted] = []
    changed = False
    async for portion in slices(store, request, vectors_wait_s(settings)):
        chosen = promoted_of([*(memory for memory, _ in chosen), *portion], rules, clock())
        stored = [memory for memory in portion if memory.scope == "project"]
        changed = changed or bool(stored)
        await observe_patterns(store, project, stored, rules, clock())
        telling = [memory for memory in stored if memory.type == "semantic" and memory.status == "active"]
        near = await store.find_near(project, telling, CONTRADICTION_COSINE, "project")
        changes = await run_sync(lambda: plan_contradictions(telling, near, clock()))  # noqa: B023 - awaited
        for part in parts_of(head("contradict"), [change.group for change in changes]):
            await store.submit_run(project, part, clock())

    plan = await plan_for_project(store, project, chosen, rules, clock())
    await observe_patterns(store, project, [each for each, _ in chosen if each.id in plan.changed], rules, clock())
    parts = parts_of(head("promote"), plan.groups)
    written = len(parts)
    for part in parts:
        await store.submit_run(project, part, clock())

    if settings.consolidate_in_background and settings.consolidation_on_shutdown:
        async for portion in slices(store, request):
            left = [memory for memory in portion if memory.id not in plan.changed]
            summaries = await run_sync(lambda: plan_summaries(left, clock()))  # noqa: B023 - awaited
            for part in derived_parts(head("summarize_cluster"), summaries, first=written):
                await store.submit_run(project, part, clock())
                written += 1

    gone = await promote_to_user(store, project, rules, clock, run_id=run_id)
    changed = changed or written > 0 or bool(gone)
    for part in parts_of(head("promote"), [await _closing(job, store, changed, clock())], first=written):
        await store.submit_run(project, part, clock())


def promoted_of(own: Sequence[Material], rules: PromotionRules, now: float) -> list[Promoted]:
    """The memories of a session that go into its project, the strongest first, and then what was made of others.

    What was made of others takes no place from them: a session that was summed up while it ran leaves at least what it
    would have left without.
    """
    mine = [memory for memory in own if memory.scope == "session"]
    return [
        each
        for is_derived in (False, True)
        for each in promoted_at_session_end([memory for memory in mine if memory.is_derived == is_derived], now, rules)
    ]


async def _closing(job: SessionEndJob, store: StoreConnection, changed: bool, now: float) -> Group:
    """The last edits of the run. The promotions are counted from the log: some may be of an earlier attempt."""
    project, session = job.project, job.session
    stored = await all_memories(store, ReadMemories(project, session_id=session.session_id))
    everything = [each for each in stored if HANDOVER not in each.tags]
    read = await store.ask(ReadSession(project, session.session_id, MOST_TURNS), SessionRead)
    did = await run_sync(lambda: did_of(everything, read))
    summary = session_summary(did, everything, read)
    counted = session.memories_promoted if read.entry is None else read.entry.memories_promoted
    assert session.ended_at is not None, "a job is about a session that has ended"
    closing = CloseSession(
        session.session_id, session.ending or "completed", session.ended_at, summary, max(0, read.promoted - counted)
    )
    topics = await topics_of(store, project, now) if changed else None
    saved = () if topics is None else (SaveTopics(topics),)
    earlier = [each for each in stored if HANDOVER in each.tags and each.status == "active"]
    handover = await run_sync(lambda: hand_over(session, did, everything, read, earlier))
    return (*saved, *handover, closing)


# --- What the session leaves to the next ones, and its summary.


def hand_over(
    session: SessionEntry, did: str, memories: Sequence[Material], read: SessionRead, earlier: Sequence[Material]
) -> Group:
    """The memory that says where the session stopped: what it did and its open ends, for the project's next sessions.

    It is made of what the session stored and, where hooks tell of them, of its turns. A session that goes on and ends
    again hands over anew, in place of the `earlier` one. It is linked to the memories whose words it has, and is
    forgotten with the first of them. Nothing for a session that left nothing.
    """
    if not did or session.ended_at is None:
        return ()
    said = [each for each in memories if each.kind not in SESSION_KINDS and not each.is_derived]
    texts = [each.content for each in sorted(said, key=lambda each: each.number, reverse=True)]
    texts += [content for role, content in reversed(read.turns[-LAST_TURNS:]) if role == "assistant"]
    sentences = dict.fromkeys(" ".join(each.split()) for text in texts for each in split_sentences(text))
    ends = [each for each in sentences if is_open_end(each) and len(each) <= LONGEST]
    left = join_sentences(each for place, each in enumerate(ends) if sum(map(len, ends[: place + 1])) <= LONGEST)
    when = datetime.fromtimestamp(session.ended_at, UTC)
    text = f"Where the session of {when:%Y-%m-%d %H:%M} UTC stopped. Open: {_closed(left)}" if left else ""
    text = text or f"What the session of {when:%Y-%m-%d %H:%M} UTC did."
    more = " ".join(each for each in split_sentences(did) if each.rstrip(".") not in left)
    memory = NewMemory(
        id=derive_memory_id(derive("handover", session.session_id, session.ended_at), session.ended_at),
        content=f"{text} {more}".strip(),
        kind="observation",
        scope="project",
        session_id=session.session_id,
        summary=one_line(left or did) or None,
        importance=HANDOVER_IMPORTANCE,
        confidence=HANDOVER_CONFIDENCE,
        tags=(HANDOVER,),
        occurred_at=session.ended_at,
    )
    replaced = tuple(
        ReviseMemory(each.id, "archived", status="archived", reason=f"{memory.id} replaces it") for each in earlier
    )
    links = tuple(AddLink(memory.id, each.id, "derived_from") for each in said if _has_words_of(memory.content, each))
    return (AddMemory(memory), *replaced, *links)


def _has_words_of(text: str, memory: Material) -> bool:
    sentences = (" ".join(each.split()) for each in split_sentences(memory.content))
    return one_line(memory.content, LINE) in text or any(each in text for each in sentences)


def did_of(memories: Sequence[Material], read: SessionRead) -> str:
    """What a session did, by its most important memories; where it has none, by its turns. Empty: nothing is known."""
    return _lines(memories) or _turns(read)


def session_summary(did: str, memories: Sequence[Material], read: SessionRead) -> str | None:
    """At most 600 characters; None for a session of which nothing is known.

    It says the most important memories of the session in a line each, word for word, in the order of their times, and
    for those that were summed up their summary. Without memories it is made of the session's turns.
    """
    known = [each for each in memories if not each.is_derived]
    parts = [did, _topics(known), _tools(read.tools)]
    return _cut(" ".join(part for part in parts if part)) or None


def _lines(memories: Sequence[Material]) -> str:
    usable = [each for each in memories if each.status != "consolidated" and each.kind not in SESSION_KINDS]
    chosen: dict[int, str] = {}
    for memory in sorted(usable, key=lambda each: (-each.importance, each.number)):
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
    parts = [_use(each) for each in used[:MOST_TOOLS]]
    if len(used) > MOST_TOOLS:
        parts.append(f"{len(used) - MOST_TOOLS} more")
    return f"Tools: {', '.join(parts)}."


def _use(use: ToolUse) -> str:
    failures = use.count - use.successes
    times = "once" if use.count == 1 else f"{use.count} times"
    return f"{use.tool_name} {times}" + (f" ({failures} failed)" if failures else "")


def _closed(text: str) -> str:
    return text + "." if text and text[-1].isalnum() else text


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
