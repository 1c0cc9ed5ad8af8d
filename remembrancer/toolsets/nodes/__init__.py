"""The `nodes` toolset: five tools for memories with links to one another."""

from typing import Final

INSTRUCTIONS: Final = (
    "Look for what is known (recall) when a task begins, and whenever earlier decisions, preferences or fixes could "
    "matter; connections shows what is linked to a node. Remember (remember) at once what will be worth knowing later: "
    "one self-contained statement a node, with tags and links to the nodes that it belongs to; no secrets. Correct a "
    "node with update. forget deletes it for good."
)
