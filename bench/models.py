"""Compares models in search by meaning alone: `python -m bench.models FILE … [--model ENGINE …]`.

FILE as for `bench.in_process`. For each set it prints the figures of words alone (BM25), then of each model's vectors:
a text is ranked by its nearest passage. `--across`: questions are also put to the texts of the next haystack, if it has
the same labels: the same texts in another language.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from bench.baselines import PassageVectors, WordIndex
from bench.datasets import Haystack, Question, load_sets
from bench.measures import DEPTH, Answered, percentages
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.passages import split_passages
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import DEFAULT_MODELS, REMOTE_ENGINES, Settings

NAMES: Final = ("any@1", "any@5", "any@10", "NDCG@10")
LOCAL: Final = [engine for engine in DEFAULT_MODELS if engine not in REMOTE_ENGINES]


def pairs(haystacks: Sequence[Haystack], *, across: bool) -> Iterator[tuple[Haystack, Haystack]]:
    """Yield haystacks with questions, each with the haystack whose texts are searched."""
    for place, asked in enumerate(haystacks):
        searched = haystacks[(place + 1) % len(haystacks)] if across else asked
        if across and searched is asked:
            continue
        if {item.label for item in searched.items} == {item.label for item in asked.items}:
            yield asked, searched


def across(haystacks: Sequence[Haystack]) -> list[Haystack]:
    """Put each haystack's questions to the same texts in another language, if there are any."""
    found = pairs(haystacks, across=True)
    return [msgspec.structs.replace(searched, questions=asked.questions) for asked, searched in found]


def ranked_by_words(searched: Haystack, questions: Sequence[Question]) -> list[list[int]]:
    """Return the indexes of the texts for each question, best first."""
    words = WordIndex([item.text for item in searched.items])
    found = [words.rank(question.text, len(searched.items)) for question in questions]
    words.close()
    return found


def ranked_by_meaning(engine: Engine, searched: Haystack, questions: Sequence[Question]) -> list[list[int]]:
    """Return the same by an engine's vectors."""
    texts: list[str] = []
    owners: list[int] = []
    for place, item in enumerate(searched.items):
        for start, end, _ in split_passages(item.text, engine.tokenizer, engine.passage_tokens):
            texts.append(item.text[start:end])
            owners.append(place)
    vectors = PassageVectors(engine.embed_passages(texts), np.array(owners), len(searched.items))
    asked = engine.embed_questions([question.text for question in questions])
    return [vectors.rank(vector, len(searched.items)) for vector in asked]


def answered(searched: Haystack, questions: Sequence[Question], rankings: Sequence[Sequence[int]]) -> list[Answered]:
    """Return the answers, without texts later than the question, where the set requires that."""
    found = []
    for question, ranking in zip(questions, rankings, strict=True):
        items = [searched.items[place] for place in ranking]
        may = [each for each in items if not searched.before or each.occurred_at <= question.asked_at]
        found.append(Answered(question.kind, tuple(each.label for each in may[:DEPTH]), question.wanted))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="JSON, or that packed by xz or gzip")
    parser.add_argument("--model", choices=LOCAL, action="append", help=f"one of {', '.join(LOCAL)}; again for more")
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="these sets of the files alone")
    parser.add_argument("--across", action="store_true", help="also over the texts of the next haystack")
    given = parser.parse_args()
    engines = {name: load_engine(Settings(engine=name), 2) for name in given.model or ["onnx", "multilingual"]}
    sets = {name: each for file in given.files for name, each in load_sets(file).items()}
    for name, haystacks in sets.items():
        if given.sets and name not in given.sets:
            continue
        for across in (False, True) if given.across else (False,):
            answers: dict[str, list[Answered]] = {}
            for asked, searched in pairs(haystacks, across=across):
                questions = asked.questions
                rankings = {"words": ranked_by_words(searched, questions)}
                rankings |= {model: ranked_by_meaning(each, searched, questions) for model, each in engines.items()}
                for system, each in rankings.items():
                    answers.setdefault(system, []).extend(answered(searched, questions, each))
            for system, its in answers.items():
                figures = "  ".join(f"{each} {percentages(its)[each]:5.1f}" for each in NAMES)
                print(f"{name + (' across' if across else ''):16} {system:14} {len(its):5}  {figures}", flush=True)


if __name__ == "__main__":
    main()
