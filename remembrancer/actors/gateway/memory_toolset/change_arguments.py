"""The arguments of the tools that change a memory or show one, checked and made into changes."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.actors.gateway.memory_toolset.memory_arguments import (
    MAX_ENTITIES,
    MAX_NAME,
    AllowSecrets,
    RelatedEntity,
    clean_entities,
    clean_tags,
)
from remembrancer.actors.gateway.toolkit.text import check_text, clean_name, shown
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.writes import (
    EntityRef,
    ForgetMemory,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    UpdateMemory,
)

MAX_REASON: Final = 2000
MAX_METADATA_BYTES: Final = 65_536
MAX_METADATA_DEPTH: Final = 8
MAX_EXACT: Final = 2**53
"""The largest whole number up to which JSON carries every one exactly."""


class TagChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    add: list[str] | UnsetType = UNSET
    remove: list[str] | UnsetType = UNSET


class AddedEntity(RelatedEntity, frozen=True, forbid_unknown_fields=True):
    # A docstring would be sent as a description, and what `store_memory` says of these fields stands for both.
    type: str
    relationship: str


class EntityChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    add: list[AddedEntity] | UnsetType = UNSET
    remove: list[str] | UnsetType = UNSET


class UpdateMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `update_memory` takes."""

    memory_id: str
    content: str | UnsetType = UNSET
    importance: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    tags: TagChanges | UnsetType = UNSET
    metadata: Annotated[dict[str, Any], Meta(description="Merged; null removes")] | UnsetType = UNSET
    related_entities: EntityChanges | UnsetType = UNSET
    allow_secrets: AllowSecrets | UnsetType = UNSET


class ForgetMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `forget_memory` takes."""

    memory_id: str
    reason: str | UnsetType = UNSET


class TagMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `tag_memory` takes."""

    memory_id: str
    add: list[str] | UnsetType = UNSET
    remove: list[str] | UnsetType = UNSET


class PromoteMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `promote_memory` takes."""

    memory_id: str
    target_scope: Literal["project", "user"]
    reason: str | UnsetType = UNSET


class RestoreMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `restore_memory` takes."""

    memory_id: str
    version: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class GetMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `get_memory` takes."""

    memory_id: str
    version: Annotated[int, Meta(ge=1)] | UnsetType = UNSET


def to_update(arguments: UpdateMemoryArguments, content_limit_bytes: int) -> UpdateMemory:
    """The change that a call of `update_memory` asks for.

    Raises:
        InvalidInput: a field is not what is allowed, or nothing is to be changed.
    """
    memory_id = parse_memory_id(arguments.memory_id)
    content = None if arguments.content is UNSET else arguments.content
    if content is not None:
        check_text(content, field="content", longest_bytes=content_limit_bytes)
    tags = TagChanges() if arguments.tags is UNSET else arguments.tags
    add_tags, remove_tags = _clean_tag_changes(tags.add, tags.remove, "tags.")
    metadata = _clean_metadata(arguments.metadata)
    add_entities, remove_entities = _clean_entity_changes(arguments.related_entities)
    importance = None if arguments.importance is UNSET else arguments.importance
    change = UpdateMemory(
        memory_id=memory_id,
        content=content,
        importance=importance,
        add_tags=add_tags,
        remove_tags=remove_tags,
        metadata=metadata,
        add_entities=add_entities,
        remove_entities=remove_entities,
    )
    if change == UpdateMemory(memory_id):
        raise InvalidInput(
            "there is nothing to change: give at least one of content, importance, tags (add, remove), metadata, "
            "related_entities (add, remove)"
        )
    return change


def to_tagging(arguments: TagMemoryArguments) -> TagMemory:
    """The change that a call of `tag_memory` asks for.

    Raises:
        InvalidInput: a field is not what is allowed, or nothing is to be changed.
    """
    memory_id = parse_memory_id(arguments.memory_id)
    add, remove = _clean_tag_changes(arguments.add, arguments.remove, "")
    if not (add or remove):
        raise InvalidInput("there is nothing to change: give tags to add or to remove", field="add")
    return TagMemory(memory_id, add, remove)


def to_forgetting(arguments: ForgetMemoryArguments) -> ForgetMemory:
    """The change that a call of `forget_memory` asks for.

    Raises:
        InvalidInput: a field is not what is allowed.
    """
    return ForgetMemory(parse_memory_id(arguments.memory_id), _clean_reason(arguments.reason))


def to_promotion(arguments: PromoteMemoryArguments) -> PromoteMemory:
    """The change that a call of `promote_memory` asks for.

    Raises:
        InvalidInput: a field is not what is allowed.
    """
    memory_id = parse_memory_id(arguments.memory_id)
    return PromoteMemory(memory_id, arguments.target_scope, _clean_reason(arguments.reason))


def to_restoring(arguments: RestoreMemoryArguments) -> RestoreMemory:
    """The change that a call of `restore_memory` asks for.

    Raises:
        InvalidInput: a field is not what is allowed.
    """
    memory_id = parse_memory_id(arguments.memory_id)
    return RestoreMemory(memory_id, clean_version(arguments.version), _clean_reason(arguments.reason))


def clean_version(version: int | UnsetType) -> int | None:
    """A version as it can be sent.

    Raises:
        InvalidInput: no memory has so many.
    """
    if version is UNSET:
        return None
    if version > MAX_EXACT:
        raise InvalidInput(f"version must be an integer from 1 to {MAX_EXACT}, not {shown(version)}", field="version")
    return version


def _clean_reason(reason: str | UnsetType) -> str | None:
    if reason is UNSET:
        return None
    check_text(reason, field="reason", longest_bytes=4 * MAX_REASON)
    if len(reason) > MAX_REASON:
        message = f"reason may have {MAX_REASON} characters at most, and has {len(reason)}"
        raise InvalidInput(message, field="reason")
    return reason


def _clean_tag_changes(
    add: list[str] | UnsetType, remove: list[str] | UnsetType, prefix: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    added = clean_tags(add, field=f"{prefix}add")
    removed = clean_tags(remove, field=f"{prefix}remove")
    both = [tag for tag in added if tag in removed]
    if both:
        message = f"{prefix}add and {prefix}remove both name {shown(both[0])}: it can be the one or the other"
        raise InvalidInput(message, field=f"{prefix}add")
    return added, removed


def _clean_entity_changes(
    changes: EntityChanges | UnsetType,
) -> tuple[tuple[EntityRef, ...], tuple[str, ...]]:
    if changes is UNSET:
        return (), ()
    field = "related_entities.remove"
    names = () if changes.remove is UNSET else changes.remove
    if len(names) > MAX_ENTITIES:
        raise InvalidInput(f"{field} may have {MAX_ENTITIES} items at most, and has {len(names)}", field=field)
    removed = (clean_name(name, field=f"{field}[{place}]", longest=MAX_NAME) for place, name in enumerate(names))
    return clean_entities(changes.add, field="related_entities.add"), tuple(dict.fromkeys(removed))


def _clean_metadata(metadata: dict[str, Any] | UnsetType) -> dict[str, Any] | None:
    """Metadata as it can be kept, or None when there is none. Names at the top are cleaned as names are."""
    if metadata is UNSET or not metadata:
        return None
    for name, value in metadata.items():
        _check_value(value, f"metadata.{shown(name)[1:-1]}", 1)
    cleaned = {clean_name(name, field="metadata", longest=MAX_NAME): value for name, value in metadata.items()}
    size = len(msgspec.json.encode(cleaned))
    if size > MAX_METADATA_BYTES:
        message = f"metadata may have {MAX_METADATA_BYTES} bytes as JSON at most, and has {size}"
        raise InvalidInput(message, field="metadata")
    return cleaned


def _check_value(value: Any, field: str, depth: int) -> None:
    """Refuse what JSON or MessagePack would not carry unharmed.

    Raises:
        InvalidInput: it is nested too deeply, or holds a number that is not exact or half a character.
    """
    match value:
        case None | bool():
            return
        case str():
            _check_string(value, field)
        case int() if abs(value) > MAX_EXACT:
            message = f"{field} must be a number from -2**53 to 2**53, not {shown(value)}: give it as a string"
            raise InvalidInput(message, field=field)
        case float() if not math.isfinite(value) or abs(value) > MAX_EXACT:
            message = f"{field} must be a finite number from -2**53 to 2**53, not {shown(value)}"
            raise InvalidInput(message, field=field)
        case dict() | list() if depth >= MAX_METADATA_DEPTH:
            raise InvalidInput(f"{field} is nested more than {MAX_METADATA_DEPTH} levels deep", field=field)
        case dict():
            for name, each in value.items():
                _check_string(name, field)
                _check_value(each, f"{field}.{shown(name)[1:-1]}", depth + 1)
        case list():
            for place, each in enumerate(value):
                _check_value(each, f"{field}[{place}]", depth + 1)


def _check_string(text: str, field: str) -> None:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        message = f"{field} holds a lone surrogate (half a character): send whole characters"
        raise InvalidInput(message, field=field)
