"""Content that looks like a credential: it is stored only when the caller says that it shall be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import anyio.to_thread
import msgspec

from remembrancer.actors.gateway.toolkit.credential_shapes import find_credential
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import Change, StoreMemory, UpdateMemory

LONG: Final = 20_000
"""Characters from which on a text is looked at in a thread: a quarter of a megabyte takes some tens of ms."""
NOT_LOOKED_AT: Final = frozenset(
    {
        *("memory_id", "session_id", "type", "kind", "scope", "target_scope"),
        *("remove", "remove_tags", "remove_entities", "add_links", "remove_links"),
    }
)
"""What is no text of the caller's, and what is taken away: a secret that was stored once must be removable."""
ARGUMENTS: Final = {"add_tags": "tags.add", "add_entities": "related_entities.add"}
"""Fields of a change that have another name among the arguments."""
MAY_BE_ALLOWED: Final = (StoreMemory, UpdateMemory)
"""Changes whose tool has the argument `allow_secrets`."""

Found = tuple[str, str]
"""A field, and the sort of the credential in it."""


async def refuse_credentials(change: Change, *, allowed: bool = False) -> None:
    """Refuse a change that looks like it holds a credential in any of its texts, unless that is `allowed`.

    Raises:
        InvalidInput: it does; the message says where and of what sort, and what to do.
    """
    if allowed:
        return
    texts = list(texts_of(change))
    size = sum(len(text) for _, text in texts)
    found = first_credential(texts) if size < LONG else await anyio.to_thread.run_sync(first_credential, texts)
    if found is None:
        return
    field, sort = found
    advice = ", or pass allow_secrets: true if it is none or must be kept" if isinstance(change, MAY_BE_ALLOWED) else ""
    raise InvalidInput(
        f"{field} looks like it holds a credential ({sort}), which everybody who recalls it would see: store "
        f"where the secret is kept instead of the secret{advice}",
        field=field,
    )


def first_credential(texts: list[tuple[str, str]]) -> Found | None:
    """The first text, each given with its field, that seems to hold a credential. All are looked at together first."""
    if find_credential("\n".join(text for _, text in texts)) is None:
        return None
    return next(((field, sort) for field, text in texts if (sort := find_credential(text)) is not None), None)


def texts_of(change: Change) -> Iterator[tuple[str, str]]:
    """Every text of a change that is kept, with the field that it belongs to."""
    for name in change.__struct_fields__:
        if name not in NOT_LOOKED_AT:
            yield from _texts(getattr(change, name), ARGUMENTS.get(name, name))


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """The texts in a value. In metadata a name stands before its text, since it may say what the text is."""
    match value:
        case str():
            yield field, value
        case tuple() | list():
            for each in value:
                yield from _texts(each, field)
        case msgspec.Struct():
            for name in value.__struct_fields__:
                yield from _texts(getattr(value, name), f"{field}.{name}")
        case dict():
            for name, each in value.items():
                if isinstance(each, str):
                    yield field, f"{name}: {each}"
                elif each is not None:  # which takes the name away
                    yield field, name
                    yield from _texts(each, field)
