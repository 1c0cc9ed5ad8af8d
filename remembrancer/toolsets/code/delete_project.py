"""The tool `delete_project`."""

from typing import Final

from remembrancer.protocol.code import DeleteCode
from remembrancer.toolsets.tools import Answer, Call, tool

TIMEOUT_S: Final = 10.0


@tool("Delete the index of a repository, not its files.", destructive=True, marks_data=False)
async def delete_project(call: Call, project_id: str) -> Answer:
    """Delete a tree's index, even while it is being made, and return the tree."""
    request = DeleteCode(call.caller.project, project_id)
    done = await call.service.require(request, TIMEOUT_S)
    (tree,) = done
    return {"deleted": True, "project_id": tree.id, "path": tree.root}
