"""Short forms of memory ids: any unique beginning or ending. Endings are shown: ids of one day begin alike. Pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec

from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import MEMORY_PREFIX, parse_memory_id

LEAST: Final = 4
"""The length of the shortest form."""
ID_FIELDS: Final = frozenset({"memory_id", "id", "node_id", "supersedes", "target", "replaced_by", "links"})
OWN_WORDS: Final = frozenset({"content", "metadata", "structured", "excerpt", "memory_ids"})
"""Parts of an answer in which ids are not shortened: stored text, and data that programs use."""
NAMED_CANDIDATES: Final = 5

_PART: Final = re.compile(rf"(?:{MEMORY_PREFIX})?([0-9A-HJKMNP-TV-Z]{{{LEAST},25}})", re.IGNORECASE)
WHOLE: Final = re.compile(rf"{MEMORY_PREFIX}[0-7][0-9A-HJKMNP-TV-Z]{{25}}")


def part_of_id(text: str) -> str | None:
    """The beginning or ending of an id, in upper case. None for a full id, and for any other text."""
    match = _PART.fullmatch(text.strip())
    return match and match[1].upper()


def id_or_part(text: str, *, field: str = "memory_id") -> str:
    """A full id with its prefix, or part of one in upper case. Raises `InvalidInput`."""
    return part_of_id(text) or parse_memory_id(text, field=field)


def has_part(memory_id: str, part: str) -> bool:
    """True if `part` is the full id, or its beginning or ending."""
    return memory_id == part or memory_id.removeprefix(MEMORY_PREFIX).startswith(part) or memory_id.endswith(part)


def keys_of(parts: Iterable[str]) -> set[str]:
    """The first and last characters of the parts, for looking up ids that may match."""
    return {key for part in parts for key in (part[:LEAST], part[-LEAST:])}


def short_forms(ids: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """The shortest ending of each id that is unique among the known ids; unknown ids are omitted."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    known = set(known)
    for each in known:
        for key in keys_of([each.removeprefix(MEMORY_PREFIX)]):
            alike[key].append(each)
    forms: dict[str, str] = {}
    for each in (each for each in ids if each in known):
        bare, others = each.removeprefix(MEMORY_PREFIX), [other for other in alike[each[-LEAST:]] if other != each]
        endings = (bare[-length:] for length in range(LEAST, len(bare)))
        forms[each] = next((end for end in endings if not any(has_part(other, end) for other in others)), each)
    return forms


def only_one(part: str, candidates: Collection[tuple[str, str]], field: str) -> str:
    """The only id that matches a part. Raises `NotFound` for none, and `InvalidInput` with the words of several."""
    if not candidates:
        raise NotFound(f"there is no memory whose id begins or ends with {part}", field=field)
    if len(candidates) > 1:
        short = short_forms(*2 * [[memory_id for memory_id, _ in candidates]])
        named = "; ".join(f"{short[each]} ({words})" for each, words in list(candidates)[:NAMED_CANDIDATES])
        raise InvalidInput(f"{part} is ambiguous, {len(candidates)} memories match: {named}", field=field)
    return next(iter(candidates))[0]


def replaced_in_arguments(value: Any, resolve: Callable[[str, str], str], field: str = "") -> Any:
    match value:
        case str() if field in ID_FIELDS:
            return resolve(value, field)
        case list() | tuple():
            return [replaced_in_arguments(each, resolve, field) for each in value]
        case msgspec.Struct():
            given = ((name, getattr(value, name)) for name in value.__struct_fields__)
            fields = {name: each for name, each in given if each is not None}
            others = {name: replaced_in_arguments(each, resolve, name) for name, each in fields.items()}
            return msgspec.structs.replace(value, **others) if others != fields else value
    return value


def replaced_in_answer(value: Any, short: Callable[[str], str]) -> Any:
    match value:
        case str() if WHOLE.fullmatch(value):
            return short(value)
        case list():
            return [replaced_in_answer(each, short) for each in value]
        case dict():
            return {
                name: each if name in OWN_WORDS else replaced_in_answer(each, short) for name, each in value.items()
            }
    return value
