"""The model of a client that lets its servers use it, as a tool sees it."""

from __future__ import annotations

from typing import Protocol


class SamplingFailed(Exception):
    """The client, its user or its model did not give an answer; the text says why."""


class ClientModel(Protocol):
    """The client's own model. Whoever asks it pays with the user's tokens, and perhaps with a question to the user."""

    async def write(self, instruction: str, prompt: str, max_tokens: int) -> str:
        """What the model answers.

        Raises:
            SamplingFailed: it gave no answer: it was refused, failed, or was cut off.
        """
