from collections.abc import Sequence
from typing import Annotated, Final, get_args

import msgspec
from msgspec import Meta

from remembrancer.memory.fields import FIELDS, clean_entities, clean_names
from remembrancer.memory.limits import MAX_ENTITIES, MAX_LINKS, MAX_NAME, check_count
from remembrancer.memory.text import check_text
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.kinds import OPEN_END, GivenKind
from remembrancer.protocol.writes import Clearable, EntityRef, LinkRef, TextEdit, UpdatedResult, UpdateMemory
from remembrancer.toolsets.memory.answers import SUPERSEDED
from remembrancer.toolsets.memory.fields import UNLISTED, GivenFields, clean_reason, clean_tag_changes, cleaned
from remembrancer.toolsets.memory.store_memory import BECOMES_OPEN
from remembrancer.toolsets.tools import LISTED, Answer, Call, non_empty, tool

_FIELD_OF: Final = {"old": "content", **dict.fromkeys(("supersedes", "add_links", "remove_links"), "links")}
_NO_FIELDS: Final = {"memory_id", "new", "reason", "allow_secrets"}


class TagChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    add: list[str] = []
    remove: list[str] = []


class EntityChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    add: list[EntityRef] = []
    remove: list[str] = []


class UpdateMemoryArguments(GivenFields, frozen=True, forbid_unknown_fields=True):
    memory_id: str
    old: str | None = None
    new: str | None = None
    content: str | None = None
    tags: TagChanges | None = None
    related_entities: EntityChanges | None = None
    kind: Annotated[GivenKind, Meta(extra_json_schema={LISTED: []})] | None = None
    due: str | None = None
    done: bool | None = None
    supersedes: tuple[str, ...] = ()
    add_links: tuple[LinkRef, ...] = ()
    remove_links: tuple[LinkRef, ...] = ()
    reason: str | None = None


@tool(
    "Change a passage (old, new) or all.",
    destructive=True,
    aliases={"id": "memory_id"},
    marks_data=False,
    unlisted=("tags", "related_entities", "supersedes", "add_links", "remove_links", "reason", *UNLISTED),
)
async def update_memory(call: Call, arguments: UpdateMemoryArguments) -> Answer:
    """The answer contains the changed line. It names the changed fields, unless only the given field changed."""
    change = to_update(arguments, call.service.settings.content_limit_bytes)
    if change.kind != arguments.kind:
        call.warn("kind_changed", BECOMES_OPEN)
    result = await call.write(change, UpdatedResult, allow_secrets=arguments.allow_secrets is True)
    values = msgspec.structs.asdict(arguments).items()
    given = {_FIELD_OF.get(name, name): value for name, value in values if value not in (None, (), [])}
    fields = result.updated_fields
    is_known = len(fields) == 1 and given.keys() - _NO_FIELDS == {*fields} and given[fields[0]] != ""
    answer: Answer = {"memory_id": change.memory_id} | ({} if is_known else {"updated_fields": list(fields)})
    if any(link.relation == "supersedes" for link in change.add_links):
        answer |= SUPERSEDED
    return answer | {"version": result.version} | non_empty(**{"former" if arguments.content else "line": result.line})


def to_update(arguments: UpdateMemoryArguments, content_limit_bytes: int) -> UpdateMemory:
    memory_id = parse_memory_id(arguments.memory_id)
    content: str | TextEdit | None = arguments.content
    if isinstance(content, str):
        check_text(content, field="content", longest_bytes=content_limit_bytes)
    if arguments.old is not None or arguments.new is not None:
        if arguments.old is None or arguments.new is None or content is not None:
            raise InvalidInput("give either both old and new, or content", field="old")
        check_text(arguments.old, field="old", longest_bytes=content_limit_bytes)
        if arguments.new:
            check_text(f"{arguments.new}x", field="new", longest_bytes=content_limit_bytes)
        content = TextEdit(arguments.old, arguments.new)
    tags, entities = arguments.tags or TagChanges(), arguments.related_entities or EntityChanges()
    add_tags, remove_tags = clean_tag_changes(tags.add, tags.remove, "tags.")
    emptied = {each.name for each in FIELDS if each.is_clearable and getattr(arguments, each.name) == ""}
    cleared = tuple(name for name in get_args(Clearable) if name in emptied)
    fields = cleaned(arguments, "tags", "related_entities", *emptied) | dict.fromkeys(emptied.difference(cleared), "")
    replaced = [LinkRef("supersedes", parse_memory_id(each, field="supersedes")) for each in arguments.supersedes]
    change = UpdateMemory(
        memory_id=memory_id,
        content=content,
        add_tags=add_tags,
        remove_tags=remove_tags,
        add_entities=clean_entities(entities.add, field="related_entities.add"),
        remove_entities=clean_names(
            entities.remove, field="related_entities.remove", most=MAX_ENTITIES, longest=MAX_NAME
        ),
        add_links=_clean_links([*arguments.add_links, *replaced], memory_id, "add_links"),
        remove_links=_clean_links(arguments.remove_links, memory_id, "remove_links"),
        kind=OPEN_END if arguments.kind == "fact" and "due" in fields else arguments.kind,
        cleared=cleared,
        reason=clean_reason(arguments.reason),
        **fields,
    )
    if change == UpdateMemory(memory_id, reason=change.reason):
        known = ", ".join(
            name for name in arguments.__struct_fields__ if name not in ("memory_id", "reason", "allow_secrets")
        )
        raise InvalidInput(f"there is nothing to change; give at least one of {known}")
    return change


def _clean_links(links: Sequence[LinkRef], memory_id: str, field: str) -> tuple[LinkRef, ...]:
    check_count(links, field=field, most=MAX_LINKS)
    cleaned_links: dict[LinkRef, None] = {}
    for place, link in enumerate(links):
        at = f"{field}[{place}]"
        target = parse_memory_id(link.target, field=f"{at}.target")
        if target == memory_id:
            raise InvalidInput("a memory cannot replace itself or be linked to itself", field=f"{at}.target")
        cleaned_links[msgspec.structs.replace(link, target=target)] = None
    return tuple(cleaned_links)
