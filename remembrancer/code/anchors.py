"""Anchors: the place in the code that a memory is about, and its fate since. Pure.

An anchor keeps the content of a symbol as of when the memory was stored. It is judged again after every change of the
code, by the code alone, so a passing error is corrected at the next look.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from remembrancer.code.symbols import FILE, MOST_PIECES, PlacedSymbol, Symbol
from remembrancer.memory.found_names import FoundName

Verdict = Literal["fresh", "moved", "changed", "gone"]
MOST: Final = 4
"""The most anchors of one memory."""
ENOUGH_PIECES: Final = 3
"""A symbol with fewer pieces resembles others by chance, so it is not recognised under another name."""
ALIKE: Final = 0.5
"""The share of common pieces by which a symbol of the same name elsewhere is recognised."""
_ASIDE: Final = re.compile(
    r"(?:^|[/_.-])(?:tests?|specs?|examples?|demos?|fixtures?|mocks?|bench|benchmarks?)(?=$|[/_.-])"
)


class Anchor(msgspec.Struct, frozen=True, array_like=True):
    """A symbol (with an empty name: a file) as it was when its memory was stored, and its present place and state.

    `since` is the last commit with the old code, `share` the part that has changed, in [0, 1].
    """

    tree_id: str
    path: str
    was: Symbol
    place: str
    name: str
    line: int
    verdict: Verdict = "fresh"
    since: str = ""
    share: float = 0.0


class Symbols(Protocol):
    """The symbols of a tree, as its index has them."""

    def paths(self, ending: str, most: int) -> list[str]: ...
    def symbols_at(self, path: str, name: str) -> list[PlacedSymbol]: ...
    def symbols_named(self, name: str) -> list[PlacedSymbol]: ...
    def symbols_like(self, digest: int) -> list[PlacedSymbol]: ...


class Mentions(NamedTuple):
    """The names in a memory that may be names in the code."""

    files: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def mentions_of(names: Iterable[FoundName], source_file: str | None, roots: Iterable[str] = ()) -> Mentions:
    """The files and symbols that a memory may be about, by the names in its text and its source file.

    A plain capitalised word of a sentence does not count. `roots` are the trees' roots that a path may begin with.
    """
    files = [] if source_file is None else [source_file]
    symbols = []
    for name in names:
        if name.type == FILE:
            files.append(name.name)
        elif name.is_certain or name.name.islower():
            symbols.append(re.sub(r"::|->|#|/", ".", name.name.removesuffix("()")))
    above = re.compile("|".join((*(re.escape(f"{root}/") for root in roots), r"\./")))
    below = (above.sub("", file.partition(":")[0], count=1) if above.match(file) else file for file in files)
    return Mentions(tuple(dict.fromkeys(below)), tuple(dict.fromkeys(symbols)))


def anchors_of(mentions: Mentions, tree_id: str, code: Symbols) -> list[Anchor]:
    """The anchors of a memory with these mentions: one for each name with exactly one place in this tree."""
    files = [path for file in mentions.files if len(found := code.paths(file, 2)) == 1 for path in found]
    anchored: dict[tuple[str, str], PlacedSymbol] = {}
    for name in mentions.names:
        meant = _meant(name, files, code)
        if meant is not None:
            anchored.setdefault((meant.path, meant.symbol.name), meant)
    for file in files:
        if not any(path == file for path, _ in anchored):
            anchored.update(((file, ""), each) for each in code.symbols_at(file, "")[:1])
    return [
        Anchor(tree_id, path, symbol, path, symbol.name, symbol.start_line)
        for path, symbol in list(anchored.values())[:MOST]
    ]


def _meant(name: str, files: Sequence[str], code: Symbols) -> PlacedSymbol | None:
    """The one symbol that a name means. Among several, the one in a file that is mentioned too, or the one outside of
    tests."""
    found = [each for each in code.symbols_named(name) if f".{_dotted(each)}".endswith(f".{name}")]
    named = [each for each in found if each.path in files] or [each for each in found if not _ASIDE.search(each.path)]
    places = {(each.path, each.symbol.name) for each in named or found}
    return (named or found)[0] if len(places) == 1 else None


def _dotted(each: PlacedSymbol) -> str:
    return f"{each.path.rpartition('.')[0].replace('/', '.')}.{each.symbol.name}"


def judged(anchor: Anchor, code: Symbols, commit: str) -> Anchor:
    """The anchor, judged by the present code. `commit` is the one of the previous judgement."""
    there = code.symbols_at(anchor.path, anchor.was.name)
    here = (
        there
        if (anchor.place, anchor.name) == (anchor.path, anchor.was.name)
        else code.symbols_at(anchor.place, anchor.name)
    )
    for found in (there, here):
        same = next((each for each in found if _says_the_same(anchor.was, each.symbol)), None)
        if same is not None:
            return _at(anchor, same, "fresh" if found is there else "moved")
    if not there and not here and (moved := _elsewhere(anchor, code)) is not None:
        return _at(anchor, moved, "moved")
    since = anchor.since if anchor.verdict in ("changed", "gone") else commit
    nearest = min(there or here, key=lambda each: _changed_share(anchor.was, each.symbol), default=None)
    if nearest is None and anchor.was.name and _is_telling(anchor.was):
        alike = [each for each in code.symbols_named(anchor.was.name) if each.symbol.is_open == anchor.was.is_open]
        nearest = min(alike, key=lambda each: _changed_share(anchor.was, each.symbol), default=None)
        if nearest is not None and _changed_share(anchor.was, nearest.symbol) > ALIKE:
            nearest = None
    if nearest is None:
        return msgspec.structs.replace(anchor, verdict="gone", since=since, share=1.0)
    share = _changed_share(anchor.was, nearest.symbol)
    return msgspec.structs.replace(_at(anchor, nearest, "changed"), since=since, share=share)


def _at(anchor: Anchor, found: PlacedSymbol, verdict: Verdict) -> Anchor:
    line, name = found.symbol.start_line, found.symbol.name
    return msgspec.structs.replace(anchor, place=found.path, name=name, line=line, verdict=verdict, since="", share=0.0)


def _elsewhere(anchor: Anchor, code: Symbols) -> PlacedSymbol | None:
    """The symbol with the same content in another place; among several, the one with the most similar name and path."""
    was = anchor.was

    def likeness(each: PlacedSymbol) -> tuple[bool, bool, bool, bool]:
        return (
            each.symbol.name == was.name,
            _last(each.symbol.name) == _last(was.name),
            each.path == anchor.path,
            PurePosixPath(each.path).name == PurePosixPath(anchor.path).name,
        )

    found = sorted(code.symbols_like(was.digest), key=likeness)
    if not found:
        return None
    best = found[-1]
    is_alone = len(found) == 1 or likeness(found[-2]) < likeness(best)
    if best.symbol.name == was.name != "":
        return best
    return best if is_alone and _is_telling(was) else None


def _is_telling(symbol: Symbol) -> bool:
    return len(symbol.pieces) // 4 >= ENOUGH_PIECES


def _says_the_same(was: Symbol, now: Symbol) -> bool:
    if was.is_open and was.pieces:  # the memory was not about later additions
        return _changed_share(was, now) == 0.0
    return was.digest == now.digest or (was.is_open and not was.pieces)


def _changed_share(was: Symbol, now: Symbol) -> float:
    """The share of its old pieces that a symbol has lost, or the share of its present pieces that are new, whichever is
    larger."""
    old, new = _numbers(was.pieces), _numbers(now.pieces)
    # Both keep only the pieces with the lowest numbers, so pieces above the other's last number may exist.
    lost = {piece for piece in old - new if len(new) < MOST_PIECES or piece < max(new)}
    if was.is_open:
        return len(lost) / max(1, len(old))
    came = {piece for piece in new - old if len(old) < MOST_PIECES or piece < max(old)}
    return max(len(lost) / max(1, len(old)), len(came) / max(1, len(new)))


def _numbers(pieces: bytes) -> set[int]:
    return set(array("I", pieces))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def worst_of(anchors: Sequence[Anchor]) -> Anchor:
    """The anchor by which a memory is judged: "gone" only if all are gone, otherwise the one that has changed most."""
    order: list[Verdict] = ["gone", "changed", "moved", "fresh"]
    here = [anchor for anchor in anchors if anchor.verdict != "gone"]
    worst = min(anchors, key=lambda each: (order.index(each.verdict), -each.share))
    if worst.verdict == "gone" and here:
        return msgspec.structs.replace(worst, verdict="changed")
    return worst


def described(anchor: Anchor) -> str:
    """An anchor in about five words, with its place."""
    place = f"{anchor.place}:{anchor.line}" + (f" {anchor.name}" if anchor.name else "")
    since = f" since {anchor.since}" if anchor.since else ""
    if anchor.verdict == "gone":
        return f"gone{since}: {place}"
    if anchor.verdict == "changed":
        return f"changed{since}, {max(1, round(100 * anchor.share))} % of it: {place}"
    if anchor.verdict == "moved":
        was = " ".join(each for each in (anchor.path, anchor.was.name) if each)
        return f"moved from {was}: {place}"
    return f"unchanged: {place}"
