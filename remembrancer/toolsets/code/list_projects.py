"""The tool `list_projects`."""

from remembrancer.protocol.code import DescribeCode
from remembrancer.toolsets.code.get_index_status import described
from remembrancer.toolsets.tools import Answer, Call, cut_to_size, tool


@tool("The repositories that are indexed.", read_only=True, marks_data=False)
async def list_projects(call: Call) -> Answer:
    """The trees of the session's project, in the order of their paths."""
    trees = await call.ask(DescribeCode(call.caller.project))
    return cut_to_size(call.with_caveats({"projects": [described(tree) for tree in trees]}))
