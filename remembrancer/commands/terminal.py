"""Output for people: standard output and error, without control characters from stored texts."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import Timer
from typing import Any, Final, Literal, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from remembrancer.memory.text import printable

SLOW_S: Final = 1.0


@contextmanager
def notice_when_slow(text: str) -> Iterator[None]:
    """After a second, tell a user at a terminal what this process is waiting for."""
    if not (text and sys.stderr.isatty()):
        yield
        return
    timer = Timer(SLOW_S, lambda: print(f"{text} …", file=sys.stderr, flush=True))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class CleanStream:
    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Terminal(Console):
    def __init__(self, **options: Any) -> None:
        raw = sys.stdout.stream if isinstance(sys.stdout, CleanStream) else sys.stdout
        super().__init__(file=raw, **{"highlight": False, "soft_wrap": True, **options})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def table(*headings: str, **column: Any) -> Table:
    """A column whose heading begins with > is aligned to the right."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
        made.add_column(heading.removeprefix(">"), justify=justify, **column)
    return made


def styled(markup: str) -> Text:
    return Text.from_markup(markup, overflow="ignore")


def unwrapped(text: str) -> Text:
    """Line breaks would corrupt a link or JSON."""
    return Text(text, no_wrap=True)


def print_lines(lines: Sequence[RenderableType]) -> None:
    """Print lines. One with a word wider than the screen, such as a link, is not wrapped, nor is any line in a pipe."""
    out = Terminal(soft_wrap=False)

    def text_of(line: str) -> Text:
        has_long_word = any(len(word) > out.width for word in line.split())
        return unwrapped(line) if has_long_word else Text(line, overflow="ignore")

    texts = [text_of(line) if isinstance(line, str) else line for line in lines]
    if not out.is_terminal:
        out.width = 200
        for line, text in zip(lines, texts, strict=True):
            with out.capture() as captured:
                out.print(text, soft_wrap=isinstance(text, Text))
            print(line if isinstance(line, str) else "\n".join(map(str.rstrip, captured.get().splitlines())))
        return
    height = sum(len(out.render_lines(text, pad=False)) for text in texts)
    os.environ.setdefault("LESS", "-FRX")
    with out.pager(styles=True) if sys.stdin.isatty() and height >= out.height else nullcontext():
        for text in texts:
            out.print(text, crop=False, soft_wrap=isinstance(text, Text) and bool(text.no_wrap))


def clean_output() -> None:
    """From now on, remove control characters from everything that this process prints."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, CleanStream):
            setattr(sys, name, CleanStream(stream))
