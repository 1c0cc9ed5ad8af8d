"""Sessions as rows: the registry, turns and tool calls, and the data of a space about a session."""

from typing import Final

from remembrancer.actors.sqlite_file import Query, as_json, decode_names
from remembrancer.actors.store.records.memory_rows import read_memory
from remembrancer.actors.store.records.space import Spaces
from remembrancer.actors.store.records.types import Memory
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.reads import SessionDescription
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.session_life import SessionEntry

_COLUMNS: Final = f"""session_id, started_at, last_active_at, status, ended_at, ending, memories_promoted, (
    SELECT content FROM memories AS m
    WHERE m.space = @SPACE AND m.session_id = sessions.session_id AND m.scope = 'project'
    AND m.kind = '{SESSION_RECORD}' AND m.forgotten_at IS NULL
    ORDER BY m.number DESC LIMIT 1), client"""  # noqa: S608 - our names
"""The columns of a `SessionEntry`. A session's summary is the text of its record."""
FILE_ARGUMENTS: Final = ("file_path", "notebook_path", "path")
"""The arguments that contain a file's path in the clients' own tools."""
MAX_FILES: Final = 50


def session_record_of(query: Query, session_id: str) -> Memory | None:
    """Return the memory that is the record of a session, forgotten or not."""
    record_of = "SELECT id FROM memories WHERE space = @SPACE AND session_id = ? AND kind = ?"
    known = query(record_of, (session_id, SESSION_RECORD))
    return read_memory(query, known[0][0]) if known else None


def files_worked_on(query: Query, session_id: str, root: str) -> tuple[str, ...]:
    """Return the files that a session passed to its tools, most used first. `root` is the project's path."""
    used = query(
        """SELECT file, count(*) FROM (
               SELECT json_extract(arguments, '$.' || name.value) AS file
               FROM tool_calls, json_each(?) AS name WHERE space = @SPACE AND session_id = ?)
           WHERE typeof(file) = 'text' AND file != '' GROUP BY file ORDER BY 2 DESC, 1 LIMIT ?""",
        (as_json(FILE_ARGUMENTS), session_id, MAX_FILES),
    )
    inside = root.removesuffix(".git").rstrip("/") + "/"
    return tuple(dict.fromkeys(file.removeprefix(inside) for file, _ in used))


def open_sessions(query: Query) -> list[SessionEntry]:
    """Return the sessions that are active, or ended but not yet processed, oldest first."""
    rows = query(
        f"""SELECT {_COLUMNS} FROM sessions WHERE space = @SPACE AND status = 'active'
            ORDER BY started_at, session_id""",  # noqa: S608 - our names
        (),
    )
    return [SessionEntry(*row) for row in rows]


TOPICS: Final = 10


def describe_session(query: Query, spaces: Spaces, session_id: str) -> SessionDescription:
    """Describe a session's work from its memories in these spaces, including forgotten ones (except for its topics)."""
    entries = query(
        spaces.for_each(f"SELECT {_COLUMNS} FROM sessions WHERE space = @SPACE AND session_id = ?1"),  # noqa: S608
        (session_id,),
    )
    known = [SessionEntry(*entry) for entry in entries]
    types = query(
        """SELECT type, count(*), sum(forgotten_at IS NULL AND status = 'consolidated')
           FROM memories WHERE space = @SPACE AND session_id = ? AND kind != ? GROUP BY type""",
        (session_id, SESSION_RECORD),
    )
    ((turns,),) = query("SELECT count(*) FROM turns WHERE space = @SPACE AND session_id = ?", (session_id,))
    ((calls, successes),) = query(
        "SELECT count(*), total(success) FROM tool_calls WHERE space = @SPACE AND session_id = ?", (session_id,)
    )
    return SessionDescription(
        started_at=min((entry.started_at for entry in known), default=None),
        stored_by_type={kind: count for kind, count, _ in types},
        topics=_topics_of(query, session_id),
        status=known[0].status if known else "active",
        summary=known[0].summary if known else None,
        turns=turns,
        tool_calls=calls,
        tool_failures=calls - int(successes),
        memories_promoted=sum(entry.memories_promoted for entry in known),
        memories_consolidated=sum(consolidated for *_, consolidated in types),
    )


def _topics_of(query: Query, session_id: str) -> tuple[str, ...]:
    own = "m.space = @SPACE AND m.session_id = ?1 AND m.forgotten_at IS NULL"
    topics = query(
        f"""SELECT topic FROM (
               SELECT m.number, e.name AS topic FROM memories AS m
               JOIN memory_entities AS link ON link.memory = m.number JOIN entities AS e ON e.number = link.entity
               WHERE {own} AND NOT link.found
               UNION ALL SELECT m.number, t.value FROM memories AS m JOIN json_each(m.tags) AS t WHERE {own})
           GROUP BY topic ORDER BY count(DISTINCT number) DESC, topic LIMIT ?2""",  # noqa: S608 - fixed
        (session_id, TOPICS),
    )
    return tuple(topic for (topic,) in topics)


def read_topics(query: Query) -> tuple[Topic, ...]:
    """Return the latest communities. Raises `ValueError` if a row cannot be decoded."""
    rows = query("SELECT label, entities FROM topics WHERE space = @SPACE ORDER BY number", ())
    return tuple(Topic(label, decode_names(entities)) for label, entities in rows)
