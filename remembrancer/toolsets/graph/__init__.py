"""The `graph` toolset: facts with their periods of validity, and entities with their relations."""

from typing import Final

INSTRUCTIONS: Final = (
    "Look for facts (recall) when a task begins, and whenever earlier decisions, preferences or fixes could matter; "
    "get_valid and get_valid_at say what is, or was, true. Store (store_memory) at once what will be worth knowing "
    "later, one self-contained statement a memory; no secrets. End what is no longer true with invalidate instead of "
    "deleting it. create_entity and create_relation connect things, get_related follows the connections."
)
