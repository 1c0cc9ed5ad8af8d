"""The toolset `nodes`: five tools for memories that are linked to one another."""

from typing import Final

INSTRUCTIONS: Final = (
    "Look for what is known (recall) when a task begins, and whenever earlier decisions, preferences or fixes could "
    "matter; connections shows what is linked to a node. Remember (remember) at once what will be worth knowing later: "
    "one self-contained statement a node, with tags and links to the nodes that it belongs to; no secrets. Correct a "
    "node with update. forget deletes it for good."
)
ASKS: Final = {
    "remember": "Remember this with remember, as one or more nodes, each a self-contained statement that will make "
    "sense without this conversation, with tags and with links to the nodes that it belongs to (recall finds them). If "
    "it corrects a node, change that one with update instead.",
    "recall": "Say what matters of it and how old it is; if it is not enough, ask recall in other words, or "
    "connections for what is linked to a node.",
    "forget": "Name those that are about it, leave out those that only resemble it, and ask me; delete those that I "
    "agree to with forget. That cannot be undone.",
}
"""The requests that the prompts make, by name."""
