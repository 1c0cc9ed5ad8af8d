"""The retrieval benchmark's own arithmetic, and what it reads."""

from __future__ import annotations

import gzip
import json
import lzma
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import abstention
from bench.answers import TOLD_CHARACTERS, is_whole, shown_places, told
from bench.baselines import PassageVectors, WordIndex, fused
from bench.data_forms import UNDATED, seconds, text_of, turn_ids
from bench.datasets import DataUnusable, load, parse
from bench.measures import NAMES, Answered, by_kind, measure, percentages, percentile
from bench.retrieval import main, report
from bench.retrieval_run import FAILURES, Failed, Measurement, Run, iso

LABELS = st.sampled_from("abcdefghijklmnop")
RANKINGS = st.lists(LABELS, unique=True)
WANTED = st.frozensets(LABELS, min_size=1)


def longmemeval(**changes: Any) -> dict[str, Any]:
    """One question over two sessions, the second of which holds the answer."""
    question = {
        "question_id": "q1",
        "question_type": "multi-session",
        "question": "Where is the key?",
        "question_date": "2023/05/30 (Tue) 18:40",
        "answer": "Under the mat",
        "answer_session_ids": ["s2"],
        "haystack": [
            {"session_id": "s1", "date": "2023/05/20 (Sat) 02:02"},
            {"session_id": "s2#1", "date": "2023/05/21 (Sun) 10:00"},
        ],
    }
    sessions = {
        "s1": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"}],
        "s2#1": [{"role": "user", "content": "The key is under the mat."}],
    }
    return {"questions": [question | changes], "sessions": sessions}


def locomo(**changes: Any) -> list[dict[str, Any]]:
    """One conversation of two sessions, with a question for each sort of evidence."""
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ana",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ana", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a red boat"},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "Nice."},
            ],
            "session_2_date_time": "12:05 am on 1 June, 2023",
            "session_2": [{"speaker": "Ana", "dia_id": "D2:1", "text": "I sold it."}],
            "session_3_date_time": "9:00 am on 3 June, 2023",
        },
        "qa": [
            {"question": "What did Ana show?", "answer": "a boat", "evidence": ["D1:1"], "category": 4},
            {"question": "What happened to it?", "answer": "sold", "evidence": ["D1:1; D2:01"], "category": 1},
            {"question": "Who is Cy?", "answer": "?", "evidence": [], "category": 5},
        ],
    }
    return [sample | changes]


def test_the_figures_of_a_ranking_are_those_computed_by_hand() -> None:
    figures = measure(["x", "a", "y", "b", "z"], {"a", "b", "c"})
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert figures == {
        "any@1": 0.0,
        "any@3": 1.0,
        "any@5": 1.0,
        "any@10": 1.0,
        "all@5": 0.0,
        "NDCG@10": pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal),
        "fractional@10": pytest.approx(2 / 3),
    }


def test_all_at_5_wants_each_of_the_wanted_among_the_first_five() -> None:
    assert measure(["a", "x", "y", "z", "b"], {"a", "b"})["all@5"] == 1.0
    assert measure(["a", "x", "y", "z", "w", "b"], {"a", "b"})["all@5"] == 0.0


def test_a_label_that_is_found_twice_counts_once() -> None:
    figures = measure(["a", "a", "b"], {"a", "b", "c"})
    assert figures["fractional@10"] == pytest.approx(2 / 3)
    assert figures["NDCG@10"] < 1


@given(RANKINGS, WANTED)
def test_figures_are_shares_and_grow_with_the_depth(ranked: list[str], wanted: frozenset[str]) -> None:
    figures = measure(ranked, wanted)
    assert set(figures) == set(NAMES)
    assert all(0 <= value <= 1 + 1e-12 for value in figures.values())
    assert figures["any@1"] <= figures["any@3"] <= figures["any@5"] <= figures["any@10"]
    assert figures["any@10"] >= figures["fractional@10"]
    assert figures["any@5"] >= figures["all@5"]


@given(WANTED, RANKINGS)
def test_the_best_ranking_has_an_ndcg_of_one(wanted: frozenset[str], others: list[str]) -> None:
    ranked = [*sorted(wanted), *(label for label in others if label not in wanted)]
    assert measure(ranked, wanted)["NDCG@10"] == pytest.approx(1)


@given(RANKINGS, WANTED)
def test_what_comes_after_the_tenth_changes_nothing(ranked: list[str], wanted: frozenset[str]) -> None:
    assert measure(ranked, wanted) == measure(ranked[:10], wanted)


def test_percentages_are_means_to_two_places() -> None:
    answers = [Answered("k", tuple(ranked), frozenset("a")) for ranked in ("a", "xa", "xyz")]
    figures = percentages(answers)
    assert figures["any@1"] == 33.33
    assert figures["any@10"] == 66.67
    assert percentages([]) == {}


def test_answers_are_sorted_by_their_kind() -> None:
    answers = [Answered(kind, (), frozenset("a")) for kind in ("z", "b", "z")]
    assert [(kind, len(own)) for kind, own in by_kind(answers).items()] == [("b", 1), ("z", 2)]


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([5.0], 0.95) == 5.0
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert percentile([float(value) for value in range(1, 101)], 0.95) == 95.0


def test_longmemeval_is_read_as_sessions_of_both_roles() -> None:
    dataset = parse(longmemeval())
    (haystack,) = dataset.haystacks
    assert dataset.form == "LongMemEval"
    assert [item.label for item in haystack.items] == ["s1", "s2"]
    assert haystack.items[0].text == "user: Hello\n\nassistant: Good morning"
    assert haystack.items[0].occurred_at == datetime(2023, 5, 20, 2, 2, tzinfo=UTC).timestamp()
    (question,) = haystack.questions
    assert question.wanted == {"s2"}
    assert iso(question.asked_at) == "2023-05-30T18:40:00+00:00"


def test_locomo_is_read_as_turns_with_their_captions() -> None:
    dataset = parse(locomo())
    (haystack,) = dataset.haystacks
    assert dataset.form == "LoCoMo"
    assert [(item.label, item.text) for item in haystack.items] == [
        ("D1:1", "Ana: Look! [image: a red boat]"),
        ("D1:2", "Ben: Nice."),
        ("D2:1", "Ana: I sold it."),
    ]
    times = [item.occurred_at for item in haystack.items]
    assert times == sorted(set(times))
    assert [question.wanted for question in haystack.questions] == [{"D1:1"}, {"D1:1", "D2:1"}]
    assert [question.kind for question in haystack.questions] == ["single-hop", "multi-hop"]
    assert all(question.asked_at == times[-1] for question in haystack.questions)
    assert dataset.left_out == {"name no evidence": 1}
    assert dataset.passed_over == {}


def test_the_first_questions_alone_leave_out_what_only_others_need() -> None:
    dataset = parse(longmemeval() | {"questions": longmemeval()["questions"] * 3})
    assert len(dataset.first(2).haystacks) == 2
    assert dataset.first(None) == dataset
    assert [len(each.questions) for each in parse(locomo()).first(1).haystacks] == [1]


@pytest.mark.parametrize(
    ("evidence", "turns"),
    [
        ("D1:3", ["D1:3"]),
        ("D8:6; D9:17", ["D8:6", "D9:17"]),
        ("D9:1 D4:4 D4:6", ["D9:1", "D4:4", "D4:6"]),
        ("D1:18, D1:20", ["D1:18", "D1:20"]),
        ("D:11:26", ["D11:26"]),
        ("D30:05", ["D30:5"]),
        ("D", []),
        ("", []),
        ("turn-7;turn-8", ["turn-7", "turn-8"]),
    ],
)
def test_evidence_is_read_however_it_is_written(evidence: str, turns: list[str]) -> None:
    assert turn_ids(evidence) == turns


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        ("2023/05/20 (Sat) 00:31", datetime(2023, 5, 20, 0, 31, tzinfo=UTC)),
        ("2023/05/20 00:31", datetime(2023, 5, 20, 0, 31, tzinfo=UTC)),
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("12:05 am on 1 June, 2023", datetime(2023, 6, 1, 0, 5, tzinfo=UTC)),
        ("2023-05-20T02:31:00+02:00", datetime(2023, 5, 20, 0, 31, tzinfo=UTC)),
    ],
)
def test_dates_are_read_in_each_form(date: str, moment: datetime) -> None:
    assert seconds(date) == moment.timestamp()


@pytest.mark.parametrize(
    ("read", "said"),
    [
        ([], "an empty list"),
        ({}, "an object with nothing in it"),
        ({"questions": []}, "an object with `questions`"),
        ({"questions": {}, "sessions": []}, "an object with `questions`, `sessions`"),
        ([{"qa": []}], "a list that begins with an object with `qa`"),
        (3, "a int"),
        ({"questions": [], "sessions": {}}, "there is none at all"),
        (locomo(qa=None), "there is none at all"),
        ({"questions": [{"question_id": "q"}], "sessions": {}}, "1 ask nothing"),
        (longmemeval(haystack=[{"session_id": "s9", "date": "2023/05/20 (Sat) 02:02"}]), "1 have no memories"),
        (longmemeval(haystack=None), "1 have no memories"),
        (longmemeval(question=" "), "1 ask nothing"),
        (longmemeval(question_id="q1_abs"), "1 have no answer"),
        (locomo(conversation={"session_1": [{"speaker": "Ana"}]}), "2 have no memories"),
        (locomo(conversation=None), "2 have no memories"),
    ],
)
def test_what_cannot_be_asked_about_is_said(read: Any, said: str) -> None:
    with pytest.raises(DataUnusable, match=said):
        parse(read)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answer_session_ids": []}, "name no evidence"),
        ({"answer_session_ids": None}, "name no evidence"),
        ({"question": None}, "ask nothing"),
        ({"haystack": None}, "have no memories"),
        ({"question_id": "q1_abs"}, "have no answer (_abs)"),
    ],
)
def test_a_question_that_cannot_be_asked_is_counted_and_the_others_are_asked(
    changes: dict[str, Any], reason: str
) -> None:
    questions = [*longmemeval()["questions"], *longmemeval(**changes)["questions"]]
    dataset = parse(longmemeval() | {"questions": questions})
    assert dataset.left_out == {reason: 1}
    assert len(dataset.haystacks) == 1


def test_what_is_no_object_is_counted_too() -> None:
    assert parse(longmemeval() | {"questions": [None, *longmemeval()["questions"]]}).left_out == {"are no objects": 1}
    assert parse([None, *locomo()]).passed_over == {"conversations that are no objects": 1}
    assert parse(locomo(qa=[*locomo()[0]["qa"], "?"])).left_out == {"name no evidence": 1, "are no objects": 1}


def test_a_question_without_date_or_type_is_asked_after_its_last_memory() -> None:
    dataset = parse(longmemeval(question_date=None, question_type=None, question_id=None))
    (haystack,) = dataset.haystacks
    (question,) = haystack.questions
    assert (question.id, question.kind) == ("question 0", "without a type")
    assert question.asked_at == haystack.items[-1].occurred_at
    assert dataset.passed_over == {"questions without a date": 1}


@pytest.mark.parametrize("date", ["yesterday", None, 7, {}, "0001-01-01T00:00:00+05:00", "9999-12-31"])
def test_a_session_whose_date_says_nothing_happened_with_the_one_before(date: Any) -> None:
    haystack = [*longmemeval()["questions"][0]["haystack"]]
    dataset = parse(longmemeval(haystack=[haystack[1], {"session_id": "s1", "date": date}]))
    (read,) = dataset.haystacks
    assert [item.label for item in read.items] == ["s2", "s1"]
    assert read.items[0].occurred_at == read.items[1].occurred_at == seconds("2023/05/21 10:00")
    assert dataset.passed_over == {"sessions without a date": 1}


def test_a_haystack_without_any_date_is_asked_about_all_the_same() -> None:
    (read,) = parse(longmemeval(haystack=[{"session_id": "s2#1"}], question_date=None)).haystacks
    assert read.items[0].occurred_at == read.questions[0].asked_at == UNDATED


def test_sessions_that_are_unknown_or_named_again_are_passed_over() -> None:
    haystack = longmemeval()["questions"][0]["haystack"]
    dataset = parse(longmemeval(haystack=[*haystack, haystack[0], {"session_id": "s9", "date": None}, None]))
    assert [item.label for item in dataset.haystacks[0].items] == ["s1", "s2"]
    assert dataset.passed_over == {
        "sessions named again in one haystack": 1,
        "sessions of a haystack that are not in `sessions`": 2,
    }


@pytest.mark.parametrize("turns", [[], None, [{"role": "user", "content": None}], [None], [{}]])
def test_a_session_without_text_is_no_memory(turns: Any) -> None:
    read = longmemeval()
    read["sessions"]["s1"] = turns
    dataset = parse(read)
    assert dataset.passed_over == {"sessions without text": 1}
    assert [item.label for item in dataset.haystacks[0].items] == ["s2"]


def test_a_conversation_may_have_much_else_and_lack_much() -> None:
    (sample,) = locomo(event_summary={"events_session_1": {}}, observation={}, session_summary=None)
    conversation = sample["conversation"]
    conversation["session_1"] += [
        {"speaker": "Ben", "dia_id": None, "text": "Bye.", "img_url": ["u"], "query": "q", "re-download": True},
        {"speaker": "Ben", "dia_id": "D1:4", "text": None},
        "?",
    ]
    conversation |= {"session_2_date_time": None, "session_4": None, "session_5": {}, "session_6_observation": {}}
    sample["qa"] += [
        {"question": "What year?", "answer": 2023, "evidence": ["D1:3", None], "category": None},
        {"question": "Who?", "adversarial_answer": "Cy", "evidence": "D2:1", "category": 9},
        {"question": "Why?", "category": 5},
        {"question": "How?", "evidence": None, "category": 5},
    ]
    dataset = parse([sample])
    (haystack,) = dataset.haystacks
    assert [item.label for item in haystack.items] == ["D1:1", "D1:2", "D1:3", "D2:1"]
    times = [item.occurred_at for item in haystack.items]
    assert times == sorted(set(times))
    assert [(each.kind, each.wanted) for each in haystack.questions[2:]] == [
        ("without a type", frozenset({"D1:3"})),
        ("9", frozenset({"D2:1"})),
    ]
    assert dataset.left_out == {"name no evidence": 3}
    assert dataset.passed_over == {
        "turns without text": 2,
        "sessions that are no lists": 1,
        "sessions without a date": 1,
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.data(), JSON)
def test_one_value_that_is_amiss_never_costs_the_others(data: st.DataObject, amiss: Any) -> None:
    for read in (
        longmemeval() | {"questions": longmemeval()["questions"] + longmemeval(question_id="q2")["questions"]},
        locomo() + locomo(sample_id="conv-2"),
    ):
        values = read["questions"][1] if isinstance(read, dict) else read[1]
        values[data.draw(st.sampled_from(sorted(values)))] = amiss
        assert len(parse(read).haystacks[0].questions) >= 1


def test_half_characters_and_nul_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    read = longmemeval(question="Where is \ud83d?")
    read["sessions"]["s1"][0]["content"] = "\0Hello \udc00 \N{GRINNING FACE}"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(read).encode())
    (haystack,) = load(path).haystacks
    assert haystack.questions[0].text == "Where is \ufffd?"
    assert haystack.items[0].text.startswith("user:  Hello \ufffd \N{GRINNING FACE}\n")


@given(st.text(st.characters(codec=None)))
def test_any_text_can_be_stored(value: str) -> None:
    text = text_of(value)
    text.encode()
    assert "\0" not in text
    assert len(text) == len(value)


def test_the_longest_memory_is_measured_in_utf8() -> None:
    read = longmemeval()
    read["sessions"]["s1"] = [{"role": "user", "content": "ж" * 300_000}]
    assert parse(read).longest_bytes == 600_006


def test_a_file_is_read_plain_or_packed(tmp_path: Path) -> None:
    plain = json.dumps(locomo()).encode()
    for name, data in (("a.json", plain), ("a.json.xz", lzma.compress(plain)), ("a.json.gz", gzip.compress(plain))):
        (tmp_path / name).write_bytes(data)
        assert load(tmp_path / name) == parse(locomo())


@pytest.mark.parametrize("data", [b"", b"{", b"\xfd7zXZ\x00broken", b"\x1f\x8bbroken", b"\xff\xfe"])
def test_a_broken_file_is_said_to_be_unusable(tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(data)
    assert main(["--data", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_missing_file_is_said_to_be_unusable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path / "none.json"), "--json"]) == 2
    printed = capsys.readouterr()
    assert "cannot be read" in printed.err
    assert printed.out == ""


def test_words_find_texts_by_their_stems_best_first() -> None:
    index = WordIndex(["nothing", "the boats were red", "a boat, a boat, my boat!"])
    assert index.rank("Which BOAT?") == [2, 1]
    assert index.rank("'\" AND * (") == []
    assert index.rank("?!") == []
    index.close()


@given(st.text())
def test_no_question_breaks_the_word_index(question: str) -> None:
    index = WordIndex(["one text", "another text"])
    assert set(index.rank(question)) <= {0, 1}
    index.close()


def test_vectors_rank_a_text_by_its_best_passage() -> None:
    rows = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
    vectors = PassageVectors(rows, np.array([0, 0, 1]), 3)
    assert vectors.rank(np.array([0, 1], dtype=np.float32)) == [0, 1]
    assert vectors.texts_without == 1


def test_fusion_prefers_what_both_rankings_have() -> None:
    assert fused(([1, 2, 3], [3, 2, 4])) == [3, 2, 1, 4]
    assert fused(([7], [])) == [7]


def test_nonsense_is_the_same_every_time_and_never_twice() -> None:
    queries = [query for sort in abstention.queries().values() for query in sort]
    assert abstention.queries() == abstention.queries()
    assert len(set(queries)) == len(queries) == 60


def test_each_short_question_names_the_note_that_answers_it() -> None:
    notes, questions = abstention.short_haystack()
    assert len(questions) == 36
    assert {place for _, place in questions} == set(range(len(notes.items)))


def test_what_a_memory_stands_for_is_shown_with_it_and_counts_once() -> None:
    places = {"a": 0, "b": 1, "c": 2, "d": 3}
    memories: list[dict[str, Any]] = [
        {"id": "b", "stands_for": ["d", "a"]},
        {"id": "c"},
        {"id": "d"},
        {"id": "unknown"},
    ]
    assert shown_places(memories, places) == [1, 3, 0, 2]
    assert shown_places([], places) == []


def test_a_problem_is_told_without_the_memories_and_in_short() -> None:
    answer = {"memories": [{"content": "x" * 9}], "degraded": True, "error": "y" * 2 * TOLD_CHARACTERS}
    assert told({"memories": [1], "degraded": True}) == '{"degraded": true}'
    assert len(told(answer)) == TOLD_CHARACTERS + 1


def test_what_fails_is_told_and_the_others_go_on_until_several_fail_in_a_row() -> None:
    said: list[str] = []
    run = Run(limit=10, with_abstention=False, with_details=False, say=said.append)

    def fail() -> None:
        with run._spared("project 7"):
            raise OSError("no space")

    for _ in range(FAILURES - 1):
        fail()
    with run._spared("project 8"):
        pass
    for _ in range(FAILURES - 1):
        fail()
    with pytest.raises(Failed, match="no space"):
        fail()
    assert said == run.measurement.problems == ["project 7: OSError('no space')"] * (2 * FAILURES - 1)


def test_an_answer_in_part_is_not_taken_for_whole() -> None:
    assert is_whole({"memories": []})
    assert is_whole({"memories": [], "warnings": [{"code": "no_entity"}]})
    assert not is_whole({"memories": [], "degraded": True})
    assert not is_whole({"memories": [], "warnings": [{"code": "embedding_failed"}]})
    assert not is_whole({"error": "internal_error"})


def test_the_report_has_each_system_and_type() -> None:
    measured = Measurement()
    for system, own in measured.answers.items():
        own.append(Answered("multi-session", ("s2",) if system == "remembrancer" else ("s1",), frozenset({"s2"})))
    measured.recall_ms = [3.0]
    measured.abstention = {"off topic": [True, False]}
    measured.short = [(False, True), (True, False), (False, False), (False, True)]
    reported = report(parse(longmemeval()), measured)
    assert reported["data"]["questions_left_out"] == reported["data"]["passed_over"] == {}
    assert reported["abstention"]["empty"] == 50.0
    assert reported["abstention"]["short_questions"] == {"asked": 4, "empty": 25.0, "found": 50.0}
    assert reported["questions"] == 1
    assert set(reported["systems"]) == {"remembrancer", "bm25", "vectors", "rrf"}
    assert reported["systems"]["remembrancer"]["any@1"] == 100.0
    assert reported["systems"]["bm25"]["any@1"] == 0.0
    assert reported["by_type"]["multi-session"]["systems"]["remembrancer"]["NDCG@10"] == 100.0
    assert reported["recall_ms"] == {"p50": 3.0, "p95": 3.0}
