"""The graph of a BERT encoder with integer matrix products, made from a model's weights in less than 0.1 s.

onnxruntime would expand weights of 4 or 8 bits to float32 when it loads a file with them: the products of a text with
the weights are then most of the work. `DynamicQuantizeMatMul` takes the weights as they are, and quantises the
activations at run time. All rows of one product share one scale: several texts in a batch would change each other's
vectors, so texts go through the graph one by one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.embedder.onnx_file import MICROSOFT, add_constant, add_node, constants_of, declare, new_model

PRECISION: Final = "w7a8"
"""The precision of the vectors: weights of 7 bits, activations of 8. Change it with any rule that changes the vectors,
since vectors of different precisions are not compared."""
LARGEST_WEIGHT: Final = 63
"""Seven bits instead of eight: x86 processors without VNNI add two products of a uint8 and an int8 in 16 bits with
saturation, and 2 * 255 * 63 fits there. So all processors make the same vectors. (With onnxruntime's
`session.x64quantprecision` eight bits would do, but it also slows down processors with VNNI, by a half.)"""
_OPSET, _IR_VERSION = 17, 8

Floats = NDArray[np.float32]


class Product(NamedTuple):
    """A matrix of the encoder: integers with a row for each input; a scale and a bias for each output."""

    weights: NDArray[np.int8]
    scales: Floats
    bias: Floats


class EncoderWeights(Protocol):
    """The weights of a model. Names are `emb.ln`, and with the number of a layer `l0.q`, `k`, `v`, `ao` (the
    attention's output), `aln` (the norm after it), `fi`, `fo` (in and out of the inner layer) and `oln`."""

    width: int
    layers: int
    heads: int
    epsilon: float
    attends_at_once: bool
    """True: use onnxruntime's single attention operator, which is faster by a fifth and rounds differently."""

    def embeddings(self, ids: NDArray[np.int64]) -> Floats:
        """The sum of the embeddings of these tokens (one dimension), of their positions and of their type."""

    def norm(self, name: str) -> tuple[Floats, Floats]:
        """The factors and the bias of a layer norm."""

    def product(self, name: str) -> Product:
        """A matrix with its scales and bias."""


def narrowed(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """The matrix as integers within ±LARGEST_WEIGHT, and each column's scale."""
    widest = np.abs(matrix).max(axis=0)
    widest[widest == 0.0] = 1.0
    return np.rint(matrix * (LARGEST_WEIGHT / widest)).astype(np.int8), widest / LARGEST_WEIGHT


def encoder_graph(model: EncoderWeights) -> bytes:
    """The encoder as an ONNX file: from a text's `embeddings` to each token's state in the last layer."""
    file = new_model(_OPSET, _IR_VERSION)
    graph = file.graph

    def normalised(values: str, name: str) -> str:
        parts = [
            add_constant(graph, f"{name}.{part}", numbers) for part, numbers in zip("wb", model.norm(name), strict=True)
        ]
        return add_node(graph, "LayerNormalization", [values, *parts], f"{name}.out", epsilon=model.epsilon, axis=-1)

    def product(values: str, *parts: str) -> str:
        weights, scales, bias = map(np.hstack, zip(*map(model.product, parts), strict=True))
        constants = {"w": weights, "scale": scales, "zero": np.zeros(weights.shape[1], np.int8), "b": bias}
        names = [add_constant(graph, f"{parts[0]}.{name}", numbers) for name, numbers in constants.items()]
        return add_node(graph, "DynamicQuantizeMatMul", [values, *names], f"{parts[0]}.out", domain=MICROSOFT)

    state = normalised(declare(graph.input, "embeddings", 1, "tokens", model.width), "emb.ln")
    attend = _attend_at_once if model.attends_at_once else _attend_in_steps
    for name in (f"l{layer}." for layer in range(model.layers)):
        heads = [f"{name}head.{part}" for part in "qkv"]
        add_node(graph, "Split", [product(state, f"{name}q", f"{name}k", f"{name}v")], *heads, axis=-1)
        attended = product(attend(graph, heads, f"{name}attended", model), f"{name}ao")
        state = normalised(add_node(graph, "Add", [state, attended], f"{name}mixed"), f"{name}aln")
        wide = add_node(graph, "Gelu", [product(state, f"{name}fi")], f"{name}wide", domain=MICROSOFT)
        added = add_node(graph, "Add", [state, product(wide, f"{name}fo")], f"{name}added")
        state = normalised(added, f"{name}oln")
    declare(graph.output, state, 1, "tokens", model.width)
    content: bytes = file.SerializeToString()
    return content


def _attend_at_once(graph: Any, heads: list[str], name: str, model: EncoderWeights) -> str:
    return add_node(graph, "MultiHeadAttention", heads, name, domain=MICROSOFT, num_heads=model.heads)


def _attend_in_steps(graph: Any, heads: list[str], name: str, model: EncoderWeights) -> str:
    """The attention of the default model's own file: each factor is divided by the fourth root of the heads' width."""
    each = model.width // model.heads
    shape = add_constant(graph, f"{name}.heads", np.array([1, -1, model.heads, each]))
    flat = add_constant(graph, f"{name}.flat", np.array([1, -1, model.width]))
    scale = add_constant(graph, f"{name}.scale", np.array(each**-0.25, np.float32))
    turned: list[str] = []
    for head, order in zip(heads, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True):
        rows = add_node(graph, "Reshape", [head, shape], f"{head}.rows")
        turned.append(add_node(graph, "Transpose", [rows], f"{head}.turned", perm=order))
    factors = [add_node(graph, "Mul", [each, scale], f"{each}.scaled") for each in turned[:2]]
    weights = add_node(graph, "Softmax", [add_node(graph, "MatMul", factors, f"{name}.by")], f"{name}.soft", axis=-1)
    mixed = add_node(graph, "MatMul", [weights, turned[2]], f"{name}.mixed")
    rows = add_node(graph, "Transpose", [mixed], f"{name}.rows", perm=[0, 2, 1, 3])
    return add_node(graph, "Reshape", [rows, flat], name)


class MiniLM:
    """The weights of all-MiniLM-L6-v2 from the packaged file: int8, with a scale for each row of the embeddings and
    each column of a product. A sentence's vector has a cosine of 0.98 to 0.99 with that of the unchanged file. Each
    weight is returned once, and not kept. The words' rows are read from the file when they are needed.

    Raises:
        google.protobuf.message.DecodeError: the content is not an ONNX file.
    """

    width, layers, heads, epsilon = 384, 6, 12, 1e-12
    attends_at_once = False
    _NAMES: Final[Mapping[str, str]] = {
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "ao": "attention.output.dense",
        "aln": "attention.output.LayerNorm",
        "fi": "intermediate.dense",
        "fo": "output.dense",
        "oln": "output.LayerNorm",
    }

    def __init__(self, file: Path) -> None:
        content = file.read_bytes()
        self._constants = constants_of(content)
        # The products are unnamed in the file, and are identified by their order.
        matrices = [name for name in self._constants if name.startswith("val_") and name.endswith("_q")]
        products = [f"l{layer}.{part}" for layer in range(self.layers) for part in ("q", "k", "v", "ao", "fi", "fo")]
        self._matrices = dict(zip(products, matrices, strict=True))
        words = self._constants.pop("inner.embeddings.word_embeddings.weight_q")
        self._words = np.memmap(file, words.dtype, "r", content.index(words.data), words.shape)
        self._word_scales = self._constants["inner.embeddings.word_embeddings.weight_scale"]
        places = "inner.embeddings.position_embeddings.weight"
        self._places = self._constants[f"{places}_q"] * self._constants[f"{places}_scale"]
        self._type = self._constants["inner.embeddings.token_type_embeddings.weight"][0]

    def embeddings(self, ids: NDArray[np.int64]) -> Floats:
        """See `EncoderWeights`."""
        rows: Floats = self._words[ids] * self._word_scales[ids] + self._type + self._places[: len(ids)]
        return rows

    def norm(self, name: str) -> tuple[Floats, Floats]:
        """See `EncoderWeights`."""
        own = self._own(name)
        return self._constants.pop(f"{own}.weight"), self._constants.pop(f"{own}.bias")

    def product(self, name: str) -> Product:
        """See `EncoderWeights`."""
        matrix = self._matrices[name]
        weights, steps = narrowed(self._constants.pop(matrix).astype(np.float32))
        scales = self._constants.pop(f"{matrix.removesuffix('_q')}_scale")[0]
        return Product(weights, scales * steps, self._constants.pop(f"{self._own(name)}.bias"))

    def _own(self, name: str) -> str:
        if name == "emb.ln":
            return "inner.embeddings.LayerNorm"
        layer, _, part = name[1:].partition(".")
        return f"inner.encoder.layer.{layer}.{self._NAMES[part]}"
