"""The arguments of the tools that change a memory or show one, checked and made into changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.actors.gateway.memory_toolset.json_objects import MAX_EXACT, clean_object
from remembrancer.actors.gateway.memory_toolset.memory_arguments import (
    MAX_ENTITIES,
    MAX_NAME,
    RelatedEntity,
    clean_domain,
    clean_entities,
    clean_summary,
    clean_tags,
    validity,
)
from remembrancer.actors.gateway.toolkit.text import check_text, clean_name, shown
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.kinds import KINDS, RELATIONS, Kind, Relation
from remembrancer.protocol.writes import (
    EntityRef,
    ForgetMemory,
    LinkRef,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    UpdateMemory,
    ValidityEnd,
)

MAX_REASON: Final = 2000
MAX_LINKS: Final = 100


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


class LinkArgument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    relation: Relation
    target: Annotated[str, Meta(description="memory id")]


class UpdateMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `update_memory` takes."""

    memory_id: str
    content: str | UnsetType = UNSET
    importance: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    tags: TagChanges | UnsetType = UNSET
    metadata: Annotated[dict[str, Any], Meta(description="Merged; null removes")] | UnsetType = UNSET
    related_entities: EntityChanges | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    confidence: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    domain: str | UnsetType = UNSET
    structured: dict[str, Any] | UnsetType = UNSET
    valid_from: str | UnsetType = UNSET
    valid_until: str | UnsetType = UNSET
    add_links: list[LinkArgument] | UnsetType = UNSET
    remove_links: list[dict[str, str]] | UnsetType = UNSET  # as `add_links` has them: said once, to save tokens
    allow_secrets: bool | UnsetType = UNSET


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
    ends: dict[ValidityEnd, str | UnsetType] = {
        "valid_from": arguments.valid_from,
        "valid_until": arguments.valid_until,
    }
    valid_from, valid_until = validity(arguments.valid_from or UNSET, arguments.valid_until or UNSET)
    add_links = _clean_links(arguments.add_links, memory_id, "add_links")
    remove_links = _clean_links(arguments.remove_links, memory_id, "remove_links")
    add_entities, remove_entities = _clean_entity_changes(arguments.related_entities)
    importance = None if arguments.importance is UNSET else arguments.importance
    change = UpdateMemory(
        memory_id=memory_id,
        content=content,
        importance=importance,
        add_tags=add_tags,
        remove_tags=remove_tags,
        metadata=clean_object(arguments.metadata, field="metadata"),
        add_entities=add_entities,
        remove_entities=remove_entities,
        kind=_clean_kind(arguments.kind),
        summary="" if arguments.summary == "" else clean_summary(arguments.summary),
        structured=clean_object(arguments.structured, field="structured"),
        confidence=None if arguments.confidence is UNSET else arguments.confidence,
        domain="" if arguments.domain == "" else clean_domain(arguments.domain),
        valid_from=valid_from,
        valid_until=valid_until,
        add_links=add_links,
        remove_links=remove_links,
        cleared=tuple(name for name, end in ends.items() if end == ""),
    )
    if change == UpdateMemory(memory_id):
        raise InvalidInput(
            "there is nothing to change: give at least one of content, importance, tags (add, remove), metadata, "
            "related_entities (add, remove), kind, summary, confidence, domain, structured, valid_from, valid_until, "
            "add_links, remove_links"
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


def _clean_kind(kind: str | UnsetType) -> Kind | None:
    if kind is UNSET:
        return None
    for known in KINDS:
        if kind == known:
            return known
    raise InvalidInput(f"kind must be one of {', '.join(KINDS)}, not {shown(kind)}", field="kind")


def _clean_links(
    links: Sequence[LinkArgument | dict[str, str]] | UnsetType, memory_id: str, field: str
) -> tuple[LinkRef, ...]:
    if links is UNSET:
        return ()
    if len(links) > MAX_LINKS:
        raise InvalidInput(f"{field} may have {MAX_LINKS} items at most, and has {len(links)}", field=field)
    found: dict[LinkRef, None] = {}
    for place, link in enumerate(links):
        at = f"{field}[{place}]"
        given = _link(link, at) if isinstance(link, dict) else link
        target = parse_memory_id(given.target, field=f"{at}.target")
        if target == memory_id:
            raise InvalidInput(f"{at}.target is the memory itself: a link leads to another one", field=f"{at}.target")
        found[LinkRef(given.relation, target)] = None
    return tuple(found)


def _link(given: dict[str, str], at: str) -> LinkArgument:
    """A link whose fields the schema does not name."""
    try:
        return msgspec.convert(given, LinkArgument)
    except msgspec.ValidationError as error:
        message = (
            f"{at} must have a relation (one of {', '.join(RELATIONS)}) and a target (a memory id): {shown(given)}"
        )
        raise InvalidInput(message, field=at) from error


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
