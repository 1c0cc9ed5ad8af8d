"""The toolset `admin`: operations for people using a shell. A session has it only on request."""

from typing import Final

INSTRUCTIONS: Final = "list_memories lists all memories; erase_memory deletes one for good, which cannot be undone."
