"""The benchmark over MemoryCode's histories."""

from bench.memorycode import rules_of


def test_a_rule_in_force_that_has_no_task_counts_as_no_replaced_one() -> None:
    former, kept, present = ["function", "^a_.*"], ["function", ".*\\d$"], ["function", "^b_.*"]
    said = "Start function names with a_. Put a digit into function names. Now start function names with b_."
    session = {
        "type": ["instruction-add", "instruction-add", "instruction-update"],
        "topic": ["start function names with a_", "a digit into function names", "start function names with b_"],
        "text": f"Mentor: {said}",
        "session_regex": [former, kept, present],
        "history_regex": [present, kept],
        "history_eval_query": ["function that merges two lists"],
    }
    stated = rules_of({"mentor": "Mentor", "sessions": [session]})
    assert stated.replaced == {("function", "^a_.*")}
    assert list(stated.tasks) == [("function", "^b_.*")]
