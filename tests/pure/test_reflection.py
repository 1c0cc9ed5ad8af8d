"""Reflection and the wording of texts: clusters, communities, themes, what says the same, and what replaces what."""

import itertools
import subprocess
import sys
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator import promoting
from remembrancer.actors.consolidator.clusters import BLOCK, Vectors, average_link, central_memory, cluster_memories
from remembrancer.actors.consolidator.derived_memories import THEME_SESSIONS, PatternPlan, plan_patterns
from remembrancer.actors.consolidator.session_end import Edge, find_communities
from remembrancer.memory.likely_replacement import TextPair, probability
from remembrancer.memory.replacement import POSSIBLE, PROBABLE, counted_among, settles
from remembrancer.memory.sentences import cut_at_word, split_sentences
from remembrancer.memory.wording import normalised, same_in_words, stem
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import Kind, type_of_kind
from remembrancer.protocol.runs import Topic
from tests.cases import cases
from tests.pure.memories import memory, rows, with_vectors


def clusters(memories: list[Material], vectors: Vectors, **rules: Any) -> list[tuple[int, ...]]:
    """The places of the members of each cluster, as the ids say them."""
    found = cluster_memories(with_vectors(memories, vectors), **rules)
    return [tuple(int(each.id.partition(":")[2]) for each in cluster) for cluster in found]


def test_what_shares_an_entity_or_a_word_in_another_language_is_a_cluster_and_has_a_centre() -> None:
    vectors = rows([0, 0, 0, 1, 2, 3], cosine=0.4)
    for named, expected in ((range(3), [(0, 1, 2)]), ((), []), (range(6), [])):
        memories = [memory(place, entities=("Redis",) if place in named else ()) for place in range(6)]
        assert clusters(memories, vectors, threshold=0.42) == expected
    apart = [
        "Le mémoire est rédigé en français.",
        "J'ai renommé la clé dans Zotero.",
        "J'ai fait trois cafés et le résumé.",
    ]
    assert clusters([memory(place, text) for place, text in enumerate(apart)], rows([0, 0, 0])) == []
    about = [f"Le mémoire est à rendre le {day} avril." for day in (3, 17, 30)]
    assert clusters([memory(place, text) for place, text in enumerate(about)], rows([0, 0, 0])) == [(0, 1, 2)]
    vectors = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0]], dtype=np.float32)
    for importances, central in (((0.5, 0.5, 0.5), 1), ((1.0, 0.1, 0.1), 0), ((0.1, 0.1, 1.0), 2), ((0, 0, 0), 0)):
        members = [memory(place, importance=float(each)) for place, each in enumerate(importances)]
        assert central_memory(with_vectors(members, vectors)).id == f"memory:{central:04}"


def test_what_everything_has_in_common_is_no_topic_and_very_many_are_taken_in_spans() -> None:
    count = 300
    alike = rows(list(range(count)), cosine=0.0)
    common = np.concatenate([np.sqrt(0.6) * alike, np.full((count, 1), np.sqrt(0.4))], axis=1).astype(np.float32)
    assert clusters([memory(place) for place in range(count)], common) == []
    assert len(clusters([memory(place) for place in range(3)], common[:3])) == 1
    count = BLOCK + 3
    vectors = np.zeros((count, 4), dtype=np.float32)
    vectors[[0, 1, 2], 0] = 1.0
    vectors[-3:, 1] = 1.0
    found = clusters([memory(place) for place in range(count)], vectors)
    assert found == [(0, 1, 2), (BLOCK, BLOCK + 1, BLOCK + 2)]


worlds = st.lists(st.tuples(st.integers(-1, 4), st.sampled_from([(), ("A",), ("A", "B")])), max_size=40)


@given(worlds, st.randoms(use_true_random=False), st.integers(2, 4), st.integers(4, 8))
def test_the_same_memories_make_the_same_clusters_in_whatever_order_they_come(
    world: list[tuple[int, tuple[str, ...]]], random: Random, least: int, most: int
) -> None:
    memories = [memory(place, entities=names) for place, (_, names) in enumerate(world)]
    vectors = rows([topic for topic, _ in world])
    found = clusters(memories, vectors, least=least, most=most)
    order = list(range(len(world)))
    random.shuffle(order)
    assert clusters([memories[place] for place in order], vectors[order], least=least, most=most) == found
    taken = [place for cluster in found for place in cluster]
    assert len(taken) == len(set(taken))
    for cluster in found:
        assert least <= len(cluster) <= most
        assert len({world[place][0] for place in cluster}) == 1


@given(st.integers(2, 24), st.integers(2, 9), st.floats(0.1, 0.9), st.integers(0, 2**32 - 1))
def test_the_quick_agglomeration_does_what_a_plain_one_does(count: int, size: int, threshold: float, seed: int) -> None:
    """Against the definition: at each step the means of all pairs of clusters are worked out anew."""
    drawn = np.random.default_rng(seed).random((count, count))
    table = ((drawn + drawn.T) / 2).astype(np.float32)
    plain = [[place] for place in range(count)]
    while True:
        pairs = [
            (float(table[np.ix_(one, two)].astype(np.float64).mean()), one, two)
            for place, one in enumerate(plain)
            for two in plain[place + 1 :]
            if len(one) + len(two) <= size
        ]
        best = max(pairs, key=lambda each: each[0], default=(-1.0, [], []))
        if best[0] < threshold:
            break
        plain = [each for each in plain if each not in best[1:]] + [sorted(best[1] + best[2])]
    assert average_link(table, threshold, size) == sorted(each for each in plain if len(each) > 1)


# --- Communities of a graph of entities: found, named, bounded, and the same every time.
def clique(prefix: str, size: int) -> list[Edge]:
    names = [f"{prefix}{place}" for place in range(size)]
    return [(one, two, 1) for one, two in itertools.combinations(names, 2)]


def test_two_groups_with_a_bridge_or_without_are_two_communities_named_by_the_best_connected() -> None:
    found = find_communities([*clique("a", 5), *clique("b", 4), ("a0", "b0", 1)])
    assert [len(each.entities) for each in found] == [5, 4]
    assert [set(each.entities) for each in found] == [{f"a{place}" for place in range(5)}, {f"b{n}" for n in range(4)}]
    edges = [("API", name, 2) for name in ("Postgres", "Redis", "JWT")] + [("Postgres", "Redis", 1)]
    (only,) = find_communities(edges)
    assert only == Topic("API, Postgres, Redis", ("API", "Postgres", "Redis", "JWT"))
    assert [each.entities for each in find_communities([("c", "d", 1), ("a", "b", 1)])] == [("a", "b"), ("c", "d")]
    assert find_communities([]) == ()


def test_another_process_finds_the_same() -> None:
    edges = [(f"n{i % 17}", f"m{(i * 7) % 23}", 1 + i % 3) for i in range(120)]
    program = f"from remembrancer.actors.consolidator.session_end import find_communities as f; print(f({edges}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = find_communities(edges)
    assert done.stdout == f"{found}\n"
    assert len(found) > 1


names = st.sampled_from([f"n{place}" for place in range(12)])
graphs = st.dictionaries(
    st.tuples(names, names).filter(lambda pair: pair[0] < pair[1]), st.integers(1, 9), max_size=60
).map(lambda weights: [(*pair, weight) for pair, weight in weights.items()])


@given(graphs, st.randoms(use_true_random=False))
def test_no_name_is_in_two_communities_whatever_the_order_of_edges(edges: list[Edge], random: Random) -> None:
    turned = [(two, one, weight) for one, two, weight in edges]
    random.shuffle(turned)
    found = find_communities(edges)
    assert find_communities(turned) == found
    named = [name for each in found for name in each.entities]
    assert len(named) == len(set(named))
    assert set(named) <= {name for one, two, _ in edges for name in (one, two)}
    assert all(each.label and len(each.entities) > 1 for each in found)


# --- Memories that say the same: the same text however it is written, or nearly the same words.
def test_case_blanks_and_the_mark_at_the_end_make_no_difference() -> None:
    for one, two, is_one in cases("reflection_duplicates", "pairs"):
        assert (normalised(one) == normalised(two)) is is_one, (one, two)


def test_what_two_projects_say_is_found_by_a_look_at_each_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def counted(text: str) -> str:
        looked_at.append(text)
        return normalised(text)

    monkeypatch.setattr(promoting, "normalised", counted)
    mine = [memory(number, f"Ilse wants feature {number}") for number in range(1000)]
    theirs = [
        memory(5000, "Ilse wants feature 7!"),
        memory(5001, "ilse wants  feature 8", valid_until=1.0),
        *(memory(6000 + number, f"Ilse wants menu {number}") for number in range(1000)),
    ]
    found = promoting.held_in_both(mine, theirs, 1e9)
    assert [(one.id, other.id, cosine) for one, other, cosine in found] == [(mine[7].id, theirs[0].id, 1.0)]
    assert len(looked_at) <= len(mine) + len(theirs)


def test_what_says_the_same_as_well_stands_for_a_memory_and_in_two_projects_nearly_the_same_words() -> None:
    texts = ("Ilse wants short commits with a reason", "Ilse wants short commits, each with its reason", "Ada is away")
    one, near, far = with_vectors([memory(place, text) for place, text in enumerate(texts)], rows([0, 0, 1], 0.97))
    assert [other.id for _, other, _ in promoting.held_in_both([one], [far, near], 1e9)] == [near.id]
    text = "The API runs on Postgres"
    one, other = memory(1, text), memory(2, text + ".")
    assert promoting.says_the_same(one, [(other, 0.99)], 10.0, 0.85) == (other, 0.99)
    assert promoting.says_the_same(one, [(other, 0.85)], 10.0, 0.85) is None
    for changes in ({"valid_until": 5.0}, {"derived_from": ("memory:other",)}, {"derived_from": (one.id,)}):
        assert promoting.says_the_same(one, [(memory(2, text, **changes), 0.99)], 10.0, 0.85) is None


def test_a_completion_is_not_merged_into_its_open_end() -> None:
    task, done = memory(1, "Order the kit", kind="open_end"), memory(2, "The kit is ordered")
    assert promoting.says_the_same(done, [(task, 0.99)], 10.0, 0.85) is None
    assert not promoting.held_in_both([memory(3, task.content)], [task], 10.0)


# --- Themes: what comes up in several sessions, where it belongs, and whether it says how to do something.
ERRORS = [
    "The user asked how errors of the client are handled",
    "Errors of the client are handled with a retry",
    "A question about how client errors should be handled",
    "Client errors are handled in one place",
]


def plans(memories: list[Material], topics: list[int]) -> list[PatternPlan]:
    return plan_patterns(with_vectors(memories, rows(topics)), 10.0, "engram")


def in_sessions(texts: list[str], **changes: Any) -> list[Any]:
    return [memory(place, text, session_id=f"session:{place}", **changes) for place, text in enumerate(texts)]


def test_what_comes_up_in_three_sessions_is_a_theme_and_the_most_frequent_comes_first() -> None:
    memories = [*in_sessions(ERRORS), memory(9, "Lunch", session_id="session:9")]
    ((theme, _),) = plans(memories, [0, 0, 0, 0, 1])
    assert theme.frequency == 4
    assert theme.derived_from == ("memory:0000", "memory:0001", "memory:0002", "memory:0003")
    assert theme.pattern in ERRORS
    memories = [memory(place, session_id=f"session:{place}") for place in range(9)]
    found = plans(memories, [0, 1, 1, 0, 1, 0, 1, 2, 2])
    assert [theme.frequency for theme, _ in found] == [4, 3]


def test_what_was_replaced_or_expired_counts_for_no_theme() -> None:
    ended = memory(4, "Errors of the client are handled once", session_id="session:4")
    for at, frequency in ((5.0, 4), (None, 5)):
        said = [*in_sessions(ERRORS), msgspec.structs.replace(ended, valid_until=at)]
        assert [theme.frequency for theme, _ in plans(said, [0] * 5)] == [frequency], at


def test_a_theme_keeps_its_procedure_when_one_of_its_memories_is_replaced() -> None:
    steps = in_sessions(ERRORS, kind="procedure", type="procedural")
    procedure = msgspec.structs.replace(steps[0], id="memory:made", derived_from=("memory:0000",))
    steps[0] = msgspec.structs.replace(steps[0], valid_until=1.0)
    later = msgspec.structs.replace(steps[3], id="memory:0005", session_id="session:5", created_at=5.0)
    ((theme, derived),) = plans([procedure, *steps, later], [0] * 6)
    assert (theme.memory_id, derived) == ("memory:made", None)
    assert theme.derived_from == ("memory:0001", "memory:0002", "memory:0003", "memory:0005")
    assert plans([procedure, *steps[:3]], [0] * 4) == [], "the procedure's session is no third one"


def test_what_holds_anywhere_belongs_to_the_user_and_how_something_is_done_becomes_a_procedure() -> None:
    specific = " in src/client.py"
    themes: tuple[tuple[Kind, str, str], ...] = (
        ("preference", specific, "user"),
        ("fact", "", "user"),
        ("fact", specific, "project"),
        ("observation", "", "project"),
    )
    for kind, ending, scope in themes:
        ((theme, _),) = plans(
            in_sessions([text + ending for text in ERRORS], kind=kind, type=type_of_kind(kind)), [0] * 4
        )
        assert theme.suggested_scope == scope
    for second, is_procedure in (("error_fix", True), ("observation", False)):
        kinds = ("procedure", second, "observation")
        said = [
            msgspec.structs.replace(each, kind=kind) for each, kind in zip(in_sessions(ERRORS[:3]), kinds, strict=True)
        ]
        ((_, derived),) = plans(said, [0] * 3)
        assert (derived is not None) is is_procedure


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=30))
def test_a_theme_counts_its_sessions_and_no_memory_is_in_two(world: list[tuple[int, int]]) -> None:
    memories = [memory(place, session_id=f"session:{session}") for place, (_, session) in enumerate(world)]
    patterns = [theme for theme, _ in plans(memories, [topic for topic, _ in world])]
    taken = [name for each in patterns for name in each.derived_from]
    assert len(taken) == len(set(taken))
    sessions = {each.id: each.session_id for each in memories}
    for pattern in patterns:
        assert pattern.frequency == len({sessions[name] for name in pattern.derived_from}) >= THEME_SESSIONS
        assert pattern.pattern


# --- The wording of texts: sentences, stems, which say the same, and which replaces which.
@pytest.mark.parametrize(("text", "sentences"), cases("reflection_summaries", "sentences"))
def test_a_text_is_split_where_its_sentences_end(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@given(st.text(max_size=200), st.integers(1, 90))
def test_every_letter_of_a_text_is_in_one_of_its_sentences_and_it_is_cut_to_a_beginning(text: str, length: int) -> None:
    sentences = split_sentences(text)
    letters = [character for character in text if character.isalpha()]
    assert [character for each in sentences for character in each if character.isalpha()] == letters
    assert all(each in text and each == each.strip() for each in sentences)
    cut = cut_at_word(text, length)
    assert text.startswith(cut)
    assert len(cut) <= length


def test_the_forms_of_a_word_have_one_stem_and_what_only_looks_like_a_form_is_left_alone() -> None:
    for forms in cases("reflection_summaries", "stems"):
        assert len({stem(each) for each in forms}) == 1, forms
    words = ["redis", "status", "class", "string", "need", "speed", "3.11", "缓存", "aws"]
    assert [stem(each) for each in words] == words


# --- Which texts say the same, and which only nearly.
@pytest.mark.parametrize("sort", ["same", "different"])
def test_the_same_words_say_the_same_also_with_a_part_moved_to_the_front(sort: str) -> None:
    for one, other in cases("sameness", sort):
        assert same_in_words(one, other) is same_in_words(other, one) is (sort == "same"), (one, other)


@given(st.text(max_size=80), st.text(max_size=80), st.sampled_from([".", " !"]))
def test_a_text_says_the_same_as_its_copy_whichever_comes_first(one: str, other: str, end: str) -> None:
    assert same_in_words(one, other) == same_in_words(other, one)
    assert same_in_words(one, f" {one}{end}") or not any(each.isalnum() for each in one)
    assert normalised(normalised(one)) == normalised(one)


# --- The probability that a later text replaces an earlier one.
LATER_S = 3 * 86_400.0


def chance(earlier: str, later: str, cosine: float = 0.9, apart_s: float = LATER_S) -> float:
    return probability(TextPair(earlier, later, cosine, apart_s, (0.5,), (0.5,)))


BOUNDS = {
    "replaces": (PROBABLE, 1.0),
    "asked": (POSSIBLE, PROBABLE),
    "may": (0.0, PROBABLE),
    "does not": (0.0, POSSIBLE),
}


def test_another_value_of_one_thing_and_a_rule_of_one_slot_probably_replace_the_first_and_two_things_do_not() -> None:
    for earlier, later, cosine, apart_s, replaces in cases("replacement", "pairs"):
        least, below = BOUNDS[replaces]
        assert least <= chance(earlier, later, cosine, apart_s) < below, (earlier, later)


def test_a_text_settles_an_open_end_if_it_reports_most_of_it_as_done_or_cancelled() -> None:
    for open_end, later, is_settled in cases("replacement", "settled"):
        assert settles(later, open_end) is is_settled, (open_end, later)


def test_another_text_that_is_nearer_to_both_is_rather_meant() -> None:
    branch = "The default branch is master", "The default branch is main"
    near, nearer = (probability(TextPair(*branch, 0.6, LATER_S, each, each)) for each in ((0.3,), (0.7,)))
    assert near > PROBABLE > nearer


def test_figures_written_differently_are_no_series() -> None:
    figures = "11", "12", "12.5", "13", "1,200"
    assert counted_among(f"The build takes {each} minutes" for each in figures) == frozenset()
    assert len(counted_among(f"Sprint {each} was late" for each in range(4))) == 4


@given(st.text(max_size=60), st.text(max_size=60), st.floats(-1.0, 1.0), st.floats(0.0, 1e9))
def test_any_two_texts_have_a_probability(earlier: str, later: str, cosine: float, apart_s: float) -> None:
    assert 0.0 <= chance(earlier, later, cosine, apart_s) < 1.0
