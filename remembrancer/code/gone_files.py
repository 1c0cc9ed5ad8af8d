"""The files that a memory names and that are no longer there."""

import os
from collections.abc import Sequence

from remembrancer.memory.found_names import found_names


def gone_file(content: str, source: str | None, roots: Sequence[str]) -> str:
    """The first file named by a memory that is missing in its tree, as the memory names it; empty if there is none.

    A file in the text is missing only if its directory is there: otherwise the path may begin anywhere. Blocks.
    """
    named = [each.name for each in found_names(content, is_entity=False) if each.type == "file" and "/" in each.name]
    for file in (*([source] if source else ()), *named):
        path = file.partition(":")[0].removeprefix("./")
        for root in roots:
            place = os.path.normpath(os.path.join(root, path))  # noqa: PTH118 - pathlib takes 20 times as long
            is_within = place.startswith(f"{root}{os.sep}")
            if is_within and os.path.isdir(os.path.dirname(place)) and not os.path.lexists(place):  # noqa: PTH112, PTH120
                return str(file)
    return ""
