"""Which embedders to start and which to stop, to get to a number of them."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from remembrancer.config.settings import Settings, allowed
from remembrancer.protocol.errors import InvalidInput


class ScalePlan(msgspec.Struct, frozen=True):
    """Numbers of embedders, in the order in which to act."""

    start: tuple[int, ...]
    stop: tuple[int, ...]


def plan_scale(wanted: int, present: Collection[int]) -> ScalePlan:
    """From the embedders that are `present` to the numbers 1 to `wanted`: the highest numbers leave first."""
    return ScalePlan(
        start=tuple(number for number in range(1, wanted + 1) if number not in present),
        stop=tuple(sorted((number for number in present if number > wanted), reverse=True)),
    )


def check_embedders(number: int) -> int:
    """`number`, if the settings allow so many embedders.

    Raises:
        InvalidInput: they do not; the message says what is allowed.
    """
    try:
        msgspec.convert({"embedders": number}, Settings)
    except msgspec.ValidationError as error:
        message = f"{number} embedders are not possible: give {allowed('embedders')}"
        raise InvalidInput(message, field="embedder") from error
    return number


def parse_scale(text: str) -> int:
    """The number in `embedder=N`.

    Raises:
        InvalidInput: the text is none such, or N is not allowed.
    """
    match = re.fullmatch(r"embedders?=(-?[0-9]{1,9})", text.strip(), re.ASCII)
    if match is None:
        raise InvalidInput(f"write embedder=N with a whole number, such as embedder=2, not {text!r}", field="embedder")
    return check_embedders(int(match[1]))
