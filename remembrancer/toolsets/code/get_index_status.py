"""The tool `get_index_status`."""

from remembrancer.memory.limits import moment
from remembrancer.protocol.code import DescribeCode, TreeDescription
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool


@tool("How far the index of a repository is.", read_only=True, marks_data=False)
async def get_index_status(call: Call, project_id: str) -> Answer:
    """The state of one tree's index, and what it leaves out."""
    (tree,) = await call.ask(DescribeCode(call.caller.project, project_id))
    return described(tree)


def described(tree: TreeDescription) -> Answer:
    """A tree for an answer."""
    answer: Answer = {
        "project_id": tree.id,
        "path": tree.root,
        "status": tree.status,
        "total_files": tree.total_files,
        "indexed_files": tree.indexed_files,
        "total_chunks": tree.total_chunks,
    }
    return answer | non_empty(
        watch=tree.watch,
        started_at=_iso(tree.started_at),
        completed_at=_iso(tree.completed_at),
        skipped=tree.skipped,
        error=tree.error,
    )


def _iso(at: float | None) -> str | None:
    return None if at is None else f"{moment(at):%Y-%m-%dT%H:%M:%SZ}"
