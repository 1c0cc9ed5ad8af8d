"""The shell commands that change memories and undo changes."""

import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import click

from remembrancer.commands.finding import command_of, has_ended, local_time, log_of, minute, tag_option, tags_given
from remembrancer.commands.report import YES, Report, argument, confirm, flag, option
from remembrancer.commands.selection import (
    WITHOUT_USER,
    Answer,
    Where,
    as_notes,
    ask_store,
    memory_command,
    memory_id,
    short,
    warnings_of,
    without_none,
)
from remembrancer.memory.promotion import named_kind
from remembrancer.memory.sentences import excerpt
from remembrancer.memory.short_ids import has_part, id_or_part
from remembrancer.memory.text import count
from remembrancer.protocol.browsing import MOST_PAIRS, FindUndecided, Pair
from remembrancer.protocol.errors import InvalidInput, MemoryUnavailable, NotFound
from remembrancer.protocol.kinds import KINDS
from remembrancer.protocol.runs import IMPORTS
from remembrancer.protocol.session_life import SHELL_SESSION

RUN: Final = "run:"
QUOTED: Final = 80
"""The maximum number of characters quoted from a memory in the message about its change."""
QUOTED_OLD: Final = 300
"""The maximum number of characters quoted from a memory when asking whether a new memory replaces it."""
UNCHANGED: Final = "Nothing was changed: the memory already has these values."


def due_date(text: str) -> str:
    """Parse a due date for the tools: a day (2026-02-20, optionally with a local time; 4 December; `today`; `tomorrow`;
    `next month`; a weekday, meaning the next one or today; `next Friday`, meaning the one next week). An empty text or
    `none` clears it."""
    from remembrancer.memory.open_ends import day_named
    from remembrancer.toolsets.memory.answers import iso

    today, word = datetime.now().astimezone(), text.strip().lower()
    if word in ("", "none"):
        return ""
    if word == "yesterday":
        return f"{today - timedelta(days=1):%Y-%m-%d}"
    if (day := day_named(word, today.timestamp())) is not None:
        return f"{datetime.fromtimestamp(day, UTC):%Y-%m-%d}"
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(text)
        return iso(at.timestamp()) if len(text) > len("2026-02-20") else text
    raise click.BadParameter(
        f"{text!r} is not a day; use a date such as '2026-02-20 14:00', 2026-02-20 or '4 December', yesterday, today, "
        "tomorrow, Friday, 'next month' or none"
    )


def past_day(text: str) -> str:
    """Parse today or a past day, in any form that `log` accepts. An empty text or `none` clears it."""
    from remembrancer.toolsets.memory.day_log import day_of

    if text.strip().lower() in ("", "none"):
        return ""
    return f"{datetime.fromtimestamp(day_of(text, time.time()).start):%Y-%m-%d}"


def share(text: str) -> float:
    """Unlike `click.FloatRange`, refuses nan."""
    with suppress(ValueError):
        if 0 <= (value := float(text)) <= 1:
            return value
    raise click.BadParameter(f"type a number such as 0.5 (0-1), not {text!r}")


ID: Final = argument("memory", metavar="ID", type=memory_id, help="An id as shown in lists.")
IDS: Final = argument("memories", nargs=-1, required=True, metavar="ID...", type=memory_id, help="An id from a list.")
SUPERSEDES: Final = option(
    "--supersedes",
    type=memory_id,
    multiple=True,
    callback=lambda _, __, ids: ids or None,
    metavar="ID",
    help="The memory that this one replaces (may be repeated).",
)
REASON: Final = option("--reason", metavar="TEXT", help="A reason, kept in the history.")
FIELDS: Final = (
    option(
        "--due",
        type=due_date,
        metavar="DATE",
        help="The due date of an open end: '2026-02-20 14:30', '4 December', tomorrow, Friday, 'next month'; "
        "none removes it.",
    ),
    option(
        "--on",
        "occurred_at",
        type=past_day,
        metavar="DAY",
        help="The day it happened: yesterday, Tuesday, 2026-02-20; none removes it.",
    ),
    option("--kind", type=click.Choice(KINDS, case_sensitive=False), metavar="KIND", help=", ".join(KINDS)),
    option("--importance", type=share, metavar="0-1", help="The memory's importance."),
    option("--summary", metavar="TEXT", help="A one-line summary of a long text."),
    flag("--allow-secrets", help="Allow text that looks like a credential."),
)


@memory_command(
    argument("text", nargs=-1, metavar="[TEXT]...", help="The text; - reads standard input. Without, opens $EDITOR."),
    tag_option("--tag", help="May be repeated; a,b adds two tags."),
    SUPERSEDES,
    *FIELDS,
)
def add(where: Where, text: Sequence[str], tag: Sequence[str], allow_secrets: bool, **given: Any) -> Report:
    """Remember something, for this project or (with --user) everywhere."""
    from remembrancer.commands.projects import notice_of_move

    if where.all_projects:
        raise InvalidInput("a memory belongs to one project (--project), or to you in all projects (--user)")
    content = " ".join(text)
    if content == "-" or (not content and not sys.stdin.isatty()):
        content = _input_text()
    content = content or (edited("").strip() if sys.stdin.isatty() else "")
    if not content:
        raise InvalidInput("there is nothing to remember: the text is empty")
    conversation = where.first()
    answer = conversation.call(
        "store_memory",
        content=content,
        scope="user" if where.user else None,
        tags=list(tag) or None,
        allow_secrets=allow_secrets or None,
        wait_for_embedding=conversation.embeds_soon or None,
        **given | {name: given[name] or None for name in ("due", "occurred_at")},
    )
    known = "Already remembered" if answer.get("already_known") else "Remembered"
    owner = "all your projects" if where.user else f"the project {where.places[0].label}"
    if answer.get("scope") == "session":
        owner = "the shell in this project only, until you forget it"
    ids = answer["ids"] if "ids" in answer else [answer["memory_id"]]
    stored = [(_as_stored(where, each, answer) or {"content": content}, short(each)) for each in ids]
    line = "\n".join(f"{known} for {owner}{_state_of(it)}: {excerpt(it['content'])}  {name}" for it, name in stored)
    links = [] if "already_known" in answer else [link for it, _ in stored for link in it.get("links", ())]
    older = [link["target"] for link in links if link["relation"] == "supersedes"]  # perhaps an expired copy
    for replaced in older or given["supersedes"] or ():
        named = _name_of(where, replaced, answer) if given["supersedes"] else f"its earlier copy {short(replaced)}"
        line += f"\nIt replaces {named}"
    report = _done((answer, line))
    asked = [_remark_about(each, content, where.repeated) for each in answer.get("near", ())]
    asked += [
        f"To apply this preference in all your projects, run {where.command('edit {} --to user', name)}."
        for it, name in stored
        if it.get("kind") == "preference" and it["scope"] == "project"
    ]
    if not where.user and (moved := notice_of_move(Path(where.places[0].directory))):
        asked.append(moved)
    return report._replace(notes=(*report.notes, *asked))


def _remark_about(near: Answer, content: str, options: str) -> str:
    new, old = short(near["replaced_by"]), short(near["id"])
    whole = "replaces", "If it replaces all of it", f"edit {new} --supersedes {old}"
    part = "changes part of", "If only part of it has changed", f"edit {old}"
    done = "closes", "", f"edit {old} --done"
    order = (done, whole) if "if_done" in near else (part, whole) if "in_part" in near else (whole, part)
    (verb, _, first), (_, otherwise, second) = order
    newer = f"Perhaps “{excerpt(near.get('newer', content), QUOTED)}”{', added earlier,' if 'newer' in near else ''}"
    return (
        f"{newer} {verb} “{excerpt(near['content'], QUOTED_OLD)}”. If so, run "
        f"'remembrancer {first}{options}'. {otherwise}, run 'remembrancer {second}{options}'."
    )


def _state_of(memory: Answer, changed: Iterable[str] = ("occurred_at",)) -> str:
    """A memory's kind (unless it is a fact) and due date, such as ", an open end due 2026-12-05", or "done". The day of
    its event is included only if it was `changed`: otherwise it would read like the day of the change."""
    due, day = local_time(memory.get("due", "")), memory.get("occurred_at", "") if "occurred_at" in changed else ""
    state = "" if memory.get("kind", "fact") == "fact" else f", {named_kind(memory['kind'])}"
    state += f" due {due}" if due else ""
    state += ", which has passed" if due and due[:10] < f"{datetime.now():%Y-%m-%d}" else ""
    return (", done" if memory.get("done") else state) + (f", on {local_time(day)}" if day else "")


@memory_command(
    ID,
    argument(
        "words",
        nargs=-1,
        metavar="[TEXT]",
        help="The new text, in quotes; - reads standard input. With --replaced or --both: the pair's other memory.",
    ),
    option("--content", metavar="TEXT", help="The new text, even if it is one word."),
    flag("--done", "done", flag_value=True, default=None, help="Mark an open end as done."),
    flag("--reopen", "done", flag_value=False, default=None, help="Reopen an open end."),
    option(
        "--to",
        type=click.Choice(("project", "user")),
        help="Move a memory from its session to the project, or from the project to the user, or back.",
    ),
    flag("--replaced", "settled", flag_value="replaced", help="Resolve a pair in list --review: the newer is true."),
    flag("--both", "settled", flag_value="both", help="Resolve a pair in list --review: both are true."),
    SUPERSEDES,
    tag_option("--tag", "tags", help="A tag to add ('remembrancer tag' also removes tags)."),
    *FIELDS,
    REASON,
)
def edit(
    where: Where,
    memory: str,
    words: Sequence[str],
    content: str | None,
    done: bool | None,
    to: str | None,
    settled: str | None,
    tags: Sequence[str],
    allow_secrets: bool,
    reason: str | None,
    **given: Any,
) -> Report:
    """Change a memory: edit ID "new text"; without text or options, opens $EDITOR. Earlier versions are kept."""
    from remembrancer.toolsets.memory.day_log import with_fields, word_of

    if len(words) > 1:
        raise click.UsageError(f"put the new text in quotes: edit {short(memory)} {shlex.quote(' '.join(words))}")
    text = words[0] if words and settled is None else None
    if text is not None and content is not None:
        raise click.UsageError("the new text is given twice; give it either with --content or without")
    has_option = bool(tags or reason or to or settled or without_none(given))
    with suppress(InvalidInput, NotFound, MemoryUnavailable):
        has_option |= bool(text and where.ask("get_memory", memory_id=id_or_part(text)))  # another memory?
    if has_option and text and text != "-" and text.isascii() and " " not in text:  # the end of an unquoted value?
        raise click.UsageError(
            f"{text!r} may be the new text, another memory, or belong to an option; use --content for a new text of "
            "one word, and put an option's value of several words in quotes"
        )
    content = _input_text() if text == "-" else content if text is None else text
    changes = without_none({"content": content, "done": done, **given})
    changes |= {"tags": {"add": list(tags)}} if tags else {}
    if sum((settled is not None, to is not None, bool(changes))) > 1:
        raise click.UsageError("--to, --replaced and --both cannot be combined with each other or with other changes")
    if settled is not None:
        other = memory_id(words[0]) if words else ""
        return _settle(where, memory, other, settled == "replaced", reason)
    if to is not None:
        answer = where.ask("promote_memory", memory_id=memory, target_scope=to, reason=reason)
        stays = answer.get("previous_scope") == to  # a declined proposal
        name = _name_of(where, memory, answer)
        owner = "all your projects" if to == "user" else "the project"
        outcome = f"It stays with {owner}: {name}" if stays else f"Moved to {owner}: {name}"
        if not stays and answer.get("previous_scope") != "session":
            outcome += f"; {where.undo(memory)} in the same project moves it back"
        if "merged_into" in answer:
            outcome = f"Merged into the memory that says the same thing: {name}  {short(answer['merged_into'])}"
        return _done((answer, outcome))
    if not changes:
        text_before = str(where.ask("get_memory", memory_id=memory)["content"])
        where.close()  # the runtime may stop while the user is writing
        changes["content"] = edited(text_before).rstrip("\n")
    answer = where.ask("update_memory", memory_id=memory, allow_secrets=allow_secrets or None, reason=reason, **changes)
    changed = answer.get("updated_fields", list(changes))
    state = _state_of(_as_stored(where, memory, answer) or without_none(given), changed)
    if set(changes) == {"supersedes"}:
        name = " and ".join(_name_of(where, each, answer) for each in given["supersedes"])
        since = f"{f'and is{state[1:]}' if 'due' in changed else 'now'}; {where.undo(memory)} undoes that"
        return _done((answer, f"It replaces {name} {since if changed else 'already'}"))
    # The given text, since another edit may have followed.
    name = f"“{excerpt(content, QUOTED)}”" if content and "content" in changed else _name_of(where, memory, answer)
    is_closed = done and "kind" in changed and "done" not in changed
    outcome = with_fields(word_of("closed" if is_closed else "updated", changed, done=done is True), changed)
    line = f"{outcome.capitalize()}: {name}{'' if outcome == 'closed' else state}; {where.undo(memory)} undoes it"
    return _done((answer, line if changed else UNCHANGED))


def _settle(where: Where, memory: str, other: str, is_replaced: bool, reason: str | None) -> Report:
    memory = where.whole_id(memory)
    option, relation = ("--replaced", "supersedes") if is_replaced else ("--both", "related_to")
    for place, conversation in where.conversations():
        pairs: list[Pair] = []
        for hidden in (False, True):
            review = ask_store(FindUndecided(place.project, SHELL_SESSION, MOST_PAIRS, with_hidden=hidden))
            ends = [(pair.older.id, pair.newer.id, pair) for pair in review.pairs]
            ends += [] if is_replaced else [(newer, older, pair) for older, newer, pair in ends]
            pairs = pairs or [pair for one, two, pair in ends if has_part(one, memory) and has_part(two, other)]
        if len(pairs) > 1:
            others = (pair.newer if has_part(pair.older.id, memory) else pair.older for pair in pairs)
            choices = (f"'{option} {short(each.id)}' (“{excerpt(each.content, QUOTED)}”)" for each in others)
            raise InvalidInput(f"{short(memory)} is in {len(pairs)} pairs; name the other: {' or '.join(choices)}")
        for older, newer in ((pair.older, pair.newer) for pair in pairs):
            links = [{"relation": relation, "target": older.id}]
            answer = conversation.call("update_memory", memory_id=newer.id, add_links=links, reason=reason)
            text_of_older, text = (f"“{excerpt(each.content, QUOTED)}”" for each in (older, newer))
            line = f"Both are true: {text_of_older} and {text}; {where.undo(newer.id)}"
            if is_replaced:
                moved = "due" in answer.get("updated_fields", ())
                state = _state_of(_as_stored(where, newer.id, answer) or {}) if moved else ""
                line = f"{text_of_older} is replaced by: {text}{state}; {where.undo(older.id)}"
            return _done((answer, f"{line} undoes that"))
    where_not = "not the older memory of any pair" if is_replaced else "not in a pair"
    where_not += f" with {short(other)}" if other else ""
    raise NotFound(
        f"{short(memory)} is {where_not} in 'remembrancer list --review'; to say what replaces it, run "
        f"{where.command('edit NEWER --supersedes {}', memory)}"
    )


def _input_text() -> str:
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the input is not UTF-8: byte {error.start} is not valid") from error


def edited(text: str) -> str:
    if not sys.stdin.isatty():
        raise InvalidInput("there is no terminal for an editor; give the text (edit ID TEXT), or - for standard input")
    try:
        return click.edit(text, extension=".md", require_save=False) or ""
    except click.ClickException as error:
        raise InvalidInput(f"{error.message}, so nothing was saved; set EDITOR to your editor") from error


@memory_command(
    ID,
    argument("tags", nargs=-1, callback=tags_given, metavar="[TAG]...", help="Tags to add; a,b adds two tags."),
    tag_option("--remove", help="A tag to remove; a,b removes two."),
)
def tag(where: Where, memory: str, tags: Sequence[str], remove: Sequence[str]) -> Report:
    """Add tags to a memory, or remove them."""
    if not tags and not remove:
        raise click.UsageError("name the tags to add, or give --remove TAG")
    own: dict[str, str] = {}
    with suppress(MemoryUnavailable):  # it will be queued
        tagged = where.ask("get_memory", memory_id=memory).get("tags", ())
        own = {name.casefold(): name for name in tagged} | {name: name for name in tagged}
    remove = [own.get(tag) or own.get(tag.casefold(), tag) for tag in remove]
    answer = where.ask("tag_memory", memory_id=memory, add=list(tags) or None, remove=remove or None)
    tags_now = ", ".join(answer.get("tags", ()))
    if answer.get("updated_fields") == []:
        has = [f"is already tagged {', '.join(tags)}"] * bool(tags) + [f"has no tag {', '.join(remove)}"] * bool(remove)
        return _done((answer, f"Nothing was changed: the memory {' and '.join(has)}. Tags: {tags_now or 'none'}"))
    outcome = f"{_name_of(where, memory, answer)} is tagged {tags_now}" if tags_now else "It has no tags now"
    return _done((answer, f"{outcome}; {where.undo(memory)} undoes it"))


# --- forgetting and restoring ---


@memory_command(
    IDS,
    REASON,
    flag("--for-good", help="Delete the memories: content, history, vectors, full text and queued copies. Asks first."),
    YES,
)
def forget(where: Where, memories: Sequence[str], reason: str | None, for_good: bool, yes: bool) -> Report:
    """Hide memories from search. They can be restored, unless --for-good deletes them."""
    if for_good:
        return _erase(where, memories, yes=yes)
    if len(memories) > 1:
        _before(where, memories)
    done = []
    for memory in memories:
        answer = where.ask("forget_memory", memory_id=memory, reason=reason)
        name = _name_of(where, memory, answer)
        also = ", ".join(short(copy["id"]) for copy in answer.get("copies", ()))
        line = f"Forgotten: {name}; {where.undo(memory)} brings it back"
        line += f", {where.command('forget {} --for-good', memory)} deletes it"
        line += f". The same text is also stored as {also}" if also else ""
        line += _left_expired(where, answer.get("supersedes", ()))
        if answer.get("already_forgotten"):
            line = f"{name} was already forgotten: {where.command('restore {}', memory)} brings it back"
        done.append((answer, line))
    return _done(*done, several="forgotten")


def _left_expired(where: Where, replaced: Iterable[str]) -> str:
    line = ""
    for memory in replaced:
        with suppress(NotFound, MemoryUnavailable):  # it is gone, too
            if "forgotten_at" not in (older := where.ask("get_memory", memory_id=memory, detail=True)):
                again = f"{where.command('restore {}', memory)} makes it valid again"
                line += f". It replaced “{excerpt(older['content'], QUOTED)}”, which stays expired: {again}"
    return line


def _before(where: Where, memories: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for memory in memories:
        try:
            found[memory] = where.ask("get_memory", memory_id=memory, detail=True)
        except NotFound as error:
            if "no memory with the id" not in error.message:  # the full id may be that of an erased memory
                raise NotFound(f"{error.message}; nothing was changed") from error
    return found


def _erase(where: Where, memories: Sequence[str], *, yes: bool) -> Report:
    from remembrancer.commands.backup import REPLACED
    from remembrancer.commands.runtime_client import paths_here

    before, erased, lines = _before(where, memories), [], []
    for memory in memories:
        known = before.get(memory, {})
        if known:
            where.close()  # the runtime may stop while the user is thinking
            confirm(f"{excerpt(known['content'])}\nErase it for good, with its history?", yes=yes)
        answer = where.ask("erase_memory", memory_id=memory)
        erased.append(answer)
        verb = "was already erased" if answer.get("already_erased") else "is erased for good"
        made = f" with {count(len(answer['also_erased']), 'memory')} derived from it" if "also_erased" in answer else ""
        repeating = dict.fromkeys((*answer.get("also_said_by", ()), *(copy["id"] for copy in known.get("copies", ()))))
        named = ", ".join(f"{_name_of(where, each, {})} ({short(each)})" for each in repeating)
        also = f"; memories that may repeat it: {named}" if named else ""
        also += f"; {answer['may_remain_in']} may still contain it" if "may_remain_in" in answer else ""
        name = f"“{excerpt(known['content'])}”" if known else short(memory)
        older = [link["target"] for link in known.get("links", ()) if link["relation"] == "supersedes"]
        lines.append(f"{name} {verb}{made}{also}{_left_expired(where, older)}")
    kept = " and ".join(map(str, sorted(paths_here().home.glob(f"{REPLACED}*"))))
    also = f", perhaps also {kept}" if kept else ""
    others = "Memories that say it in other words are kept: 'remembrancer search' finds them."
    return Report({"erased": erased}, [*lines, f"Earlier backups and exports still contain it{also}.", others])


@memory_command(IDS, option("--version", type=click.IntRange(1), metavar="N", help="The version to return to."), REASON)
def restore(where: Where, memories: Sequence[str], version: int | None, reason: str | None) -> Report:
    """Bring back forgotten memories, or an earlier version of one. 'backup restore' restores a backup."""
    for memory in memories if version is None else ():
        with suppress(MemoryUnavailable):  # it will be queued
            before = where.ask("get_memory", memory_id=memory, detail=True)
            if before.keys().isdisjoint(("forgotten_at", "valid_until", "invalid_reason")):  # or a pair is resolved
                raise InvalidInput(
                    f"there is nothing to restore: “{excerpt(before['content'], QUOTED)}” is neither forgotten nor "
                    f"replaced (--version N restores an old version, {where.command('edit {} --reopen', memory)} an "
                    "open end that is done, "
                    f"{where.command('edit {} --both', memory)} resolves a pair of 'list --review')"
                )
    done = []
    for memory in dict.fromkeys(memories):
        answer = where.ask("restore_memory", memory_id=memory, version=version, reason=reason)
        is_so_already = version is not None and answer.get("restored_fields") == []
        line = UNCHANGED if is_so_already else f"Restored: {_name_of(where, memory, answer)}  {short(memory)}"
        if has_ended(after := _as_stored(where, memory, answer) or {}):
            is_replaced = any(entry["change"] in ("superseded", "invalidated") for entry in after["history"])
            again = f": {where.command('restore {}', memory)} makes it valid again"
            line = f"{line} (still expired{again if is_replaced else ''})"
        done.append((answer, line))
    return _done(*done, several="restored")


# --- undo ---


@memory_command(
    argument("change", required=False, metavar="[ID]", help="A memory, a run or an import (default: the last change)."),
    YES,
    where=WITHOUT_USER,
)
def undo(where: Where, change: str | None, yes: bool) -> Report:
    """Undo a memory's last change, a maintenance run or an import. Without an ID, undo (after asking) the last change
    to this project's memories or to your own, whoever made it.

    Run it again to undo the change before that.
    """
    versions: dict[str, int] = {}
    if change is None:
        change, *_ = versions = _last_changes(where, yes)
    if change.startswith(RUN):
        if change.startswith(IMPORTS) and not versions:
            confirm("Undo this import? This forgets the memories that it added.", yes=yes)
        return undo_run(where, change)
    if not versions:
        memory = where.ask("get_memory", memory_id=memory_id(change), detail=True)
        versions = {memory_id(change): memory["version"]}
        if not yes and memory.get("undo_forgets"):
            where.close()
            confirm(f"Undo its last change? This forgets: {excerpt(memory['content'])}", yes=yes)
    done: list[tuple[Answer, str]] = []
    left: list[str] = []
    for name, version in reversed(versions.items()):
        try:
            answer = where.ask("restore_memory", memory_id=name, version=version, undo=True)
            done.append((answer, _if_applied(answer, "") or _undone(where, answer)))
        except InvalidInput as error:
            if len(versions) == len(left) + 1:
                raise
            its_last = f"{where.undo(name)} undoes its last change"
            left.append(f"{_name_of(where, name, {})} was not changed: {error.message} ({its_last})")
    return _done(*done, several="undone", left=left)


def _undone(where: Where, answer: Answer) -> str:
    from remembrancer.toolsets.memory.day_log import with_fields, word_of

    after = where.ask("get_memory", memory_id=answer["memory_id"], detail=True)
    valid_again = [f"{_name_of(where, old, {})} is valid again" for old in answer.get("valid_again", ())]
    fields = answer["restored_fields"]
    did = with_fields(word_of(answer["undone"], fields, done=not after.get("done")), fields)
    did += " to an earlier version" if did == "restored" and "content" in fields else ""
    did = did.removeprefix("changed ").strip("()")
    now = "" if after["status"] == "active" else f"; it is {after['status']} now"
    if "valid_until" in fields and (has_ended(after) or answer["undone"] != "updated"):
        now = f"; it is {'expired' if has_ended(after) else 'valid'} again"
    now += f"; its scope is {after['scope']} again" if answer["undone"] == "moved" else ""
    line = f"Undid the last change ({did}): “{excerpt(after['content'])}”{_state_of(after, fields)}{now}"
    return "; ".join([f"{line}  {short(after['id'])}", *valid_again])


def undo_run(where: Where, run_id: str) -> Report:
    """A run is undone in its project and for the user, an import in all projects unless one is selected."""
    is_import = run_id.startswith(IMPORTS)
    if is_import and where.project is None and not where.user:
        where = replace(where, all_projects=True)
    places: list[Answer] = []
    lines: list[str] = []
    for place, conversation in where.conversations():
        with suppress(NotFound):
            answer = conversation.call("reflect_and_consolidate", undo=run_id)
            memories, is_again = answer.get("memories", []), answer.get("already_undone", False)
            skipped = [each for each in answer.get("skipped", ()) if all(each not in old["skipped"] for old in places)]
            if places and not (memories or skipped or _if_applied(answer, "")):  # the first place included the user
                continue
            places.append({"project": place.project, "memories": memories, "skipped": skipped, "already": is_again})
            of_user = len(answer.get("of_user", ()))
            for owner, number in ((place.label, len(memories) - of_user), ("the user", of_user)):
                if number or (owner == place.label and not memories and not skipped):
                    done = f"{count(number, 'memory')} {'forgotten' if is_import else 'restored'}"
                    done += "; another import brings them back" if is_import and number else ""
                    lines.append(f"{owner}: {_if_applied(answer, 'it had already been undone' if is_again else done)}")
            lines += [f"{_name_of(where, each['memory_id'], {})} was not changed: {each['reason']}" for each in skipped]
            if not is_import:
                break
    if places:
        return Report({"run_id": run_id, "places": places}, lines)
    raise InvalidInput(
        f"there is no run with the id {run_id} here, or it is too old to be undone; use --project, "
        "--user or --all-projects to look elsewhere, or the browser for the private memories of a session"
    )


def _last_changes(where: Where, yes: bool) -> dict[str, int]:
    """The memories of the last change that can be undone, or a later run. One shell command counts as one change. Each
    memory has the version to pass to an undo, or 1 if it has changed since. Raises `MemoryUnavailable` if the log may
    lack a later change."""
    answer, warnings = log_of(where, begins=0.0)
    lacking = next((text for text, code in warnings.items() if code == "partial_results"), None)
    if lacking is not None:
        raise MemoryUnavailable(
            f"the last change is not known: {lacking} Run 'remembrancer undo ID' for a memory's last one"
        )
    passed_over = ("archived", "maintenance", "promotion")
    runs = [run for run in answer["runs"] if not run.get("undone") and run["did"] not in passed_over]
    changes = [entry for entry in answer["changes"] if not entry.get("undone") and entry["did"] not in passed_over]
    last = max([each for each in changes if "undo_at" in each][-1:] + runs[-1:], key=itemgetter("time"), default=None)
    if last is None:
        elsewhere = "" if where.all_projects else "; use --all-projects to look in all projects"
        raise NotFound(f"there is nothing left to undo here{elsewhere}")
    if "run_id" in last:
        what, more = last["did"], ", summarised or promoted"
        if what == "imported":
            what, more = "import", ""
            everywhere = where if where.project else replace(where, all_projects=True)
            runs = log_of(everywhere, begins=last["time"])[0]["runs"]
        total = sum(run["memories"] for run in runs if run["run_id"] == last["run_id"])
        where.close()
        confirm(f"Undo the {what} of {minute(last['at'])} ({count(total, 'memory')}{more})?", yes=yes)
        return {last["run_id"]: 0}
    memory = where.ask("get_memory", memory_id=last["id"], detail=True)
    owner = "all your projects" if memory["scope"] == "user" else f"the project {last['project']}"
    where.close()
    did = last["did"].removeprefix("changed ").strip("()")
    versions = {each["id"]: each.get("undo_at", 1) for each in changes if command_of(each) == command_of(last)}
    others = f" and {count(len(versions) - 1, 'other memory')}" if len(versions) > 1 else ""
    confirm(
        f"Undo the last change ({did}) of “{excerpt(last['text'])}”{others} ({owner}, {minute(last['at'])})?", yes=yes
    )
    return versions


def _name_of(where: Where, memory: str, answer: Answer) -> str:
    stored = _as_stored(where, memory, answer)
    return short(memory) if stored is None else f"“{excerpt(stored['content'], QUOTED)}”"


def _as_stored(where: Where, memory: str, answer: Answer) -> Answer | None:
    """A memory after a change; None if the change is queued, or the store is unavailable."""
    if "queued" not in warnings_of(answer).values():
        with suppress(MemoryUnavailable):
            return where.ask("get_memory", memory_id=memory, detail=True)
    return None


def _if_applied(answer: Answer, line: str) -> str:
    """The line about a change, or the warning that it is queued."""
    return next((message for message, code in warnings_of(answer).items() if code == "queued"), line)


def _done(*done: tuple[Answer, str], several: str = "changed", left: Sequence[str] = ()) -> Report:
    """A report whose facts are one answer, or several answers in a list named `several`."""
    answers = [answer for answer, _ in done]
    facts = answers[0] if len(answers) == 1 else {several: answers}
    notes = [note for answer in answers for note in as_notes(warnings_of(answer))]
    return Report(facts, [*(_if_applied(*each) for each in done), *left], notes=notes)
