"""Which of two memories replaces the other: what each says of one thing that has one value at a time. Pure.

A sentence fills slots: "the API listens on port 8080" says 8080 of {API, listen, port}. Two texts that say another
value of the same topic replace each other; so does one that says what is given up ("moved from Redis to Valkey")
another that holds it, and a denial what it denies. All words but the value belong to the topic: another environment,
part or person is another topic. What has several values beside one another (likes, supports, depends on) fills no slot,
nor does what happened once. The sentences are English; of others little is recognised, and nothing is claimed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from remembrancer.memory.wording import ARTICLES, DENIALS, FILLERS, FUNCTION_WORDS, NUMBERS, stem, words
from remembrancer.protocol.reads import ListedMemory

LONGEST: Final = 400
"""Characters of a text that is read: a longer one says more than one thing."""
LONGEST_ENTRY: Final = 4
"""Words of a value after a colon ("Database: PostgreSQL 15"): after "auth:" or "Note:" more of them say something."""
ANY: Final = "*"
"""In place of a preposition: after "moved to" the old place may have had any."""
IS: Final = "="
_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+(?=[A-Z0-9])|,\s+(?=(?:and |but )?(?:our|the|we|my|it)\b)|\n+")
_TOKEN: Final = re.compile(r"[#@/~]?[^\W_]+(?:[-._'’/:@+][^\W_]+|_+[^\W_]+)*[+#%]*|[=:,]")
_TIMES: Final = re.compile(
    r",?\s*\b(?:from now on|as of \w+|since [^.,;]+|(?:last|this) (?:week|month|year|spring|summer|autumn|winter)"
    r"|any ?more|these days|at the moment|today|yesterday|recently)\b",
    re.IGNORECASE,
)
_BESIDE: Final = re.compile(
    r"\b(?:was|were|did|had|also|too|as well|another|additionally|both|either|sometimes)\b", re.IGNORECASE
)
"""What is said beside something else, or was so once."""
_REASON: Final = re.compile(r"\s*(?:[,;(–—]|\b(?:because|so that|due to|thanks to|which|to avoid|in order to)\b).*")
_LETTERS: Final = re.compile(r"[a-z]+")
_OF_TIMES: Final = words("now as since last this more anymore days moment today yesterday recently")
_OF_GIVING_UP: Final = words("instead rather longer not")
_OF_BEING_BESIDE: Final = words("was were did had also too well another additionally both either sometimes")
_OF_REDOING: Final = words("was were been")
_OF_OWNING: Final = words("owns maintains leads manages heads looks")
_SKIPPED: Final = words("now currently already new")
"""Without one of these words `_TIMES`, `_GIVEN_UP`, `_BESIDE`, `_REDONE` and `_ROLE` find nothing and need not look,
and there is nothing to skip: a recall reads some forty texts, and looking takes the longest."""
_NAMED: Final = r"((?:(?:the|our|my) )?[\w#@/.+-]+(?: [\w#@/.+-]*[A-Z0-9][\w#@/.+-]*)*)"
"""One word, and names and numbers after it."""
_GIVEN_UP: Final = re.compile(
    rf",?\s*\b(?:(?:instead of|rather than|(?<=, )no longer|(?<=, )not) (?:on |in |to |at |with |by )?"
    rf"|no longer (?:on|in|to|at|with|by) ){_NAMED}"
)
_REPLACED: Final = re.compile(
    r"^(?P<new>.+?) (?:has |have )?replace[sd]? (?P<old>.+?)(?P<slot> (?:as|for) .+)?$", re.IGNORECASE
)
_REPLACED_BY: Final = re.compile(
    r"^(?:we (?:have )?replaced )?(?P<old>.+?) (?:(?:was|were|has been|is) replaced )?(?:by|with) (?P<new>.+)$",
    re.IGNORECASE,
)
_CHANGES: Final = words(
    "moved migrated switched changed raised reduced increased decreased lowered renamed upgraded downgraded slipped "
    "bumped extended shortened postponed converted went relocated transferred cut"
)
_CHANGED: Final = re.compile(
    r"^(?P<subject>.*?)\b(?:(?:was|were|is|are|has|have|been|got) )*"
    rf"(?P<verb>{'|'.join(sorted(_CHANGES))})\b(?: over)?"
    r"(?P<object> (?:(?!\b(?:from|to)\b).)*?)?(?: from (?P<old>.+?))? (?:to|into) (?P<new>.+)$",
    re.IGNORECASE,
)
_REDONE: Final = re.compile(r"\b(?:was|were|has been|have been) re-?(\w+(?:en|ed|t))\b", re.IGNORECASE)
_ROLE: Final = re.compile(r"^(?P<who>.+?) (?:owns|maintains|leads|manages|heads|looks after) (?P<what>.+)$")
_USED_AS: Final = re.compile(r"^(?:.*? )?(?:uses?|using) (?P<value>.+?) (?P<case>as|for) (?P<slot>.+)$", re.IGNORECASE)
_ONE_HOUR: Final = re.compile(r"\ban? (?=(?:second|minute|hour|day|week|month|year)\b)", re.IGNORECASE)
_COPULA: Final = re.compile(r"\s(?:is|are)\s|\s*(?::\s|=)\s*", re.IGNORECASE)
_PARTICIPLE: Final = re.compile(r"\w+(?:ed|en)$|(?:kept|sent|run|held|built|set|put|done|led|made|cut)$")
_PREPOSITIONS: Final = words(
    "on in at to with by from into via under after before until every per behind within through"
)
_ENDS_A_VALUE: Final = _PREPOSITIONS | words("for of as and or when if while because , per")
_VERBS: Final = words(
    "has have gets get takes take needs need uses use runs run is are keeps keep wants want shows show supports support"
)
_ROLES: Final = {"owner": "own", "maintainer": "maintain", "leader": "lead", "led": "lead", "manager": "manage"}
_ROLES_KEYS: Final = words("own maintain lead manage head look")
_GENERAL: Final = frozenset(
    stem(word) for word in words("use run be version new we our us put work uses used go goes please always current")
)
"""Stems that say nothing of what is spoken of."""
_UNITS: Final = words(
    "second seconds sec s ms minute minutes min hour hours h day days week weeks month months year years kb mb gb tb "
    "kib mib gib bytes percent % euro euros dollars"
)
_DATES: Final = words(
    "monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays "
    "sundays january february march april may june july august september october november december daily weekly "
    "monthly hourly nightly yearly first second third fourth fifth sixth seventh eighth ninth tenth morning evening"
)
_NUMBERED: Final = words(
    "issue pr ticket bug task step phase stage chapter part section case sprint milestone level note item entry line "
    "message question lesson experiment attempt run round page figure table example"
)
"""A number after one of these names a thing."""
_MANY: Final = words("depend rely consist subscribe react lik love enjoy support speak")
"""Stems of what takes several values beside one another."""
_PLACING: Final = words("host stor keep deploy send put track manag publish buy writ")
"""After these and their object stands where it is."""
_CONTRARIES: Final = tuple(
    frozenset(stem(word) for word in pair.split())
    for pair in (
        "enabled disabled", "on off", "open closed", "public private", "light dark", "manual automatic", "sync async",
        "mandatory optional", "required optional", "internal external", "allowed forbidden", "active inactive",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slot:
    """A value of a topic: keys of words. `case` is the preposition before it, `IS`, or `ANY`."""

    topic: frozenset[str]
    case: str
    value: frozenset[str]
    kind: str
    """`number`, `name`, `noun` (with an article), `choice` (what is preferred) or `word`."""
    sure: bool = False
    """The topic is said to be a property ("the licence of …"): it has one value, of whatever kind."""


@dataclass(frozen=True, slots=True)
class _Said:
    slots: tuple[Slot, ...]
    keys: frozenset[str]
    """Those of all words, without denials."""
    about: frozenset[str]
    """Of them those that say what it is about, where something is given up."""
    given_up: tuple[frozenset[str], ...]
    denied: bool
    same: frozenset[frozenset[str]]
    """What `_replaces` wants to be the same in another one, unless something is given up: the keys, or a topic."""


Listed = TypeVar("Listed", bound=ListedMemory)
NAMED: Final = 3
"""Ids of newer memories that an answer names with an older one, the newest first."""


def in_force_first(memories: Sequence[Listed]) -> list[Listed]:
    """The memories in their order, but each that others replace marked, and right behind these.

    It is replaced by what a link says, and by a later one of the same file that says another value of the same topic.
    What happened once is not replaced by what happened later.
    """
    marked: dict[str, Listed] = {}
    behind: dict[str, tuple[str, ...]] = {}
    newest_first = sorted(memories, key=lambda each: -each.happened_at)
    saying, giving_up = _by_what_is_said(newest_first)
    for memory in memories:
        said = _read(memory.content) if memory.type != "episodic" else ()
        may_replace = giving_up.union(*(saying[each] for one in said for each in one.same)) if said else ()
        newer = [
            other.id
            for other in newest_first
            if other.id in may_replace
            and other.happened_at > memory.happened_at
            and (other.scope == "user") == (memory.scope == "user")
            and other.id not in memory.superseded_by + memory.possibly_superseded_by
            and replaces(other.content, memory.content)
        ]
        behind[memory.id] = (*memory.superseded_by, *memory.possibly_superseded_by, *newer)
        told = (*memory.possibly_superseded_by, *newer)[:NAMED]
        marked[memory.id] = msgspec.structs.replace(memory, possibly_superseded_by=told) if newer else memory
    ordered: dict[str, Listed] = {}
    waiting: set[str] = set()

    def place(memory: Listed) -> None:
        if memory.id in ordered or memory.id in waiting:
            return
        waiting.add(memory.id)
        for newer in behind[memory.id]:
            if newer in marked:
                place(marked[newer])
        ordered[memory.id] = memory

    for memory in marked.values():
        place(memory)
    return list(ordered.values())


def _by_what_is_said(memories: Sequence[ListedMemory]) -> tuple[Mapping[frozenset[str], set[str]], set[str]]:
    """The ids of the memories by what `_replaces` wants to be the same, and of those that say what is given up."""
    saying: defaultdict[frozenset[str], set[str]] = defaultdict(set)
    giving_up: set[str] = set()
    for memory in memories:
        for said in _read(memory.content):
            for each in said.same:
                saying[each].add(memory.id)
            if said.given_up:
                giving_up.add(memory.id)
    return saying, giving_up


def replaces(later: str, earlier: str) -> bool:
    """Whether the later of two texts says another value of what the earlier one says."""
    news, olds = _read(later), _read(earlier)
    return any(_replaces(new, old) for new in news for old in olds)


def _replaces(new: _Said, old: _Said) -> bool:
    if new.denied != old.denied:
        return new.keys == old.keys and bool(old.keys)
    for given_up in new.given_up:
        if given_up <= old.keys and given_up not in old.given_up and (not new.about or new.about & old.keys - given_up):
            return True
    return any(_other_value(one, two) for one in new.slots for two in old.slots if one.topic == two.topic)


def _other_value(new: Slot, old: Slot) -> bool:
    if not new.topic or (new.case != old.case and ANY not in (new.case, old.case)):
        return False
    if new.value <= old.value or old.value <= new.value:
        return False
    if "choice" in (new.kind, old.kind):
        return new.kind == old.kind and bool(new.value & old.value)
    if new.case == IS == old.case and not (new.sure or old.sure):
        if new.kind == old.kind == "word":
            return any(new.value | old.value <= pair for pair in _CONTRARIES)
        return new.kind == old.kind
    return (new.kind == "number") == (old.kind == "number") or new.case == "as"


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[_Said, ...]:
    if len(text) > LONGEST:
        return ()
    return tuple(_said(each) for each in _SENTENCE.split(text.strip()) if each and not each.endswith("?"))


def _said(sentence: str) -> _Said:
    folded = sentence.casefold()
    written = frozenset(_LETTERS.findall(folded))
    text = sentence.strip().rstrip(".!")
    if not _OF_TIMES.isdisjoint(written):
        text = _TIMES.sub("", text)
    text = text.replace("’", "'")
    if not _SKIPPED.isdisjoint(written):
        text = " ".join(word for word in text.split() if word.casefold() not in _SKIPPED)
    text = " ".join(text.split())
    if "a" in written or "an" in written:
        text = _ONE_HOUR.sub("1 ", text)
    given_up: list[frozenset[str]] = []
    if not _OF_GIVING_UP.isdisjoint(written):
        given_up = [_keys(found[1]) for found in _GIVEN_UP.finditer(text)]
        text = _GIVEN_UP.sub("", text)
    text = _REASON.sub("", text)
    said = text.casefold().split()
    denied = not DENIALS.isdisjoint(said) or any(word.endswith("n't") for word in said)
    slots: list[Slot] = []
    about = _keys(text)
    if not _CHANGES.isdisjoint(written) and (found := _CHANGED.match(text)):
        about = _keys(f"{found['subject']} {found['object'] or ''}")
        slots += _changed(found)
        given_up += [_keys(found["old"])] if found["old"] else []
    elif "replace" in text and re.search(r"\breplace[sd]?\b", text):
        by = _REPLACED_BY.match(text) if re.search(r"\breplaced .*\b(?:by|with)\b", text) else None
        if swapped := by or _REPLACED.match(text):
            given_up.append(_keys(swapped["old"]))
            about = _keys(swapped.groupdict().get("slot") or "")
    elif _OF_BEING_BESIDE.isdisjoint(written):
        slots += _stated(text if _OF_REDOING.isdisjoint(written) else _REDONE.sub(r"is \1", text))
    elif not _BESIDE.search(_REDONE.sub("", text)):
        slots += _stated(_REDONE.sub(r"is \1", text))
    keys = _keys(text)
    same = frozenset((keys, *(slot.topic for slot in slots)))
    return _Said(tuple(slots), keys, about, tuple(each for each in given_up if each), denied, same)


def _changed(found: re.Match[str]) -> Iterator[Slot]:
    topic = f"{found['subject']} {found['object'] or ''}"
    yield from _slots(topic, ANY, found["new"], sure=True)
    if found["verb"].casefold() in ("moved", "relocated"):
        yield from _slots(f"{topic} live", ANY, found["new"], sure=True)


def _stated(text: str) -> Iterator[Slot]:
    if not _OF_OWNING.isdisjoint(text.split()) and (found := _ROLE.match(text)):
        if found["who"][:1].isupper() and found["who"].split()[0].casefold() not in ARTICLES | FUNCTION_WORDS:
            verb = text[found.end("who") : found.start("what")].strip()
            yield Slot(_keys(f"{verb} {found['what']}"), IS, _keys(found["who"]), "name", sure=True)
        return
    if found := _USED_AS.match(text):
        yield from _slots(found["slot"], "as", found["value"])
        return
    if found := _COPULA.search(text):
        left, right = text[: found.start()], text[found.end() :]
        if found[0].strip() == ":" and len(right.split()) > LONGEST_ENTRY:  # what follows is a sentence, and no value
            for slot in _stated(right):
                yield replace(slot, topic=slot.topic | _keys(left))
            return
        first, *others = right.split() or [""]
        if first in ("called", "named"):
            yield from _slots(left, IS, " ".join(others), sure=True)
        elif first in _PREPOSITIONS or (_PARTICIPLE.match(first) and not _PREPOSITIONS.isdisjoint(others)):
            yield from _after_preposition(f"{left} {right}", len(left.split()))
        elif _is_definite(right) and not _is_definite(left):
            yield from _slots(right, IS, left, sure=True)
        else:
            sure = bool(re.search(r"\bof\b|'s\b|[:=]|\b(?:my|our)\b", f"{left}{found[0]}", re.IGNORECASE))
            yield from _slots(left, IS, right, sure=sure)
        return
    yield from _after_preposition(text, 0)
    if "prefer" in text and (preferred := re.match(r"^(.*\bprefers?) (.+?)(?: (?:over|to) .+)?$", text)):
        yield Slot(_keys(preferred[1]), IS, _keys(preferred[2]), "choice")
    elif not any(word.endswith("ed") for word in text.split()):
        yield from _numbered(text)


def _is_definite(text: str) -> bool:
    return text.split()[:1] != [] and text.split()[0].casefold() in ("the", "our", "my", "your", "their")


def _after_preposition(text: str, begin: int) -> Iterator[Slot]:
    """What stands after the first preposition that belongs to the verb: neither to its subject nor to its object."""
    tokens = _TOKEN.findall(text)
    for place in range(max(1, begin), len(tokens) - 1):
        case = tokens[place].casefold()
        if case not in _PREPOSITIONS and not (case == "for" and tokens[place + 1][0].isdigit()):
            continue
        end = place + 1
        while end < len(tokens) and (end == place + 1 or tokens[end].casefold() not in _ENDS_A_VALUE):
            end += 1
        value = tokens[place + 1 : end]
        if any(each.casefold() in _VERBS for each in value):
            continue
        before = tokens[:place]
        has_object = not begin and (
            any(each.casefold() in ARTICLES for each in before[1:])
            or (len(before) > 1 and before[-1][0].isupper())
            or (len(before) > 1 and stem(before[0].casefold()) == "use")
        )
        if has_object and case != "from" and _PLACING.isdisjoint(_keys(" ".join(before))):
            return
        if not begin and before[-1].casefold().endswith("ed"):  # it happened
            return
        topic = " ".join((*before, *tokens[end:]))
        if case == "by" and not _ROLES_KEYS.isdisjoint(_keys(topic)):
            yield from _slots(topic, IS, " ".join(value), sure=True)
        elif _MANY.isdisjoint(_keys(topic)):
            yield from _slots(topic, case, " ".join(value))
        return


def _numbered(text: str) -> Iterator[Slot]:
    """What is said of an amount: "the pool has 8 threads", "uses Python 3.11"."""
    tokens = _TOKEN.findall(text)
    place = next((place for place in reversed(range(len(tokens))) if _is_number(tokens[place])), 0)
    if place and tokens[place - 1].casefold() not in _NUMBERED:
        topic, value = _parted(tokens[place:])
        yield Slot(_keys(" ".join(tokens[:place])) | topic, IS, value, "number")


def _slots(topic: str, case: str, value: str, *, sure: bool = False) -> Iterator[Slot]:
    """The slot, and where the value is a name with a number also that of the name."""
    tokens = _TOKEN.findall(value)
    if not tokens or not _keys(value):
        return
    first = next((place for place, each in enumerate(tokens) if _is_number(each)), None)
    if first is None:
        is_name = any(
            each[0] in "#@/" or any(c.isupper() or c in "./_" or c.isdigit() for c in each) for each in tokens
        )
        kind = "name" if is_name else "noun" if tokens[0].casefold() in ARTICLES else "word"
        yield Slot(_keys(topic), case, _keys(value), kind, sure)
        return
    more, amount = _parted(tokens[first:])
    named = _keys(" ".join(tokens[:first]))
    if named or case == "as":
        yield Slot(_keys(topic), case, _keys(value), "name", sure)
    yield Slot(_keys(topic) | named | more, case, amount, "number", sure)


def _parted(tokens: list[str]) -> tuple[frozenset[str], frozenset[str]]:
    """A text that begins with a number: what is counted, and the number with its unit."""
    amount = [tokens[0], *(each for each in tokens[1:] if _is_number(each) or each.casefold() in _UNITS)]
    return _keys(" ".join(each for each in tokens[1:] if each not in amount)), _keys(" ".join(amount))


@lru_cache(maxsize=16384)
def _is_number(token: str) -> bool:
    folded = token.casefold()
    return token[0].isdigit() or folded in NUMBERS or folded in _DATES or folded == "one"


def _keys(text: str) -> frozenset[str]:
    """The stems of the words that say what is spoken of, or what of it."""
    return frozenset(filter(None, map(_key, _TOKEN.findall(text))))


@lru_cache(maxsize=16384)
def _key(token: str) -> str:
    """The stem of a word; empty where it says nothing."""
    word = token.casefold().removesuffix("'s")
    if word in ARTICLES or word in FILLERS or word in DENIALS or word in "=:," or word.endswith("n't"):
        return ""
    if word in FUNCTION_WORDS and word not in ("i", "my", "he", "she"):
        return ""
    key = NUMBERS.get(word, stem(word))
    key = _ROLES.get(key, _ROLES.get(word, key))
    if key in _GENERAL or word in _ENDS_A_VALUE:
        return ""
    return "i" if key == "my" else key
