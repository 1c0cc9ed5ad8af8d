"""What an assistant is given keeps its promise of a size: the context block, and a recall's answer."""

import json
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from remembrancer.actors.store.retrieval.context import OpenFiles
from remembrancer.memory.contexts import AROUND, ENDS_SHARE, STANDING_SHARE, choose, section_of
from remembrancer.memory.relevance import MOST_FOR_PROMPT, is_question, needed_for_prompt
from remembrancer.memory.sentences import first_words, from_best_sentence, without_label, without_marks
from remembrancer.memory.text import neutralised
from remembrancer.memory.tokens import estimate_tokens, whole_characters
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import ContextGathered, RecalledMemory, Scores, Section
from remembrancer.protocol.writes import SourceRef
from remembrancer.toolsets.memory.answers import memory_of, with_lines
from remembrancer.toolsets.memory.context_block import (
    ALL,
    AWAY,
    GROUPS,
    MARKED,
    NO_ROOM,
    NOTHING,
    NOTHING_KNOWN,
    PART,
    TITLE,
    ContextBlock,
    build_block,
    group_of,
    render,
)
from remembrancer.toolsets.memory.recall_memories import HINT, count_sent, given_whole, within_budget
from remembrancer.toolsets.tools import Answer, answer_text
from tests.cases import cases
from tests.pure.memories import recalled

KINDS: tuple[Kind, ...] = ("preference", "decision", "procedure", "fact", "open_end")
SCRIPTS = cases("context_block", "scripts")
MARKDOWN = cases("context_block", "markdown")


def memory(content: str, number: int = 0, kind: Kind = "fact", **fields: Any) -> RecalledMemory:
    return recalled(content, number, kind=kind, **fields)


def facts(*contents: str) -> list[RecalledMemory]:
    return [memory(content, number) for number, content in enumerate(contents)]


def block(of: list[RecalledMemory], max_tokens: int, **known: Any) -> ContextBlock:
    parts = {name: known.pop(name) for name in known.keys() & set(ContextGathered.__struct_fields__)}
    gathered = ContextGathered(**{"memories": tuple(of), "is_all": True, **parts})
    return build_block(gathered, max_tokens, estimate_tokens, **known)


def texts() -> st.SearchStrategy[str]:
    """Texts as people and tools write them: prose in several scripts, long and short, code, Markdown, and anything at
    all."""
    prose = st.tuples(st.sampled_from(SCRIPTS), st.integers(1, 60)).map(lambda pair: pair[0] * pair[1])
    lines = st.lists(st.sampled_from(MARKDOWN), min_size=1, max_size=12).map("\n".join)
    anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=80)
    mixed = st.lists(st.one_of(prose, lines, anything), min_size=1, max_size=3).map("\n".join)
    return mixed.filter(lambda text: bool(text.strip()))


@st.composite
def gathered(draw: st.DrawFn) -> list[RecalledMemory]:
    name = st.one_of(st.none(), st.sampled_from(["Bash", "src/app.py", "a\u2028### b", "x" * 300]))
    sources = st.builds(SourceRef, tool=name, file=name)
    found = draw(st.lists(st.tuples(texts(), sources, st.sampled_from(KINDS)), max_size=16))
    return [memory(text, number, kind, source=source) for number, (text, source, kind) in enumerate(found)]


@given(gathered(), st.booleans(), st.one_of(st.integers(0, 120), st.integers(100, 8000)))
def test_a_block_has_no_more_tokens_than_allowed_and_for_markdown_our_headings_and_one_item_a_memory(
    found: list[RecalledMemory], is_all: bool, max_tokens: int
) -> None:
    made = block(found, max_tokens, is_all=is_all)
    assert made.tokens == estimate_tokens(made.text) <= max_tokens
    known = [each.id for each in found]
    assert known[: len(made.memory_ids)] == list(made.memory_ids), "the first ones, in order"
    assert made.truncated or (is_all and made.memory_ids == tuple(known))
    assert (ALL in made.text) == (bool(known) and not made.truncated)
    if len(made.memory_ids) < 2:  # one that is cut has no group
        return
    groups = {group_of(each) for each in found if each.id in made.memory_ids}
    tokens = MarkdownIt().parse(made.text)
    headings = [
        tokens[at + 1].content for at, each in enumerate(tokens) if (each.type, each.level) == ("heading_open", 0)
    ]
    assert headings == [TITLE[3:], *(name for name in GROUPS if name in groups)]
    assert sum((each.type, each.level) == ("list_item_open", 1) for each in tokens) == len(made.memory_ids)
    ours = (*MARKED.split("\n"), *(f"### {name}" for name in GROUPS), ALL, PART)
    for line in made.text.split("\n"):
        assert line in ours or not line or line.startswith(("- ", "  ")), line


@given(texts())
def test_a_memory_is_one_item_whose_text_is_its_content(content: str) -> None:
    tokens = MarkdownIt().parse(render(content, SourceRef()))
    assert [token.type for token in tokens if token.level == 0] == ["bullet_list_open", "bullet_list_close"]
    plain = "".join(render(content, SourceRef()).split()).replace("\\", "")
    assert plain.removeprefix("-") == "".join(neutralised(content).split()).replace("\\", "")


def test_memories_are_grouped_lines_with_short_ids_and_the_day_of_the_last_change() -> None:
    day = 86_400.0
    found = [
        memory("Prefers TypeScript", 1, "preference"),
        memory("Call Frau Kessler", 2, "open_end"),
        memory("Send the list", 3, "open_end", due=20 * day),
        memory("The cache is Valkey", 4, "decision", version=2, updated_at=9 * day),
        memory("The deadline is in May", 5),
        memory("Deploy with make ship", 6, "procedure", source=SourceRef(tool="Bash")),
        memory("Write the minutes", 7, "open_end", due=10 * day, possibly_superseded_by=("memory:9",)),
    ]
    made = block(found, 2000, short_ids={f"memory:{number}": f"AB{number}Z" for number in range(7)})
    assert made.text == (
        f"{MARKED}\n\n"
        "### Open ends\n- 7 due 1970-01-11: Write the minutes (possibly superseded)\n"
        "- AB3Z due 1970-01-21: Send the list\n"
        "- AB2Z Call Frau Kessler\n\n"
        "### Preferences\n- AB1Z Prefers TypeScript\n\n"
        "### Decisions and conventions\n- AB4Z The cache is Valkey (changed 1970-01-10)\n\n"
        "### How to, and fixes\n- AB6Z Deploy with make ship (from tool Bash)\n\n"
        "### Facts and people\n- AB5Z The deadline is in May\n\n"
        f"{ALL}"
    )
    assert not made.truncated


@pytest.mark.parametrize(("content", "fields", "line"), cases("context_block", "days"))
def test_a_line_has_the_days_that_its_text_does_not_name(content: str, fields: dict[str, Any], line: str) -> None:
    assert f"- 0 {line}\n" in block([memory(content, **fields)], 2000).text


def test_a_block_says_what_else_there_is() -> None:
    long, summary = "The queue was full. " * 60, "Post-mortem: the queue was full"
    assert (
        f"- 0 {summary} (summary; get_memory has the whole text)\n" in block([memory(long, summary=summary)], 2000).text
    )
    for whole in (memory(long), memory(long, summary=summary, derived_from=("memory:1",))):
        assert long.strip() in block([whole], 2000).text
    made = block(facts("Uses gRPC"), 2000, is_all=False, subjects=[("billing", 41), ("Frau Kessler", 5)])
    assert (
        made.text == f"{MARKED}\n\n### Facts and people\n- 0 Uses gRPC\n\n{PART} Subjects: billing 41, Frau Kessler 5."
    )
    assert made.truncated
    for is_all in (True, False):
        text = block(facts("Uses gRPC"), 2000, is_all=is_all, is_addition=True, subjects=[("billing", 41)]).text
        assert text == f"{MARKED}\n\n### Facts and people\n- 0 Uses gRPC"
    made = block([], 2000)
    assert (made.text, made.memory_ids, made.truncated) == (f"{TITLE}\n\n{NOTHING}", (), False)


def test_what_was_left_out_as_replaced_or_closed_is_named_and_one_that_was_due_is_overdue() -> None:
    left_out = [
        memory(
            f"We deploy on day {n} of the week, after the market and before noon", possibly_superseded_by=("memory:9",)
        )
        for n in range(7)
    ]
    made = block([memory("We deploy on Tuesdays")], 2000, replaced=left_out)
    assert f"{ALL[:-1]}, except memories that are probably replaced: 0 by 9 (We deploy on day 0 of …), " in made.text
    assert made.text.endswith(" …) and 2 more.")
    assert made.memory_ids == ("memory:0",)
    ends = [memory(f"Ask\n\n{name}", kind="open_end", due=day * 86_400.0) for name, day in (("Ann", 8), ("Bea", 9))]
    asked = "Asked Cy on Tuesday whether the lamp may hang there"
    done = [memory(asked, kind="open_end", done=True)]
    text = block(ends, 2000, closed=done, today="1970-01-10").text
    assert "overdue 1970-01-09: Ask Ann\n" in text
    assert " due 1970-01-10: Ask Bea\n" in text
    assert text.endswith(f"{ALL[:-1]}, except closed open ends: 0 ({asked}).")
    nothing = block([], 2000, closed=done).text
    assert nothing.endswith(f"Nothing is remembered here, except closed open ends: 0 ({asked}).")


@pytest.mark.parametrize("max_tokens", [60, 500])
def test_a_block_of_what_is_known_without_the_store_says_so_within_its_budget(max_tokens: int) -> None:
    assert block([], max_tokens, away="unavailable").text == f"{TITLE}\n\n{NOTHING_KNOWN}"
    made = block(facts("short", "tabs " * 40), max_tokens, away="unavailable")
    assert made.tokens == estimate_tokens(made.text) <= max_tokens
    assert made.text.startswith(f"{MARKED}\n\n{AWAY}\n\n### Facts and people\n- 0 short")
    assert ALL not in made.text


def test_where_no_memory_fits_the_block_says_so() -> None:
    found = facts("word " * 400)
    assert block(found, 20).text == f"{TITLE}\n\n{NO_ROOM}"
    assert block(found, 5).text == TITLE
    nothing = block(found, 1)
    assert (nothing.text, nothing.tokens, nothing.truncated) == ("", 0, True)


@pytest.mark.parametrize(("content", "item"), cases("context_block", "headings"))
def test_what_would_be_a_heading_is_escaped_and_the_rest_stays(content: str, item: str) -> None:
    assert render(content, SourceRef()) == item


def test_an_item_says_where_it_comes_from_and_what_supersedes_it_and_stands_behind_that() -> None:
    assert (
        render("Fails on CI", SourceRef(tool="Bash", file="src/a.py"))
        == "- Fails on CI (from tool Bash, file src/a.py)"
    )
    assert render("a\n```\nb\n```", SourceRef(tool="Bash")) == "- a\n  \\```\n  b\n  \\```\n  (from tool Bash)"
    assert render("a", SourceRef(conversation_turn=3)) == "- a"
    imported = memory("It runs daily.", source=SourceRef(file="/work/app/MEMORY.md"))
    for root, file in (("/work/app", "MEMORY.md"), ("/work/ap", "/work/app/MEMORY.md"), ("", "/work/app/MEMORY.md")):
        assert f"It runs daily. (from file {file})" in block([imported], 500, root=root).text, root
    source = SourceRef(tool="cron")
    doubted = memory("It runs daily.", source=source, possibly_superseded_by=("memory:9",))
    known = [doubted, memory("It does not run daily.", 9)]
    items = [
        line
        for line in block(known, 200, short_ids={"memory:9": "9"}).text.splitlines()
        if "runs " in line or "run " in line
    ]
    assert items == ["- 9 It does not run daily.", "- 0 It runs daily. (from tool cron) (possibly superseded by 9)"]


# --- The choice of memories for a context's budget, and the files that it is asked for.
def numbered(number: int, words: int = 10, **fields: Any) -> RecalledMemory:
    return recalled(f"{number} {'word ' * words}", number, **fields)


def test_all_are_given_where_they_fit_and_one_long_memory_keeps_no_other_away() -> None:
    found = [numbered(number) for number in range(20)]
    assert choose(3000, found).given == tuple(found)
    assert not choose(3000, found).left_out
    assert choose(300, found).left_out
    assert choose(3000, found[:2], is_part=True).left_out
    end = numbered(0, possibly_superseded_by=("memory:1",), kind="open_end")
    chosen = choose(3000, [end, numbered(1)])
    assert (len(chosen.given), chosen.replaced) == (2, ())
    rule = numbered(0, possibly_superseded_by=("memory:1",), kind="convention")
    assert choose(3000, [rule, numbered(1, kind="fact")]).replaced == (), "no fact replaces a rule"
    assert choose(3000, [rule, numbered(1, kind="decision")]).replaced == (rule,)
    decision = numbered(0, possibly_superseded_by=("memory:1",), kind="decision")
    assert choose(3000, [decision, numbered(1, kind="fact")]).replaced == (decision,), "it may be overturned by the way"
    longer = numbered(0, words=20, possibly_superseded_by=("memory:1",))
    assert choose(3000, [longer, numbered(1, words=5)]).replaced == (), "perhaps only a part of it has changed"
    least = next(most for most in range(100, 3000) if choose(most, found).given == tuple(found))
    assert len(choose(least, (), found[:1], found[1:]).given) == len(found), "none counts twice"
    ends = [
        numbered(1, words=40, kind="open_end", due=9.0),
        numbered(2, words=70, kind="open_end"),
        numbered(3, kind="open_end"),
    ]
    urgent = choose(300, [numbered(4, words=200)], (), ends, is_part=True).given
    assert [each.id for each in urgent][:1] == ["memory:1"], "the most urgent first"
    found = [numbered(0, words=5000), *(numbered(number) for number in range(1, 10))]
    given = choose(600, found, is_part=True).given
    assert len(given) == 10
    assert given[0].content.endswith("word… (get_memory has the rest)")


def test_counted_things_replace_none_of_each_other_and_values_do() -> None:
    def replaced(text: str, *numbers: int) -> int:
        several = [
            recalled(text.format(number), place, possibly_superseded_by=(f"memory:{place + 1}",))
            for place, number in enumerate(numbers)
        ]
        return len(choose(3000, several).replaced)

    assert replaced("Sprint {} was finished late", 3, 4, 5, 6) == 0
    assert replaced("Sprint {} was finished late", 3, 4, 5) == 2, "one thing may change twice"
    assert replaced("The limit is {} requests a second", 30, 60, 90, 120) == 3


@pytest.mark.parametrize(
    ("later", "is_replaced"),
    [
        ("Polish was dropped from the site last week", False),
        ("The site is in French, Dutch and Danish now", True),
    ],
)
def test_a_list_stays_if_the_later_text_lists_nothing(later: str, is_replaced: bool) -> None:
    older = recalled("The site is in English, German and Polish", 0, possibly_superseded_by=("memory:1",))
    assert bool(choose(3000, [older, recalled(later, 1)]).replaced) is is_replaced


def test_a_rule_about_two_aspects_of_names_is_left_out_once_others_have_set_both() -> None:
    texts = ("Start names of methods with a_ and end method names with _a.", "End method names with _b.")
    rule = recalled(texts[0], 0, possibly_superseded_by=("memory:1", "memory:2"))
    half, rest = recalled(texts[1], 1), recalled("Now start method names with b_.", 2)
    assert choose(3000, [rule, half]).replaced == ()
    assert choose(3000, [rule, half, rest]).replaced == (rule,)


def test_what_holds_for_every_task_comes_first_but_leaves_most_to_the_rest() -> None:
    standing = [numbered(number) for number in range(100)]
    ends = [numbered(number) for number in range(100, 200)]
    rest = [numbered(number) for number in range(200, 300)]
    given = choose(1000, rest, standing, ends, is_part=True).given
    shares = [
        sum(estimate_tokens(each.content) + AROUND for each in given if each in part) for part in (standing, ends, rest)
    ]
    assert STANDING_SHARE * 1000 - 30 < shares[0] <= STANDING_SHARE * 1000
    assert ENDS_SHARE * 1000 - 30 < shares[1] <= ENDS_SHARE * 1000
    assert shares[2] > 0
    assert sum(shares) < 1000
    assert len(choose(1000, (), standing, is_part=True).given) > len([each for each in given if each in standing])
    assert len(choose(1000, (), ends=ends, is_part=True).given) > len([each for each in given if each in ends])


def test_standing_memories_are_ordered_by_the_task_then_replacements_then_importance_then_the_last_change() -> None:
    old = numbered(0, possibly_superseded_by=("memory:9",), importance=0.6)
    gone = recalled("The fifth", 5, possibly_superseded_by=("memory:1",))
    found = [
        old,
        numbered(2, importance=0.7),
        numbered(3, updated_at=9.0),
        numbered(4),
        gone,
        numbered(1, importance=0.1),
    ]
    chosen = choose(3000, (), found, is_part=True)
    assert [each.id[7:] for each in chosen.given] == ["1", "2", "0", "3", "4"]
    assert chosen.replaced == (gone,), "what one that is given says anew is not"
    for_task = choose(3000, (), found, found={"memory:4"}, is_part=True)
    assert [each.id[7:] for each in for_task.given] == ["4", "1", "2", "0", "3"]


def test_the_preferences_of_a_user_leave_half_of_the_standing_part_to_the_project() -> None:
    rules = [numbered(number) for number in range(100)]
    wishes = [numbered(number, scope="user", updated_at=9.0) for number in range(100, 200)]
    given = choose(1000, [numbered(number) for number in range(200, 300)], [*rules, *wishes], is_part=True).given
    own, users = (len([each for each in given if each in some]) for some in (rules, wishes))
    assert 0 < own <= users <= own + 2


@pytest.mark.parametrize(("fields", "wanted", "section"), cases("context_block", "sections"))
def test_a_memory_is_in_one_of_the_sections_asked(fields: dict[str, Any], wanted: list[Section], section: str) -> None:
    assert section_of(numbered(1, **fields), tuple(wanted) or get_args(Section)) == (section or None)


# --- Open files are searched for by their names, and recognised however a memory names its source.
FILES = OpenFiles(["/home/me/code/src/auth/token_store.py", "web\\pages\\Login.tsx", "Makefile", ""])


def test_the_query_has_names_and_the_task_and_a_source_is_open_if_one_path_is_the_end_of_the_other() -> None:
    assert FILES.query("mend the login") == "token_store Login Makefile mend the login"
    assert OpenFiles([]).query("mend") == "mend"
    assert OpenFiles([]).query("") == ""
    assert OpenFiles([".gitignore"]).query("") == ".gitignore"
    ours = "/home/me/code/src/auth/token_store.py auth/token_store.py ./token_store.py C:\\web\\pages\\Login.tsx"
    for file in ours.split():
        assert FILES.is_source(file), file
    for other in ("billing/token_store.py", "my_token_store.py", "", None):
        assert not FILES.is_source(other), other


# --- A recall's answer, cut to a budget.
SENTENCE = "The lantern in the attic is lit by the keeper every evening at nine. "


def answer_of(contents: Sequence[str], **more: Any) -> Answer:
    memories = [memory_of(recalled(each, id=f"memory:{number:026d}")) for number, each in enumerate(contents)]
    return {
        "memories": memories,
        "total_matched": len(memories),
        "strategy_used": "hybrid",
        "query_time_ms": 12.3,
        **more,
    }


def tokens(answer: Answer) -> int:
    """Of what is sent, in which nothing harmful is left."""
    return count_sent(answer_text(answer))


def test_what_does_not_fit_is_cut_or_counted_and_of_warnings_the_code_is_left() -> None:
    answer = answer_of(["one", "two"])
    assert within_budget(answer, tokens(answer)) is answer
    answer = answer_of([f"Fact {number}" for number in range(10)])
    found = within_budget(answer, 400)
    assert 0 < len(found["memories"]) < 10
    assert found["memories"] == answer["memories"][: len(found["memories"])]
    assert found["omitted"] == 10 - len(found["memories"])
    assert found["total_matched"] == 10
    assert "hint" not in found
    found = within_budget(answer_of(["Short and whole", SENTENCE * 400, "b"]), 1500)
    assert [memory.get("excerpt", False) for memory in found["memories"]] == [False, True]
    assert found["memories"][1]["content"].startswith(SENTENCE)
    assert (found["hint"], found["omitted"]) == (HINT, 1)
    assert 1400 < tokens(found) <= 1500
    found = within_budget(answer_of([SENTENCE, SENTENCE]), 80)
    assert (found["memories"], found["omitted"]) == ([], 2)
    text = "Only words were searched: the model cannot be loaded. " * 5
    answer = answer_of(
        [SENTENCE] * 50,
        degraded=True,
        warnings=[{"code": "embedding_failed", "message": text}],
        below_threshold=100_000,
    )
    found = within_budget(answer, 64)
    assert tokens(found) <= 64
    assert (found["warnings"], found["degraded"], found["omitted"]) == ([{"code": "embedding_failed"}], True, 50)


WARNED = {
    "degraded": True,
    "warnings": [{"code": "embedding_failed", "message": "Only words were searched: no embedding worker has a model."}],
}


@given(st.lists(texts() | texts().map(lambda text: text * 20), max_size=6), st.integers(64, 1500), st.booleans())
def test_no_answer_is_ever_longer_than_promised_and_an_excerpt_takes_no_character_apart(
    contents: list[str], max_tokens: int, is_degraded: bool
) -> None:
    answer = answer_of(contents, **(WARNED if is_degraded else {}))
    result = within_budget(answer, max_tokens)
    assert tokens(result) <= max_tokens
    assert len(result["memories"]) + result.get("omitted", 0) == len(contents)
    assert json.loads(answer_text(result)) == result
    for memory, whole in zip(result["memories"], answer["memories"], strict=False):
        if not memory.get("excerpt"):
            assert memory == whole
            continue
        assert memory is result["memories"][-1]
        assert {**memory, "content": whole["content"]} == {**whole, "excerpt": True}
        assert memory["content"] != " …", "an excerpt says something"
        before, excerpt, _ = whole["content"].partition(memory["content"].removesuffix(" …"))
        assert not before.strip()
        assert whole_characters(whole["content"], len(before + excerpt)) == len(before + excerpt)


# --- What is shown for a query or a prompt, in which length, and the advice of an empty answer.
@pytest.mark.parametrize("detail", [False, True])
def test_an_answer_has_the_day_of_a_change_after_the_day_of_storing(detail: bool) -> None:
    changed = [memory_of(recalled(version=2, updated_at=days * 86_400.0), detail=detail) for days in (0.5, 9)]
    assert [each.get("updated") for each in changed] == [None, "1970-01-10"]


def test_a_text_is_cut_to_its_first_words_or_best_sentence_and_rid_of_marks_and_labels() -> None:
    def on_green(text: str) -> str:
        return from_best_sentence(text, lambda each: "green" in each.lower())

    for text, words, line in cases("context_block", "first_words"):
        assert first_words(text, words) == line
    for text, words, line in cases("context_block", "best_sentences"):
        assert first_words(on_green(text), words) == line
    for text, rest in cases("context_block", "labels"):
        assert without_label(text) == rest
    for text, line in cases("context_block", "lines"):
        assert without_marks(text) == (line or text)


def test_a_prompt_gets_near_rules_and_what_probably_replaces_an_answer_is_given_whole_like_it() -> None:
    def found(cosine: float | None, kind: Kind, relevance: float = 0.2) -> RecalledMemory:
        return recalled(id=f"{kind} {cosine}", kind=kind, scores=Scores(1.0, relevance, cosine=cosine))

    rule, fact, far = found(0.5, "convention"), found(0.5, "fact"), found(0.2, "convention")
    assert needed_for_prompt([fact, far, rule, found(None, "decision")]) == [rule]
    assert needed_for_prompt([found(0.5, "fact", relevance=0.95)])
    assert len(needed_for_prompt([found(0.5 + place / 10, "procedure") for place in range(4)])) == MOST_FOR_PROMPT
    old, new, other = (
        recalled(id=name, scores=Scores(relevance, relevance), possibly_superseded_by=by)
        for name, relevance, by in (("old", 0.7, ("new",)), ("new", 0.02, ()), ("other", 0.02, ()))
    )
    assert given_whole([old, new, other], with_nearest=False) == {"old", "new"}
    assert given_whole([other, new], with_nearest=True) == {"other"}
    assert given_whole([new, other], with_nearest=False) == set()
    assert with_lines([old, new, other], {"old", "new"}, None, seen={"old", "new", "other"}) == [old, new]
    closed = recalled(id="closed", scores=Scores(0.01, 0.01), kind="open_end", done=True)
    assert with_lines([old, other, closed], {"old"}, None) == [old, other]
    assert with_lines([old, other, closed], {"old"}, 5) == [old, other, closed]


def test_a_query_is_a_question_by_its_mark_or_first_words_unless_it_may_be_a_task() -> None:
    for is_asking, queries in cases("context_block", "questions"):
        assert {each: is_question(each) for each in queries} == dict.fromkeys(queries, is_asking)
