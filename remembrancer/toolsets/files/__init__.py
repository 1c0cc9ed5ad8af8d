"""The `files` toolset: searches, reads and writes the notes in a project's Markdown."""

from typing import Final

INSTRUCTIONS: Final = (
    "The project's notes are Markdown files in its tree. Search them (memory_search) before you answer about earlier "
    "work, decisions, dates, people or preferences, and read the lines that you need (memory_read). Write down what "
    "will be worth knowing later (memory_store: without a path it appends to today's log); no secrets."
)
