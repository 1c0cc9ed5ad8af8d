"""Recurring themes: what comes up again and again in different sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.consolidator.reflection.clusters import ClusterRules, topics
from remembrancer.actors.consolidator.reflection.facts import MemoryFacts, Vectors, chronological, require_rows
from remembrancer.actors.consolidator.reflection.instructions import says_how
from remembrancer.actors.consolidator.reflection.summaries import Source, central_sentence
from remembrancer.actors.consolidator.reflection.words import content_words
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.wording.stems import stem

LABEL_PARTS: Final = 3
PROCEDURE_KINDS: Final = frozenset({"procedure", "error_fix"})
MAJORITY: Final = 0.5
"""More than this share of the members decides what a theme is."""


@dataclass(frozen=True, slots=True)
class ThemeRules:
    """When something is a theme: so many sessions, and memories so much alike (see `ClusterRules.threshold`)."""

    min_sessions: int = 3
    threshold: float = 0.4
    entity_bonus: float = 0.1
    max_size: int = 60


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme. `pattern` is its representative sentence, `frequency` the number of sessions that it came up in.

    `members` are ids in the order of their times. `as_procedure`: it is about how something is done, as most of
    its members or the sentence that represents them say.
    """

    label: str
    pattern: str
    frequency: int
    members: tuple[str, ...]
    sessions: tuple[str, ...]
    suggested_scope: Scope
    as_procedure: bool


DEFAULT_RULES: Final = ThemeRules()


def find_themes(memories: Sequence[MemoryFacts], vectors: Vectors, rules: ThemeRules = DEFAULT_RULES) -> list[Theme]:
    """The themes, the most frequent first. No memory is in two.

    The memories are those that the reader of the themes may see: their scopes and types make no difference here.

    Raises:
        ValueError: there is not one row of vectors for each memory.
    """
    require_rows(memories, vectors)
    size = max(rules.max_size, 2)
    clustering = ClusterRules(rules.threshold, rules.entity_bonus, min_size=2, max_size=size)
    themes: list[Theme] = []
    for cluster in topics(chronological(memories), memories, vectors, clustering):
        members = [memories[place] for place in cluster.members]
        if len({each.session_id for each in members}) >= rules.min_sessions:
            themes.append(_theme(members))
    return sorted(themes, key=lambda each: (-each.frequency, -len(each.members), each.members[0]))


def is_about_procedure(memories: Sequence[MemoryFacts]) -> bool:
    """Whether most of the memories say how something is done: by their kinds, or as orders and steps."""
    return _mostly(each.kind in PROCEDURE_KINDS or says_how(each.content) for each in memories)


def suggested_scope(memories: Sequence[MemoryFacts], spoken_for: MemoryFacts) -> Scope:
    """Where a theme of these memories belongs; `spoken_for` is the one whose sentence represents it.

    The user, when most are preferences or hold in any project, and the one that represents them as well.
    """
    if _is_personal(spoken_for) and _mostly(_is_personal(each) for each in memories):
        return "user"
    return "project"


def label_of(memories: Sequence[MemoryFacts]) -> str:
    """What the memories have in common: the entities, then the tags, then the words that at least half of them name."""
    names: dict[str, str] = {}
    for what in (_entities_of, _tags_of, _words_of):
        for name in _common([what(each) for each in memories]):
            names.setdefault(stem(name.casefold()), name)
    return ", ".join(list(names.values())[:LABEL_PARTS])


def _theme(members: Sequence[MemoryFacts]) -> Theme:
    sentence = central_sentence([Source(each.content, each.importance) for each in members])
    sessions = tuple(dict.fromkeys(each.session_id for each in members))
    return Theme(
        label=label_of(members) or sentence.text,
        pattern=sentence.text,
        frequency=len(sessions),
        members=tuple(each.id for each in members),
        sessions=sessions,
        suggested_scope=suggested_scope(members, members[sentence.source]),
        as_procedure=says_how(sentence.text) or is_about_procedure(members),
    )


def _common(names: Sequence[dict[str, str]]) -> list[str]:
    """What at least half of the memories, and two of them, name: the most named first, then in alphabetical order."""
    counts = Counter(key for each in names for key in each)
    spelling: dict[str, str] = {}
    for each in names:
        for key, name in each.items():
            spelling.setdefault(key, name)
    least = max(2, len(names) * MAJORITY)
    found = [key for key, count in counts.items() if count >= least]
    return [spelling[key] for key in sorted(found, key=lambda key: (-counts[key], key))]


def _entities_of(memory: MemoryFacts) -> dict[str, str]:
    return {name.casefold(): name for name in memory.entities}


def _tags_of(memory: MemoryFacts) -> dict[str, str]:
    return {tag.casefold(): tag for tag in memory.tags}


def _words_of(memory: MemoryFacts) -> dict[str, str]:
    return {stem(word): word for word in reversed(content_words(memory.content)) if not word[0].isdigit()}


def _is_personal(memory: MemoryFacts) -> bool:
    return memory.kind == "preference" or not memory.project_specific


def _mostly(answers: Iterable[bool]) -> bool:
    given = list(answers)
    return sum(given) > len(given) * MAJORITY
