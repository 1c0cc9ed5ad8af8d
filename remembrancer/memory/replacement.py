"""Estimates the probability that a later text replaces an earlier one. Such memories are reported, marked in recalls,
left out of contexts, and shown in Review. Half of the estimate is a table of features (`python -m bench.replaced`), the
other half is `likely_replacement`. Pure."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from remembrancer.memory.found_names import NO_NAMES
from remembrancer.memory.lexicon import word_lists
from remembrancer.memory.likely_replacement import LEAST_COSINE, Texts, Weights, logit
from remembrancer.memory.open_ends import DATE, day_named, says_done, verbs_done, with_plain_days
from remembrancer.memory.sentences import says_more, without_preface
from remembrancer.memory.times.windows import without_times
from remembrancer.memory.wording import ARTICLES, DENIALS, FILLERS, FUNCTION_WORDS, NUMBERS, PREPOSITIONS, stem
from remembrancer.protocol.kinds import RULES_OF_WORK
from remembrancer.protocol.reads import ListedMemory

PROBABLE: Final = 0.4
"""At this probability or above, the session that stored the later memory is notified. Of 152 such pairs by two authors
outside the fitting data, 115 were right (`python -m bench.worlds`)."""
REPLACED: Final = 0.6
"""At this probability or above, lists mark the earlier memory, and contexts silently leave it out."""
POSSIBLE: Final = 0.2
"""At this probability or above, recalls mark the earlier memory, and Review asks a person to decide. Of 208 such
pairs by these authors, 125 were right."""
RIVAL: Final = 1 / 3
"""Review hides a pair while another pair with one of its memories is more than three times as likely."""
MOST_OF_TASK: Final = 0.6
"""A text that settles an open end has at least this share of its words. Of pairs written afterwards, 17 of 20
completions are found, and 5 of 20 other texts about the same are taken for some (`tests/cases/replacement.toml`)."""
COMPARED_CHARACTERS: Final = 2000
SAME_DAY_S: Final = 12 * 3600.0
REPORT: Final = 60
"""A text with more words than this, not counting articles and the like, is a report about several things."""
LONGEST_RULE: Final = 20
"""A text with more words than this is not just a rule about a prefix or suffix of names."""
MOST_WORDS: Final = 30
MOST_NEARER: Final = 6
MOST_LEAD: Final = 0.3
"""The lead features are clipped to this value, positive or negative."""
NUMBERED: Final = 2
"""A number or name after at most this many words probably identifies one of several things."""
LEAST_FRAME: Final = 0.5
"""The minimum similarity of two sequences of words that share a frame."""
LEAST_COUNTED: Final = 4
"""Three similar texts may describe one thing that changed twice."""

_WORD: Final = re.compile(r"[@#]?\w+(?:[.'’/+#:-]+\w+)*[+#]*")
_QUOTED: Final = re.compile(r"['\"`«“]([^'\"`»”]{1,30})['\"`»”]")
_NUMBER: Final = re.compile(r"\d{1,9}")
_LETTERS: Final = re.compile(r"[^\W_]+")
_SENTENCE_END: Final = re.compile(r"[.!?:]\s*$")
_CHANGE: Final = re.compile(
    r"\b(?:now|no longer|instead of|rather than|in place of|any ?more|from now on|going forward|as of|as from|since"
    r"|until now|used to|new|moved?|moves|changed|switched|migrated|replaced?s?|raised|reduced|renamed|upgraded"
    r"|took over|taken over|postponed|slipped|extended|correction)\b",
    re.IGNORECASE,
)
_FIRST_PERSON: Final = re.compile(r"\b(?:I|[Ww]e|[Mm][ey]|[Uu]s|[Oo]ur)\b")
_FORMER: Final = re.compile(
    r"\bfrom\s+((?:\S+\s+){1,4}?)to\s"
    r"|(?:\b(?:out of|instead of|rather than|in place of|no longer|not|replac(?:e[sd]?|ing))|n['’]t)\s+"
    r"((?:[^\s,;!?()]+\s*){1,5})",
    re.IGNORECASE,
)
"""The previous state: "moved from Redis to Valkey", "on Friday, not on Monday"."""
_OVER: Final = (
    "abandoned|closed|decommissioned|deleted|disabled|ditched|dropped|emptied|gone|obsolete|removed|replaced|retired"
    "|scrapped|shut down|stopped|(?:switched|taken|turned) (?:down|off|out)"
)
_ENDED: Final = re.compile(
    rf"\b(?:{_OVER}|dropping|got rid of|scrap|took)\s+((?:[^\s,;!?()]{{1,40}}\s*){{1,4}})"
    rf"|\b((?:[^\s,;:!?().]{{1,40}}\s+){{1,4}})(?:(?:is|was|are|were|been)\s+(?:\w+\s+)?(?:{_OVER})\b|no longer\b"
    r"|\w+n['’]t\s[^.;]{0,80}\bany ?(?:more|longer)\b|(?:gave|handed|passed)\s+(?:\S+\s+){0,3}to\b)",
    re.IGNORECASE,
)
"""An end or a new owner: "the Redis account is closed", "Ana handed it to Ben"."""
_NEW_STATE: Final = re.compile(
    r"\b(?:(?:moved|switched|changed|migrated|converted|ported|raised|reduced|limited|renamed|up(?:graded|dated)|set"
    r"|downgraded|postponed|extended)\b[^.;:]*?\bto|(?:replaced|equipped)\b[^.;:]*?\bwith|rewritten in)\s+([^.;:]*\w)",
    re.IGNORECASE,
)
"""The new state: "moved labdb01 to PostgreSQL 16"."""
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
_FOR_A_TIME: Final = re.compile(r"\bagain\b|\bfor .{1,20}\b(?:minute|hour|day|week)s?\b", re.IGNORECASE)
_CANCELLED: Final = re.compile(r"\b(?:is|are|was|were|been|had to) (?:cancel\w*|called off|abgesagt)\b", re.I)
_FIGURE: Final = re.compile(
    r"\b(?:cost|counted|delivered|earned|got|had|lasted|made|packed|received|returned|shipped|sold|spent|took|was|were)"
    r" (?:(?:about|almost|around|nearly|only|over) )?\d",
    re.IGNORECASE,
)
_AMOUNT: Final = re.compile(rf"(?<![\w.,:-])\d[\d.,]*[ %](?!(?:{'|'.join((*FUNCTION_WORDS, *PREPOSITIONS))})\b)[a-z]")
_ON_DAY: Final = re.compile(r"\W*(?:on )?(?:\w+day,? )?(?:the )?", re.IGNORECASE)
_COUNTED_ON: Final = re.compile(
    _FIGURE.pattern + r"(?:[^.,;]|[.,]\d){0,100} on (?:\w+day,? )?(?:the )?$", re.IGNORECASE
)
_HOLDS: Final = re.compile(r"\b(?:is|are|has|have|now|since)\b", re.IGNORECASE)
_ASKING: Final = frozenset(map(stem, _LISTS["asking"]))
_IGNORED: Final = ARTICLES | FILLERS | FUNCTION_WORDS | PREPOSITIONS
_THIN: Final = ARTICLES | _LISTS["thin"]

_VERBS: Final = frozenset(map(stem, ("is", "are", "was", "were", "has", "have", "had", "now")))
_FINITE: Final = re.compile(r"\w{2,}(?:[^\Wsu]s|ed)")
_PAST: Final = re.compile(r"was|were|had|been|\w{2,}ed")
_OF: Final = (("of",), ("for",), ("in",), ("on",), ("from",))
_VERSION: Final = re.compile(r"v?(?:\d{1,3}|20\d\d)(?:\.\w+)*")
_DAYS: Final = frozenset(map(stem, NO_NAMES))
_VALUE: Final = re.compile(rf"\d|\w$|(?:{'|'.join((*_DAYS, *NUMBERS))})$")
RANGE: Final = (("to",), ("until",), ("and",), ("or",))
"""Words between the ends of a range or the items of a list, which count as one value."""
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


class Read(NamedTuple):
    """The significant words of a text. `order` keeps duplicates, and `values` are words that name a value."""

    text: str
    order: tuple[str, ...]
    keys: frozenset[str]
    values: frozenset[str]
    literals: frozenset[str]
    """Numbers, pieces of code, quoted words."""
    sequence: tuple[str, ...]
    """All words except articles and the like, in order."""
    former: frozenset[str]
    """Words for the previous state, if the text reports a change or denies something."""
    ended: frozenset[str]
    """Words for something that has ended or changed hands."""
    becomes: frozenset[str]
    takes_back: bool
    """True if it begins by retracting an earlier statement."""
    changes: bool
    denies: bool
    in_first_person: bool
    forms: frozenset[tuple[str, str]]
    """If the text is a rule about names or code: pairs of a part of the code and the aspect that the rule sets."""
    written: Mapping[str, str]
    """Maps each word in `order` to its spelling in the text."""

    @property
    def plain(self) -> frozenset[str]:
        return self.keys - self.values


@lru_cache(maxsize=1024)
def read(text: str) -> Read:
    takes_back = bool(_TAKING_BACK.match(text))
    text = without_preface(text[:COMPARED_CHARACTERS])
    quoted = {each.strip().casefold() for each in _QUOTED.findall(text)}
    order: list[str] = []
    names: set[str] = set()
    literals: set[str] = set()
    spellings: dict[str, str] = {}
    sequence: list[str] = []
    places: dict[str, int] = {}
    denies = False
    for match in _WORD.finditer(text):
        written = match[0]
        word = written.casefold().removesuffix("'s").removesuffix("’s")
        stemmed = stem(word)
        is_inside = match.start() > 0 and not _SENTENCE_END.search(text, max(0, match.start() - 3), match.start())
        is_letter = is_inside and len(written) == 1 and written.isupper() and written != "I"
        if is_letter or word not in _THIN:
            sequence.append(stemmed)
        if word in DENIALS or word.endswith(("n't", "n’t")):
            denies = True
            continue
        if word in NUMBERS or (not written.isalpha() and any(each.isdigit() for each in written)):
            order.append(NUMBERS.get(word, word))
            literals.add(order[-1])
        elif is_letter or "_" in written or written[0] in "@#" or word in quoted or "/" in written or "." in written:
            order.append(word)
            literals.add(word)
        elif word not in _IGNORED and stemmed not in _ASKING:
            order.append(stemmed)
            if written[0].isupper() and is_inside:
                names.add(stemmed)
        else:
            continue
        spellings.setdefault(order[-1], word)
        places[order[-1]] = match.start()
    changes = bool(_CHANGE.search(text))

    def words_in(found: Iterable[re.Match[str]]) -> frozenset[str]:
        spans = [at.span(at.lastindex or 0) for at in found]
        return frozenset(word for word, place in places.items() if any(begin <= place < end for begin, end in spans))

    return Read(
        text,
        tuple(order),
        frozenset(order),
        frozenset(names | literals),
        frozenset(literals),
        tuple(sequence),
        words_in(_FORMER.finditer(text) if changes or denies else ()),
        words_in(_ENDED.finditer(text)),
        words_in(_NEW_STATE.finditer(text)),
        takes_back,
        changes,
        denies,
        _FIRST_PERSON.search(text) is not None,
        frozenset(forms_of(text)),
        spellings,
    )


@lru_cache(maxsize=1024)
def tells_what_happened(content: str) -> bool:
    """True if a text is only about a past event, and not about a state, which could be replaced."""
    return bool(_HAPPENED.search(content)) and not (_HOLDS.search(content) or _ENDED.search(content))


def tells_what_passed(content: str) -> bool:
    """True for an event that lasted for a time or recurred. Unlike "was sold", it changes nothing."""
    return tells_what_happened(content) and bool(_FOR_A_TIME.search(content))


@lru_cache(maxsize=1024)
def days_of_figures(content: str, at: float) -> tuple[frozenset[float], bool]:
    """The days for which a text written at `at` gives figures (none if it is about a change or a plan), and whether the
    first figure was counted on its day. That is true of "On 3 November we had 84 orders", but not of "The lease, signed
    on 3 November, cost 84 euros". A figure counted on its day neither changes a state nor is changed by one."""
    said = _TAKING_BACK.match(content)
    dates, rest = list(DATE.finditer(content)), DATE.sub("", content[said.end() if said else 0 :])
    is_figure = _FIGURE.search(rest)
    has_none = not dates or not (is_figure or _AMOUNT.search(rest))
    if has_none or _HOLDS.search(rest) or _CHANGE.search(rest) or read(content).becomes:
        return frozenset(), False
    before, named = content[: dates[0].start()], (day_named(each[0].rstrip("."), at) for each in dates)
    days = frozenset(day for day in named if day is not None and day <= at)
    return days, bool(days and is_figure and (_ON_DAY.fullmatch(before) or _COUNTED_ON.search(before)))


def takes_back(later: str, earlier: str) -> bool:
    """True if the later text begins by retracting the earlier one, not some other statement ("it was 72, not 74")."""
    retracting = read(later)
    former = retracting.former & retracting.literals
    return retracting.takes_back and (not former or not former.isdisjoint(read(earlier).keys))


def settles(later: str, open_end: str) -> bool:
    """True if a text says in most of the words of an open end that it is done or cancelled."""
    if not (_CANCELLED.search(later) or says_done(later, open_end)):
        return False
    asked, told = read(without_times(with_plain_days(open_end[:COMPARED_CHARACTERS]))), read(later)
    shared = asked.keys & (told.keys | verbs_done(later))
    is_other = asked.values - told.keys and told.values - asked.keys
    return not is_other and len(shared) >= max(1, MOST_OF_TASK * len(asked.keys))


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


def frame_of(text: str) -> str:
    """A text with its numbers masked, which makes all texts of a series equal."""
    return _NUMBER.sub("0", text)


def counted_among(texts: Iterable[str]) -> frozenset[str]:
    """The texts of a numbered series: at least four that differ only in a number, with few gaps ("Sprint 3 was late" to
    "Sprint 6 was late", but not a limit of 30, 60, 90 and 120 seconds)."""
    frames: dict[str, dict[tuple[int, ...], str]] = {}
    for text in texts:
        numbers = tuple(map(int, _NUMBER.findall(text)))
        frames.setdefault(frame_of(text), {})[numbers] = text

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


@dataclass(frozen=True)
class TextPair:
    """`others` are the cosines of the later text with other texts before it, and `around` those of the earlier text."""

    earlier: Read
    later: Read
    cosine: float
    apart_s: float
    others: Sequence[float] = ()
    around: Sequence[float] = ()
    settles: bool = False

    @cached_property
    def shared(self) -> frozenset[str]:
        return self.earlier.keys & self.later.keys

    @cached_property
    def own(self) -> tuple[frozenset[str], frozenset[str]]:
        return self.earlier.keys - self.shared, self.later.keys - self.shared

    def both_have(self, own_of: Callable[[Read], frozenset[str]]) -> float:
        """1 if each text has words of this kind that the other lacks."""
        return float(all(own_of(text) & own for text, own in zip((self.earlier, self.later), self.own, strict=True)))


class Feature(NamedTuple):
    name: str
    weight: float
    of: Callable[[TextPair], float]
    why: str


def _affixes(pair: TextPair) -> float:
    """1 if both texts are short, and each has a prefix (`x_`) or suffix (`_x`) of its own, of the same shape."""
    if max(len(pair.earlier.sequence), len(pair.later.sequence)) > LONGEST_RULE:
        return 0.0
    one, other = (
        {_LETTERS.sub("a", word) for word in text.literals & own if "_" in (word[0], word[-1])}
        for text, own in zip((pair.earlier, pair.later), pair.own, strict=True)
    )
    return float(bool(one & other))


def _form(pair: TextPair) -> float:
    one, other = pair.earlier.forms, pair.later.forms
    return (1.0 if one & other else -1.0) if one and other else 0.0


def _rivals(pair: TextPair) -> float:
    """The number of ways in which one word stands in for another (before the same word, after it, or between two words
    that are adjacent in the other text), times the share of common words."""
    one, other = pair.earlier, pair.later
    own = one.plain & pair.own[0], other.plain & pair.own[1]
    steps = set(pairwise(one.sequence)), set(pairwise(other.sequence))
    before, later_before = ({to for word, to in each if word in mine} for each, mine in zip(steps, own, strict=True))
    after, later_after = ({word for word, to in each if to in mine} for each, mine in zip(steps, own, strict=True))
    between = any(
        word in mine and (left, right) in theirs
        for text, mine, theirs in ((one, own[0], steps[1]), (other, own[1], steps[0]))
        for left, word, right in zip(text.sequence, text.sequence[1:], text.sequence[2:], strict=False)
    )
    ways = bool(before & later_before) + bool(after & later_after) + between
    return ways * len(one.plain & other.plain) / max(1, len(one.plain | other.plain))


def _places(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """The ranges where two sequences of words differ, as start and end in each; empty if they share no frame."""
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < LEAST_FRAME or matcher.ratio() < LEAST_FRAME:
        return []
    places: list[tuple[int, int, int, int]] = []
    for change, begins, ends, later_begins, later_ends in matcher.get_opcodes():
        if change == "replace" and places and one[places[-1][1] : begins] in RANGE:
            places[-1] = (places[-1][0], ends, places[-1][2], later_ends)
        elif change == "replace":
            places.append((begins, ends, later_begins, later_ends))
    return places


def _two_things(pair: TextPair) -> int:
    """2 if two texts with a common frame of words are certainly about two things, 1 if they probably are, else 0.

    1: the texts differ in several places, and the first difference begins them ("web-1 with 4 cores", "web-2 with 8
    cores") or is a name or number, unless only days and times differ. Or they differ only in the name, and a value or a
    verb follows ("sample 1: 200 nm", "sample 3: 200 nm"). 2: the name is an identifier or precedes the verb ("crane A
    is red", "crane B is blue"), and is not a version ("Node 18 is on 3 hosts"); or something happened to each ("crane 1
    was sold"); or both reached the same state ("moved web-1 to Debian 13", "moved web-2 to Debian 13"). 0: a correction
    that says which value was wrong.
    """
    earlier, later = pair.earlier, pair.later
    if later.takes_back and later.former & earlier.literals:
        return 0
    if earlier.becomes and earlier.becomes == later.becomes:
        return 2
    one, other = earlier.sequence, later.sequence
    places = _places(one, other)
    if not places:
        return 0
    begins, ends, later_begins, later_ends = places[0]
    are_several = len(places) > 1
    if are_several and begins == later_begins == 0:
        return 1
    values = earlier.values | later.values
    values |= frozenset(map(stem, values))  # sequences contain stems
    before, name, after = one[:begins], one[begins:ends], one[ends:]
    if values.isdisjoint(name) or values.isdisjoint(other[later_begins:later_ends]):
        return 0
    is_numbered = name[0] in earlier.literals and other[later_begins] in later.literals
    follows_noun = bool(before) and before[-1] in earlier.plain
    is_of_noun = follows_noun and before[-2:-1] in _OF
    verb = earlier.written.get(after[0], after[0]) if after else ""
    is_subject = is_numbered and (is_of_noun or (follows_noun and begins <= NUMBERED))
    is_subject &= verb in _VERBS or _FINITE.fullmatch(verb) is not None
    is_past = is_subject and (_PAST.fullmatch(verb) is not None or "been" in after[:2])
    may_be_version = _VERSION.fullmatch(name[0]) is not None and not (is_past or is_of_noun)
    is_before_verb = is_subject or not _VERBS.isdisjoint(after)
    if are_several:
        is_when = begins > 1 and not is_before_verb and any(word in _DAYS or ":" in word for word in name)
        is_change = is_when and all(any(map(_VALUE.match, one[at[0] : at[1]])) for at in places)
        return 0 if is_change else 1 + (is_numbered and is_before_verb and not may_be_version)
    if values.isdisjoint(after):
        return 2 * is_past or int(is_subject and not may_be_version)
    is_identifier = name[0][0].isalpha() and not name[0].isalpha()
    if (is_identifier or is_before_verb) and not may_be_version:
        return 2
    return int(is_before_verb or begins <= NUMBERED)


@lru_cache(maxsize=1024)
def two_things(earlier: str, later: str) -> int | None:
    """Like `_two_things`, but 0 becomes None unless each text has literals of its own. Cached for Review."""
    pair = TextPair(read(earlier), read(later), cosine=1.0, apart_s=0.0)
    return _two_things(pair) or (0 if pair.both_have(lambda text: text.literals) else None)


def _corrects(pair: TextPair) -> float:
    """1 if the later text denies a word of the earlier one and repeats the rest, or retracts it and lacks one word."""
    if pair.later.former & pair.earlier.keys:
        return float(not pair.own[0])
    return float(pair.later.takes_back and len(pair.own[0]) == 1 and len(pair.shared) > 1)


def _ended(pair: TextPair) -> float:
    named = pair.earlier.values | pair.later.values
    return float(not named.isdisjoint(pair.later.ended & pair.earlier.keys))


def _same_day(pair: TextPair) -> float:
    """1 for texts from the same day, unless the later one says that it corrects the earlier one."""
    says_so = _corrects(pair) or (pair.later.changes and pair.later.former & pair.earlier.keys)
    return float(pair.apart_s < SAME_DAY_S and not says_so)


def _lead(cosine: float, others: Sequence[float]) -> float:
    """Assume another text at the minimum cosine. Otherwise, a small memory would have many doubtful pairs."""
    return max(-MOST_LEAD, min(MOST_LEAD, cosine - max((LEAST_COSINE, *others))))


def _nearer(pair: TextPair) -> float:
    return math.log1p(min(MOST_NEARER, sum(cosine > pair.cosine for cosine in pair.others)))


def _words(text: Read) -> float:
    return math.log1p(min(MOST_WORDS, len(text.sequence)))


def _reports(pair: TextPair) -> int:
    return sum(len(each.sequence) > REPORT for each in (pair.earlier, pair.later))


FEATURES: Final = (
    Feature("cosine", 2.89, lambda pair: pair.cosine, "they are about the same subject"),
    Feature("lead", 2.38, lambda pair: _lead(pair.cosine, pair.others), "no other text is as near to the later one"),
    Feature("earlier_lead", 3.09, lambda pair: _lead(pair.cosine, pair.around), "and none to the earlier one"),
    Feature("nearer", -1.36, _nearer, "another text is nearer to the later one, which is probably about that text"),
    Feature("value", 0.53, lambda pair: pair.both_have(lambda text: text.values), "each has its own name or number"),
    Feature("figure", -0.57, lambda pair: float(bool(pair.later.literals)), "a number may be a figure for one day"),
    Feature("affix", 2.84, _affixes, "names follow one rule for prefixes or endings at a time"),
    Feature("form", 2.84, _form, "rules replace each other only if they are about one aspect of names or code"),
    Feature(
        "rivals", -1.25, _rivals, "a different word in the same phrase is a different thing, as in “variable names”"
    ),
    Feature("change", 0.56, lambda pair: float(pair.later.changes), "the later one says that something changed"),
    Feature("ended", 2.17, _ended, "it says that a name or a value of the earlier one has ended or changed hands"),
    Feature("slots", -2.79, _two_things, "if two values differ in the same sentence, the texts are about two things"),
    Feature("missing", -0.93, lambda pair: math.log1p(len(pair.own[0])), "a change repeats what it is about"),
    Feature("first_person", 0.41, lambda pair: float(pair.later.in_first_person), "people say what they have changed"),
    Feature("earlier_words", -0.27, lambda pair: _words(pair.earlier), "a text that says much is replaced less often"),
    Feature("later_words", 1.38, lambda pair: _words(pair.later), "people who report a change give a reason"),
    Feature("reports", -0.7, _reports, "a report says several things, and replaces none of them alone"),
    Feature("same_day", -0.8, _same_day, "texts from one day are both true, unless one names what it changes"),
)
INTERCEPT: Final = -4.37
SHARE: Final = 0.7
"""The weight of each half. Half of both would be too cautious, since they err on different pairs."""
SHIFT: Final = 0.8
LEAST_BY_WORDS: Final = -2.5
"""The lowest logit by words."""


def _repeats(pair: TextPair) -> bool:
    says_otherwise = pair.later.takes_back or pair.later.changes or pair.later.denies != pair.earlier.denies
    return not (says_otherwise or pair.own[0] or pair.own[1] & pair.later.values)


def probability(pair: TextPair, weights: Weights | None = None) -> float:
    """`weights` are those of `likely_replacement`, which is not asked about texts that are about two things, and about
    changes of a part."""
    if pair.settles or _repeats(pair):
        return REPLACED * pair.settles
    features = {each.name: each.of(pair) for each in FEATURES}
    by_features = INTERCEPT + sum(each.weight * features[each.name] for each in FEATURES)
    texts = Texts(pair.earlier.text, pair.later.text, pair.cosine, pair.apart_s, pair.others, pair.around)
    is_apart = features["slots"] > 0 or features["form"] < 0
    by_words = None if is_apart or says_more(texts.earlier, texts.later) else logit(texts, weights)
    both = by_features if by_words is None else SHARE * (by_features + max(by_words, LEAST_BY_WORDS)) + SHIFT
    return 1.0 / (1.0 + math.exp(-both))
