"""The `directory` toolset: the six commands of the memory tool in Anthropic's API, on the same memories."""

from typing import Final

INSTRUCTIONS: Final = (
    "Before anything else, view /memories: what is known for this user, in /memories/repo for this project, in "
    "/memories/session for this conversation alone. Write down what will be worth knowing later, keep it up to date, "
    "and delete what is wrong; no secrets."
)
