"""Measures code search: `python -m bench.code QUESTIONS PACKAGES`.

It reports NDCG@10 over files, each ranked by its best chunk, and for comparison, that of SQLite's BM25 on the same
chunks. PACKAGES is a folder with the unpacked packages of the questions (`aiohttp/` or `aiohttp-3.13.3/`).
"""

import argparse
import statistics
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.baselines import WordIndex
from bench.measures import Answered, percentages
from remembrancer.actors.index_file import CodeWriter
from remembrancer.actors.store.file_index import CodeIndex
from remembrancer.code.reader import ReadFile, read_file
from remembrancer.code.tree import Tree

DEPTH: Final = 10
CANDIDATES: Final = 200
"""The number of chunks taken from the baseline. Each file is ranked by its best chunk."""
SHOWN: Final = ("NDCG@10", "any@1")


class Question(msgspec.Struct, frozen=True):
    """A question, and the files that answer it, relative to the package's directory."""

    query: str
    relevant: list[str]
    secondary: list[str] = []


class Package(msgspec.Struct, frozen=True):
    """A package, and the directory in it that the questions are about."""

    name: str
    questions: list[Question]
    version: str = ""
    root: str = ""


class Data(msgspec.Struct, frozen=True):
    """A file of questions."""

    packages: list[Package]


class Figures:
    """The answers of several systems, and our times."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answered]] = defaultdict(list)
        self.query_s: list[float] = []
        self.lines = 0
        self.indexed_s = 0.0


def ask_all(package: Package, folder: Path, database: Path, figures: Figures) -> None:
    """Index a package in a folder, and record the answers of both systems to its questions."""
    began = time.perf_counter()
    base = next(each for each in (folder / package.name, folder / f"{package.name}-{package.version}") if each.is_dir())
    tree = Tree(str(base / package.root))
    read = [read_file(tree.root, file) for file in tree.files()]
    index = CodeIndex(database)
    with closing(CodeWriter(database)) as writer:
        writer.take(tree.root, read)
    figures.indexed_s += time.perf_counter() - began
    files, texts = zip(*_texts_of(read), strict=True)
    figures.lines += sum(text.count("\n") + 1 for text in texts)
    words = WordIndex(texts)
    for question in package.questions:
        began = time.perf_counter()
        ranked = {"remembrancer": [each.file_path for each in index.search(question.query, DEPTH)]}
        figures.query_s.append(time.perf_counter() - began)
        ranked["bm25"] = list(dict.fromkeys(files[place] for place in words.rank(question.query, CANDIDATES)))
        wanted = frozenset((*question.relevant, *question.secondary))
        for system, found in ranked.items():
            labels = tuple((Path(package.root) / each).as_posix() for each in found[:DEPTH])
            figures.answers[system].append(Answered("", labels, wanted))
    index.close()
    words.close()


def _texts_of(read: Sequence[ReadFile]) -> Iterator[tuple[str, str]]:
    for file in read:
        for chunk in file.chunks:
            yield file.path, zlib.decompress(chunk.text).decode()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("packages", type=Path)
    given = parser.parse_args()
    data = msgspec.json.decode(given.questions.read_bytes(), type=Data)
    figures = Figures()
    with tempfile.TemporaryDirectory() as databases:
        for place, package in enumerate(data.packages):
            ask_all(package, given.packages, Path(databases, f"{place}.db"), figures)
    table = Table("system, in per cent", *SHOWN, title=f"{len(figures.query_s)} questions")
    for system, answers in figures.answers.items():
        table.add_row(system, *(f"{percentages(answers)[each]:.1f}" for each in SHOWN))
    query_ms = 1000 * statistics.median(figures.query_s)
    said = f"a search {query_ms:.2f} ms (median); {figures.lines:,} lines indexed in {figures.indexed_s:.2f} s"
    Console().print(table, said)


if __name__ == "__main__":
    main()
