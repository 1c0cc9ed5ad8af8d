"""Extracts names from text by their form. Some forms are certain (`pool_size`, `src/app.py`, `INC-311`, `AuthService`,
"Night Owl"). A capitalized word within a sentence is only a possible name, and counts once it occurs in several
memories. Pure."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

from remembrancer.memory.lexicon import word_lists
from remembrancer.memory.names import TICKET, name_key
from remembrancer.memory.stop_words import language_of, stop_words_of

READ: Final = 8000
"""The number of characters read from a text. A longer text is a document, which mentions too many things."""
MOST_NAMES: Final = 24
LONGEST_NAME: Final = 80
SHORTEST: Final = 3
SHORTEST_CAMEL: Final = 5
"""Shorter words in camel case are units: kWh, GHz, MiB."""
CERTAIN, POSSIBLE, FIRST = 1, 0, -1
"""A name recognized by its form; any other capitalized word; one that begins a sentence or is part of a longer name."""


class FoundName(NamedTuple):
    name: str
    type: str
    certainty: int


_EXTENSIONS: Final = (
    "bash|bat|bib|c|cc|cfg|clj|conf|cpp|cs|css|csv|dart|env|ex|exs|fish|glsl|go|gradle|graphql|h|hpp|hs|html|ini|ipynb|java"
    "|jl|js|json|jsonl|jsx|kt|less|lock|log|lua|md|mjs|ml|parquet|php|pl|proto|ps1|py|pyi|r|rb|rs|rst|scala|scss|service|sh"
    "|sql|sqlite|svelte|swift|tex|tf|toml|ts|tsx|txt|vue|wgsl|xml|yaml|yml|zig|zsh"
)
_CODE: Final = re.compile(r"`([^`\s]{2,80})`")
_IN_CODE: Final = re.compile(r"@?[\w.~/](?:[\w./@-]|::)*[^\W_](?:\(\))?")
"""A name, rather than an expression or a flag."""
_PLAIN: Final = re.compile(r"[a-z]+")
"""A command or a column, but also an everyday word."""
_CERTAIN: Final = re.compile(
    rf"""(?<![\w/.@-])(?:
      (?P<ticket>{TICKET})
    | (?P<file>(?:~|\.{{1,2}})?/?(?:[\w.-]+/)*[\w.-]*\w\.(?:{_EXTENSIONS}))(?![\w/(-])
    | (?P<path>(?:~|\.{{1,2}})?/?(?:[a-z][\w.-]*/)+[\w.-]*[\w-])(?![\w/])
    | (?P<language>(?:C\+\+|[CF]\#|\.NET)(?![^\W\d]))
    | (?P<function>[A-Za-z_]\w*\(\))
    | (?P<snake>[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+)(?![\w<{{*])
    | (?P<dotted>[a-z]\w+(?:\.[a-z][\w-]+){{2,}})(?![\w/])
    | (?P<member>[A-Z]\w*[a-z]\w*(?:\.(?!(?:ai|app|com|de|dev|eu|io|net|org)\b)[a-z_]\w{{2,}})+)(?![\w/])
    | (?P<camel>[A-Z]*[a-z]+[a-z0-9]*[A-Z][A-Za-z0-9]*|[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*)(?![\w])
    )""",
    re.VERBOSE,
)
_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]{0,40}://\S+|(?<!\S)\S+@\S+")
_ENDLESS: Final = re.compile(r"(?<![\w/.@-])[\w/.@-]{400,}")
"""A run of data, on which the patterns would take quadratic time."""
_UPPER, _LOWER = ("".join(filter(has_case, map(chr, range(0x180)))) for has_case in (str.isupper, str.islower))
"""The letters of European names, such as “Łukasz Dvořák”."""
_QUOTED: Final = re.compile(rf"[\"“«]\s?((?:[{_UPPER}][\w'’-]+)(?: [{_UPPER}][\w'’-]+){{1,3}})\s?[\"”»]")
_SENTENCE: Final = re.compile(r"(?<=[.!?:|…])\s+|\n+|(?<=[\"“«])|\s[-–—]\s")
_TITLE: Final = rf"\b(Frau|Herrn?|Mrs?|Ms|Miss|Dr|Prof(?:essor)?|St)\.? (?=[{_UPPER}])"
_CAPITALISED: Final = re.compile(
    rf"(?<![\w'’/.@-])(?!{_TITLE})[a-z]?[{_UPPER}][{_LOWER}]{{2,}}(?:[A-Z][A-Za-z]*)?"
    rf"(?:[ -](?!{_TITLE})(?:\d{{1,2}} (?=Air|Max|Plus|Pro|Ultra))?"
    rf"(?:[{_UPPER}][{_LOWER}]+[A-Z]?|[A-Z]{{2}}(?!\w))){{0,2}}(?![\w/@])"
)
_OPENING: Final = re.compile(rf"[\s\W\d]*({_CAPITALISED.pattern})")
_HEADINGS: Final = re.compile(r"\A[^\n:]{1,200} > [^\n:]{1,200}:\s")
"""The headings above an imported section, which are subjects, not names."""
_LEADING: Final = re.compile(r"^[\s\W\d]*[\w'’-]+")
_PERSON: Final = re.compile(
    rf"^[\s\W\d]*(?={_TITLE}|(?!\w+ing |\w+ {_TITLE})"
    rf"[{_UPPER}][\w’'-]+(?: [{_UPPER}][\w’'-]+){{1,2}} (?:is|was|has|had|will|can|owns|runs|leads|knows|likes"
    r"|prefers|wants|works|maintains|reviews|handles|said|says|wrote|joined|left|moved|asked|approves|decides|lives|does)\b)"
)
"""The text before a person's name that begins a sentence: a title, or two or three capitalized words before a verb."""
_DESCRIBED: Final = re.compile(r"\W*((?:[\w./-]+ ){0,3}[\w./-]+?)\s*(?::|\(|,| - | – | — | is | are | was | means )")
NO_NAMES: Final = word_lists("found_names")["no_names"]
"""Capitalized words that are not names in a project, and code literals."""


def is_proper(name: str, kind: str) -> bool:
    """True for names of people, products and places, and for names with an explicit type, but not for identifiers."""
    words = re.split(r"[ -]", re.sub(r"^\.|['’+#]", "", name))
    looks_proper = all(word[:1].isupper() and word.isalpha() for word in words)
    return kind not in ("custom", "file", "function") or looks_proper


def found_names(text: str, *, is_entity: bool = False) -> tuple[FoundName, ...]:
    """The names in a text, certain ones first. With `is_entity`, the text begins with the name of an entity."""
    read = _ENDLESS.sub(" ", _URL.sub(" ", _HEADINGS.sub("", text[:READ])))
    described = _DESCRIBED.match(read) if is_entity else None
    own_name = [] if described is None else [FoundName(described[1], "custom", CERTAIN)]
    names: dict[str, FoundName] = {}
    for each in chain(own_name, _by_form(read), _by_capitals(read)):
        key = name_key(each.name)
        if len(key) >= SHORTEST and len(each.name) <= LONGEST_NAME and not key.isdigit() and key not in NO_NAMES:
            names.setdefault(key, each)
        if len(names) == MOST_NAMES:
            break
    return tuple(names.values())


def _by_form(text: str) -> Iterator[FoundName]:
    for span in _CODE.finditer(text):
        if _IN_CODE.fullmatch(span[1]):
            yield FoundName(span[1], _type_of(span[1]), POSSIBLE if _PLAIN.fullmatch(span[1]) else CERTAIN)
    prose = _CODE.sub(" ", text)
    for match in _CERTAIN.finditer(prose):
        sort, name = match.lastgroup, match[0]
        if sort == "camel" and len(name) < SHORTEST_CAMEL:
            continue
        if sort == "path" and ("_/" in name or not (name.count("/") > 2 or re.search(r"[_.]|\w-\w", name))):
            continue  # and/or, client/server, fct_/dim_
        yield FoundName(name, _type_of(name), CERTAIN)
    for quoted in _QUOTED.finditer(prose):
        yield FoundName(quoted[1], "custom", CERTAIN)


def _type_of(name: str) -> str:
    if name.endswith("()"):
        return "function"
    return "file" if "/" in name or re.fullmatch(rf".*\.(?:{_EXTENSIONS})", name) else "custom"


def _by_capitals(text: str) -> Iterator[FoundName]:
    """Words that begin a sentence come late, unless their form shows that they are a person's name, and parts last."""
    if language_of(text[:300]) == "de":  # German capitalizes all nouns
        return
    prose, ignored = re.sub(_TITLE, r"\1 ", _CODE.sub(" ", text)), stop_words_of(text)  # "Mrs." does not end a sentence
    sentences = [each for each in _SENTENCE.split(prose) if each]
    within = [
        each[person.end() :] if (person := _PERSON.match(each)) else _LEADING.sub("", each, count=1)
        for each in sentences
    ]
    possible = [(match[0], POSSIBLE) for each in within for match in _CAPITALISED.finditer(each)]
    first = [(match[1], FIRST) for each in sentences if (match := _OPENING.match(each))]
    parts = [(part, FIRST) for name, _ in (*possible, *first) for part in name.split() if part != name]
    parts += [(family, FIRST) for family in re.findall(rf"\b[Tt]he ([{_UPPER}][{_LOWER}]{{2,}})s\b", prose)]
    for name, certainty in (*possible, *first, *parts):
        plain = {form for word in name.split() for form in (word.lower(), word.lower().removesuffix("s"))}  # Mondays
        is_name = plain.isdisjoint(ignored | NO_NAMES)
        if is_name and not re.search(rf"\b{re.escape(name.lower())}\b", prose):
            yield FoundName(name, "custom", certainty)
