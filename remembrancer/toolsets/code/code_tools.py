"""The tools for code: searching, and managing the indexed trees."""

from collections.abc import Set
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from remembrancer.code.words import terms_in
from remembrancer.memory.credentials import masked
from remembrancer.memory.limits import MAX_QUERY_BYTES, moment
from remembrancer.memory.text import check_text, neutralised
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.code import CodeChunk, DeleteCode, DescribeCode, IndexCode, SearchCode, TreeDescription
from remembrancer.toolsets.tools import Answer, Call, answer_text, cut_notice, non_empty, tool

LEAST_TOKENS: Final = 64
"""An answer without results and warnings has fewer tokens than this."""
MOST_TOKENS: Final = 100_000
FIRST_LINES: Final = 4
MOST_LINES: Final = 14
"""The number of lines of a chunk shown: its beginning, and the lines around the words of the question."""
LONGEST_LINE: Final = 200
TIMEOUT_S: Final = 10.0
MAX_PATH_BYTES: Final = 4096


@tool("Find the places in indexed code that answer a question or define a name, the best of each file.", read_only=True)
async def search_code(
    call: Call,
    query: str,
    project_id: Annotated[str, Meta(description="Default: all")] | None = None,
    limit: Annotated[int, Meta(ge=1, le=50)] = 10,
    max_tokens: Annotated[int, Meta(ge=LEAST_TOKENS, le=MOST_TOKENS)] | None = None,
) -> Answer:
    found = await find_code(call, query, limit, project_id)
    answer = call.with_caveats({"results": found})
    if max_tokens is not None:
        kept = within(found, max_tokens - estimate_tokens(answer_text({**answer, "results": []})))
        if kept < len(found):
            answer["results"] = found[:kept]
            call.notices.append(cut_notice(kept, None))
    return answer


async def find_code(call: Call, query: str, limit: int, tree_id: str | None = None) -> list[Answer]:
    check_text(query, field="query", longest_bytes=MAX_QUERY_BYTES)
    chunks = await call.ask(SearchCode(call.caller.project, query, tree_id, limit, call.caller.directory))
    several = len({chunk.tree_id for chunk in chunks}) > 1
    terms = set(terms_in(query))
    return [_shown(chunk, terms, with_tree=several) for chunk in chunks]


def within(found: list[Answer], tokens: int, least: int = 1) -> int:
    """The number of items that fit, but at least `least`."""
    sizes = (estimate_tokens(neutralised(answer_text(each))) for each in found)
    return max(least, sum(used <= tokens for used in accumulate(sizes)))


def _shown(chunk: CodeChunk, terms: Set[str], *, with_tree: bool) -> Answer:
    place = ("file_path", "start_line", "end_line", "language", "chunk_type")
    answer: Answer = {name: getattr(chunk, name) for name in place}
    answer |= non_empty(project_id=chunk.tree_id if with_tree else None, name=chunk.name)
    return answer | {"content": masked(excerpt(chunk.text, terms)), "score": round(chunk.score, 3)}


def excerpt(text: str, terms: Set[str]) -> str:
    """The first lines of a chunk, and the lines around the line with the most terms."""
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …" for line in text.split("\n")]
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    having = [len(terms & set(terms_in(line))) for line in lines[FIRST_LINES:]]
    room = MOST_LINES - FIRST_LINES
    best = max(range(len(having) - room + 1), key=lambda at: (sum(having[at : at + room]), -at)) + FIRST_LINES
    between = ["…"] if best > FIRST_LINES else []
    after = ["…"] if best + room < len(lines) else []
    return "\n".join([*lines[:FIRST_LINES], *between, *lines[best : best + room], *after])


@tool("The progress of a repository's index.", read_only=True, marks_data=False)
async def get_index_status(call: Call, project_id: str) -> Answer:
    (tree,) = await call.ask(DescribeCode(call.caller.project, project_id))
    return described(tree)


def described(tree: TreeDescription) -> Answer:
    answer: Answer = {"project_id": tree.id, "path": tree.root}
    answer |= {name: getattr(tree, name) for name in ("status", "total_files", "indexed_files", "total_chunks")}
    times = {"started_at": tree.started_at, "completed_at": tree.completed_at}
    shown = {name: f"{moment(at):%Y-%m-%dT%H:%M:%SZ}" for name, at in times.items() if at is not None}
    return answer | non_empty(watch=tree.watch, **shown, skipped=tree.skipped, error=tree.error)


@tool("Index a repository's code for search_code, in the background; a second call reads changes.", marks_data=False)
async def index_project(
    call: Call, path: str, watch: Annotated[bool, Meta(description="Follow changes")] = True
) -> Answer:
    """A relative path is resolved against the session's working tree."""
    check_text(path, field="path", longest_bytes=MAX_PATH_BYTES)
    path = path if path.startswith("~") else str(Path(call.caller.directory, path))
    (tree,) = await call.service.require(IndexCode(call.caller.project, path, watch), TIMEOUT_S)
    return described(tree)


@tool("The repositories that are indexed.", read_only=True, marks_data=False)
async def list_projects(call: Call) -> Answer:
    trees = await call.ask(DescribeCode(call.caller.project))
    return {"projects": [described(tree) for tree in trees]}


@tool("Delete the index of a repository, not its files.", destructive=True, marks_data=False)
async def delete_project(call: Call, project_id: str) -> Answer:
    (tree,) = await call.service.require(DeleteCode(call.caller.project, project_id), TIMEOUT_S)
    return {"deleted": True, "project_id": tree.id, "path": tree.root}
