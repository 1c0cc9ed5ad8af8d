"""Stop words in the most common languages, and a guess at a text's language. Pure.

Stop words of one language are names in another ("car", "die", "come"), so only those of its own language are removed
from a query.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Final

ENGLISH: Final = "en"
# The Snowball project's English list, without words that are meaningful in notes about software ("up", "off", "own").
_LISTS: Final = {
    ENGLISH: """
        a about above after again against all am an and any are aren't as at be because been before being below between
        both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each few for from
        further had hadn't has hasn't have haven't having he her here hers herself him himself his how i i'd i'll i'm
        i've if in into is isn't it it's its itself just let's me more most mustn't my myself no nor not of on once only
        or other ought our ours ourselves out over same shan't she should shouldn't so some such than that that's the
        their theirs them themselves then there there's these they they're this those through to too under until very
        was wasn't we we're were weren't what what's when where which while who whom why will with won't would wouldn't
        you you're your yours yourself yourselves
    """,
    "de": """
        aber als am an auch auf aus bei bin bis bist da damit das dass dem den denn der des die dies diese dieser dir
        doch du durch ein eine einem einen einer eines er es für gegen gibt hab habe haben hat hatte heißt ich ihm ihn
        ihr ihre im in ist ja kann kein keine können man mein meine meinem meinen meiner mich mir mit muss nach nicht
        noch nun nur ob oder ohne sehr sein seine sich sie sind so soll sollte um und uns unser unsere vom von vor wann
        war warum was welche welchem welchen welcher welches wem wen wenn wer werden wie wieso wir wird wo woher wohin
        worden wurde zu zum zur über darf viel viele lange
    """,
    "fr": """
        ai as au aux avec avait avons ce ces cette comment combien c d dans de des du elle elles en es est et eu faire
        faut il ils j je l la le les leur leurs lui m ma mais me mes moi mon n ne nos notre nous on ont ou où par pas
        peut plus pour pourquoi qu quand que quel quelle quelles quels qui quoi s sa se ses si son sont sur ta te tes
        ton tu t un une utilise vos votre vous y à été était
    """,
    "es": """
        a al algo ante como cómo con cual cuál cuáles cuando cuándo cuanto cuánto cuántos cuánta de del desde donde
        dónde el ella ellos en es esa ese eso esta este esto está están fue ha han hay la las le les lo los me mi mis
        muy más ni no nos nuestra nuestro o para pero por porque puede puedo que quien quién quiénes qué se ser si sin
        sobre son su sus sí te tiene tu un una unas uno unos usa y ya yo
    """,
    "pt": """
        a ao aos as com como da das de do dos e ela ele eles em era esta este está eu foi há isso já lhe mais mas me meu
        minha muito na nas no nos nossa nosso não o onde os ou para pela pelo por porque qual quais quando quanto
        quantos que quem se sem ser seu sua são só também tem um uma você à é
    """,
    "it": """
        a ai al alla anche che chi ci come con cosa da dal dalla dei del della delle di do dove e ed era gli ha hanno ho
        i il in io la le lei lo loro lui ma mi mia mio nel nella non o per perché più qual quale quali quando quanto
        quanti questa questo se si sono su sua suo tra un una uno è
    """,
    "nl": """
        aan al als bij dan dat de die dit een en er had heb heeft hem het hij hoe hoeveel ik in is je kan maar me met
        mijn naar niet nog nu of om onder ons ook op over te tot uit van voor waar waarom wanneer was wat we welke wie
        wij worden wordt ze zich zijn zo zou
    """,
    "ru": """
        а без бы был была были было в во вот где да для до его ее ему если есть ещё же за зачем и из или им их к как
        какая какие какого какое какой ко когда кто куда ли мне мои мой моя мы на над наш не нет ни но о об он она они
        от по под почему при с сколько со так там то тот ты у уже чего чей чем что чтобы это этот я
    """,
    "tr": """
        acaba ama ancak bana ben bir biz bu bunu da daha de değil diye en gibi hangi hem her için ile ise kaç kaçta kim
        kimde kimin mi mu mı mü nasıl ne neden nedir nerede nereden nereye niye o olan olarak onu sen siz ve veya ya
        zaman şu
    """,
    "pl": """
        a ale bo być czy co dla do gdzie i ich ile jak jaka jaki jakie jest już kiedy kto które który która ma mam na
        nad nie o od po pod przez przy są się ta tak tam te ten to w we z za ze że
    """,
}
STOP_WORDS: Final = {language: frozenset(text.split()) for language, text in _LISTS.items()}
_ORDER: Final = {language: place for place, language in enumerate(STOP_WORDS)}
_LANGUAGES: Final = {
    word: tuple(language for language, known in STOP_WORDS.items() if word in known)
    for word in frozenset().union(*STOP_WORDS.values())
}
_ELIDED: Final = frozenset(("c", "d", "j", "l", "m", "n", "qu", "s", "t"))
"""The letters of elided French words before an apostrophe."""
ENGLISH_STOP_WORDS: Final = STOP_WORDS[ENGLISH]
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SCRIPTS: Final = (
    ("ja", re.compile("[\u3041-\u30ff]")), ("zh", re.compile("[\u3400-\u9fff]")), ("ko", re.compile("[\uac00-\ud7a3]")),
    ("th", re.compile("[\u0e01-\u0e5b]")), ("ar", re.compile("[\u0600-\u06ff]")), ("he", re.compile("[\u0590-\u05ff]")),
    ("hi", re.compile("[\u0900-\u097f]")), ("el", re.compile("[\u0370-\u03ff]")), ("ru", re.compile("[\u0400-\u04ff]")),
)  # fmt: skip


@lru_cache(maxsize=8)  # a stored text is examined several times
def language_of(text: str) -> str | None:
    """The apparent language of a text: by its script if that is distinctive, else by its stop words.

    None if there are too few of them.
    """
    if not text.isascii():
        for language, letters in _SCRIPTS:
            if len(letters.findall(text)) * 3 > len(text):
                return language
    found = [word.casefold().replace("’", "'") for word in _WORD.findall(text)]
    written = [part for word in found for part in (word.split("'") if word.partition("'")[0] in _ELIDED else [word])]
    counts = Counter(language for word in written for language in _LANGUAGES.get(word, ()))
    return max(counts, key=lambda language: (counts[language], -_ORDER[language])) if counts else None


def stop_words_of(text: str) -> frozenset[str]:
    """The stop words of a query's language, or else of English."""
    return STOP_WORDS.get(language_of(text) or ENGLISH, STOP_WORDS[ENGLISH])
