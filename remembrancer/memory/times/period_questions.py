"""Recognizes queries for everything in a period: "what did we decide this week?", "summarise this week". Pure.

Memories of the period share no words with such a query, and are not near it in meaning: only the time matters, and
perhaps a kind. A query with any further word is about that word, and is treated like others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from remembrancer.memory.times.phrases import COUNTS, UNITS
from remembrancer.memory.times.windows import read_query, without_times
from remembrancer.protocol.kinds import Kind

LONGEST: Final = 200
"""In characters. A longer query asks for something specific."""

_KIND_TEXTS: Final[dict[Kind, str]] = {
    "decision": """
        decide decided decision decisions agree agreed agreement agreements settled chose chosen entschieden
        entscheidung entscheidungen beschlossen beschluss beschlüsse vereinbart festgelegt décidé décidés décidée
        décidées décision décisions choisi convenu decidimos decidí decidió decidieron decidido decidida decisión
        decisiones acordamos acordado elegimos
    """,
    "error_fix": """
        fix fixed fixes bug bugs error errors broke broken break fail failed failure failures wrong crash crashed
        crashes outage outages incident incidents problem problems issue issues solve solved repaired resolved behoben
        fehler bug kaputt kaputtgegangen schiefgegangen schief gelöst repariert problem probleme ausfall ausfälle
        corrigé corrigés corrigée corrigées réparé réparés résolu résolus erreur erreurs panne pannes cassé planté
        problème problèmes arreglamos arreglé arreglado arregló corregimos corregido solucionamos resolvimos error
        errores fallo fallos falló rompió roto problema problemas incidente incidentes
    """,
    "convention": """
        convention conventions rule rules konvention konventionen regel regeln règle règles convención convenciones
        regla reglas
    """,
    "preference": """
        preference preferences vorliebe vorlieben préférence préférences preferencia preferencias
    """,
    "procedure": """
        procedure procedures howto howtos runbook runbooks anleitung anleitungen verfahren procédure procédures
        procedimiento procedimientos
    """,
    "architecture": "architecture design designs architektur entwurf entwürfe conception arquitectura diseño diseños",
    "pattern": "pattern patterns muster motif motifs patrón patrones",
    "fact": "fact facts fakt fakten tatsache tatsachen faits hechos dato datos",
    "observation": """
        observation observations observe observed beobachtung beobachtungen beobachtet observé observés observación
        observaciones observamos observado
    """,
}
KINDS_NAMED: Final[dict[str, Kind]] = {word: kind for kind, text in _KIND_TEXTS.items() for word in text.split()}
"""The words that name a kind. "Event" is not among the twelve, and an outage is told together with its fix."""
_PAST_TEXT: Final = """
    did done was were been happened changed learned learnt discussed worked working talked noted wrote written recorded
    stored saved remembered said achieved finished new news summary summaries summarise summarize recap overview review
    digest report highlights everything log notes memories activity progress updates gemacht getan war waren passiert
    geschehen geändert gelernt besprochen diskutiert geredet gesprochen notiert gearbeitet erledigt geschafft los fasse
    fass zusammenfassung überblick rückblick neues neu notizen alles fait faites passé arrivé changé appris parlé
    discuté noté travaillé résume résumé résumer résumez récapitule bilan nouveau neuf nouveautés notes tout hicimos
    hice hizo hicieron hecho pasó pasado ocurrió sucedió cambió cambiamos cambiado aprendimos aprendí aprendido hablamos
    hablado discutimos trabajamos trabajado anotamos anoté notamos resume resumen resumir resúmeme resúmenos novedades
    nuevo notas todo
"""
_PAST: Final = frozenset(_PAST_TEXT.split())
"""Words that ask about the past, or for a summary."""
_EMPTY_TEXT: Final = """
    what which that these those a an the all any anything each some of in on at by for from to during between until and
    or do does doing is are has have had having be being there we i you us our ours my me it its can could please tell
    show give list get make made happen happening going go went gone on up learn change discuss talk note work say out
    ve s d re m just so far things thing stuff only kind sort was alle welche welcher welches welchen wir ich du ihr man
    es haben habe hat hatten ist sind wurde wurden worden der die das den dem des ein eine etwas im am an von vom für
    bei und uns mir mich bitte mal so es zusammen gab que qu quoi quels quelles quel quelle est ce c s il elle on nous
    je j tu vous a t ai as avons avez ont été sont la le les l un une de du des d en à au et y tous toutes moi dis donne
    liste montre qué cuáles cuál el los las lo un una unos unas de del en por y a al se me nos nosotros yo tú ha han
    hemos he hubo había fue fueron son todos todas este esta dime dame lista muestra
"""
EMPTY: Final = frozenset(_EMPTY_TEXT.split()) | COUNTS.keys() | UNITS.keys() | {f"{unit}s" for unit in UNITS}
"""Words that say nothing about the subject of a question, in four languages."""
_AND_WHY: Final = re.compile(r",?\s+(?:and|und|et|y)\s+(?:why|warum|wieso|pourquoi|por qué)\W*$", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W_]+[+#]*")


@dataclass(frozen=True, slots=True)
class PeriodQuestion:
    """A query for everything in a period. `kinds` are those that it names, none if it asks for all.

    Memories of these kinds come first; other kinds are not left out, since a breakage on Monday may have been stored as
    a fact.
    """

    kinds: frozenset[Kind] = frozenset()


def asks_for_period(query: str) -> PeriodQuestion | None:
    """The question for everything in a period that a query asks, or None if it asks for anything else.

    "What did we decide this week?" asks for its decisions, "qué pasó ayer" for all of yesterday. "What did we decide
    about Kafka this week?" asks about Kafka, "who called yesterday?" about a person, "what do I do this week?" about a
    plan, and "when did we deploy?" names no time. Only call it for a query with windows: `time_windows` says which
    period is meant. Pure; never raises.
    """
    if len(query) > LONGEST:
        return None
    rest = without_times(query)
    if rest == read_query(query):
        return None
    written = _WORD.findall(_AND_WHY.sub("", rest))
    words = [word.casefold() for word in written]
    if any(word not in KINDS_NAMED and word not in _PAST and word not in EMPTY for word in words):
        return None
    if any(_may_be_a_name(word) for word in written[1:]):
        return None
    kinds = frozenset(KINDS_NAMED[word] for word in words if word in KINDS_NAMED)
    return PeriodQuestion(kinds) if kinds or not _PAST.isdisjoint(words) or not words else None


def _may_be_a_name(word: str) -> bool:
    """True if a word is capitalized unnecessarily: "Go" is a language, "Entscheidungen" is a noun."""
    return word != "I" and not word.islower() and word.casefold() in EMPTY and word.isalpha()
