"""The page templates, the filters that turn values into words, bars and markup, and the card in a conversation."""

import difflib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from remembrancer.code.actions import terms_of
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.features import FEATURES
from remembrancer.memory.sentences import excerpt, split_sentences, without_marks
from remembrancer.memory.short_ids import LEAST, WHOLE
from remembrancer.memory.text import count, harmless, tags_text
from remembrancer.protocol.kinds import KINDS
from remembrancer.toolsets.memory.day_log import CHANGE_WORDS

HERE: Final = Path(__file__).parent
MAX_DIFF_PARTS: Final = 2000
"""The maximum number of words (or else of lines) in two versions that are compared."""
MAX_MARKDOWN: Final = 20_000
"""Longer texts are not rendered as Markdown: some take seconds per 10,000 characters."""
WHOLE_CHARACTERS: Final = 320
"""Search results up to this length are shown in full."""
SEARCHED_CHARACTERS: Final = 8000
"""The number of characters of a longer text that are searched for the terms of the question."""
_CODE: Final = re.compile(r"`([^`\n<>]+)`")
"""Inline code in escaped text, without any marks of changed words."""
_WORDS: Final = re.compile(r"\s+|\w+|[^\w\s]")
_MEANS: Final = {
    "same words": ("words", "bm25", "names_missed", "context_words"),
    "same meaning": ("meaning", "opening", "context_meaning"),
    "time": ("time", "continues", "recency"),
    "a similar one is newer": ("outdated",),
    "replaced or no longer true": ("standing",),
    "applies to every task": ("rule",),
    "represents a better match": ("stands_for",),
    "mentions the same names": ("joined", "graph"),
    "importance": ("importance",),
    "said by the assistant": ("assistant",),
}
"""The features of a score, grouped by what they mean to people."""
_WHY: Final = {each.name: each.why for each in FEATURES} | {
    "rule": "conventions, preferences and procedures also apply to tasks that share none of their words",
    "stands_for": "it replaces, repeats or summarises a memory that fits better",
}
SCOPES: Final = {"project": "this project", "user": "all my projects", "session": "one session"}
FEW_WORDS: Final = 3
"""Fewer unchanged words than this between two changes are shown as changed, which is easier to read."""


class Bar(NamedTuple):
    """A part of a score, as a bar on a scale of 100 with zero at 50."""

    label: str
    why: str
    value: float
    x: float
    width: float


def bars(shares: Mapping[str, float]) -> list[Bar]:
    """The parts of a score by meaning, largest first; parts that add nothing are omitted."""
    # `standing` raises the score of a valid rule, and lowers the score of a memory that is no longer valid.
    shares = {"rule" if name == "standing" and value > 0.0 else name: value for name, value in shares.items()}
    parts = {label: sum(shares.get(name, 0.0) for name in names) for label, names in _MEANS.items()}
    ranked = sorted((each for each in parts.items() if abs(each[1]) >= 0.005), key=lambda each: -abs(each[1]))
    most = max((abs(value) for _, value in ranked), default=1.0)
    return [
        Bar(
            label,
            "; ".join(_WHY[name] for name in _MEANS[label] if abs(shares.get(name, 0.0)) >= 0.005),
            value,
            round(50 + min(0.0, value) / most * 50, 2),
            round(max(0.5, abs(value) / most * 50), 2),
        )
        for label, value in ranked
    ]


def word_diff(before: str, after: str, *, least: float = 0.0) -> Markup:
    """The second text, with removed and added words (or lines, if it is long) marked. There are no marks if the share
    of unchanged words is below `least`, or if there are very many lines."""
    for split in (_WORDS.findall, partial(str.splitlines, keepends=True)):
        old, new = split(before), split(after)
        if len(old) + len(new) <= MAX_DIFF_PARTS:
            parts = list(_diffed(old, new))
            kept = sum(len(text.split()) for text, is_marked in parts if not is_marked)
            if kept >= least * len(after.split()):
                return Markup("").join(text for text, _ in parts)
            break
    return escape(harmless(after))


def _diffed(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[Markup, bool]]:
    """The parts of the second text and the removed parts, each with True if it is marked as changed."""
    taken, put = "", ""
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for place, (tag, a, b, c, d) in enumerate(changes):
        same = "".join(new[c:d])
        if tag != "equal":
            taken, put = taken + "".join(old[a:b]), put + same
        elif 0 < place < len(changes) - 1 and len(same.split()) < FEW_WORDS and "\n" not in same:
            taken, put = taken + same, put + same
        else:
            yield from _changed(taken, put)
            taken, put = "", ""
            yield escape(harmless(same)), False
    yield from _changed(taken, put)


def _changed(taken: str, put: str) -> Iterator[tuple[Markup, bool]]:
    if taken:
        yield Markup("<del>{}</del>").format(harmless(taken)), True
    if put:
        yield Markup("<ins>{}</ins>").format(harmless(put)), True


class _Renderer(RendererHTML):
    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Images become their alternative text: loading them would reveal the reader to their server."""
        return str(escape(f"[{tokens[idx].content or 'image'}]"))

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        tokens[idx].attrSet("rel", "noopener noreferrer nofollow")
        tokens[idx].attrSet("target", "_blank")
        return self.renderToken(tokens, idx, options, env)


_markdown: Final = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable("table")


def markdown(text: str) -> Markup:
    """HTML in the text is shown as text."""
    if len(text) > MAX_MARKDOWN:
        return Markup('<p class="plain">{}</p>').format(harmless(text))
    return Markup(_markdown.render(harmless(text)))  # noqa: S704 - made of escaped texts only


def moment(at: float | None) -> Markup:
    if at is None:
        return Markup("never")
    local, past = datetime.fromtimestamp(at).astimezone(), time.time() - at
    text = _date(local, "%b")
    if 0 <= past < 86_400:
        text = "just now" if past < 60 else f"{past / 60:.0f} min ago" if past < 3600 else f"{past / 3600:.0f} h ago"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        local.isoformat(timespec="seconds"), local.strftime("%A, %d %B %Y, %H:%M:%S"), text
    )


def day(at: float | str | None) -> str:
    """The day of a due date in the format of a form field; empty if there is none. A typed day stays as it is."""
    return datetime.fromtimestamp(at, UTC).date().isoformat() if isinstance(at, float) else at or ""


def _date(on: date, month: str) -> str:
    year = "" if on.year == datetime.now().astimezone().year else f" {on.year}"
    return f"{on.day} {on:{month}}{year}"


def happened(at: float) -> Markup:
    return moment(at) if at % DAY_S else escape(when_due(at))


def inline(text: str) -> Markup:
    """A line of text with code marked up as code; existing markup is kept."""
    escaped = text if isinstance(text, Markup) else escape(harmless(text))
    return Markup(_CODE.sub(r"<code>\1</code>", str(escaped)))  # noqa: S704 - escaped


def clock(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M")


def when_due(due: float) -> str:
    on = datetime.fromtimestamp(due, UTC).date()
    days = (on - datetime.now().astimezone().date()).days
    if 1 < days < 7:
        return on.strftime("%A")
    return {0: "today", 1: "tomorrow", -1: "yesterday"}.get(days, _date(on, "%B"))


def _matching(text: str, question: str) -> str:
    """The text. A long text is cut to begin at the sentence with the most terms of the question."""
    terms = terms_of(question)
    if len(text) <= WHOLE_CHARACTERS or not terms:
        return text
    sentences = split_sentences(text[:SEARCHED_CHARACTERS]) or [text]
    best = max(sentences, key=lambda each: len(terms_of(each) & terms))
    return text if best == sentences[0] else f"… {text[text.find(best) :]}"


def environment() -> Environment:
    """The template environment. Every value is escaped, and invisible characters are removed."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: harmless(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"now": time.time, "kinds": KINDS, "scopes": SCOPES}
    made.filters |= {
        **{"markdown": markdown, "moment": moment, "happened": happened, "day": day, "excerpt": excerpt, "bars": bars},
        **{"inline": inline, "tags": tags_text, "count": count, "clock": clock, "when_due": when_due},
        **{"word_diff": word_diff, "without_marks": without_marks},
        "change_name": lambda change: CHANGE_WORDS.get(change, change),
        "matching": _matching,
        "short_ids": lambda text: WHOLE.sub(lambda memory_id: memory_id[0][-LEAST:], text),
        "percent": lambda part: f"{100 * part:.{0 if part >= 0.01 else 1}f} %" if part >= 0.001 else "less than 0.1 %",
        "is_past": lambda due: day(due) < datetime.now().astimezone().date().isoformat(),
        "scope": lambda scope: SCOPES.get(scope, scope),
        "line": lambda text, length: inline(excerpt(without_marks(text[: 9 * length]), length)),
        "exact": lambda text: Markup(escape(text)),  # noqa: S704 - unchanged, for editing
    }
    return made


@cache
def card_page() -> str:
    """The card in a conversation that shows the memories a tool just stored or found: a resource of the MCP Apps
    extension (https://github.com/modelcontextprotocol/ext-apps, 2026-01-26). A client that declares this extension
    shows the page, which loads nothing, in a frame, and passes the call's data to it."""
    assets = HERE / "assets"
    return (
        environment()
        .get_template("card.html")
        .render(
            style=Markup((assets / "browser.css").read_text(encoding="utf-8")),  # noqa: S704 - ours
            script=Markup((assets / "card.js").read_text(encoding="utf-8")),  # noqa: S704 - ours
        )
    )
