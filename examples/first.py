"""`python -m examples.first`: two sessions with one memory, in a minute. It survives a kill, is found and is
replaced."""

import asyncio
import os
import signal
import sys
from typing import Final

from rich.console import Console
from rich.markup import escape

from bench.harness import runtime, wait_until

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
LOADED_S: Final = 120.0
"""The time allowed for loading the model."""


async def show_first(console: Console) -> bool:
    """Show a typical first day, in a home of its own. Returns whether every promise was kept."""
    promises: list[bool] = []

    def promise(text: str, kept: bool) -> None:
        promises.append(kept)
        console.print(f"  {'[green]✓' if kept else '[red]✗'}[/] {text}")

    async with runtime(call_budget_s="40", bridge_budget_s="60") as running:  # no call fails if it stalls for seconds
        project = running.home / "shop"
        project.mkdir()
        console.rule("[bold]Monday: an assistant stores what it learns")
        async with running.client(project) as monday:
            stored = [(await monday.store(text, kind=kind))["memory_id"] for text, kind in FACTS]
            console.print(*(f"  stored: {escape(text)}" for text, _ in FACTS), sep="\n")
            processes = (await running.status())["processes"]
            for process in processes:
                os.kill(process["pid"], signal.SIGKILL)
            console.print(f"  … and all {len(processes)} processes are killed with -9")
        console.rule("[bold]Thursday: another assistant, another editor")
        async with running.client(project) as thursday:

            async def answer_to(question: str) -> str:
                memories = (await thursday.call("recall_memories", query=question, limit=1)).get("memories", ())
                return "".join(each["content"] for each in memories)

            async def finds_by_meaning() -> bool:
                return "Tuesdays" in await answer_to("when may I release?")  # the memory has no word of the question

            with console.status("the model is being loaded, once"):
                await wait_until(finds_by_meaning, LOADED_S)
            for question, word in QUESTIONS.items():
                answer = await answer_to(question)
                promise(f"[bold]{escape(question)}[/]  {escape(answer)}", word in answer)
            await thursday.store(NEWS, kind="decision", supersedes=stored[0])
            promise(f"[bold]replaced:[/] {escape(NEWS)}", "Valkey" in await answer_to("what do we cache with?"))
            kept = await thursday.call("get_memory", memory_id=stored[0])
            promise(f"[bold]and nothing is lost:[/] {escape(kept['content'])}", kept["content"] == FACTS[0][0])
    if all(promises):
        console.print("[green]Every promise was kept.[/] Yours: pipx install ., then remembrancer add …, search …,")
        console.print("setup CLIENT. A whole week: make demo-week.")
    return all(promises)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(show_first(Console())) else 1)
