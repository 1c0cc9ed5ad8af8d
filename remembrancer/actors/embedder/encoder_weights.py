"""The weights of the encoders. Their graphs are files without weights, written by `release/encoder_graphs.py`."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from numpy.typing import NDArray

PRECISION: Final = "w7a8"
"""7-bit weights and 8-bit activations. Change it with any rule that affects vectors, since others are not compared."""
LARGEST_WEIGHT: Final = 63
"""Seven bits instead of eight: x86 processors without VNNI add two products of a uint8 and an int8 in 16 bits with
saturation, and 2 * 255 * 63 fits there. So all processors compute the same vectors. (onnxruntime's
`session.x64quantprecision` would allow eight bits, but makes processors with VNNI half as fast.)"""

Floats = NDArray[np.float32]


class Product(NamedTuple):
    """A matrix of the encoder, as integers: one row for each input, and a scale and a bias for each output."""

    weights: NDArray[np.int8]
    scales: Floats
    bias: Floats


class EncoderWeights(Protocol):
    """Weights are named `emb.ln` or, prefixed with the layer number as in `l0.q`: `q`, `k`, `v`, `ao` (attention
    output), `aln` (the norm after it), `fi` and `fo` (input and output of the inner layer), and `oln`."""

    layers: int

    def embeddings(self, ids: NDArray[np.int64]) -> Floats:
        """For each of these tokens (one dimension), the sum of its token, position and type embeddings."""

    def norm(self, name: str) -> tuple[Floats, Floats]:
        """The factors and the bias of a layer norm."""

    def product(self, name: str) -> Product: ...


def graph_of(model: str) -> Path:
    """The file with a model's graph, which computes each token's last hidden state from `embeddings`."""
    return Path(__file__).parent / "data" / f"{model}.onnx"


def constants_of(model: EncoderWeights) -> dict[str, NDArray[Any]]:
    """The weights of a model by their names in its graph, where the products of `q`, `k` and `v` are combined."""
    constants: dict[str, NDArray[Any]] = {}
    layers = [f"l{layer}." for layer in range(model.layers)]
    for name in ("emb.ln", *(layer + part for layer in layers for part in ("aln", "oln"))):
        constants[f"{name}.w"], constants[f"{name}.b"] = model.norm(name)
    for name, *others in (
        [layer + part for part in parts] for layer in layers for parts in ("qkv", ["ao"], ["fi"], ["fo"])
    ):
        weights, scales, bias = map(np.hstack, zip(*map(model.product, [name, *others]), strict=True))
        constants |= {f"{name}.w": weights, f"{name}.scale": scales, f"{name}.b": bias}
        constants[f"{name}.zero"] = np.zeros(len(bias), np.int8)
    return constants


def narrowed(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """The matrix as integers within ±LARGEST_WEIGHT, and each column's scale."""
    widest = np.abs(matrix).max(axis=0)
    widest[widest == 0.0] = 1.0
    return np.rint(matrix * (LARGEST_WEIGHT / widest)).astype(np.int8), widest / LARGEST_WEIGHT


class MiniLM:
    """The weights of all-MiniLM-L6-v2 from the packaged file: int8, with a scale for each row of the embeddings and
    each column of a product. A sentence's vector has a cosine of 0.98 to 0.99 with that of the original model. Each
    weight can be read only once. Raises protobuf's `DecodeError`."""

    layers = 6
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
        self._constants = _constants_in(content)
        # The products have no names in the file; their order identifies them.
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
        rows: Floats = self._words[ids] * self._word_scales[ids] + self._type + self._places[: len(ids)]
        return rows

    def norm(self, name: str) -> tuple[Floats, Floats]:
        own = self._own(name)
        return self._constants.pop(f"{own}.weight"), self._constants.pop(f"{own}.bias")

    def product(self, name: str) -> Product:
        matrix = self._matrices[name]
        weights, steps = narrowed(self._constants.pop(matrix).astype(np.float32))
        scales = self._constants.pop(f"{matrix.removesuffix('_q')}_scale")[0]
        return Product(weights, scales * steps, self._constants.pop(f"{self._own(name)}.bias"))

    def _own(self, name: str) -> str:
        if name == "emb.ln":
            return "inner.embeddings.LayerNorm"
        layer, _, part = name[1:].partition(".")
        return f"inner.encoder.layer.{layer}.{self._NAMES[part]}"


_DATA_TYPES: Final = {1: "<f4", 3: "|i1", 7: "<i8"}
"""NumPy's names for values of `TensorProto.DataType`."""
_ONNX: Final = """
name: "onnx_read.proto" package: "onnx_read"
message_type {
    name: "Tensor"
    field { name: "dims" number: 1 label: LABEL_REPEATED type: TYPE_INT64 }
    field { name: "data_type" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
    field { name: "name" number: 8 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "raw_data" number: 9 label: LABEL_OPTIONAL type: TYPE_BYTES }
}
message_type {
    name: "Graph"
    field { name: "initializer" number: 5 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".onnx_read.Tensor" }
}
message_type {
    name: "Model"
    field { name: "graph" number: 7 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".onnx_read.Graph" }
}
"""
"""The fields of `onnx.proto` that are read. Listing them here makes the package `onnx` unnecessary."""


def _constants_in(content: bytes) -> dict[str, NDArray[Any]]:
    """The float32 and integer constants of an ONNX file, by name, in the order of the file."""
    return {
        each.name: np.frombuffer(each.raw_data, _DATA_TYPES[each.data_type]).reshape(each.dims)
        for each in _model_class().FromString(content).graph.initializer
        if each.data_type in _DATA_TYPES and each.raw_data
    }


@cache
def _model_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_ONNX, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("onnx_read.Model"))
