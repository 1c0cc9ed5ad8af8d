from typing import Any

from remembrancer.code.actions import (
    MOST,
    TOKENS_OF_FACT,
    Action,
    PastActions,
    denied_in,
    fact_of,
    relevant_to,
    says_never,
)
from remembrancer.commands.hook import action_of, only_looks
from remembrancer.memory.replacement import forms_of
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import RecalledMemory
from remembrancer.toolsets.memory.context_block import render
from remembrancer.toolsets.memory.get_memory_context import HEADING, _remark_on
from tests.cases import cases
from tests.pure.memories import recalled

NOW = 1_800_000_000.0


def memory(name: str, content: str, kind: Kind = "convention", cosine: float = 0.4, **fields: Any) -> RecalledMemory:
    return recalled(content, id=name, kind=kind, cosine=cosine, **{"created_at": NOW - 1000, **fields})


PNPM = memory("pnpm", "We use pnpm, never npm or yarn.")
OTHERS = [
    memory(f"other{place}", text, cosine=0.1)
    for place, text in enumerate(
        ("Routes are tested against the real database.", "Answers are short.", "Releases are on Thursdays.")
    )
]
NPM = Action(command="npm install left-pad")


def told(
    action: Action, *memories: RecalledMemory, past: PastActions | None = None, given: tuple[str, ...] = ()
) -> Any:
    found = [*memories, *OTHERS]
    return [each.id for each in relevant_to(action, found, past or PastActions(), given, NOW)]


def test_a_command_that_does_what_a_rule_denies_is_told_of_it_twice_at_most_and_once_a_session() -> None:
    assert told(NPM, PNPM) == ["pnpm"]
    assert told(Action(command="make release"), PNPM) == []
    assert told(NPM, memory("memory:ABCDPNPM", PNPM.content), given=("PNPM",)) == []
    rules = (memory(f"pnpm{number}", PNPM.content, cosine=0.8) for number in range(4))
    assert len(told(NPM, *rules)) == 2


def test_what_does_not_hold_or_is_no_rule_is_not_told() -> None:
    over = ({"valid_until": NOW - 10}, {"superseded_by": ("x",)})
    for fields in ({"kind": "fact"}, {"status": "archived"}, *over):
        assert told(NPM, memory("pnpm", PNPM.content, **fields)) == []
    doubted = memory("pnpm", PNPM.content, possibly_superseded_by=("newer",))
    assert told(NPM, doubted) == ["pnpm"]
    assert _remark_on(doubted, {"newer": "We use yarn"}).endswith(") (possibly superseded: “We use yarn”)")
    assert told(NPM, doubted, memory("newer", f"{PNPM.content} Also in CI.", cosine=0.8)) == ["newer"]


def test_a_word_of_most_actions_says_nothing() -> None:
    rule = memory("rule", "The crate ember holds the maths.", cosine=0.45)
    action = Action(path="crates/ember/lib.rs", new="width: 1600")
    past = PastActions()
    assert told(action, rule, past=past) == ["rule"]
    for _ in range(40):
        past.add(action.terms)
    assert told(action, rule, past=past) == []
    past = PastActions()
    past.add(NPM.terms)
    past.add(NPM.terms)
    assert told(NPM, PNPM, past=past) == ["pnpm"]
    past = PastActions()
    for number in range(2000):
        past.add(["ember", f"file{number}"])
    assert (past.number < 500, len(past.having) <= 501) == (True, True)  # however long the session is
    assert past.novelty("ember") < 0.05 < 0.9 < past.novelty("redis")


FUNCTION = Action(path="sums.py", new="def total(values):\n    return sum(values)\n")


def test_a_rule_about_names_is_told_before_an_edit_that_makes_one() -> None:
    for rules, expected in cases("actions", "names"):
        stored = [memory(f"{n}", text, cosine=0.0, created_at=NOW - 100 + n) for n, text in enumerate(rules)]
        assert told(FUNCTION, *stored) == expected, rules
    for content, forms in cases("actions", "forms"):
        assert [list(form) for form in forms_of(content)] == forms, content


def test_of_a_rule_so_much_is_told_as_bears_on_the_action_and_what_it_denies_is_known() -> None:
    assert {"npm", "yarn"} <= denied_in("We use pnpm, never npm or yarn: it broke.")
    assert "jest" in denied_in("Tests run with vitest since October; jest was removed.")
    assert "vitest" not in denied_in("Tests run with vitest since October; jest was removed.")
    assert says_never("Revisions are rebased, never merged.")
    assert not says_never("Revisions are rebased.")
    long = memory("long", f"{'The release is announced in the channel. ' * 12}Never run npm install there. Wait then.")
    fact = fact_of(long, NPM.terms)
    assert fact == "… Never run npm install there. Wait then."
    assert estimate_tokens(fact_of(memory("m", "npm " * 400), NPM.terms)) <= TOKENS_OF_FACT + 2
    long = memory("long", "Never run `npm install --save-dev` here: pnpm_lock.yaml (2026-11-17) would not match. " * 9)
    lines = [render(fact_of(long, NPM.terms), long.source, "(decided 2026-11-17)", "ABCDE")] * MOST
    assert estimate_tokens("\n".join([HEADING, *lines])) <= 120


def test_the_action_of_a_tool_is_read_in_any_clients_words_and_a_command_that_only_looks_is_known() -> None:
    for command, looks in cases("actions", "looks"):
        assert only_looks(command) is looks, command
    for called, action in cases("actions", "called"):
        found = action_of(called) or {}
        assert (found | action, bool(found)) == (found, bool(action)), called
