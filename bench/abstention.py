"""Queries with and without an answer: queries about nothing, and short questions about short notes.

They are the same in every run.
"""

from __future__ import annotations

import random
from typing import Final

from bench.data_forms import UNDATED, Haystack, Item

EACH: Final = 20
"""The number of queries of each kind."""
_SEED: Final = 20
_ONSETS: Final = ("bl", "dr", "fr", "gl", "k", "m", "n", "pl", "qu", "sk", "sn", "str", "t", "v", "vr", "w", "z", "zh")
_NUCLEI: Final = ("a", "aa", "e", "eo", "i", "o", "oo", "u", "y")
_CODAS: Final = ("", "b", "ck", "ft", "g", "lm", "mp", "nd", "rx", "sh", "th", "zz")
# fmt: off
_RARE: Final = (
    "abseil", "alembic", "apse", "astrolabe", "ballast", "barnacle", "bellwether", "bobbin", "brazier", "bulkhead",
    "capstan", "carapace", "chasuble", "cistern", "corbel", "cormorant", "cutlass", "dirigible", "doubloon",
    "dowsing", "ermine", "escutcheon", "falconry", "ferrule", "flotsam", "flume", "gantry", "gimlet", "gneiss",
    "halberd", "halyard", "hawser", "isthmus", "javelin", "jetty", "keelson", "kelp", "lathe", "lichen", "lintel",
    "loess", "longboat", "mandrel", "marl", "mizzen", "moraine", "narwhal", "obelisk", "ossuary", "oxbow", "palisade",
    "pewter", "plinth", "poultice", "quoin", "rampart", "rivet", "scabbard", "schist", "scree", "sextant", "shale",
    "sluice", "spandrel", "sprocket", "stalactite", "tannery", "tarn", "thresher", "tiller", "trebuchet", "truss",
    "turret", "ullage", "vellum", "verdigris", "weir", "windlass", "yoke", "zeppelin",
)
# fmt: on
_OFF_TOPIC: Final = (
    "What is the melting point of tungsten hexafluoride?",
    "Who commanded the Ottoman fleet at the battle of Lepanto?",
    "Why does the Coriolis term vanish at the equator?",
    "How many chromosomes does a king crab have?",
    "Which pope crowned Charlemagne?",
    "What does the Riemann zeta function have at minus two?",
    "How is the pitch of a ship's propeller measured?",
    "When did the last mammoths die on Wrangel Island?",
    "Which enzyme unwinds the double helix before replication?",
    "What is the tensile strength of spider silk in gigapascals?",
    "How did Assyrian scribes harden clay tablets?",
    "Why is the Antarctic circumpolar current not stopped by land?",
    "What is the half-life of americium-241?",
    "Which moon of Neptune orbits backwards?",
    "How does a differential gear let the outer wheel turn faster?",
    "What was the tonnage of the clipper Thermopylae?",
    "Who deciphered Linear B?",
    "What is the Chandrasekhar limit in solar masses?",
    "How are the vowels of Old Church Slavonic reduced?",
    "Which treaty ended the War of the Pacific between Chile and Bolivia?",
)

# fmt: off
_NOTES: Final = (
    ("Our team lead is Priya.", ("who is boss",)),
    ("The staging database password rotates on the first of each month.", ("pasword rotatoin", "when do creds change")),
    ("We deploy with blue-green via deploy.sh on the bastion host.", ("how to ship", "release process")),
    ("User prefers tabs over spaces.", ("indentation style", "formatting preferences")),
    ("User prefers dark roast coffee without sugar.", ("what to drink",)),
    ("I am allergic to peanuts.", ("can I eat satay?", "what snacks are safe for me")),
    ("My daughter Emma starts school in September.", ("kids", "tell me about my family")),
    ("The CI runs on GitHub Actions with four shards.", ("build server", "where do tests run")),
    ("API keys live in Vault under kv/prod.", ("secrets location", "where are the tokens kept")),
    ("Postgres is on port 5433 locally because 5432 is taken.", ("db port", "which port for database")),
    ("Use feature flags for risky changes.", ("rollout policy",)),
    ("Never push to main; open a pull request.", ("git workflow", "branching rules")),
    ("The customer is called Acme and pays monthly.", ("billing", "client name")),
    ("Fixed the login bug by clearing the session cookie on logout.", ("auth problem", "sign-in issue fix")),
    ("Die Datenbank wird jede Nacht gesichert.", ("Wann ist das Backup?", "database backup")),
    ("Мы используем PostgreSQL 15.", ("какая база данных", "версия бд")),
    ("אנחנו משתמשים ב-Redis", ("מה המטמון",)),
    ("データベースはPostgreSQLです。", ("何のDBを使っていますか",)),
    ("نستخدم ريديس للتخزين المؤقت", ("ما هو التخزين المؤقت",)),
    ("Meeting notes 12 May: decided to drop IE11.", ("browser support", "which browsers do we support?")),
    ("Hiked Mount Rainier with Sam.", ("outdoor trips", "vacation")),
)
"""One-line notes as people write them, with their queries for them: paraphrases, typos, other scripts."""
# fmt: on


def queries() -> dict[str, tuple[str, ...]]:
    """Return the queries by kind: invented words, random combinations of rare words, off-topic questions."""
    chance = random.Random(_SEED)
    return {
        "made-up words": tuple(" ".join(_made_up(chance) for _ in range(chance.randint(3, 8))) for _ in range(EACH)),
        "rare words": tuple(" ".join(chance.sample(_RARE, chance.randint(3, 6))) for _ in range(EACH)),
        "off topic": _OFF_TOPIC,
    }


def _made_up(chance: random.Random) -> str:
    syllables = (
        chance.choice(_ONSETS) + chance.choice(_NUCLEI) + chance.choice(_CODAS) for _ in range(chance.randint(2, 3))
    )
    return "".join(syllables)


def short_haystack() -> tuple[Haystack, list[tuple[str, int]]]:
    """Return the notes, and each short question with the index of the note that answers it."""
    items = tuple(Item(f"note {place}", note, UNDATED) for place, (note, _) in enumerate(_NOTES))
    questions = [(text, place) for place, (_, asked) in enumerate(_NOTES) for text in asked]
    return Haystack("short notes", items, ()), questions
