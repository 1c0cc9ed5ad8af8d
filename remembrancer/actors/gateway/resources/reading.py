"""The resources: what a client can read without calling a tool."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from remembrancer.actors.gateway.resources import resource_texts as texts
from remembrancer.actors.gateway.resources.known_pages import known_graph, known_story
from remembrancer.actors.gateway.resources.recall_ledger import RecallLedger
from remembrancer.actors.gateway.resources.resource_uris import (
    GRAPH,
    MEMORY_TEMPLATE,
    PREFERENCES,
    STATUS,
    SUMMARY,
    memory_id_of,
    unknown_resource,
)
from remembrancer.actors.gateway.store_access.reads import Asked, ReadPath
from remembrancer.actors.gateway.toolkit.tools import Answer, Call, Caller, Tool, with_seed_forms
from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.reads import (
    ContextGathered,
    DescribeSession,
    GatherContext,
    GraphFound,
    SearchGraph,
    SessionDescription,
)
from remembrancer.protocol.wire import GatewayRequest

JSON: Final = "application/json"
MARKDOWN: Final = "text/markdown"
KNOWN: Final = "This is only what is known without the store: there may be more."
MOST_CONNECTED: Final = 10
PREFERENCES_SHOWN: Final = 50
STATUS_VOLATILE: Final = frozenset({"uptime_seconds", "database_size_bytes", "attempts", "next_attempt_seconds"})
"""Fields of the status, anywhere in it, that change by themselves: no news for somebody who has subscribed."""
MEMORY_VOLATILE: Final = frozenset(
    {
        *("access_count", "last_accessed", "sessions_accessed", "strength", "is_stale", "why"),
        *("degraded", "warnings"),
    }
)
"""The same of a memory: what is read about it, and about the answer, is not what it says."""

RESOURCES: Final = (
    (STATUS, "Memory System Status", "Connection health, memory counts, and storage statistics", JSON),
    (SUMMARY, "Current Session Summary", "Memories stored, recalled, and consolidated this session", MARKDOWN),
    (GRAPH, "Project Knowledge Graph", "Entity and relationship overview for the current project", MARKDOWN),
    (PREFERENCES, "User Preferences", "Learned user preferences and coding patterns", MARKDOWN),
)
TEMPLATES: Final = ((MEMORY_TEMPLATE, "Memory", "One memory whole, with its history and relationships", JSON),)


R = TypeVar("R", SessionDescription, GraphFound, ContextGathered)


@dataclass(frozen=True, slots=True)
class Content:
    """A resource as it is now. `digest` is the same for contents that say the same. `is_part`: it is what is known
    without the store, which says nothing of whether the resource has changed."""

    uri: str
    mime_type: str
    text: str
    digest: str
    is_part: bool = False


class Resources:
    """Reads resources for a caller. `tools` carries out those that say what a tool says."""

    def __init__(self, tools: Mapping[str, Tool[Any]], reads: ReadPath, ledger: RecallLedger) -> None:
        self._tools = tools
        self._reads = reads
        self._ledger = ledger
        self._readers = {
            STATUS: self._status,
            SUMMARY: self._summary,
            GRAPH: self._graph,
            PREFERENCES: self._preferences,
        }

    async def read(self, caller: Caller, uri: str, received_at: float) -> Content:
        """The content of a resource. Without the store it is the last known, or else what is known here, and says so.

        Raises:
            NotFound: there is no such resource, or no such memory that the caller may see.
            RemembrancerError: it cannot be read now, and why.
        """
        reader = self._readers.get(uri)
        if reader is not None:
            return await reader(caller, received_at)
        memory_id = memory_id_of(uri)
        if memory_id is None:
            raise NotFound(unknown_resource(uri), field="uri")
        answer = await self._call("get_memory", {"memory_id": memory_id}, caller, received_at)
        return _json(uri, answer, lasting_memory(answer))

    async def _status(self, caller: Caller, received_at: float) -> Content:
        answer = await self._call("get_memory_status", {}, caller, received_at)
        return _json(STATUS, answer, lasting_status(answer))

    async def _call(self, name: str, arguments: dict[str, Any], caller: Caller, received_at: float) -> Answer:
        tool = self._tools[name]
        return await tool.run(Call(caller, name, received_at, arguments), tool.decoder.decode(arguments))

    async def _summary(self, caller: Caller, received_at: float) -> Content:
        question = DescribeSession(caller.project, caller.session_id)
        asked, story = await self._ask(question, received_at, SessionDescription)
        is_part = story is None
        if story is None:
            story = known_story(self._reads.made(caller.project.id, caller.session_id), caller.session_id)
        text = texts.session_summary(
            caller.session_id,
            story.started_at or caller.started_at,
            story,
            self._ledger.served(caller.project.id, caller.session_id),
            self._ledger.since,
            is_part=is_part,
        )
        return self._markdown(SUMMARY, text, asked)

    async def _graph(self, caller: Caller, received_at: float) -> Content:
        question = SearchGraph(caller.project, caller.session_id, include_memories=False, limit=MOST_CONNECTED)
        asked, found = await self._ask(question, received_at, GraphFound)
        is_part = found is None
        if found is None:
            found = known_graph(self._reads.made(caller.project.id, caller.session_id), MOST_CONNECTED)
        return self._markdown(GRAPH, texts.knowledge_graph(found, is_part=is_part), asked)

    async def _preferences(self, caller: Caller, received_at: float) -> Content:
        question = GatherContext(caller.project, caller.session_id, sections=("preferences",), limit=PREFERENCES_SHOWN)
        asked, gathered = await self._ask(question, received_at, ContextGathered)
        is_part = gathered is None
        if gathered is None:
            known = self._reads.known(caller.project.id, caller.session_id)
            memories = [memory for memory in known if memory.scope == "user"][:PREFERENCES_SHOWN]
        else:
            memories = [memory for section in gathered.sections for memory in section.memories]
        return self._markdown(PREFERENCES, texts.preferences(memories, is_part=is_part), asked)

    async def _ask(self, question: GatewayRequest, received_at: float, kind: type[R]) -> tuple[Asked, R | None]:
        """The answer; None: there is none, and the page is made of what is known here."""
        asked = await self._reads.ask(question, received_at)
        assert isinstance(asked.reply, kind | None)
        return asked, asked.reply

    def _markdown(self, uri: str, text: str, asked: Asked) -> Content:
        """The digest leaves out what is said of the content's state: that it is older would be no news of it."""
        is_part = asked.reply is None
        reply = asked.reply
        its_own = reply.notices if isinstance(reply, SessionDescription | GraphFound | ContextGathered) else ()
        notices = (*its_own, *asked.notices)
        if is_part and asked.away is not None:
            notices = (self._reads.explain(asked.away, KNOWN),)
        said = " ".join(notice.message for notice in notices)
        shown = texts.noted(text, said, degraded=asked.from_cache or is_part)
        return Content(uri, MARKDOWN, shown, digest_of(text), is_part)


def _json(uri: str, answer: Answer, lasting: Answer) -> Content:
    return Content(uri, JSON, msgspec.json.encode(with_seed_forms(answer)).decode(), digest_of(lasting))


def lasting_memory(answer: Answer) -> Answer:
    """What a memory says, whoever reads it. Its metadata may have fields of any name: they all count."""
    return {name: value for name, value in answer.items() if name not in MEMORY_VOLATILE}


def lasting_status(answer: Answer) -> Answer:
    """What a status says without what changes by itself. Of warnings the codes count: their text may name a time."""
    lasting: Answer = _without(answer, STATUS_VOLATILE)
    if "warnings" in answer:
        lasting["warnings"] = [warning["code"] for warning in answer["warnings"]]
    return lasting


def _without(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(each, names) for name, each in value.items() if name not in names}
    return value


def digest_of(value: Any) -> str:
    """The same for values that are the same."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
