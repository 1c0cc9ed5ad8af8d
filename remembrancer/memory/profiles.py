"""How much each scope weighs in a recall over several: six profiles. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import ProfileName


@dataclass(frozen=True, slots=True)
class ScopeWeights:
    """The factors of a memory's score by its scope; together they are 1."""

    session: float
    project: float
    user: float

    def of(self, scope: Scope) -> float:
        """The weight of one scope."""
        return {"session": self.session, "project": self.project, "user": self.user}[scope]


PROFILES: Final[Mapping[ProfileName, ScopeWeights]] = {
    "default": ScopeWeights(0.50, 0.35, 0.15),
    "codebase": ScopeWeights(0.20, 0.60, 0.20),
    "preferences": ScopeWeights(0.10, 0.20, 0.70),
    "debugging": ScopeWeights(0.40, 0.40, 0.20),
    "new_project": ScopeWeights(0.30, 0.10, 0.60),
    "architecture": ScopeWeights(0.15, 0.65, 0.20),
}


def _any(words: str) -> re.Pattern[str]:
    """Any of these words and phrases, whatever their case."""
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)


_PREFERENCES: Final = _any(
    r"prefer\w*|favou?rites?|(?:dis)?likes|(?:always|usually|normally|never) (?:use|write)"
    r"|(?:i|we|he|she|they|user) (?:really |usually |always |never |don't |dis)*(?:like|love|hate)"
    r"|(?:my|our|your|her|his|their|user's|users?) (?:\w+ )?(?:habits?|style|taste|way of)"
    r"|(?:code|coding|commit|formatting|naming|programming|review|test|testing|writing) style"
)
_DEBUGGING: Final = _any(
    r"\w*errors?|\w*exceptions?|(?:stack ?|back)traces?|traceback\w*|fail(?:s|ed|ing|ure|ures)?|crash(?:es|ed|ing)?"
    r"|bugs?|buggy|debug\w*|broken|fix(?:es|ed|ing)?|segfaults?|deadlocks?"
    r"|(?:not|doesn't|didn't|isn't|won't|never) work(?:s|ing)?|(?:goes|went|going|is|what's) wrong"
)
_ARCHITECTURE: Final = _any(
    r"architect\w*|design(?:s|ed)?|structur\w*|modul(?:e|es|ar|arity)|components?|layers?|layering|subsystems?"
    r"|microservices?|data ?flows?|dependenc(?:y|ies)|depends on"
)
_CODEBASE: Final = _any(
    r"code ?bases?|code|files?|director(?:y|ies)|functions?|methods?|class(?:es)?|variables?|constants?|endpoints?"
    r"|repo(?:s|sitory|sitories)?"
)
_IDENTIFIER: Final = re.compile(
    r"(?<!\w)(?:_*[A-Za-z][A-Za-z0-9]*_\w+|[a-z]{2}[a-z0-9]*[A-Z]\w*|\w+\(\))"  # snake_case, camelCase, call()
)
_PATH: Final = re.compile(
    r"(?<![\w/.~-])(?:~|\.{1,2})?/?(?:[\w.-]+/)*[\w-]+\.(?:c|cc|cpp|cs|css|go|h|html|java|js|json|jsx|kt|md|php|py|rb|rs|"
    r"sh|sql|swift|toml|ts|tsx|vue|xml|yaml|yml)(?!\w)|(?<![\w/.-])(?:src|lib|tests?|app|docs)/\w"
)
_PRODUCTS: Final = re.compile(
    r"(?<!\w)(?:macOS|(?:node|vue|next|nuxt|react|express|three|nest)\.js)(?!\w)", re.IGNORECASE
)
"""Names that look like code and are none."""
LONGEST_QUERY: Final = 2000
"""Characters of a query that are looked at."""


def choose_profile(query: str, project_memories: int) -> ProfileName:
    """The profile for a question that was given none. `project_memories`: how many its project has.

    The first of these that holds: words of liking (`preferences`); words of failure (`debugging`); a project without
    memories (`new_project`), since both that follow lean on them; words of structure (`architecture`); words, names or
    paths of code (`codebase`); else `default`. The words are English: a question in another language that names
    no code gets `default`, or `new_project`.
    """
    text = query[:LONGEST_QUERY].replace("\u2019", "'")
    if _PREFERENCES.search(text):
        return "preferences"
    if _DEBUGGING.search(text):
        return "debugging"
    if project_memories <= 0:
        return "new_project"
    if _ARCHITECTURE.search(text):
        return "architecture"
    text = _PRODUCTS.sub(" ", text)
    names_code = _CODEBASE.search(text) or _IDENTIFIER.search(text) or _PATH.search(text)
    return "codebase" if names_code else "default"
