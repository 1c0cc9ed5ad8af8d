"""German, French and Spanish words for times, put as English has them: "vor zwei Wochen" is "2 weeks ago". Pure.

Only whole phrases are rewritten, most of them of several words: "Mai" alone may be a name, and "hier" is yesterday to
some and here to others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from remembrancer.memory.stop_words import language_of
from remembrancer.memory.times.phrases import MONTHS, WEEKDAYS


@dataclass(frozen=True, slots=True)
class _Language:
    """Its words, by what a rule calls them, each with the English; and the rules: what is said, and in English.

    Every phrase has one of the `hints` (with | between them), or a word of `TELLING`.
    """

    hints: str
    words: Mapping[str, Mapping[str, str]]
    rules: Sequence[tuple[str, str]]


TELLING: Final = ("month", "weekday", "season", "feast")
"""The kinds of words that are seldom anything but times."""


def _named(names: str, english: Sequence[str]) -> dict[str, str]:
    return dict(zip(names.split(), english, strict=True))


def _words(pairs: str) -> dict[str, str]:
    """From "word=English, …"."""
    return dict(pair.strip().split("=") for pair in pairs.split(","))


_GERMAN: Final = _Language(
    hints="kürzlich|neulich| zeit| kw |kalenderwoche| vor | letzte| vergangen| diese|gestern| seit | jahr ",
    words={
        "month": _named("januar februar märz april mai juni juli august september oktober november dezember", MONTHS),
        "weekday": _named("montag dienstag mittwoch donnerstag freitag samstag sonntag", WEEKDAYS)
        | {"sonnabend": "saturday"},
        "unit": _words(
            """
            minuten=minutes, minute=minute, stunden=hours, stunde=hour, tagen=days, tage=days, tag=day,
            wochenenden=weekends, wochen=weeks, woche=week, monaten=months, monate=months, monat=month, jahren=years,
            jahre=years, jahr=year
            """
        ),
        "count": _words(
            """
            einigen=a few, ein paar=a few, mehreren=several, einem halben=half a, einem=a, einer=a, ein=a, zwei=2,
            drei=3, vier=4, fünf=5, sechs=6, sieben=7, acht=8, neun=9, zehn=10, elf=11, zwölf=12
            """
        ),
        "period": _words("wochenende=weekend, woche=week, monat=month, jahr=year"),
        "season": _words("frühling=spring, frühjahr=spring, sommer=summer, herbst=autumn, winter=winter"),
        "feast": _words("weihnachten=christmas, ostern=easter, silvester=new year's eve, pfingsten=pentecost"),
        "since": _words("seit=since, im=in, vor=before, bis=until, nach=after"),
        "of_day": _words("morgen=morning, nachmittag=afternoon, abend=evening, nacht=night"),
    },
    rules=(
        ("vor <count> <unit>", "<count> <unit> ago"),
        ("(?:letzten|vergangenen) <count> <unit>", "the last <count> <unit>"),
        ("(?:letzt|vergangen)e[nrms]? <period>", "last <period>"),
        ("(?:letzt|vergangen)e[nrms]? <weekday>", "last <weekday>"),
        ("(?:letzt|vergangen)e[nrms]? <season>", "last <season>"),
        ("(?:letzt|vergangen)e[nrms]? <month>", "last <month>"),
        ("diese[nrms]? <period>", "this <period>"),
        ("vorgestern", "the day before yesterday"),
        ("gestern <of_day>", "yesterday <of_day>"),
        ("gestern", "yesterday"),
        ("am <weekday>", "on <weekday>"),
        (r"am <day>\. ?<month>(?: <year>)?", "on <day> <month> <year>"),
        ("zwischen <month> und <month2>", "between <month> and <month2>"),
        ("von <month> bis <month2>", "from <month> to <month2>"),
        ("<since> <month>(?: <year>)?", "<since> <month> <year>"),
        ("<since> (?:jahr )?<year>", "<since> the year <year>"),
        ("im <season>(?: <year>)?", "in the <season> <year>"),
        ("(?:an|zu|seit|vor) <feast>(?: <year>)?", "at <feast> <year>"),
        ("(?:kw|kalenderwoche) <week>(?: <year>)?", "week <week> <year>"),
        ("kürzlich|neulich|in letzter zeit", "recently"),
    ),
)
_FRENCH: Final = _Language(
    hints="récemment|dernièrement| semaine | il y a | derni| passé| hier|-hier| depuis | en 20| en 19",
    words={
        "month": _named("janvier février mars avril mai juin juillet août septembre octobre novembre décembre", MONTHS),
        "weekday": _named("lundi mardi mercredi jeudi vendredi samedi dimanche", WEEKDAYS),
        "unit": _words(
            """
            minutes=minutes, heures=hours, heure=hour, jours=days, jour=day, semaines=weeks, semaine=week,
            mois=months, années=years, ans=years, an=year
            """
        ),
        "count": _words(
            """
            quelques=a few, plusieurs=several, une=a, un=a, deux=2, trois=3, quatre=4, cinq=5, six=6, sept=7, huit=8,
            neuf=9, dix=10, onze=11, douze=12
            """
        ),
        "period": _words("semaine=week, mois=month, année=year, an=year, week-end=weekend, weekend=weekend"),
        "season": _words("printemps=spring, été=summer, automne=autumn, hiver=winter"),
        "feast": _words("noël=christmas, pâques=easter, pentecôte=pentecost"),
        "since": _words("en=in, depuis=since, au mois de=in, au mois d'=in, avant=before, après=after"),
        "of_day": _words("matin=morning, après-midi=afternoon, soir=evening"),
    },
    rules=(
        ("il y a <count> <unit>", "<count> <unit> ago"),
        ("(?:ces|les|des) <count> derni(?:ers|ères) <unit>", "the last <count> <unit>"),
        ("(?:la |le |l')?<period> (?:derni(?:er|ère)|passée?)", "last <period>"),
        ("<weekday> (?:dernier|passé)", "last <weekday>"),
        ("(?:l'|le )<season> dernier", "last <season>"),
        ("avant-hier", "the day before yesterday"),
        ("hier <of_day>", "yesterday <of_day>"),
        ("le <day>(?:er)? <month>(?: <year>)?", "on <day> <month> <year>"),
        ("entre <month> et <month2>", "between <month> and <month2>"),
        ("de <month> à <month2>", "from <month> to <month2>"),
        ("<since> <month>(?: <year>)?", "<since> <month> <year>"),
        ("<since> <year>", "<since> the year <year>"),
        ("en <season>(?: <year>)?", "in the <season> <year>"),
        ("(?:à|depuis|avant) <feast>(?: <year>)?", "at <feast> <year>"),
        ("au printemps(?: <year>)?", "in the spring <year>"),
        ("(?:la )?semaine <week>(?: <year>)?", "week <week> <year>"),
        ("récemment|dernièrement", "recently"),
    ),
)
_SPANISH: Final = _Language(
    hints="recientemente| semana | hace | pasad| últim| ayer|anteayer| anoche| desde | en 20| en 19",
    words={
        "month": _named(
            "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre", MONTHS
        ),
        "weekday": _named("lunes martes miércoles jueves viernes sábado domingo", WEEKDAYS),
        "unit": _words(
            """
            minutos=minutes, horas=hours, hora=hour, días=days, día=day, semanas=weeks, semana=week, meses=months,
            mes=month, años=years, año=year
            """
        ),
        "count": _words(
            """
            unos=a few, unas=a few, un par de=a couple of, varios=several, varias=several, una=a, un=a, dos=2, tres=3,
            cuatro=4, cinco=5, seis=6, siete=7, ocho=8, nueve=9, diez=10, once=11, doce=12
            """
        ),
        "period": _words("fin de semana=weekend, semana=week, mes=month, año=year"),
        "season": _words("primavera=spring, verano=summer, otoño=autumn, invierno=winter"),
        "feast": _words("navidad=christmas, semana santa=easter, nochevieja=new year's eve"),
        "since": _words("en=in, desde=since, antes de=before, después de=after, hasta=until"),
        "of_day": _words("mañana=morning, tarde=afternoon, noche=night"),
    },
    rules=(
        ("hace <count> <unit>", "<count> <unit> ago"),
        ("(?:los|las) últim[oa]s <count> <unit>", "the last <count> <unit>"),
        ("(?:el |la )?<period> pasad[oa]", "last <period>"),
        ("(?:el )?<weekday> pasado", "last <weekday>"),
        ("el pasado <weekday>", "last <weekday>"),
        ("(?:el |la )?<season> pasad[oa]", "last <season>"),
        ("anteayer", "the day before yesterday"),
        ("anoche", "last night"),
        ("ayer por la <of_day>", "yesterday <of_day>"),
        ("ayer", "yesterday"),
        ("el <day> de <month>(?: (?:de |del )?<year>)?", "on <day> <month> <year>"),
        ("entre <month> y <month2>", "between <month> and <month2>"),
        ("de <month> a <month2>", "from <month> to <month2>"),
        ("<since> <month>(?: (?:de |del )?<year>)?", "<since> <month> <year>"),
        ("<since> <year>", "<since> the year <year>"),
        ("en (?:el |la )?<season>(?: (?:de |del )?<year>)?", "in the <season> <year>"),
        ("(?:en|desde|por) <feast>(?: <year>)?", "at <feast> <year>"),
        ("(?:la )?semana <week>(?: <year>)?", "week <week> <year>"),
        ("recientemente|últimamente", "recently"),
    ),
)
_LANGUAGES: Final = (_GERMAN, _FRENCH, _SPANISH)
_HINTS: Final = tuple(
    (*language.hints.split("|"), *(word for kind in TELLING for word in language.words[kind]))
    for language in _LANGUAGES
)
_HIER = re.compile(r"(?<![\w-])hier(?![\w-])", re.IGNORECASE)
_PLACE = re.compile(r"<(\w+?)(2?)>")


def in_english(text: str) -> str:
    """The text with those phrases of the other languages that name times in English. `text` is composed (NFC)."""
    lowered = f" {text.lower()}"
    for place, hints in enumerate(_HINTS):
        if any(hint in lowered for hint in hints):
            language = _LANGUAGES[place]
            for pattern, english in _rewritings(place):
                text = pattern.sub(partial(_put, english=english, words=language.words), text)
            if language is _FRENCH and " hier" in lowered and language_of(text) == "fr":  # "here" in German
                text = _HIER.sub("yesterday", text)
    return text


def _put(match: re.Match[str], english: str, words: Mapping[str, Mapping[str, str]]) -> str:
    def word(place: re.Match[str]) -> str:
        said = match[place[1] + place[2]] or ""
        known = words.get(place[1], {}).get(" ".join(said.lower().split()), said)
        return known.capitalize() if place[1] == "month" else known

    return _PLACE.sub(word, english).rstrip()


@cache
def _rewritings(place: int) -> tuple[tuple[re.Pattern[str], str], ...]:
    """The rules of a language as patterns, compiled by the first text that may have its words."""
    language = _LANGUAGES[place]

    def part(name: re.Match[str]) -> str:
        match name[1]:
            case "day":
                return r"(?P<day>[0-3]?\d)"
            case "week":
                return r"(?P<week>[0-5]?\d)"
            case "year":
                return r"(?P<year>(?:19|20)\d\d)(?![\w-]|[.:/]\d)"
            case kind:
                words = "|".join(sorted(language.words[kind], key=len, reverse=True))
                number = r"\d{1,3}|" if kind == "count" else ""
                return rf"(?P<{kind}{name[2]}>{number}{words})"

    return tuple(
        (re.compile(rf"(?<![\w-]){_PLACE.sub(part, said)}(?![\w-])".replace(" ", r"\s+"), re.IGNORECASE), english)
        for said, english in language.rules
    )
