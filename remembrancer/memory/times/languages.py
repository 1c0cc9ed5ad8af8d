"""Translates German, French and Spanish time phrases into English ones: "vor zwei Wochen" is "2 weeks ago". Pure.

Only whole phrases are translated, most of them of several words: "Mai" alone may be a name, and "hier" is "yesterday"
in French and "here" in German.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from remembrancer.memory.times.phrases import MONTHS, NTH, WEEKDAYS

Words = Mapping[str, Mapping[str, str]]
"""Words of a language with their translations, by group."""


@dataclass(frozen=True, slots=True)
class _Language:
    """The words of a language, and its rules: a phrase and its English translation."""

    words: Words
    rules: Sequence[tuple[str, str]]


_IN_ORDER: Final[Mapping[str, Sequence[str]]] = {"month": MONTHS, "weekday": WEEKDAYS, "nth": (*NTH[:5], "last")}


def _table(text: str) -> Words:
    """Parses lines of "kind: word=English, …", or of "kind: word …" in the order of the English words."""
    words: dict[str, dict[str, str]] = {}
    for line in text.strip().splitlines():
        kind, _, entries = line.strip().partition(": ")
        pairs = (each.split("=") for each in entries.split(", "))
        known = zip(entries.split(), _IN_ORDER[kind], strict=True) if "=" not in entries else pairs
        words.setdefault(kind, {}).update((word, english) for word, english in known)
    return words


RANGE: Final = "from <day> to <day2> <month> <year>"
DATE: Final = "<on> <day> <month> <year>"
NTH_WEEK: Final = "the <nth> week of <month> <year>"
QUARTER: Final = "in the <nth> quarter <year>"
SEASON: Final = "in the <season> <year>"
_GERMAN: Final = _Language(
    words=_table(
        """
        month: januar februar märz april mai juni juli august september oktober november dezember
        weekday: montag dienstag mittwoch donnerstag freitag samstag sonntag
        weekday: sonnabend=saturday
        unit: minuten=minutes, minute=minute, stunden=hours, stunde=hour, tagen=days, tage=days, tag=day
        unit: wochenenden=weekends, wochen=weeks, woche=week, monaten=months, monate=months, monat=month
        unit: jahren=years, jahre=years, jahr=year
        count: einigen=a few, ein paar=a few, mehreren=several, einem halben=half a, einem=a, einer=a, ein=a, zwei=2
        count: drei=3, vier=4, fünf=5, sechs=6, sieben=7, acht=8, neun=9, zehn=10, elf=11, zwölf=12
        nth: erste zweite dritte vierte fünfte letzte
        period: wochenende=weekend, woche=week, monat=month, monats=month, quartal=quarter, jahr=year, jahres=year
        season: frühling=spring, frühjahr=spring, sommer=summer, herbst=autumn, winter=winter
        since: seit=since, im=in, vor=before, bis=until, nach=after
        on: am=on, den=on, seit dem=since, vor dem=before, nach dem=after, vom=from, bis zum=to, bis=to
        on: zwischen dem=between, und dem=and
        between: zwischen=between, von=from
        and: und=and, bis=to
        of_day: morgen=morning, vormittag=morning, nachmittag=afternoon, abend=evening, nacht=night
        this_day: heute=this, gestern=yesterday
        near: vorgestern=the day before yesterday, gestern=yesterday, heute=today
        numbered: kw=week, kalenderwoche=week
        part: anfang=early, mitte=mid, ende=late
        lately: kürzlich=recently, neulich=recently, in letzter zeit=recently
        """
    ),
    rules=(
        ("<nth>n? woche (?:im|des|vom) <month>s?<of_year>", NTH_WEEK),
        ("<nth>n? <month>woche<of_year>", NTH_WEEK),
        ("vor <count> <unit>", "<count> <unit> ago"),
        ("(?:letzten|vergangenen) <count> <unit>", "the last <count> <unit>"),
        ("(?:letzt|vergangen|vorig)e[nrms]? <period|weekday|season|month>", "last <period|weekday|season|month>"),
        ("diese[nrms]? <period>", "this <period>"),
        ("<this_day> <of_day>", "<this_day> <of_day>"),
        ("am wochenende", "at the weekend"),
        ("(?:am )?<weekday>(?: <of_day>)?", "on <weekday> <of_day>"),
        (r"(?:vom|zwischen(?: dem)?) <day>\.? (?:bis|und)(?: zum| dem)? <day2>\.\s*<month><of_year>", RANGE),
        (r"(?:<on> )?<day>\.\s*<month><of_year>", DATE),
        ("(?:im )?<nth>[ns]? quartal<of_year>", QUARTER),
        ("im <season><of_year>", SEASON),
    ),
)
_FRENCH: Final = _Language(
    words=_table(
        """
        month: janvier février mars avril mai juin juillet août septembre octobre novembre décembre
        weekday: lundi mardi mercredi jeudi vendredi samedi dimanche
        unit: minutes=minutes, heures=hours, heure=hour, jours=days, jour=day, semaines=weeks, semaine=week
        unit: mois=months, années=years, ans=years, an=year
        count: quelques=a few, plusieurs=several, une=a, un=a, deux=2, trois=3, quatre=4, cinq=5, six=6, sept=7
        count: huit=8, neuf=9, dix=10, onze=11, douze=12
        nth: première deuxième troisième quatrième cinquième dernière
        nth: premier=first, second=second, seconde=second, dernier=last
        period: semaine=week, mois=month, trimestre=quarter, année=year, an=year, week-end=weekend, weekend=weekend
        season: printemps=spring, été=summer, automne=autumn, hiver=winter
        since: en=in, depuis=since, au mois de=in, au mois d'=in, avant=before, après=after
        on: le=on, depuis le=since, avant le=before, après le=after, jusqu'au=until, du=from, au=to
        on: entre le=between, et le=and
        between: entre=between, de=from
        and: et=and, à=to
        of_day: matin=morning, après-midi=afternoon, soir=evening
        near: avant-hier=the day before yesterday, aujourd'hui=today
        numbered: semaine=week
        part: début=early, mi=mid, fin=late
        lately: récemment=recently, dernièrement=recently
        """
    ),
    rules=(
        ("<nth> semaine (?:de |d')<month><of_year>", NTH_WEEK),
        ("il y a <count> <unit>", "<count> <unit> ago"),
        ("(?:ces|les|des) <count> derni(?:ers|ères) <unit>", "the last <count> <unit>"),
        ("(?:la |le |l')?<period|weekday|season> (?:derni(?:er|ère)|passée?)", "last <period|weekday|season>"),
        ("(?:ce(?! an)|cette) <period>(?:-ci)?", "this <period>"),
        ("(?:ce|cet|cette) <of_day>", "this <of_day>"),
        ("yesterday <of_day>", "yesterday <of_day>"),
        ("(?:du|entre le) <day>(?:er)? (?:au|et le|et) <day2> <month><of_year>", RANGE),
        ("(?:<on> )?(?:<weekday> )?<day>(?:er)? <month><of_year>", DATE),
        (r"(?<!le\s)<weekday>(?: <of_day>)?", "on <weekday> <of_day>"),
        ("(?:au )?<nth> trimestre<of_year>", QUARTER),
        ("(?:en|au) <season><of_year>", SEASON),
    ),
)
_SPANISH: Final = _Language(
    words=_table(
        """
        month: enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
        weekday: lunes martes miércoles jueves viernes sábado domingo
        unit: minutos=minutes, horas=hours, hora=hour, días=days, día=day, semanas=weeks, semana=week, meses=months
        unit: mes=month, años=years, año=year
        count: unos=a few, unas=a few, un par de=a couple of, varios=several, varias=several, una=a, un=a, dos=2, tres=3
        count: cuatro=4, cinco=5, seis=6, siete=7, ocho=8, nueve=9, diez=10, once=11, doce=12
        nth: primera segunda tercera cuarta quinta última
        nth: primer=first, segundo=second, tercer=third, cuarto=fourth
        period: fin de semana=weekend, semana=week, mes=month, trimestre=quarter, año=year
        season: primavera=spring, verano=summer, otoño=autumn, invierno=winter
        since: en=in, desde=since, antes de=before, después de=after, hasta=until
        on: el=on, desde el=since, antes del=before, después del=after, hasta el=until, del=from, al=to
        on: entre el=between, y el=and
        between: entre=between, de=from
        and: y=and, a=to
        of_day: mañana=morning, tarde=afternoon, noche=night
        near: anteayer=the day before yesterday, ayer=yesterday, anoche=last night, hoy=today
        numbered: semana=week
        part: principios de=early, mediados de=mid, finales de=late
        lately: recientemente=recently, últimamente=recently
        """
    ),
    rules=(
        ("<nth> semana de <month><of_year>", NTH_WEEK),
        ("hace <count> <unit>", "<count> <unit> ago"),
        ("(?:los|las) últim[oa]s <count> <unit>", "the last <count> <unit>"),
        ("(?:el |la )?<period|weekday|season> pasad[oa]", "last <period|weekday|season>"),
        ("el pasado <weekday>", "last <weekday>"),
        ("est[ea] <period>", "this <period>"),
        ("esta <of_day>", "this <of_day>"),
        ("ayer por la <of_day>", "yesterday <of_day>"),
        ("el <weekday>(?: por la <of_day>)?", "on <weekday> <of_day>"),
        ("(?:del?|entre el) <day> (?:al|y el|y|a) <day2> de <month><of_year>", RANGE),
        ("(?:<on> )?<day> de <month><of_year>", DATE),
        ("(?:en el )?<nth> trimestre<of_year>", QUARTER),
        ("en (?:el |la )?<season><of_year>", SEASON),
    ),
)
_OF_ALL: Final = (
    ("<near>", "<near>"),
    ("<part>[ -]<month><of_year>", "<part> <month> <year>"),
    ("<between> <month> <and> <month2>", "<between> <month> <and> <month2>"),
    ("<since> <month><of_year>", "<since> <month> <year>"),
    ("<since> (?:jahr )?<year>", "<since> the year <year>"),
    (r"<numbered>\s*<week><of_year>", "<numbered> <week> <year>"),
    ("<lately>", "<lately>"),
    (r"<since|between|and>(?= (?:on|yesterday|today|last|this)\b)", "<since|between|and>"),
)
"""Rules for all languages, applied after their own."""
_LANGUAGES: Final = (_GERMAN, _FRENCH, _SPANISH)
_HIER: Final = re.compile(r"(?<![\w-])hier(?![\w-])", re.IGNORECASE)
_HERE_TEXT: Final = (
    "wer ist sind der das dem im wir ich ihr ein eine nicht mit von auf für gibt kann haben een het niet"
)
_HERE: Final = frozenset(_HERE_TEXT.split())
"""German and Dutch words next to which "hier" means "here"."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_PLACE: Final = re.compile(r"<([\w|]+?)(2?)>")


def in_english(text: str) -> str:
    """The text with the time phrases of the other languages in English. `text` is composed (NFC).

    A phrase is recognized by its own words, whatever the language around it.
    """
    lowered = f" {text.lower()}"
    if " hier" in lowered and _HERE.isdisjoint(_WORD.findall(lowered)):
        text = _HIER.sub("yesterday", text)
    for place, language in enumerate(_LANGUAGES):
        for pattern, english in _rewritings(place):
            text = pattern.sub(partial(_put, english=english, words=language.words), text)
    return text


def _put(match: re.Match[str], english: str, words: Mapping[str, Mapping[str, str]]) -> str:
    def word(place: re.Match[str]) -> str:
        text = match[_group(place)] or ""
        plain = " ".join(text.lower().split())
        known = next((words[kind][plain] for kind in place[1].split("|") if plain in words.get(kind, ())), text)
        return known.capitalize() if known in MONTHS else known

    return _PLACE.sub(word, english).rstrip()


def _group(place: re.Match[str]) -> str:
    """The name of the group at an index of a pattern."""
    return place[1].replace("|", "_or_") + place[2]


@cache
def _rewritings(place: int) -> tuple[tuple[re.Pattern[str], str], ...]:
    """The rules of a language as patterns, compiled for the first text that may contain its words."""
    language = _LANGUAGES[place]
    year = r"(?:19|20)\d\d(?![\w-]|[.:/]\d)"
    numbers = {"day": r"[0-3]?\d", "week": r"[0-5]?\d", "year": year}

    def part(name: re.Match[str]) -> str:
        if name[1] == "of_year":
            return rf"(?: (?:del? )?(?P<year>{year}))?"
        words = [word for kind in name[1].split("|") for word in language.words.get(kind, ())]
        alternatives = numbers.get(name[1]) or "|".join(sorted(words, key=len, reverse=True))
        number = r"\d{1,3}|" if name[1] == "count" else ""
        return rf"(?P<{_group(name)}>{number}{alternatives})"

    return tuple(
        (re.compile(rf"(?<![\w-]){_PLACE.sub(part, phrase)}(?![\w-])".replace(" ", r"\s+"), re.IGNORECASE), english)
        for phrase, english in (*language.rules, *_OF_ALL)
    )
