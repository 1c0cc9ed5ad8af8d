"""Decides which memories are past, taken back or settled, which belong to a series, and which a list leaves out because
later ones probably replace them. The probabilities come from `likely_replacement`. Pure."""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

from remembrancer.memory.lexicon import word_lists
from remembrancer.memory.likely_kind import READ_CHARACTERS, Token, tokens
from remembrancer.memory.open_ends import says_done, verbs_done, with_plain_days
from remembrancer.memory.sentences import says_more
from remembrancer.memory.times.windows import without_times
from remembrancer.memory.wording import ARTICLES, FILLERS, FUNCTION_WORDS, NUMBERS, PREPOSITIONS, stem
from remembrancer.protocol.kinds import RULES_OF_WORK
from remembrancer.protocol.reads import ListedMemory

PROBABLE: Final = 0.4
"""At this probability or above, the session that stored the later memory is notified, and recalls mark the earlier
memory. Of 330 such pairs by six authors outside the fitting data, 264 were right (`python -m bench.worlds`)."""
REPLACED: Final = 0.6
"""At this probability or above, lists mark the earlier memory, and contexts silently leave it out."""
POSSIBLE: Final = 0.25
"""At this probability or above, Review asks a person to decide. Of 396 such pairs by these authors, 287 were right."""
RIVAL: Final = 1 / 3
"""Review hides a pair while another pair with one of its memories is more than three times as likely."""
MOST_OF_TASK: Final = 0.6
"""A text that settles an open end has at least this share of its words. Of pairs written afterwards, 17 of 20
completions are found, and 5 of 20 other texts about the same are taken for some (`tests/cases/replacement.toml`)."""
LEAST_SERIES: Final = 3
LEAST_COUNTED: Final = 4
"""Three texts with consecutive numbers may describe one thing that changed twice."""

_NUMBER: Final = re.compile(r"\d{1,9}")
_TAKING_BACK: Final = re.compile(r"\W*(?:correction|actually|scratch that|sorry|no,)", re.IGNORECASE)
"""Opening words that retract an earlier statement."""
_LISTS: Final = word_lists("replacement")
_HAPPENED: Final = re.compile(
    r"\b(?:was|were) (?!(?:\w+ly )?(?:\w+ed|made|put|set|chosen|cut|given|taken|written|built|held|kept|sent)\b"
    r"|\w+ (?:(?!due )\w+ )?to\b)"
    r"|(?<!was )(?<!were )\b\w+ed again\b"
    rf"|\b(?:{'|'.join(_LISTS['happened'])}|went(?! (?:back|down|from|over|to|up|with)\b))\b",
    re.IGNORECASE,
)
"""An event that is over: "was down for an hour", "lost 3-1", but not "was brought forward to Thursday"."""
_STATE: Final = re.compile(
    r"\b(?:is|are|has|have|now|since|no longer|any ?more|any longer|got rid of|handed|obsolete|stopped|abandoned|closed"
    r"|decommissioned|deleted|disabled|ditched|dropped|gone|removed|replaced|retired|scrapped|sold|shut down"
    r"|(?:switched|taken|turned) (?:down|off|out))\b",
    re.IGNORECASE,
)
_CANCELLED: Final = re.compile(r"\b(?:is|are|was|were|been|had to) (?:cancel\w*|called off|abgesagt)\b", re.I)
_IGNORED: Final = ARTICLES | FILLERS | FUNCTION_WORDS | PREPOSITIONS
LONGEST_OF_FORM: Final = 300
"""The maximum length in characters of a rule about the form of names or code."""
_PARTS: Final = "argument|function|class|method|attribute|variable"
_NAMES: Final = re.compile(
    rf"\b(?P<of>{_PARTS})(?:e?s)?(?:'s?)? names?\b"
    rf"|\bnam(?:e[sd]?|ing) (?:of |for |your |the |all )*(?:function )?(?P<named>{_PARTS})"
    rf"|\b(?P<declared>{_PARTS})e?s\b[^.;]{{1,40}}\bnames?\b",
    re.IGNORECASE,
)
_SORT: Final = re.compile(
    r"\b(?:abstract|async|component|constant|global|helper|hook|internal|local|private|protected|public|static|test) $",
    re.IGNORECASE,
)
"""Words that limit a rule to some parts of the code, as in "private methods"."""
_HOW: Final = re.compile(r"\b(start|begin|prefix|end|suffix|digit|string|\w*case)", re.IGNORECASE)
_SAME: Final = {"begin": "start", "prefix": "start", "suffix": "end"}
_FORMS: Final = re.compile(
    r"\b(?:(?P<form>decorator|docstring|annotation)s?|(?P<more>comment)s|(?P<statement>assert|try) statements?"
    r"|(?P<what>import)s? (?:the )?['`\"])",
    re.IGNORECASE,
)
_QUOTED_NAME: Final = re.compile(r"(?<!\w)['`\"]([^'`\"]{2,40})['`\"]")
_ANY_PART: Final = re.compile(rf"\b({_PARTS}|import|comment)(?:e?s)?\b", re.IGNORECASE)


@lru_cache(maxsize=1024)
def tells_what_happened(content: str) -> bool:
    """True if a text is only about a past event, and not about a state, which could be replaced."""
    return _HAPPENED.search(content) is not None and not _STATE.search(content)


def takes_back(later: str) -> bool:
    """True if a text begins by retracting an earlier statement."""
    return _TAKING_BACK.match(later) is not None


def settles(later: str, open_end: str) -> bool:
    """True if a text says in most of the words of an open end that it is done or cancelled."""
    if not (_CANCELLED.search(later) or says_done(later, open_end)):
        return False
    asked = _significant(without_times(with_plain_days(open_end[:READ_CHARACTERS])))
    told = _significant(later)
    shared = asked.keys() & (told.keys() | verbs_done(later))
    is_other = any(asked[each] for each in asked.keys() - told) and any(told[each] for each in told.keys() - asked)
    return not is_other and len(shared) >= max(1, MOST_OF_TASK * len(asked))


def _significant(text: str) -> dict[str, bool]:
    """The stems of the words that are not function words, and whether each is a name, a number or code."""
    words = (each for each in tokens(text) if each.sort != "<mark>" and each.word not in _IGNORED)
    return {stem(NUMBERS.get(each.word, each.word.removesuffix("'s"))): _is_value(each) for each in words}


def forms_of(content: str) -> list[tuple[str, str]]:
    """The parts of the code that a rule is about, each with the aspect of its name or form that the rule sets."""
    if len(content) > LONGEST_OF_FORM:
        return []
    names = [(at.start(), _part_of(content, at)) for at in _NAMES.finditer(content)]
    if names:
        return _rules_in(names, [(at.start(), at[1].lower()) for at in _HOW.finditer(content)])
    form = _FORMS.search(content)
    if form is None or form.lastgroup is None:
        return []
    quoted = _QUOTED_NAME.search(content)
    about = f"{form[form.lastgroup].lower()} {quoted[1] if quoted else ''}"
    return [(part, about) for part in dict.fromkeys(each.lower() for each in _ANY_PART.findall(content))]


def _is_value(token: Token) -> bool:
    """True for a name, a number or code."""
    return token.sort not in ("", "<mark>") or token.is_name


@lru_cache(maxsize=1024)
def frame_of(text: str) -> str:
    """The words of a text, with its values masked, which makes all texts of a series equal."""
    words = ("_" if _is_value(each) else each.word for each in tokens(text))
    return " ".join((*words, text[READ_CHARACTERS:]))


def counted_among(texts: Iterable[str]) -> frozenset[str]:
    """The texts of a numbered series: at least four that differ only in a number, with few gaps ("Sprint 3 was late" to
    "Sprint 6 was late", but not a limit of 30, 60, 90 and 120 seconds)."""
    frames: dict[tuple[str, int], dict[tuple[int, ...], str]] = {}
    for text in texts:
        numbers = tuple(map(int, _NUMBER.findall(text)))
        frames.setdefault((frame_of(text), len(numbers)), {})[numbers] = text

    def are_counted(members: Collection[tuple[int, ...]]) -> bool:
        count, columns = len(members), map(set, zip(*members, strict=True))
        return count >= LEAST_COUNTED and any(
            len(each) == count and max(each) - min(each) < 2 * count for each in columns
        )

    return frozenset(text for several in frames.values() if are_counted(several) for text in several.values())


def replaced_among(memories: Iterable[ListedMemory]) -> frozenset[str]:
    """The ids of memories that others in the list probably replace. An open end counts only once it is closed. A fact
    or decision is replaced only by a text that says as much, other rules only by a rule, since they would be missed,
    and a rule about the form of names or code only once later ones together set all its aspects."""
    present = {each.id: each for each in memories}
    in_doubt = [each for each in present.values() if not present.keys().isdisjoint(each.possibly_superseded_by)]
    if not in_doubt:
        return frozenset()
    counted = counted_among(each.content for each in present.values())

    def is_replaced(memory: ListedMemory) -> bool:
        later = [present[key] for key in memory.possibly_superseded_by if key in present]
        if memory.content in counted:
            later = [each for each in later if each.content not in counted]
        forms = forms_of(memory.content)
        if memory.kind in RULES_OF_WORK and memory.kind != "decision":
            later = [each for each in later if each.kind in RULES_OF_WORK]
        elif not forms:
            later = [each for each in later if not says_more(memory.content, each.content)]
        renewed = {form for each in later for form in forms_of(each.content)}
        return bool(later) and not memory.is_open and renewed.issuperset(forms)

    return frozenset(each.id for each in in_doubt if is_replaced(each))


def _part_of(content: str, named: re.Match[str]) -> str:
    begin = named.start(named.lastgroup or 0)
    sort = _SORT.search(content[:begin])
    return content[sort.start() if sort else begin : named.end(named.lastgroup or 0)].lower()


def _rules_in(names: Sequence[tuple[int, str]], ways: Sequence[tuple[int, str]]) -> list[tuple[str, str]]:
    """The parts of the code that a rule names, with the aspects that it sets. "start method names with o_ and end them
    with _b" sets two aspects of one part; "start a names with q_ and b names with r_" sets one aspect of two parts."""
    rules: dict[tuple[str, str], None] = {}
    for number, (place, way) in enumerate(ways):
        following = ways[number + 1][0] if number + 1 < len(ways) else math.inf
        after = [part for at, part in names if place < at < following]
        before = [part for at, part in names if at < place]
        kind = "case" if way.endswith("case") else _SAME.get(way, way)
        rules |= dict.fromkeys((part, kind) for part in after or before[-1:])
    covered = {part for part, _ in rules}
    return [*rules, *((part, "name") for _, part in names if part not in covered)]
