"""The toolset `memory`: one module for each tool, and the code that several of them share."""

from typing import Final

INSTRUCTIONS: Final = (
    'The first prompt may bring a Memory Context; else get_memory_context does. If it says "This is all that is '
    'remembered here" or "Nothing is remembered", do not recall: no memory says more. Else ask recall_memories where '
    "earlier work could matter. "
    "store_memory at once what is worth knowing later, one short self-contained statement each, with dates, no "
    "secrets: preferences and corrections of the user (scope user), decisions, conventions, fixes, open ends (kind "
    "open_end; `done` closes it). `answers`: likely (two of three do), perhaps (a quarter), hardly."
)
