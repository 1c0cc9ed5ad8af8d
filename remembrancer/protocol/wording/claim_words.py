"""The words that have a part of their own in a claim. They are English, with some denials of other languages."""

from __future__ import annotations

from typing import Final

from remembrancer.protocol.wording.stems import stem


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ARTICLES: Final = _words("a an the der die das ein eine el la los las un una le les")
FILLERS: Final = _words("""
    now currently already still also really very just actually again today meanwhile finally always usually generally so
    please both only since anymore longer more mehr well too thanks thank hey hi hello wow yeah yes yep sure absolutely
    definitely totally great awesome gonna gotta wanna
""")
"""Words that are left out: "no longer" is "no"."""
FUNCTION_WORDS: Final = _words("""
    i you he she it we they me him her us them my your his its our their this that these those there here who which what
    and or as than is are was were be been being am has have had do does did done can could will would shall should may
    might must to not s d m re ve ll let
""")
PERSONS: Final = {
    "i": 1, "me": 1, "my": 1, "we": 2, "us": 2, "our": 2, "you": 3, "your": 3,
    "he": 4, "him": 4, "his": 4, "she": 5, "her": 5, "they": 6, "them": 6, "their": 6,
}  # fmt: skip
PREPOSITIONS: Final = _words("""
    in on at by for from of with without to into onto over under via through during when while if unless because after
    before until between within about against per as
""")
GENERAL_VERBS: Final = frozenset(
    stem(verb)
    for verb in _words("""
    use utilise utilize employ run keep store save hold live reside work need require prefer like love want support get
    make take give say go come lie sit stand belong write put set switch migrate move change replace become start rely
    depend choose pick call
    kept held wrote written ran made took taken gave given went gone came sat stood became chose chosen got
""")
)
"""Stems of verbs of so general a meaning that one in another's place changes nothing."""
DENIALS: Final = _words("""
    not never no none nor neither cannot without nobody nothing nicht kein keine keinen keinem keiner nie pas jamais
    nunca non niet geen não inte ikke
""")
DENYING_VERBS: Final = frozenset(
    stem(verb)
    for verb in _words("""
    stop drop remove retire abandon deprecate cease quit discontinue dislike hate avoid refuse lack forbid ban disallow
""")
)
ORDINALS: Final = _words("first second third fourth fifth sixth last next previous")
"""After an article they tell one thing of a series from another."""
DETERMINERS: Final = _words("""
    all any both each either every few many more most much neither none other another same several some such various
    everything everyone everybody something someone somebody anything anyone nothing else lot lots ton bit plenty
""")
"""How much of something: one for another is no other value."""
BEING: Final = _words("is are be been being was were")
CHOICES: Final = frozenset(
    stem(verb) for verb in _words("use utilise utilize employ prefer choose pick call name title chose chosen")
)
"""Stems of verbs whose object is a value, however it is written: a tool, a name, a taste."""
SINGLE: Final = (
    CHOICES
    | _words("is are")
    | frozenset(
        stem(verb)
        for verb in _words("run keep store save live reside go belong listen deploy host default point depend rely set")
    )
)
"""What takes one value at a time. Things are supported, liked or reported beside one another, and happen so too."""
NEGATING: Final = ("dis", "un", "in", "im", "ir", "non", "non-")
"""Prefixes that make the contrary of a word: stable and unstable."""
CONTRARIES: Final = frozenset(
    frozenset(stem(word) for word in pair.split())
    for pair in (
        "enabled disabled", "open closed", "public private", "light dark", "true false", "manual automatic",
        "mandatory optional", "required optional", "internal external", "allowed denied", "ascending descending",
        "horizontal vertical", "synchronous asynchronous", "sync async", "serial parallel", "up down", "left right",
    )
)  # fmt: skip
"""Other pairs of words of which one is right."""
LABELLING: Final = _words("issue pr ticket bug task step chapter session case part section line sprint milestone")
"""A number after one of these names a thing."""
NUMBERS: Final = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12",
}  # fmt: skip
OTHER_CASES: Final = _words("for of when if during unless while")
"""After these stands the case that is spoken of: another case is no contradiction."""
CIRCUMSTANCES: Final = _words("""
    production prod staging development dev test tests ci locally local remote linux macos windows monday tuesday
    wednesday thursday friday saturday sunday summer winter morning evening week weekday weekend
""")
"""What a claim may hold in, and another one elsewhere."""
