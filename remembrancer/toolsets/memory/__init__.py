"""The toolset `memory`: one module a tool, and what several of them share."""

from typing import Final

INSTRUCTIONS: Final = (
    "The first prompt may bring what is known here; else get_memory_context does. Ask recall_memories whenever earlier "
    "work could matter. store_memory at once what is worth knowing later: preferences and corrections of the user "
    "(scope user), decisions, conventions, fixes (project), open ends (kind open_end, each by itself; `done` closes "
    "it). One self-contained statement each, with dates; no secrets. `answers`: likely (two of three do), perhaps (a "
    "quarter), hardly (a line)."
)
