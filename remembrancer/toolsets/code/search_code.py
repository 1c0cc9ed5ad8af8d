"""The tool `search_code`."""

from collections.abc import Set
from itertools import accumulate
from typing import Annotated, Final

from msgspec import Meta

from remembrancer.code.words import terms_in
from remembrancer.memory.credentials import masked
from remembrancer.memory.limits import MAX_QUERY_BYTES
from remembrancer.memory.text import check_text, neutralised
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.code import CodeChunk, SearchCode
from remembrancer.toolsets.tools import Answer, Call, answer_text, cut_notice, non_empty, tool

LEAST_TOKENS: Final = 64
"""The size of an answer without results and without warnings is below this."""
MOST_TOKENS: Final = 100_000
FIRST_LINES: Final = 4
MOST_LINES: Final = 14
"""Lines shown of a chunk: the first ones, and those around the words of the question."""
LONGEST_LINE: Final = 200


@tool("Find the places in indexed code that answer a question or define a name, the best of each file.", read_only=True)
async def search_code(
    call: Call,
    query: str,
    project_id: Annotated[str, Meta(description="default all")] | None = None,
    limit: Annotated[int, Meta(ge=1, le=50)] = 10,
    max_tokens: Annotated[int, Meta(ge=LEAST_TOKENS, le=MOST_TOKENS)] | None = None,
) -> Answer:
    """The best places within `max_tokens`, with notices of what was not searched."""
    found = await find_code(call, query, limit, project_id)
    answer = call.with_caveats({"results": found})
    if max_tokens is not None:
        kept = within(found, max_tokens - estimate_tokens(answer_text({**answer, "results": []})))
        if kept < len(found):
            answer["results"] = found[:kept]
            call.notices.append(cut_notice(kept, None))
    return answer


async def find_code(call: Call, query: str, limit: int, tree_id: str | None = None) -> list[Answer]:
    """The best places in the code of the caller's project. Raises `InvalidInput` if the query is empty or too long."""
    check_text(query, field="query", longest_bytes=MAX_QUERY_BYTES)
    chunks = await call.ask(SearchCode(call.caller.project, query, tree_id, limit, call.caller.directory))
    several = len({chunk.tree_id for chunk in chunks}) > 1
    terms = set(terms_in(query))
    return [_shown(chunk, terms, with_tree=several) for chunk in chunks]


def within(found: list[Answer], tokens: int, least: int = 1) -> int:
    """The number of items that fit into this many tokens, but at least `least`."""
    sizes = (estimate_tokens(neutralised(answer_text(each))) for each in found)
    return max(least, sum(used <= tokens for used in accumulate(sizes)))


def _shown(chunk: CodeChunk, terms: Set[str], *, with_tree: bool) -> Answer:
    place = ("file_path", "start_line", "end_line", "language", "chunk_type")
    answer: Answer = {name: getattr(chunk, name) for name in place}
    answer |= non_empty(project_id=chunk.tree_id if with_tree else None, name=chunk.name)
    return answer | {"content": masked(excerpt(chunk.text, terms)), "score": round(chunk.score, 3)}


def excerpt(text: str, terms: Set[str]) -> str:
    """The first lines of a chunk, and of a long one the lines around the one with the most terms."""
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …" for line in text.split("\n")]
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    having = [len(terms & set(terms_in(line))) for line in lines[FIRST_LINES:]]
    room = MOST_LINES - FIRST_LINES
    best = max(range(len(having) - room + 1), key=lambda at: (sum(having[at : at + room]), -at)) + FIRST_LINES
    between = ["…"] if best > FIRST_LINES else []
    after = ["…"] if best + room < len(lines) else []
    return "\n".join([*lines[:FIRST_LINES], *between, *lines[best : best + room], *after])
