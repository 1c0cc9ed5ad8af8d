"""`python -m examples.demo`: shows the system working on real text in its own home, as an MCP client sees it.

Four sessions of the SDK's client share one runtime. They store and recall at once, embedding follows in the background,
a program asks over HTTP, memories are changed and restored, notes and an earlier session are found, a second embedder
joins, the store and the gateway are killed, and everything that was acknowledged is still there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import sqlite3
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from textwrap import shorten
from typing import Final

import anyio
import httpx
from mcp import Client
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.real_text import memories
from examples.sessions import PATIENCE_S, Json, Promises, call, command, in_a_home_of_its_own, server, until
from remembrancer.commands.terminal import Terminal
from remembrancer.config.tokens import Tokens
from remembrancer.protocol.errors import Failure, MemoryUnavailable, from_failure
from remembrancer.protocol.paths import RuntimePaths

SESSIONS: Final = 4
BULK: Final = 2000
PROJECT: Final = "project"
TRANSCRIPTS: Final = "transcripts"
DURING_OUTAGE: Final = 200
MANY: Final = 100
"""The number of pending embeddings needed for a meaningful rate."""
SHOWN: Final = 90
"""The number of characters of a memory shown in the table."""
CONTEXT_TOKENS: Final = 300
REPOSITORY: Final = Path(__file__).parents[1]
CODE_QUESTIONS: Final = {
    "which files of a repository are ignored, vendored or minified": "remembrancer/code/tree.py",
    "CodeIndex": "remembrancer/code/index.py",
    "how is a memory promoted from session to project": "remembrancer/memory/promotion.py",
    "restart back-off of a process that died": "remembrancer/actors/launcher/lifecycle.py",
    "fit a recall into max_tokens": "remembrancer/toolsets/memory/recall_budget.py",
}
"""Questions about this repository, each with the file that answers it."""
OUTAGE_S: Final = 30.0
"""The time for which a status without figures counts as early: a killed process is being restarted."""

NOTES: Final = """
semantic   user    Ana prefers tabs over spaces, and British spelling in comments.
semantic   user    Ana reviews pull requests in the morning and does not want to be pinged after six.
procedural user    Commit messages: imperative mood, at most 72 characters in the first line, the why below.
semantic   project The billing service talks to the ledger over gRPC; REST is kept for the public API alone.
semantic   project We chose PostgreSQL over MySQL for the auth service because of its row-level security.
semantic   project Feature flags live in flags.toml and are read once at start-up; a change needs a restart.
procedural project To release: bump the version, run make dist, tag, wait for the canary for one hour, roll out.
procedural project Run the integration tests with docker compose up -d db and then pytest -m integration.
episodic   project On Tuesday the nightly export failed with ECONNRESET-104 behind the new proxy; a retry fixed it.
episodic   project The outage of 3 March came from an expired certificate on the load balancer.
semantic   project parse_invoice_totals() rounds half to even, which the accountants asked for.
semantic   project The search index is rebuilt every Sunday at 02:00 UTC and takes about forty minutes.
semantic   project Мобильное приложение обращается к API через шлюз с ограничением в 50 запросов в секунду.
episodic   session Looking at the flaky test in test_webhooks.py: it depends on the order of two callbacks.
"""
"""Memories as a developer's assistant keeps them: type, scope, content."""
QUESTIONS: Final[tuple[str, ...]] = (
    "why did we choose PostgreSQL for authentication?",
    "how do I ship a new version",
    "ECONNRESET-104",
    "does Ana prefer tabs or spaces?",
    "what caused the outage in March?",
    "which test is unreliable?",
    "xylophone quokka marmalade",
)


def figures_of(status: Json) -> Json:
    """Return the embedding part of the answer of `get_memory_status`.

    Raises:
        RemembrancerError: the answer is an error, or has no figures; it gives the reason.
    """
    if "embedding" in status:
        figures: Json = status["embedding"]
        return figures
    if "error" in status:
        raise from_failure(Failure(str(status["error"]), str(status.get("message", status["error"]))))
    said = "; ".join(warning["message"] for warning in status.get("warnings", ()))
    raise MemoryUnavailable(said or "the status has no figures")


async def show_system(home: Path, console: Console) -> bool:
    """Show the system at work. Returns whether every promise was kept."""
    demo = Demo(home, console)
    async with AsyncExitStack() as stack:
        await demo.connect(stack)
        await demo.remember()
        await demo.ask()
        await demo.ask_over_http()
        await demo.change_their_minds()
        await demo.read_what_is_in_files()
        await demo.ask_about_code()
        await demo.embed()
        await demo.ask_then_and_now()
        await demo.lose_the_store()
        await demo.lose_the_gateway()
        return await demo.settle()


class Demo:
    """The state of one demonstration: its sessions, and the memories acknowledged to them."""

    def __init__(self, home: Path, console: Console) -> None:
        self.home = home
        self.console = console
        self.clients: list[Client] = []
        self.acknowledged: dict[str, str] = {}
        self._promise = Promises(console)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.http_port = free.getsockname()[1]

    async def connect(self, stack: AsyncExitStack) -> None:
        """Open the sessions; the first one finds nothing running and starts the runtime."""
        self.console.rule("[bold]Four sessions, one memory")
        project = self.home / PROJECT
        project.mkdir()
        for number in range(SESSIONS):
            began = time.perf_counter()
            session = server(
                self.home,
                project,
                REMEMBRANCER_TOOLSETS="memory,files,graph,code",
                REMEMBRANCER_TRANSCRIPTS="true",
                REMEMBRANCER_HTTP_PORT=str(self.http_port),
                REMEMBRANCER_TRANSCRIPTS_PATH=str(self.home / TRANSCRIPTS / "*.jsonl"),
            )
            self.clients.append(await stack.enter_async_context(Client(session)))
            took_ms = (time.perf_counter() - began) * 1000
            self.console.print(f"  session {number + 1} is connected after {took_ms:,.0f} ms")

    async def remember(self) -> None:
        """Store and recall in all sessions at the same time."""
        self.console.rule("[bold]They store and recall at once")
        texts = memories(BULK)
        stores: list[float] = []
        recalls: list[float] = []
        for number, note in enumerate(NOTES.strip().splitlines()):
            kind, scope, content = note.split(maxsplit=2)
            # The session's own note goes to session 1, which asks for it later.
            client = self.clients[0 if scope == "session" else number % SESSIONS]
            await self._store(client, content, kind, scope)
        with _progress(self.console) as progress:
            bar = progress.add_task("storing", total=len(texts))

            async def work(client: Client, mine: list[str]) -> None:
                for place, text in enumerate(mine):
                    began = time.perf_counter()
                    await self._store(client, text)
                    stores.append(time.perf_counter() - began)
                    progress.advance(bar)
                    if place % 25 == 0:
                        began = time.perf_counter()
                        await call(client, "recall_memories", query=text[:60])
                        recalls.append(time.perf_counter() - began)

            async with anyio.create_task_group() as tasks:
                for number, client in enumerate(self.clients):
                    tasks.start_soon(work, client, texts[number::SESSIONS])
        self.console.print(
            f"  {len(stores):,} stores acknowledged after their commit, median {_median_ms(stores):.1f} ms; "
            f"{len(recalls)} recalls meanwhile, median {_median_ms(recalls):.1f} ms"
        )

    async def ask(self) -> None:
        """Ask questions in other words than the notes'."""
        await self._wait_embedded("embedding the rest")
        self.console.rule("[bold]What they remember")
        table = Table("question", "best memory", "relevance", "scope")
        for question in QUESTIONS:
            answer = await call(self.clients[0], "recall_memories", query=question, limit=3)
            found = answer["memories"]
            if found and found[0]["answers"] != "hardly":
                best = found[0]
                table.add_row(
                    question, shorten(best["content"], SHOWN), f"{best['relevance_score']:.2f}", best["scope"]
                )
            else:
                table.add_row(question, "[dim]nothing that is likely to answer", "–", "–")
        self.console.print(table)
        other = await call(self.clients[1], "recall_memories", query="flaky test in test_webhooks.py", scope="session")
        self._promise("a session's memory is invisible to the others", not other["memories"])

    async def ask_over_http(self) -> None:
        """Ask over HTTP, from a program that starts nothing, for the sessions' memories."""
        self.console.rule("[bold]The same over HTTP")
        url, params = f"http://127.0.0.1:{self.http_port}/mcp", {"query": QUESTIONS[0], "limit": 1}
        called = {"name": "recall_memories", "arguments": params}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called})
        token = Tokens(self.home).create("demo", (str(self.home / PROJECT),), time.time())
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        if shutil.which("curl") is not None:
            named = [each for item in headers.items() for each in ("-H", ": ".join(item))]
            line = ["curl", "-s", url, *named, "-d", body]
            self.console.print(f"  $ {escape(shlex.join(line))}", soft_wrap=True)
            said = (await anyio.run_process(line, check=False)).stdout
        else:
            async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
                said = (await client.post(url, content=body, headers=headers)).content
        found = json.loads(said)["result"]["structuredContent"].get("memories", ()) if said else ()
        for memory in found:
            self.console.print(f"  {escape(shorten(memory['content'], SHOWN))}")
        self._promise(
            "what the sessions stored is found over HTTP", any(each["id"] in self.acknowledged for each in found)
        )

    async def change_their_minds(self) -> None:
        """Show that every change can be undone, related memories are found together, and the context fits its
        budget."""
        self.console.rule("[bold]They change their minds")
        writer, reader = self.clients[0], self.clients[1]
        entities = [
            {"name": "BillingService", "type": "service", "relationship": "is deployed"},
            {"name": "Jenkins", "type": "tool", "relationship": "deployed_by", "subject": "BillingService"},
        ]
        before, after = (
            "BillingService is deployed by Jenkins.",
            "BillingService is deployed by Argo CD, on every merge.",
        )
        memory = (await self._store(writer, before, entities=entities))["memory_id"]

        async def found() -> list[str]:
            answer = await call(reader, "recall_memories", query="How is BillingService deployed?", limit=3)
            return [each["content"] for each in answer["memories"] if each["id"] == memory]

        argo = {"name": "Argo CD", "type": "tool", "relationship": "deployed_by", "subject": "BillingService"}
        swap = {"add": [argo], "remove": ["Jenkins"]}
        await call(writer, "update_memory", memory_id=memory, content=after, related_entities=swap)
        self.acknowledged[memory] = after
        self._promise("an update is what the other sessions find", await found() == [after])
        await call(writer, "forget_memory", memory_id=memory, reason="we are not sure any more")
        self._promise("a forgotten memory is not found", await found() == [])
        await call(writer, "restore_memory", memory_id=memory, version=1)
        self._promise("and every earlier version can be had back", await found() == [before])
        await call(writer, "restore_memory", memory_id=memory, version=2)
        graph = await call(reader, "search_knowledge_graph", entity="billing-service")
        edges = [
            f"{entity['name']} --{edge['type']}--> {edge['target']}"
            for entity in graph["entities"]
            for edge in entity["relationships"]
            if edge["direction"] == "outgoing"
        ]
        self.console.print(f"  the graph says: {'; '.join(edges)}")
        self._promise("the graph follows the memories", edges == ["BillingService --deployed_by--> Argo CD"])
        keys = "Nadia alone has the keys of Argo CD."
        nadia = {"name": "Nadia", "type": "person", "relationship": "guarded_by", "subject": "Argo CD"}
        tool = {"name": "Argo CD", "type": "tool", "relationship": "has keys"}
        await self._store(writer, keys, entities=[tool, nadia])
        question = "Who can help when BillingService was merged and is not deployed?"
        answer = await call(reader, "recall_memories", query=question, strategy="graph", limit=5)
        said = [each["content"] for each in answer["memories"]]
        self.console.print(f"  {question}\n    → {' → '.join(said[:2])}")
        self._promise("a memory that shares only an entity with a question's words answers it", keys in said)
        context = await call(
            reader,
            "get_memory_context",
            task_description="change how BillingService is deployed",
            max_tokens=CONTEXT_TOKENS,
        )
        self.console.print(Panel(escape(context["context_block"]), title="get_memory_context", border_style="dim"))
        used = context["tokens_used"]
        self._promise(f"the context has {used} tokens of {CONTEXT_TOKENS} allowed", used <= CONTEXT_TOKENS)

    async def ask_then_and_now(self) -> None:
        """Ask for a replaced fact as it was then, and as it is now."""
        self.console.rule("[bold]Then and now")
        writer, reader = self.clients[2], self.clients[3]
        old = await self._store(writer, "The session cookies were kept in Memcached.", since="2024-01-01")
        new = await self._store(writer, "The session cookies are kept in Valkey.", since="2025-03-01")
        over = {"reason": "Memcached lost them at each restart", "replaced_by": new["memory_id"]}
        await call(writer, "invalidate", id=old["memory_id"], **over)
        question = "where are session cookies kept?"
        now: list[str] = []

        async def answered() -> bool:  # new memories are found by words until they have a vector
            now[:] = [each["content"] for each in (await call(reader, "recall", query=question))["memories"]]
            return any("Valkey" in each for each in now[:1])

        with contextlib.suppress(TimeoutError):
            await until(answered)
        then = (await call(reader, "get_valid_at", timestamp="2024-06-01", limit=5))["memories"]
        for when, said in (("now", now[:1]), ("in June 2024", [each["content"] for each in then])):
            self.console.print(f"  {when}: {escape('; '.join(said))}")
        is_new = any("Valkey" in each for each in now[:1]) and not any("Memcached" in each for each in now)
        self._promise("what was replaced is not answered now", is_new)
        self._promise("and is what was true then, with why it is over", over["reason"] in str(then))

    async def read_what_is_in_files(self) -> None:
        """Find a note after an edit by hand, a note after an assistant's addition, and an earlier session."""
        self.console.rule("[bold]A note by hand, and an earlier session")
        note = self.home / PROJECT / "memory" / "deployment.md"
        note.parent.mkdir()
        note.write_text("# Deployment\n\nThe canary runs for one hour before we roll out.\n")
        question = "how long does the canary run?"
        await self._promise_found("a note that was written by hand is found", question, "one hour")
        note.write_text(note.read_text().replace("one hour", "two days"))
        await self._promise_found("and so is what it says after it was edited", question, "two days")
        await call(
            self.clients[1], "memory_store", path="memory/deployment.md", content="- It may be cut short by Ana."
        )
        whole = "# Deployment\n\nThe canary runs for two days before we roll out.\n\n- It may be cut short by Ana.\n"
        self._promise("what an assistant appends is in the file, beside what a person wrote", note.read_text() == whole)
        transcript = self.home / TRANSCRIPTS / "yesterday.jsonl"
        transcript.parent.mkdir()
        about = {"cwd": str(note.parent.parent), "sessionId": "yesterday", "timestamp": "2026-01-05T09:00:00Z"}
        said = (("user", "Why is the export slow?"), ("assistant", "It reads every invoice twice: the cache is cold."))
        lines = [
            {"type": role, "uuid": role, "message": {"role": role, "content": text}, **about} for role, text in said
        ]
        transcript.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        await call(self.clients[0], "memory_sync", source="sessions")
        await self._promise_found("what was said in an earlier session is found", "slow export", "the cache is cold")

    async def ask_about_code(self) -> None:
        """Index this repository, and ask questions about places in the code, with the memories about them."""
        self.console.rule("[bold]Where is it, and why")
        client = self.clients[0]
        why = "`terms_in` splits names into their parts, since people ask for a pool and mean ConnectionPool."
        memory = (await self._store(client, why, file="remembrancer/code/words.py"))["memory_id"]
        tree = (await call(client, "index_project", path=str(REPOSITORY), watch=False))["project_id"]

        async def is_indexed() -> bool:
            return bool((await call(client, "get_index_status", project_id=tree))["status"] == "ready")

        await until(is_indexed, what="the index of the code")
        table = Table("question", "place")
        right = 0
        for question, file in CODE_QUESTIONS.items():
            found = (await call(client, "search_code", query=question, limit=3))["results"]
            right += file in [each["file_path"] for each in found]
            table.add_row(question, f"{found[0]['file_path']}:{found[0]['start_line']}" if found else "–")
        self.console.print(table)
        self._promise("questions about code find the right places", right == len(CODE_QUESTIONS))

        async def said() -> tuple[str, str]:
            """Return the first place in the answer, and the state of the memory's code."""
            found = await call(client, "recall_memories", query=why, sources=["memory", "code"], limit=3)
            of_memory = (each.get("code", "") for each in found["memories"] if each["id"] == memory)
            return found["code"][0].get("name", ""), next(of_memory, "")

        async def is_known() -> bool:
            return bool((await said())[1])

        await until(is_known, what="the code of the memory")
        first, about = await said()
        self.console.print(f"  {escape(shorten(why, SHOWN))}\n  {escape(about)}")
        self._promise("why and where are one question", first == "terms_in" and about.startswith("unchanged: "))

    async def embed(self) -> None:
        """Measure the rate of one embedder, and of two when the second joins during the work."""
        self.console.rule("[bold]A second embedder under load")
        await self._scale(0)
        texts = [f"{text} (second edition)" for text in memories(BULK)]
        async with anyio.create_task_group() as tasks:
            for number, client in enumerate(self.clients):
                tasks.start_soon(self._store_all, client, texts[number::SESSIONS])
        rates = []
        for workers, left in ((1, BULK // 2), (2, 0)):
            await self._scale(workers)
            title = f"{workers} embedder{'s' if workers > 1 else ''} of one thread"
            rates.append(await self._wait_embedded(title, left))
        if all(rates):  # the few memories may be embedded before the rate is taken
            self.console.print(f"  the second embedder makes it {rates[1] / rates[0]:.2f} times as fast")

    async def lose_the_store(self) -> None:
        """Kill the store; writes continue to be queued, and are then drained."""
        self.console.rule("[bold]The store is killed")
        status = await self._status()
        os.kill(_pid(status, "store"), signal.SIGKILL)
        queued = 0
        with _progress(self.console) as progress:
            bar = progress.add_task("storing all the same", total=DURING_OUTAGE)
            for number in range(DURING_OUTAGE):
                client = self.clients[number % SESSIONS]
                answer = await self._store(client, f"Note {number} was written while the store was away.")
                queued += any(warning["code"] == "queued" for warning in answer.get("warnings", []))
                progress.advance(bar)
        self.console.print(f"  {DURING_OUTAGE} acknowledged, {queued} of them by the write queue")
        await self._wait_drained()
        status = await self._status()
        restarts = next(process["restarts"] for process in status["processes"] if process["role"] == "store")
        self._promise("the store is back and the write queue is empty", restarts >= 1)

    async def lose_the_gateway(self) -> None:
        """Kill the gateway during calls; the clients do not notice."""
        self.console.rule("[bold]The gateway is killed in the middle of calls")
        pid = _pid(await self._status(), "gateway")
        began = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for number, client in enumerate(self.clients):
                tasks.start_soon(
                    self._store_all, client, [f"Session {number} wrote note {n} meanwhile." for n in range(50)]
                )
            await anyio.sleep(0.02)
            os.kill(pid, signal.SIGKILL)
        took = time.perf_counter() - began
        self.console.print(f"  200 stores in flight or to come were all acknowledged, {took:.1f} s with the restart")

    async def settle(self) -> bool:
        """Compare the memories with the acknowledged ones. Returns whether every promise was kept."""
        self.console.rule("[bold]The account")
        await self._wait_drained()
        await self._wait_embedded("embedding the rest")
        there, derived = self._in_the_files()
        # Answers only have the end of an id, which may become ambiguous; the text identifies the memory.
        found = {
            each
            for short_id, content in self.acknowledged.items()
            for each, text in there.items()
            if each.endswith(short_id) and text == content
        }
        more = there.keys() - found
        self._promise(
            f"{len(self.acknowledged):,} memories were acknowledged, {len(found):,} are there: none lost",
            len(found) == len(self.acknowledged),
        )
        self._promise(
            f"none is there twice: the {len(more):,} others were made of them in the background", more <= derived
        )
        return self._promise.all_kept("To use it: see “Try it” in the README.")

    def _in_the_files(self) -> tuple[dict[str, str], set[str]]:
        """Return the texts of all unforgotten memories by id, and the ids of the derived ones."""
        paths, there, derived = RuntimePaths(self.home), dict[str, str](), set[str]()
        for path in filter(Path.exists, (paths.database,)):
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
                there |= dict(file.execute("SELECT id, content FROM memories WHERE forgotten_at IS NULL").fetchall())
                derived |= {
                    row[0]
                    for row in file.execute(
                        """SELECT m.id FROM memory_links AS l JOIN memories AS m ON m.number = l.source
                           WHERE l.relation = 'derived_from'"""
                    )
                }
        return there, derived

    async def _promise_found(self, text: str, question: str, said: str) -> None:
        """Promise that a search of the files finds a text, and show how soon."""
        began = time.perf_counter()

        async def found() -> bool:
            answer = await call(self.clients[2], "memory_search", query=question)
            return any(said in result["snippet"] for result in answer.get("results", ()))

        kept = True
        try:
            await until(found)
        except TimeoutError:
            kept = False
        self._promise(f"{text}, after {time.perf_counter() - began:.1f} s", kept)

    async def _store(
        self,
        client: Client,
        content: str,
        kind: str = "semantic",
        scope: str = "project",
        entities: Sequence[Json] = (),
        since: str | None = None,
        file: str | None = None,
    ) -> Json:
        about: Json = {"related_entities": list(entities)} if entities else {}
        about |= {"valid_from": since} if since else {}
        about |= {"source": {"file": file}} if file else {}
        answer = await call(client, "store_memory", content=content, type=kind, scope=scope, **about)
        if "memory_id" not in answer:
            self._promise.broken.append(f"a store was refused: {answer}")
        else:
            self.acknowledged[answer["memory_id"]] = content
        return answer

    async def _store_all(self, client: Client, texts: list[str]) -> None:
        for text in texts:
            await self._store(client, text)

    async def _status(self) -> Json:
        status: Json = json.loads((await command(self.home, "status", "--json")).stdout)
        return status

    async def _embedding(self) -> Json:
        status: Json = {}
        with anyio.move_on_after(OUTAGE_S):
            while "embedding" not in status and status.get("retry_possible", True):
                status = await call(self.clients[0], "get_memory_status")
                await anyio.sleep(0.05)
        return figures_of(status)

    async def _scale(self, workers: int) -> None:
        await command(self.home, "scale", f"embedder={workers}")

        async def ready() -> bool:
            return bool((await self._embedding())["workers"] == workers)

        await until(ready)

    async def _wait_drained(self) -> None:
        async def empty() -> bool:
            return bool((await self._status())["write_queue"]["depth"] == 0)

        await until(empty)

    async def _wait_embedded(self, title: str, left: int = 0) -> float:
        """Show the pending embeddings decreasing to `left`. Returns memories per second."""
        pending = (await self._embedding())["pending"]
        began = time.perf_counter()
        with _progress(self.console) as progress, anyio.fail_after(PATIENCE_S):
            bar = progress.add_task(title, total=max(0, pending - left))
            while (now := (await self._embedding())["pending"]) > left:
                progress.update(bar, completed=max(0, pending - now))
                await anyio.sleep(0.05)
            progress.update(bar, completed=max(0, pending - left))
        rate = (pending - now) / max(time.perf_counter() - began, 1e-9)
        if pending > MANY:
            self.console.print(f"  {title}: {rate:,.0f} memories a second")
        return float(rate)


def _median_ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000


def _pid(status: Json, role: str) -> int:
    return int(next(process["pid"] for process in status["processes"] if process["role"] == role))


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("  {task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


if __name__ == "__main__":
    sys.exit(0 if anyio.run(in_a_home_of_its_own, show_system, Terminal(highlight=True, soft_wrap=False)) else 1)
