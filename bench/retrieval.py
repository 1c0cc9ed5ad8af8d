"""Measures the quality of recall: `python -m bench.retrieval --data FILE [--only N] [--json] [--abstain] [--limit N]`.

FILE has LongMemEval or LoCoMo in the form described in `bench/data_forms.py`. Each question (or conversation) is a
project of a temporary runtime; its events are stored by `store_memory` with their dates, embedded, and asked for by
`recall_memories`. Three baselines answer the same questions over the same memories.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

if not __package__:  # when run by path, modules beside this file must not shadow libraries
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.client import ClientError
from bench.datasets import Dataset, DataUnusable, load
from bench.measures import DEPTH, NAMES, Answered, by_kind, percentages, percentile
from bench.retrieval_run import SYSTEMS, Failed, Measurement, Run, Say
from remembrancer.protocol.errors import RemembrancerError

INTERRUPTED = 130
UNUSABLE = 2
FAILED = 1
WIDTH = 132


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 measured, 1 something was not stored or not answered, 2 the file or an option is unusable, 130
    interrupted."""
    given = _arguments(argv)
    try:
        dataset = load(given.data).first(given.only)
    except DataUnusable as error:
        print(f"bench.retrieval: {error}", file=sys.stderr)
        return UNUSABLE
    run = Run(
        limit=given.limit,
        with_abstention=given.abstain,
        with_details=given.details is not None,
        say=_progress(),
    )
    try:
        measured = asyncio.run(_until_told_to_stop(run, dataset))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("bench.retrieval: interrupted; the runtime is stopped", file=sys.stderr)
        return INTERRUPTED
    except (Failed, RemembrancerError, ClientError, OSError) as error:  # for example when the session has ended
        print(f"bench.retrieval: {error!r}", file=sys.stderr)
        return FAILED
    if given.details is not None:
        given.details.write_text("".join(f"{json.dumps(each)}\n" for each in measured.details), encoding="utf-8")
    if not measured.recall_ms:
        print("bench.retrieval: nothing was asked: " + "; ".join(measured.problems), file=sys.stderr)
        return FAILED
    reported = report(dataset, measured)
    if given.json:
        print(json.dumps(reported, indent=2))
    else:
        print_tables(reported)
    return FAILED if measured.problems else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.retrieval", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="JSON, or that packed by xz or gzip")
    parser.add_argument("--only", type=_positive, metavar="N", help="the first N questions alone")
    parser.add_argument("--limit", type=_positive, default=DEPTH, help="memories that a recall asks for (default 10)")
    parser.add_argument("--abstain", action="store_true", help="ask each project for what it cannot know as well")
    parser.add_argument("--details", type=Path, metavar="FILE", help="write what each question got, a JSON line each")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


async def _until_told_to_stop(run: Run, dataset: Dataset) -> Measurement:
    """Run until finished; SIGTERM and SIGHUP end it in order, as SIGINT does."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await run.over(dataset)


def _progress() -> Say:
    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    return say


def report(dataset: Dataset, measured: Measurement) -> dict[str, Any]:
    """Return all results, as printed by `--json`. Shares are in per cent."""
    answers = measured.answers["remembrancer"]
    reported: dict[str, Any] = {
        "questions": len(answers),
        "systems": _figures(measured.answers),
        "by_type": {
            kind: {
                "questions": len(own),
                "systems": _figures({name: by_kind(each)[kind] for name, each in measured.answers.items()}),
            }
            for kind, own in by_kind(answers).items()
        },
        "recall_ms": {
            "p50": round(percentile(measured.recall_ms, 0.5), 2),
            "p95": round(percentile(measured.recall_ms, 0.95), 2),
        },
        "empty_answers": _share(measured.empty, len(answers)),
        "data": {
            "form": dataset.form,
            "projects": len(dataset.haystacks),
            "memories": measured.memories,
            "characters": measured.characters,
            "passages": measured.passages,
            "questions_left_out": dataset.left_out,
            "passed_over": dataset.passed_over,
            "evidence_not_in_the_memories": measured.evidence_absent,
        },
        "seconds": {part: round(took, 1) for part, took in measured.seconds.items()},
        "asked_again": measured.asked_again,
        "problems": measured.problems,
    }
    if measured.abstention:
        reported["abstention"] = {
            "asked": sum(map(len, measured.abstention.values())),
            "empty_by_sort": {sort: _share(sum(empty), len(empty)) for sort, empty in measured.abstention.items()},
            "empty": _share(sum(map(sum, measured.abstention.values())), sum(map(len, measured.abstention.values()))),
            "real_questions_empty": _share(measured.empty, len(answers)),
            "short_questions": {
                "asked": len(measured.short),
                "empty": _share(sum(empty for empty, _ in measured.short), len(measured.short)),
                "found": _share(sum(found for _, found in measured.short), len(measured.short)),
            },
        }
    return reported


def _figures(answers: dict[str, list[Answered]]) -> dict[str, dict[str, float]]:
    return {name: percentages(answers[name]) for name in SYSTEMS}


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def print_tables(reported: dict[str, Any]) -> None:
    """Print tables for a person."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    data = reported["data"]
    console.print(
        f"{data['form']}: {reported['questions']} questions in {data['projects']} projects, {data['memories']:,} "
        f"memories, {data['passages']:,} passages; figures in per cent"
    )
    table = Table("", *NAMES)
    for name, figures in reported["systems"].items():
        table.add_row(name, *(f"{figures[each]:.1f}" for each in NAMES))
    console.print(table)
    kinds = Table("remembrancer, by type", "questions", *NAMES)
    for kind, found in reported["by_type"].items():
        figures = found["systems"]["remembrancer"]
        kinds.add_row(kind, str(found["questions"]), *(f"{figures[each]:.1f}" for each in NAMES))
    console.print(kinds)
    times = reported["recall_ms"]
    console.print(f"a recall: p50 {times['p50']:.1f} ms, p95 {times['p95']:.1f} ms")
    console.print(f"real questions without an answer: {reported['empty_answers']:.1f} %")
    if said := reported.get("abstention"):
        by_sort = ", ".join(f"{sort} {share:.1f}" for sort, share in said["empty_by_sort"].items())
        console.print(f"queries about nothing without an answer: {said['empty']:.1f} % of {said['asked']} ({by_sort})")
        short = said["short_questions"]
        console.print(
            f"short questions about short notes without an answer: {short['empty']:.1f} % of {short['asked']}; "
            f"with their note in it: {short['found']:.1f} %"
        )
    console.print("seconds: " + ", ".join(f"{part} {took:.1f}" for part, took in reported["seconds"].items()))
    for reason, count in data["questions_left_out"].items():
        console.print(f"left out: {count} questions that {reason}")
    for what, count in data["passed_over"].items():
        console.print(f"in the file: {count} {what}")
    if absent := data["evidence_not_in_the_memories"]:
        console.print(f"evidence that is in no memory counts as not found: {len(absent)} questions")
    for problem in reported["problems"]:
        console.print(f"[red]problem:[/red] {problem}")


if __name__ == "__main__":
    sys.exit(main())
