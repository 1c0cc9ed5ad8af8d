"""The toolset `admin`: what a person does with memories in a shell. No session has it unless it is asked for."""

from typing import Final

INSTRUCTIONS: Final = "list_memories shows all there are; erase_memory deletes one for good, which cannot be undone."
