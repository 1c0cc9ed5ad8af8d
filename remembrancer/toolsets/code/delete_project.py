"""The tool `delete_project`."""

from __future__ import annotations

from typing import Final

import msgspec

from remembrancer.protocol.code import DeleteCode
from remembrancer.toolsets.tools import Answer, Call, tool

TIMEOUT_S: Final = 10.0


class DeleteProjectArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    project_id: str


@tool("Delete the index of a repository, not its files.", destructive=True, marks_data=False)
async def delete_project(call: Call, arguments: DeleteProjectArguments) -> Answer:
    """Delete a tree's index, even while it is being made, and return the tree."""
    request = DeleteCode(call.caller.project, arguments.project_id)
    done = await call.service.require(request, TIMEOUT_S)
    (tree,) = done
    return {"deleted": True, "project_id": tree.id, "path": tree.root}
