"""`python -m examples.first`: shows two sessions and one memory in a minute: stored, killed, found, replaced and
kept."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Final

import anyio
from mcp import Client
from rich.console import Console
from rich.markup import escape

from examples.sessions import call, command, in_a_home_of_its_own, server, until

FACTS: Final = (
    ("The shop's cache is Redis 7, without persistence", "fact"),
    ("We deploy on Tuesdays and Thursdays, with two approvals", "convention"),
    ("Anna Lindqvist owns the payment gateway: ask her before you touch retries", "fact"),
)
QUESTIONS: Final = {
    "when may I release?": "Tuesdays",
    "who knows about payments?": "Anna",
    "what do we cache with?": "Redis",
}
"""Questions, each with a word of its answer."""
NEWS: Final = "The shop's cache is Valkey 8 since Monday, because of the licence"


async def show_first(home: Path, console: Console) -> bool:
    """Show a typical first day. Returns whether every promise was kept."""
    broken, project = 0, home / "shop"
    project.mkdir()

    def promise(text: str, kept: bool) -> None:
        nonlocal broken
        broken += not kept
        console.print(f"  {'[green]✓' if kept else '[red]✗'}[/] {text}")

    console.rule("[bold]Monday: an assistant stores what it learns")
    async with Client(server(home, project)) as monday:
        stored = [(await call(monday, "store_memory", content=text, kind=kind))["memory_id"] for text, kind in FACTS]
        console.print(*(f"  stored: {escape(text)}" for text, _ in FACTS), sep="\n")
        status = json.loads((await command(home, "status", "--json")).stdout)
        for process in status["processes"]:
            os.kill(process["pid"], signal.SIGKILL)
        console.print(f"  … and all {len(status['processes'])} processes are killed with -9")
    console.rule("[bold]Thursday: another assistant, another editor")
    async with Client(server(home, project)) as thursday:

        async def answer_to(question: str) -> str:
            memories = (await call(thursday, "recall_memories", query=question, limit=1)).get("memories", ())
            return "".join(each["content"] for each in memories)

        async def finds_by_meaning() -> bool:
            return "Tuesdays" in await answer_to("when may I release?")  # the memory has no word of the question

        with console.status("the model is being loaded, once"):
            await until(finds_by_meaning, what="an answer by meaning")
        for question, word in QUESTIONS.items():
            answer = await answer_to(question)
            promise(f"[bold]{escape(question)}[/]  {escape(answer)}", word in answer)
        await call(thursday, "store_memory", content=NEWS, kind="decision", supersedes=stored[0])
        promise(f"[bold]replaced:[/] {escape(NEWS)}", "Valkey" in await answer_to("what do we cache with?"))
        kept = await call(thursday, "get_memory", memory_id=stored[0])
        promise(f"[bold]and nothing is lost:[/] {escape(kept['content'])}", kept["content"] == FACTS[0][0])
    if broken:
        console.print(f"[red]{broken} promises were not kept.")
    else:
        console.print("[green]Every promise was kept.[/] Yours: pipx install ., then remembrancer add …, search …,")
        console.print("setup CLIENT. A whole week: make demo-week.")
    return not broken


if __name__ == "__main__":
    sys.exit(0 if anyio.run(in_a_home_of_its_own, show_first, Console()) else 1)
