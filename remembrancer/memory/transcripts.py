"""Reads the conversation from session transcripts, without data meant only for programs. Pure.

Two formats are recognized line by line. Claude Code writes one JSON object per line into
`~/.claude/projects/<project>/<session>.jsonl`, with `type`, `message`, `uuid`, `timestamp`, `sessionId` and `cwd`;
Codex into `~/.codex/sessions/**/rollout-*.jsonl`, with `timestamp`, `type` and `payload`. Both append. A resumed
session may copy earlier messages into a new file, under the same `uuid`s.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from typing import Any, Final, Literal, NamedTuple

import msgspec

from remembrancer.memory.chunks import Block, Chunk, chunks_of, line_starts
from remembrancer.memory.credentials import masked
from remembrancer.memory.limits import moment
from remembrancer.protocol.wire import UNDECODABLE

RESULT_CHARACTERS: Final = 400
"""A tool's result is cut to this length. The start shows what ran, and the end how it went."""
CALL_CHARACTERS: Final = 200
EXAMINED_CHARACTERS: Final = 8_000
"""The number of characters examined at either end of a text before it is shortened."""
LONGEST_TURN: Final = 60_000
"""The maximum length of a turn in characters: a pasted file is not conversation."""
_CLIENT_TEXT: Final = re.compile(
    r"<(system-reminder|environment_context|user_instructions|local-command-\w+|ide_\w+)>.*?(?:</\1>|\Z)", re.DOTALL
)
"""Clients add this to the user's message."""
_COMMAND: Final = re.compile(r"\s*<(?:command-\w+|local-command-caveat|bash-\w+)>")

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode

TranscriptRole = Literal["user", "assistant"]


class TranscriptTurn(NamedTuple):
    """`number` counts from 1; `at` is in seconds since the epoch."""

    number: int
    role: TranscriptRole
    text: str
    at: float | None


def read_turns(data: bytes) -> tuple[list[TranscriptTurn], str]:
    """The turns, and the session's directory (or ""). An incomplete last line and repeated turns are skipped."""
    turns: list[TranscriptTurn] = []
    directory = ""
    known: set[str | bytes] = set()
    for line in data[: data.rfind(b"\n") + 1].split(b"\n"):
        try:
            record = _decode(line)
        except UNDECODABLE:  # a damaged line is skipped, and the others are read
            continue
        about = record.get("payload") if isinstance(record.get("payload"), dict) else record
        directory = directory or _text_of(about, "cwd")
        role, text = _message_in(record)
        key = _text_of(record, "uuid") or line
        if text and key not in known:
            known.add(key)
            turns.append(TranscriptTurn(len(turns) + 1, role, text, _time_of(record)))
    return turns, directory


def chunks_of_turns(turns: Sequence[TranscriptTurn], tokens: int = 400, overlap: int = 80) -> Iterator[Chunk]:
    """Pack turns into chunks whose line numbers are turn numbers and whose heading is the day. A long turn is split."""
    texts = [f"{turn.role.capitalize()}: {turn.text}\n\n" for turn in turns]
    lines = list(accumulate((len(line_starts(text)) - 1 for text in texts), initial=0))
    days = ["" if turn.at is None else f"{moment(turn.at):%Y-%m-%d}" for turn in turns]
    blocks = [Block(*span, path=day) for span, day in zip(pairwise(lines), days, strict=True)]
    for chunk in chunks_of("".join(texts), tokens, overlap, blocks=blocks):
        first, last = (turns[bisect_left(lines, line) - 1] for line in (chunk.start_line, chunk.end_line))
        yield Chunk(first.number, last.number, chunk.heading, chunk.text)


def _text_of(record: Any, name: str) -> str:
    value = record.get(name) if isinstance(record, dict) else None
    return value if isinstance(value, str) else ""


def _time_of(record: dict[str, Any]) -> float | None:
    try:
        at = datetime.fromisoformat(_text_of(record, "timestamp"))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _message_in(record: dict[str, Any]) -> tuple[TranscriptRole, str]:
    """The speaker and the text, which is empty if the line is not part of this conversation."""
    match record:
        case {"type": "response_item", "payload": {"type": "message", "role": "user" | "assistant" as role} as payload}:
            return role, _cleaned([_spoken(texts_in(payload.get("content")))])
        case {"type": "response_item", "payload": dict() as payload}:
            return "assistant", _cleaned([_block(payload)])
        case {"type": "user" | "assistant" as role, "message": {"content": str() | list() as content}}:
            if any(record.get(name) for name in ("isSidechain", "isMeta", "isCompactSummary")):
                return role, ""
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            # Tool results are recorded under the user's role, but are not the user's words.
            is_result = any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)
            return "assistant" if is_result or role == "assistant" else "user", _cleaned([*map(_block, blocks)])
    return "user", ""


def _block(block: Any) -> str:
    match block:
        case {"type": "text"}:
            return _spoken(_text_of(block, "text"))
        case {"type": "tool_use" | "function_call" | "custom_tool_call"}:
            return _call(_text_of(block, "name"), block.get("arguments") or block.get("input"))
        case {"type": "tool_result" | "function_call_output" | "custom_tool_call_output"}:
            return _result(texts_in(block.get("content") or block.get("output")))
    return ""


def texts_in(content: Any) -> str:
    match content:
        case str():
            return content
        case list():
            return "\n".join(filter(None, map(texts_in, content)))
        case {"text": str() as text} | {"content": str() as text} | {"output": str() as text}:
            return text
    return ""


def _spoken(text: str) -> str:
    return "" if _COMMAND.match(text) else _CLIENT_TEXT.sub("", text).strip()


def _call(name: str, given: Any) -> str:
    values = given.values() if isinstance(given, dict) else [given]
    text = " ".join(" ".join(value.split()) for value in values if isinstance(value, str))
    return f"[{name or 'tool'}: {_shortened(text, CALL_CHARACTERS)}]"


def _result(text: str) -> str:
    return f"[result: {_shortened(text.strip(), RESULT_CHARACTERS)}]" if text.strip() else ""


def _shortened(text: str, characters: int) -> str:
    """Credentials are masked first, since half of one would not be recognized."""
    if len(text) > 2 * EXAMINED_CHARACTERS:
        text = f"{text[:EXAMINED_CHARACTERS]} … {text[-EXAMINED_CHARACTERS:]}"
    text = masked(text)
    if len(text) <= characters:
        return text
    end = characters // 4
    return f"{text[: characters - end].rstrip()} … {text[-end:].lstrip()}"


def _cleaned(parts: Sequence[str]) -> str:
    """Mask credentials, and replace lone surrogates."""
    text = "\n".join(part for part in parts if part)
    return masked(text[: LONGEST_TURN + EXAMINED_CHARACTERS].encode("utf-8", "replace").decode())[:LONGEST_TURN].strip()
