"""The verdicts on anchors over 200 commits of this repository, compared with what Python's own syntax says."""

from __future__ import annotations

import ast
import copy
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from remembrancer.code.anchors import Anchor, anchor_at, judged
from remembrancer.code.chunks import parsed
from remembrancer.code.symbols import PlacedSymbol, Symbol, symbols_of

ROOT: Final = Path(__file__).parents[2]
COMMITS: Final = 200
EVERY: Final = 25
"""One in so many symbols gets an anchor."""
FALSE_ALARMS: Final = 0.02
MISSED_ALARMS: Final = 0.02
ALARMS: Final = ("changed", "gone")
FALSE: Final = tuple((expected, verdict) for expected in ("same", "elsewhere") for verdict in ALARMS)
MISSED: Final = ("other", "fresh")
SAMPLED: Final = 10
"""Of the verdicts that are no alarms the syntax is asked for those on one anchor in so many."""


def git(*arguments: str, text: str = "") -> bytes:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], input=text.encode(), capture_output=True, check=True
    ).stdout


def last_name(name: str) -> str:
    return name.rpartition(".")[2].strip("_").lower()


class Tree:
    """The symbols of a tree by their places, as the index has them, and what Python's syntax says of each."""

    def __init__(self) -> None:
        self._files: dict[str, list[Symbol]] = {}
        self._named: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._like: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._texts: dict[str, str] = {}

    def put(self, path: str, text: str | None) -> None:
        for symbol in self._files.pop(path, ()):
            self._named[last_name(symbol.name)] -= Counter([path])
            self._like[symbol.digest] -= Counter([path])
        self._texts.pop(path, None)
        if text is not None:
            self._files[path] = list(symbols_in(text))
            self._texts[path] = text
        for symbol in self._files.get(path, ()):
            self._named[last_name(symbol.name)][path] += 1
            self._like[symbol.digest][path] += 1

    def said(self, path: str, name: str) -> list[frozenset[str]]:
        return sayings_in(self._texts[path]).get(name, []) if path in self._texts else []

    def paths(self, ending: str, most: int) -> list[str]:
        return [path for path in self._files if f"/{path}".endswith(f"/{ending}")][:most]

    def symbols_at(self, path: str, name: str) -> list[PlacedSymbol]:
        return [PlacedSymbol(path, each) for each in self._files.get(path, ()) if each.name == name]

    def symbols_named(self, name: str) -> list[PlacedSymbol]:
        return [
            each for each in self._of(self._named[last_name(name)]) if last_name(each.symbol.name) == last_name(name)
        ]

    def symbols_like(self, digest: int) -> list[PlacedSymbol]:
        return [each for each in self._of(self._like[digest]) if each.symbol.digest == digest]

    def all(self) -> Iterator[PlacedSymbol]:
        return self._of(self._files)

    def _of(self, paths: dict[str, int] | dict[str, list[Symbol]]) -> Iterator[PlacedSymbol]:
        return (PlacedSymbol(path, each) for path in sorted(paths) for each in self._files[path])


@cache
def symbols_in(text: str) -> tuple[Symbol, ...]:
    return tuple(symbols_of(parsed(text, "python"), text))


@cache
def sayings_in(text: str) -> dict[str, list[frozenset[str]]]:
    """By the path of a name what the definition says: a function its whole syntax without the docstring and its name, a
    class or a file its statements and the signatures in it, of which none may go."""
    found: defaultdict[str, list[frozenset[str]]] = defaultdict(list)

    def walk(node: ast.AST, name: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[name].append(frozenset([ast.dump(without_docstring(WithoutImports().visit(node), name="_"))]))
        elif isinstance(node, ast.ClassDef | ast.Module):
            body = without_docstring(node).body
            said = (signature(each) for each in body if not isinstance(each, ast.Import | ast.ImportFrom))
            found[name].append(frozenset(each for each in said if each))
        for child in getattr(node, "body", ()) if isinstance(node, ast.ClassDef | ast.Module) else ():
            walk_in(child, name)

    def walk_in(child: ast.stmt, name: str) -> None:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            walk(child, f"{name}.{child.name}" if name else child.name)
        elif isinstance(child, ast.If | ast.Try | ast.With):
            for each in child.body:
                walk_in(each, name)

    walk(ast.parse(text), "")
    return found


class WithoutImports(ast.NodeTransformer):
    """Takes the imports out, which have no part in what code says."""

    def visit_Import(self, node: ast.Import) -> None: ...
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None: ...


def without_docstring(node: Any, **changes: object) -> Any:
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    plain = copy.copy(node)
    plain.body = body
    for name, value in changes.items():
        setattr(plain, name, value)
    return plain


def signature(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        plain = copy.copy(node)
        plain.body = []
        return ast.dump(plain)
    return "" if isinstance(node, ast.If | ast.Try | ast.With | ast.Pass) else ast.dump(node)


def states() -> Iterator[tuple[str, dict[str, str | None]]]:
    """The commits, the oldest first, each with the Python files that it changed and what is in them. The first one has
    them all."""
    first, *later = reversed(git("rev-list", "--first-parent", f"--max-count={COMMITS + 1}", "HEAD").decode().split())
    changed = {first: {path: blob for blob, path in listed(git("ls-tree", "-r", first).decode())}}
    log = git("log", "--first-parent", "-m", "--raw", "--no-renames", "--abbrev=40", "--format=%H", f"{first}..HEAD")
    commit = ""
    for line in log.decode().splitlines():
        if line.startswith(":"):
            about, path = line.split("\t")
            if path.startswith("remembrancer/") and path.endswith(".py"):
                changed[commit][path] = about.split()[3]
        elif line:
            commit = line
            changed[commit] = {}
    blobs = sorted({blob for files in changed.values() for blob in files.values() if set(blob) != {"0"}})
    texts = dict(zip(blobs, contents(blobs), strict=True))
    for commit in (first, *later):
        yield commit, {path: texts.get(blob) for path, blob in changed[commit].items()}


def listed(tree: str) -> Iterator[tuple[str, str]]:
    for line in tree.splitlines():
        about, path = line.split("\t")
        if path.startswith("remembrancer/") and path.endswith(".py"):
            yield about.split()[2], path


def contents(blobs: list[str]) -> Iterator[str]:
    data, at = git("cat-file", "--batch", text="\n".join(blobs)), 0
    for _ in blobs:
        end = data.index(b"\n", at)
        size = int(data[at:end].split()[2])
        yield data[end + 1 : end + 1 + size].decode()
        at = end + size + 2


def same_elsewhere(name: str, was: list[frozenset[str]], tree: Tree) -> set[tuple[str, str]]:
    """The places of the symbols of that last name that say the same by Python's syntax."""
    named = tree.symbols_named(name) if name else []
    return {(path, each.name) for path, each in named if any(said in tree.said(path, each.name) for said in was)}


class Watched(NamedTuple):
    """An anchor, and what Python's syntax said of its code when it was made: itself, and the others that said so."""

    anchor: Anchor
    was: list[frozenset[str]]
    others: set[tuple[str, str]]

    def truth(self, tree: Tree) -> str:
        """The word of Python's syntax on the code: it is the same, has come to another place, or is no more."""
        path, name = self.anchor.path, self.anchor.was.name
        here = tree.said(path, name)
        if any(before <= now for before in self.was for now in here):
            return "same"
        return "elsewhere" if not here and same_elsewhere(name, self.was, tree) - self.others else "other"


def watched(tree: Tree, first: int) -> Iterator[Watched]:
    """The anchors of some symbols of a tree."""
    for each in list(tree.all())[first::EVERY]:
        name = each.symbol.name
        said = tree.said(each.path, name)
        if said:  # the others are in the body of a function, or are no Python
            yield Watched(anchor_at("tree", each, tree), said, same_elsewhere(name, said, tree))


def truth(anchor: Anchor, was: list[frozenset[str]], tree: Tree) -> str:
    """The word of Python's syntax on the code that an anchor is at: it is the same, the same elsewhere, or another."""
    here = tree.said(anchor.path, anchor.was.name)
    if any(before <= now for before in was for now in here):
        return "same"
    if anchor.was.name and not here:
        for path, symbol in tree.symbols_named(anchor.was.name):
            if any(each in tree.said(path, symbol.name) for each in was):
                return "elsewhere"
    return "other"


def test_two_hundred_commits_raise_no_false_alarm() -> None:
    try:
        count = int(git("rev-list", "--first-parent", "--count", "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no history is here")
    if count <= COMMITS:
        pytest.skip("the history was cut")
    tree, all_watched = Tree(), list[Watched]()
    seen: Counter[tuple[str, str]] = Counter()
    raised: Counter[str] = Counter()  # an alarm is raised once, however long it lasts
    wrong: Counter[tuple[str, ...]] = Counter()
    before = ""
    for place, (commit, changed) in enumerate(states()):
        for path, text in changed.items():
            tree.put(path, text)
        if place % (COMMITS // 4) == 0:
            all_watched += watched(tree, place % EVERY)
        for number, each in enumerate(all_watched):
            now = judged(each.anchor, tree, before)
            expected = each.truth(tree) if now.verdict in ALARMS or number % SAMPLED == 0 else "-"
            seen[expected, now.verdict] += 1
            if now.verdict in ALARMS and each.anchor.verdict not in ALARMS:
                raised[expected] += 1
            if (expected, now.verdict) in {*FALSE, MISSED}:
                wrong[now.verdict, expected, each.anchor.path, each.anchor.was.name] += 1
            all_watched[number] = each._replace(anchor=now)
        before = commit
    false = sum(seen[each] for each in FALSE)
    alarms = sum(count for (_, verdict), count in seen.items() if verdict in ALARMS)
    same = seen.total() - alarms + false
    print(f"{false} false: of {same} verdicts on code that is as it was {false / same:.2%}, of {alarms} alarms")
    print(len(all_watched), dict(seen), dict(raised), *wrong.items(), sep="\n")
    assert raised["other"] > COMMITS // 2
    assert false <= FALSE_ALARMS * same
    assert false <= FALSE_ALARMS * alarms
    assert raised.total() - raised["other"] <= FALSE_ALARMS * raised.total()
    assert seen[MISSED] * SAMPLED <= MISSED_ALARMS * alarms
