"""The toolset `directory`: the six commands of the memory tool of Anthropic's API, over the same memories."""

from typing import Final

INSTRUCTIONS: Final = (
    "Before anything else, view /memories: what is known for this user, in /memories/repo for this project, in "
    "/memories/session for this conversation alone. Write down what will be worth knowing later, keep it up to date, "
    "and delete what is wrong; no secrets."
)
ASKS: Final = {
    "remember": "Write this into a file below /memories with the tool memory: view the directory first, and change the "
    "file that it belongs to rather than make another.",
    "recall": "Look it up below /memories with the tool memory, and say what matters of it.",
    "forget": "Find it below /memories with the tool memory, show me the lines, and delete those that I agree to.",
}
"""The wording of the prompts' requests, by name."""
