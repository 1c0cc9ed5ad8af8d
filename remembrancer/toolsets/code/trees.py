"""Tools for the trees of code that are indexed."""

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from remembrancer.memory.limits import moment
from remembrancer.memory.text import check_text
from remembrancer.protocol.code import DeleteCode, DescribeCode, IndexCode, TreeDescription
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

TIMEOUT_S: Final = 10.0
MAX_PATH_BYTES: Final = 4096


@tool("The progress of a repository's index.", read_only=True, marks_data=False)
async def get_index_status(call: Call, project_id: str) -> Answer:
    """The state of one tree's index, and what it leaves out."""
    (tree,) = await call.ask(DescribeCode(call.caller.project, project_id))
    return described(tree)


def described(tree: TreeDescription) -> Answer:
    """A tree for an answer."""
    answer: Answer = {"project_id": tree.id, "path": tree.root}
    answer |= {name: getattr(tree, name) for name in ("status", "total_files", "indexed_files", "total_chunks")}
    times = {"started_at": tree.started_at, "completed_at": tree.completed_at}
    shown = {name: f"{moment(at):%Y-%m-%dT%H:%M:%SZ}" for name, at in times.items() if at is not None}
    return answer | non_empty(watch=tree.watch, **shown, skipped=tree.skipped, error=tree.error)


@tool("Index a repository's code for search_code, in the background; a second call reads changes.", marks_data=False)
async def index_project(
    call: Call, path: str, watch: Annotated[bool, Meta(description="Follow changes")] = True
) -> Answer:
    """The tree's id and the progress of its index. A relative path is resolved against the session's working tree."""
    check_text(path, field="path", longest_bytes=MAX_PATH_BYTES)
    path = path if path.startswith("~") else str(Path(call.caller.directory, path))
    (tree,) = await call.service.require(IndexCode(call.caller.project, path, watch), TIMEOUT_S)
    return described(tree)


@tool("The repositories that are indexed.", read_only=True, marks_data=False)
async def list_projects(call: Call) -> Answer:
    """The trees of the session's project, in the order of their paths."""
    trees = await call.ask(DescribeCode(call.caller.project))
    return {"projects": [described(tree) for tree in trees]}


@tool("Delete the index of a repository, not its files.", destructive=True, marks_data=False)
async def delete_project(call: Call, project_id: str) -> Answer:
    """Delete a tree's index, even while it is being made, and return the tree."""
    (tree,) = await call.service.require(DeleteCode(call.caller.project, project_id), TIMEOUT_S)
    return {"deleted": True, "project_id": tree.id, "path": tree.root}
