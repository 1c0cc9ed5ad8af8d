"""The tool `list_projects`."""

from __future__ import annotations

from remembrancer.protocol.code import DescribeCode
from remembrancer.toolsets.code.get_index_status import described
from remembrancer.toolsets.tools import Answer, Call, cut_to_size, tool, with_caveats


@tool("The repositories that are indexed.", read_only=True, marks_data=False)
async def list_projects(call: Call) -> Answer:
    """The trees of the session's project, in the order of their paths."""
    asked = await call.service.ask(DescribeCode(call.caller.project), call.received_at)
    answer: Answer = {"projects": [described(tree) for tree in asked.reply]}
    return cut_to_size(with_caveats(answer, asked.notices, degraded=asked.is_old))
