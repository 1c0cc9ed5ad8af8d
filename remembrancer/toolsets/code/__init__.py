"""The `code` toolset: indexes repositories, and finds the code that answers a question."""

from typing import Final

INSTRUCTIONS: Final = (
    "Have a repository indexed once (index_project; it follows changes by itself), then ask search_code where "
    "something is before you read through files: it gives the places with their lines."
)
