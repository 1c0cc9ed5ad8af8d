"""The `admin` toolset: operations for people in a shell. A session gets it only on request."""

from typing import Final

INSTRUCTIONS: Final = "list_memories lists all memories; erase_memory deletes one for good, which cannot be undone."
