"""Finds credentials in text by their form. Explicitly storing them is refused, and recorded text is masked. The
patterns in `credential_rules.txt` are our own and those of gitleaks; RE2 matches them in linear time."""

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import msgspec
import re2

from remembrancer.memory.text import finder_of
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import Change, ImportMemory, RecordedFields, StoreMemory, TextEdit, UpdateMemory

NOT_LOOKED_AT: Final = frozenset(
    {
        "related",
        *("memory_id", "session_id", "run_id", "place", "type", "kind", "scope", "target_scope"),
        *("remove", "remove_tags", "remove_entities", "add_links", "remove_links", "root", "mode", "places"),
    }
)
"""Arguments not checked: they hold no text from the caller, or text to remove (stored secrets must be removable)."""
ARGUMENTS: Final = {"add_tags": "tags.add", "add_entities": "related_entities.add"}
"""Maps the fields of changes to the names of their arguments, where these differ."""
MAY_BE_ALLOWED: Final = (StoreMemory, UpdateMemory, ImportMemory)
"""The changes that can store a credential on request."""

_UNSEEN: Final = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"))
_KEY_BLOCK: Final = "private key"
_END_OF_KEY: Final = re.compile(r"-----END [A-Za-z0-9 ]{1,140}-----")


class Credential(NamedTuple):
    sort: str
    start: int
    end: int


_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
Check = Callable[[Any], bool]


@dataclass(eq=False)
class Rule:
    """At least one check must accept a match. If there are no checks, the match must have at least this much entropy
    and must not be an exception."""

    name: str
    regex: str
    entropy: float
    checks: list[Check]
    exceptions: list[str]

    def find(self, text: str) -> Iterator[Credential]:
        """`text` must not contain lone surrogates."""
        for match in _compiled(self.regex).finditer(text):
            group = match.re.groupindex["value"] if self.checks else _secret_group(match)
            if any(check(match) for check in self.checks) if self.checks else self._is_secret(match.group(group)):
                yield Credential(self.name, *match.span(group))

    def _is_secret(self, secret: str) -> bool:
        never = "|".join(f"(?:{each})" for each in (*self.exceptions, *_rules().never))
        is_random = not self.entropy or _entropy(secret) >= self.entropy
        return is_random and not (_rules().placeholder.search(secret) or _compiled(never).search(secret))


@cache
def _compiled(regex: str) -> Any:
    """Compile on first use: most texts contain the keywords of only a few rules."""
    return re2.compile(regex, _OPTIONS)


class RuleFile(NamedTuple):
    always: list[Rule]
    keyed: list[list[Rule]]
    """The rules for each keyword, at the indexes that `keywords_in` returns."""
    keywords_in: Callable[[str], list[int]]
    placeholder: re.Pattern[str]
    never: list[str]
    """Patterns of values that are never secret."""


@cache
def _rules() -> RuleFile:
    keyed: dict[str, list[Rule]] = {}
    shapes: dict[str, str] = {}
    checks: dict[str, Check] = {"login_in_base64": _is_login_in_base64}
    parts: dict[str, str] = {}
    never: list[str] = []
    exceptions: list[str] = []
    for line in files(__package__).joinpath("credential_rules.txt").read_text("utf-8").splitlines():
        for name, regex in parts.items():
            line = line.replace(f"{{{name}}}", regex)
        mark, _, rest = line.partition(" ")
        name, _, value = rest.partition(" | ")
        match mark:
            case "#":
                continue
            case "=":
                parts[name] = value
            case "!":
                never.append(rest)
            case "?":
                shapes[name] = f"{shapes[name]}|{value}" if name in shapes else value
            case "@":
                checks[name] = _check_of(shapes, *value.split(" | "))
            case "~":
                exceptions.append(rest)
            case _:
                name, keywords, check, regex = line.split(" | ", 3)
                least = float(check) if check[0].isdigit() else 0.0
                named = [] if least or check == "-" else [checks[each] for each in check.split("/")]
                exceptions = []
                rule = Rule(name, regex, least, named, exceptions)
                for keyword in keywords.split(","):
                    keyed.setdefault(keyword, []).append(rule)
    always = keyed.pop("-", [])
    find = finder_of(map(re2.escape, keyed))
    return RuleFile(always, list(keyed.values()), find, re.compile(shapes["placeholder"]), never)


def _check_of(shapes: Mapping[str, str], trimmed: str, different: str, entropy: str, wanted: str) -> Check:
    """Build a check from the parts of a line in `credential_rules.txt`. `shapes` maps each shape to its regex."""
    ends = re.compile("(?!)" if trimmed == "-" else trimmed)
    conditions = [
        (group, re.compile(shapes[shape]), each[0] != "!")
        for each in wanted.split(", ")
        for group, _, shape in [each.lstrip("!").rpartition(".")]
    ]

    def may_be_secret(match: Any) -> bool:
        value = ends.sub("", match.group("value"))
        start, end = match.span(match.re.groupindex.get("label", 0))
        around = {"before": match.string[max(0, start - 1) : start], "after": match.string[end : end + 20]}
        texts = {**match.groupdict(), "": value, **around}
        is_varied = len(set(value)) >= int(different) and _entropy(value) >= float(entropy)
        return is_varied and all(bool(shape.search(texts[group])) == is_in for group, shape, is_in in conditions)

    return may_be_secret


def find_credential(text: str) -> str | None:
    return next((each.sort for each in credentials_in(text)), None)


def credentials_in(text: str) -> Iterator[Credential]:
    """Yield likely credentials in a text. A range may have several types. A key block is found by its first line."""
    plain = text.translate(_UNSEEN) if not text.isascii() else text
    if len(plain) != len(text):
        places = [place for place, character in enumerate(text) if ord(character) not in _UNSEEN]
        for each in credentials_in(plain):
            yield Credential(each.sort, places[each.start], places[each.end - 1] + 1)
        return
    text = text if text.isascii() else text.encode("utf-8", "replace").decode()  # RE2 rejects lone surrogates
    rules = _rules()
    keyed = (rule for place in rules.keywords_in(text.lower()) for rule in rules.keyed[place])
    for rule in dict.fromkeys((*keyed, *rules.always)):
        yield from rule.find(text)


def _secret_group(match: Any) -> int:
    named = match.re.groupindex.get("secret")
    if named is not None:
        return int(named) if match.group(named) else 0
    return next((number for number, each in enumerate(match.groups(), 1) if each), 0)


def _entropy(text: str) -> float:
    """Shannon entropy in bits per character."""
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values()) if total else 0.0


def _is_login_in_base64(match: Any) -> bool:
    value = match.group("value").rstrip("=")
    try:
        text = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    return ":" in text and text.isprintable()


def masked(text: str) -> str:
    """Replace each credential with its type. Line breaks are kept. An unterminated key block ends with the text."""
    spans = []
    for credential in credentials_in(text):
        end = credential.end
        if credential.sort == _KEY_BLOCK:
            last = _END_OF_KEY.search(text, end)
            end = last.end() if last else len(text)
        spans.append((credential.start, end, credential.sort))
    pieces, done = [], 0
    for start, end, sort in sorted(spans):
        if start >= done:
            pieces += [text[done:start], f"[{sort} hidden]", "\n" * text.count("\n", start, end)]
        done = max(done, end)
    return "".join([*pieces, text[done:]])


def masked_value(value: Any) -> Any:
    """Mask all strings in a value. A member's name may label its text, as in `password`."""
    match value:
        case str():
            return masked(value)
        case list():
            return [masked_value(each) for each in value]
        case dict():
            return {name: _masked_member(name, each) for name, each in value.items()}
        case _:
            return value


def _masked_member(name: str, value: Any) -> Any:
    head = f"{name}: "
    pair = masked(head + value) if isinstance(value, str) else ""
    return pair.removeprefix(head) if pair.startswith(head) else masked_value(value)


LABELLED: Final = (("content", "summary"), ("summary", "content"))
VALUE_WORDS: Final = 3
"""A text with more words than "it is frosch2217" is not checked as a value with the other text as its label."""


def refuse_credentials(change: Change) -> None:
    """Raises `InvalidInput` for a likely credential. Content and summary may be the label and the value of one."""
    texts = list(_texts_of(change))
    given = {field: text.rstrip(".: ") for field, text in texts}
    for field, label in LABELLED:
        words = given.get(field, "").split()
        if label in given and 0 < len(words) <= VALUE_WORDS:
            texts.append((field, f"{given[label]}: {words[-1]}"))
    if find_credential("\n".join(text for _, text in texts)) is None:
        return
    for field, text in texts:
        if (sort := find_credential(text)) is not None:
            raise InvalidInput(
                f"{field} seems to contain a credential ({sort}), which anyone who recalls it would see: store where "
                f"the secret is kept, not the secret itself",
                field=field,
                remedy="allow_secrets: true" if isinstance(change, MAY_BE_ALLOWED) else None,
            )


def _texts_of(change: Change) -> Iterator[tuple[str, str]]:
    records: list[Any] = [change]
    if isinstance(change, ImportMemory):
        records = [change.memory, *(entry.record for entry in change.memory.history)]
    names = (RecordedFields if isinstance(change, ImportMemory) else change).__struct_fields__
    for record in records:
        for name in names:
            if name not in NOT_LOOKED_AT and (value := getattr(record, name)):
                yield from _texts(value, ARGUMENTS.get(name, name))


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Yield the strings in a value. In metadata, a key may label its value (`password`)."""
    match value:
        case str():
            yield field, value
        case tuple() | list():
            for each in value:
                yield from _texts(each, field)
        case TextEdit():
            yield from _texts(value.new, field)
        case msgspec.Struct():
            for name in value.__struct_fields__:
                if each := getattr(value, name):
                    yield from _texts(each, f"{field}.{name}")
        case dict():
            for name, each in value.items():
                if isinstance(each, str):
                    yield field, f"{name}: {each}"
                elif each is not None:  # None removes the key
                    yield field, name
                    yield from _texts(each, field)
