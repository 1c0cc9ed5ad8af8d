"""The toolset `graph`: facts with their periods of validity, and entities with their relations."""

from typing import Final

INSTRUCTIONS: Final = (
    "Look for facts (recall) when a task begins, and whenever earlier decisions, preferences or fixes could matter; "
    "get_valid and get_valid_at say what is, or was, true. Store (store_memory) at once what will be worth knowing "
    "later, one self-contained statement a memory; no secrets. End what is no longer true with invalidate instead of "
    "deleting it. create_entity and create_relation connect things, get_related follows the connections."
)
ASKS: Final = {
    "remember": "Remember this with store_memory, as one or more self-contained statements that will make sense "
    "without this conversation, and say with create_entity and create_relation how what they name hangs together. If "
    "something that is remembered is no longer true (recall finds it), end that with invalidate.",
    "recall": "Say what matters of it and how old it is; if it is not enough, ask recall in other words, or "
    "get_related for an entity.",
    "forget": "Name those that are about it, leave out those that only resemble it, and ask me; delete those that I "
    "agree to with delete_memory, or end those that were true with invalidate.",
}
"""The requests that the prompts make, by name."""
