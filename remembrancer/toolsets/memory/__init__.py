"""The toolset `memory`: one module a tool, and what several of them share."""

from typing import Final

INSTRUCTIONS: Final = (
    "Start a task with what is known for it (get_memory_context); recall (recall_memories) whenever earlier "
    "decisions, preferences or fixes could matter. Store (store_memory) at once what is worth knowing later: "
    "preferences and corrections of the user (scope user), decisions, conventions and fixes of this code (scope "
    "project), open ends (kind open_end, each by itself, `done` when done), guesses and drafts (scope session). "
    "`importance` (0.5 ordinary, 0.9 for what all work depends on) ranks a memory and decides what outlives its "
    "session. One self-contained statement for each memory; no secrets. `answers`: likely (two of three do), perhaps "
    "(a quarter), hardly (a line)."
)
